#include "engine/model_config.h"

#include <algorithm>
#include <fstream>

#include <fmt/format.h>

#include "engine/engine.h"
#include "expectation/model_size.h"

namespace shardscope {
namespace {

using Json = nlohmann::json;

// Names of Hugging Face: "...layers.7.mlp.experts.12.up_proj.weight".
Status checkCounts(const Json& config, const std::string& file, const Catalog& target,
                   std::vector<PlanLeftOut>& impossible) {
    const ModelSize size = modelSizeOf(config);
    if (!size.layers)
        return makeError(ErrorCode::usage, "the config.json does not say how many layers the model has")
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

}  // namespace

Json parseConfig(const std::string& text) {
    // Depth is bounded before the parser sees it.
    int depth = 0;
    for (const char c : text) {
        depth += c == '{' || c == '[' ? 1 : c == '}' || c == ']' ? -1 : 0;
        if (depth > 64) return {};
    }
    Json config = Json::parse(text, nullptr, false);
    return config.is_object() ? config : Json();
}

Json readConfig(const std::string& directory) {
    std::ifstream in(directory + "/config.json", std::ios::binary);
    if (!in) in.open(directory + "/params.json", std::ios::binary);  // of Meta's checkpoints
    std::string text(kMostConfig, '\0');
    in.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<size_t>(in.gcount()));
    if (text.empty() || text.size() == kMostConfig) return {};
    return parseConfig(text);
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
    const Json config = readConfig(directory);
    if (config.is_object()) return checkCounts(config, directory + "/config.json", target, impossible);
    if (weights.error().code != ErrorCode::unsupported) return weights.error();
    return makeError(ErrorCode::usage, "there are neither weights nor a config.json to expect")
        .inFile(directory)
        .withHint("--expect takes the directory of a Hugging Face model, or any checkpoint");
}

}  // namespace shardscope
