#include "engine/model_config.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/numbers.h"
#include "base/regular_expression.h"
#include "engine/engine.h"

namespace shardscope {
namespace {

using Json = nlohmann::json;

// The first of the keys that the configuration has, of the language model where it has several.
std::optional<int64_t> firstOf(const Json& config, std::initializer_list<const char*> keys) {
    for (const std::string inside : {"", "text_config."}) {
        for (const char* key : keys)
            if (const auto found = numberIn(config, inside + key)) return found;
    }
    return std::nullopt;
}

// Which of 0 to count-1 are not there, as "3, 5, 6 and 12 more".
std::string missingOf(const std::set<int64_t>& found, int64_t count) {
    std::vector<int64_t> some;
    int64_t missing = 0;
    for (int64_t i = 0; i < count; ++i) {
        if (found.contains(i)) continue;
        if (++missing <= 5) some.push_back(i);
    }
    if (missing == 0) return {};
    return fmt::format("{}{}", fmt::join(some, ", "),
                       missing > 5 ? fmt::format(" and {} more", missing - 5) : "");
}

constexpr int64_t kMostCounted = 1 << 20;  // a configuration is data from outside

// Names of Hugging Face: "...layers.7.mlp.experts.12.up_proj.weight".
Status checkCounts(const Json& config, const std::string& file, const Catalog& target,
                   std::vector<PlanLeftOut>& impossible) {
    const auto layers = firstOf(config, {"num_hidden_layers", "n_layer", "n_layers"});
    const auto experts = firstOf(config, {"num_experts", "num_local_experts", "n_routed_experts"});
    const auto rows = firstOf(config, {"vocab_size"});
    // Layers that predict further tokens come after the others.
    const int64_t further = firstOf(config, {"num_nextn_predict_layers"}).value_or(0);
    if (!layers || *layers < 0 || *layers > kMostCounted || experts.value_or(0) < 0 ||
        experts.value_or(0) > kMostCounted || further < 0 || further > kMostCounted)
        return makeError(ErrorCode::usage, "the config.json does not say how many layers the model has")
            .inFile(file);
    SHARDSCOPE_ASSIGN(const auto layerPattern,
                      RegularExpression::parse("(?:.*\\.)?(?:layers|h)\\.([0-9]+)\\..*"));
    SHARDSCOPE_ASSIGN(const auto expertPattern, RegularExpression::parse("(.*\\.experts)\\.([0-9]+)\\.(.*)"));
    SHARDSCOPE_ASSIGN(const auto stackedPattern,
                      RegularExpression::parse(".*\\.experts\\.[a-z_]+(?:_bias|_blocks|_scales)?"));
    SHARDSCOPE_ASSIGN(const auto vocabularyPattern,
                      RegularExpression::parse("(?:.*\\.)?(?:embed_tokens|wte|lm_head)\\.weight"));
    std::set<int64_t> foundLayers;
    std::map<std::pair<std::string, std::string>, std::set<int64_t>> foundExperts;
    std::vector<std::string_view> groups;
    for (TensorId t = 0; t < target.tensorCount(); ++t) {
        const std::string name(target.name(t));
        const DimSpan shape = target.shape(t);
        if (layerPattern.matchWhole(name, groups)) {
            const int64_t layer = parseNumber<int64_t>(groups[1]).value_or(-1);
            foundLayers.insert(layer);
            if (layer < 0 || layer >= *layers + further)
                impossible.push_back({name, fmt::format("'{}' has {} layers", file, *layers)});
        }
        if (experts && expertPattern.matchWhole(name, groups)) {
            const int64_t expert = parseNumber<int64_t>(groups[2]).value_or(-1);
            foundExperts[{std::string(groups[1]), std::string(groups[3])}].insert(expert);
            if (expert < 0 || expert >= *experts)
                impossible.push_back({name, fmt::format("'{}' has {} experts", file, *experts)});
        } else if (experts && stackedPattern.matchesWhole(name) && (shape.empty() || shape[0] != *experts)) {
            impossible.push_back({name, fmt::format("its shape is {}, '{}' has {} experts", formatDims(shape),
                                                    file, *experts)});
        }
        if (rows && vocabularyPattern.matchesWhole(name) && (shape.empty() || shape[0] != *rows))
            impossible.push_back({name, fmt::format("its shape is {}, '{}' has a vocabulary of {}",
                                                    formatDims(shape), file, *rows)});
    }
    if (const std::string missing = missingOf(foundLayers, *layers); !missing.empty())
        impossible.push_back(
            {"", fmt::format("no tensor of layer {}, of which '{}' has {}", missing, file, *layers)});
    for (const auto& [names, found] : foundExperts) {
        if (const std::string missing = missingOf(found, *experts); !missing.empty())
            impossible.push_back(
                {fmt::format("{}.N.{}", names.first, names.second),
                 fmt::format("no tensor of expert {}, of which '{}' has {}", missing, file, *experts)});
    }
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
