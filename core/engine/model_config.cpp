#include "engine/model_config.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/numbers.h"
#include "base/option_words.h"
#include "engine/engine.h"
#include "expectation/model_size.h"
#include "storage/open_files.h"

namespace shardscope {
namespace {

using Json = nlohmann::json;

// Names of Hugging Face: "...layers.7.mlp.experts.12.up_proj.weight".
Status checkCounts(const Json& config, const std::string& file, const Catalog& target,
                   std::vector<PlanLeftOut>& impossible) {
    const ModelSize size = modelSizeOf(config);
    if (!size.layers)
        return makeError(ErrorCode::usage, "the configuration does not say how many layers the model has")
            .inFile(file);
    for (Note& note : modelSizeNotes(size, file, target, Counted::exactly))
        impossible.push_back({std::move(note.tensor), std::move(note.message)});
    return {};
}

void checkNames(const std::string& directory, const Catalog& expected, const Catalog& target,
                std::vector<PlanLeftOut>& impossible) {
    for (TensorId e = 0; e < expected.tensorCount(); ++e) {
        const TensorId t = target.find(expected.name(e));
        if (t == kNone)
            impossible.push_back({std::string(expected.name(e)),
                                  fmt::format("'{}' has it, nothing of the source becomes it", directory)});
        else if (!std::ranges::equal(target.shape(t), expected.shape(e)))
            impossible.push_back({std::string(expected.name(e)),
                                  fmt::format("its shape is {}, '{}' has {}", formatDims(target.shape(t)),
                                              directory, formatDims(expected.shape(e)))});
    }
    for (TensorId t = 0; t < target.tensorCount(); ++t) {
        if (expected.find(target.name(t)) == kNone)
            impossible.push_back(
                {std::string(target.name(t)), fmt::format("'{}' does not have it", directory)});
    }
}

Json parseJson(const std::string& text) {
    // Depth is bounded before the parser sees it.
    int depth = 0;
    for (const char c : text) {
        depth += c == '{' || c == '[' ? 1 : c == '}' || c == ']' ? -1 : 0;
        if (depth > 64) return {};
    }
    return Json::parse(text, nullptr, false);
}

std::string_view takeLine(std::string_view& text) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(text.size(), end + 1));
    while (line.ends_with('\r') || line.ends_with(' '))
        line.remove_suffix(1);
    return line;
}

// "  num_layers: 4" of a block that is indented once; those of `peft` are inside of that name.
Json parseRunConfig(std::string_view text) {
    Json model;
    std::string section;
    size_t indent = 0;  // of the section's own entries
    while (!text.empty()) {
        const std::string_view line = takeLine(text);
        const size_t at = line.find_first_not_of(' ');
        if (at == line.npos || line[at] == '#') continue;
        if (at == 0) {
            section = line;
            indent = 0;
        }
        if ((section != "model:" && section != "peft:") || at == 0) continue;
        if (indent == 0) indent = at;
        const size_t colon = line.find(": ", at);
        if (at != indent || colon == line.npos) continue;
        const std::string key(line.substr(at, colon - at));
        const std::string_view value = line.substr(line.find_first_not_of(' ', colon + 1));
        Json& entry = section == "model:" ? model[key] : model["peft"][key];
        if (const auto number = parseNumber<int64_t>(value))
            entry = *number;
        else if (value == "true" || value == "false")
            entry = value == "true";
    }
    return model;
}

}  // namespace

Json parseConfig(std::string_view file, const std::string& text) {
    Json config = file.ends_with(".yaml") ? parseRunConfig(text) : parseJson(text);
    return config.is_object() ? config : Json();
}

StatedConfig readConfig(const Directory& directory) {
    for (const char* name : {"config.json", "params.json", kRunConfig, "args.json"}) {
        const std::string text = smallFile(directory, name, kMostConfig);
        if (!text.empty()) return {parseConfig(name, text), name};
    }
    return {};
}

std::string modelTypeOf(const StatedConfig& config) {
    if (!config.values.is_object()) return {};
    const auto found = config.values.find("model_type");
    return found != config.values.end() && found->is_string() ? found->get<std::string>() : std::string();
}

std::shared_ptr<const StatedConfig> statedConfig(const Checkpoint& checkpoint, const std::string& model) {
    const auto own = checkpoint.fileSystem ? checkpoint.fileSystem : systemFileSystem();
    const std::string directory = directoryOf(checkpoint);
    for (const std::string& place : {directory, joinPath(directory, "huggingface")}) {
        const auto opened = own->openDirectory(place);
        if (!opened.ok()) continue;
        StatedConfig config = readConfig(**opened);
        if (config.values.is_object()) return std::make_shared<const StatedConfig>(std::move(config));
    }
    const bool named = !model.empty() && model != "auto" && model != "none";
    const auto place = named ? sourceFor(model) : Result<Source>(Source());
    if (!named || !place.ok() || !place->directory) return std::make_shared<const StatedConfig>();
    return std::make_shared<const StatedConfig>(readConfig(*place->directory));
}

// Source: megatron/training/checkpointing.py, generate_state_dict; common_state since core 0.19.
Json argumentsIn(const Catalog& catalog, const std::function<Result<Value>(ObjectId)>& value) {
    for (ObjectId o = 0; o < catalog.objects().size(); ++o) {
        const std::string& name = catalog.objects()[o].name;
        const bool state = name.starts_with("common_state/");
        if (name != "args" && name != "common.args" && !state) continue;
        const auto read = value(o);
        if (!read.ok() || !*read) continue;
        const ValueGraph& graph = *read->graph;
        NodeId node = read->node;
        for (int i = 0;
             i < 2 && state && graph.kind(node) == ValueKind::list && graph.items(node).size() == 1; ++i)
            node = graph.items(node)[0];
        if (state) node = graph.find(node, "args");
        if (node == kNoNode) continue;
        if (graph.kind(node) == ValueKind::object && graph.object(node).state != kNoNode)
            node = graph.object(node).state;
        if (!graph.isMapping(node)) continue;
        Json numbers = Json::object();
        const auto pairs = graph.pairs(node);
        for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
            if (graph.kind(pairs[i]) != ValueKind::text) continue;
            const NodeId item = pairs[i + 1];
            const std::string key(graph.text(pairs[i]));
            if (graph.kind(item) == ValueKind::integer) numbers[key] = graph.integer(item);
            if (graph.kind(item) == ValueKind::boolean) numbers[key] = graph.boolean(item);
        }
        return numbers;
    }
    return {};
}

std::optional<int64_t> integerOf(const Json& value) {
    if (value.is_number_integer()) return value.get<int64_t>();
    if (value.is_boolean()) return value.get<bool>() ? 1 : 0;
    return std::nullopt;
}

std::optional<int64_t> numberIn(const Json& config, const std::string& key) {
    if (!config.is_object()) return std::nullopt;
    if (const auto found = config.find(key); found != config.end()) return integerOf(*found);
    const Json* inner = &config;
    for (std::string_view rest = key; !rest.empty();) {
        const size_t dot = rest.find('.');
        const auto found = inner->is_object() ? inner->find(rest.substr(0, dot)) : inner->end();
        if (!inner->is_object() || found == inner->end()) return std::nullopt;
        inner = &*found;
        rest = dot == std::string_view::npos ? std::string_view() : rest.substr(dot + 1);
    }
    return integerOf(*inner);
}

Status checkExpected(const std::string& directory, const Catalog& target, const StopToken& stop,
                     std::vector<PlanLeftOut>& impossible) {
    CheckpointOptions options;
    options.open.stop = stop;
    const auto weights = openCheckpoint(directory, options);
    if (weights.ok()) {
        checkNames(directory, weights->catalog(), target, impossible);
        return {};
    }
    const auto place = sourceFor(directory);
    const StatedConfig config = place.ok() ? readConfig(*place->directory) : StatedConfig();
    if (config.values.is_object())
        return checkCounts(config.values, joinPath(directory, config.file), target, impossible);
    if (weights.error().code != ErrorCode::unsupported) return weights.error();
    return makeError(ErrorCode::usage, "there are neither weights nor a config.json to expect")
        .inFile(directory)
        .withHint(option("expect") + " takes the directory of a Hugging Face model, or any checkpoint");
}

}  // namespace shardscope
