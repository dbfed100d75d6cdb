#include "formats/paddle_nlp/model_meta.h"

#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/rule.h"
#include "base/units.h"
#include "formats/paddle_nlp/names.h"

namespace shardscope::paddle_nlp {

namespace {

using Ordered = nlohmann::ordered_json;
using Json = Ordered;
constexpr int kMaxDepth =
    16;  // nlohmann's parser keeps a stack of its own; its values are destroyed level by level

// A document whose objects have no key twice. Objects of nlohmann's that keep their order look for a key from
// the first to the last.
template <class Json = Ordered>
Result<Json> parse(std::string_view text, std::string_view what) {
    std::vector<std::set<std::string>> keys;
    std::string twice;
    bool deep = false;
    using Event = typename Json::parse_event_t;
    const auto watch = [&](int depth, Event event, Json& value) {
        if (depth > kMaxDepth) deep = true;
        if (event == Event::object_start) {
            keys.emplace_back();
        } else if (event == Event::object_end) {
            keys.pop_back();
        } else if (event == Event::key && twice.empty()) {
            const std::string key = value.template get<std::string>();
            if (!keys.back().insert(key).second) twice = key;
        }
        return !deep;
    };
    try {
        Json document = Json::parse(text.begin(), text.end(), watch);
        if (deep)
            return damaged(fmt::format("{} is nested deeper than {}", what, counted(kMaxDepth, "level")), 0);
        if (!twice.empty())
            return damaged(fmt::format("{} has the key '{}' twice in one object", what, twice), 0)
                .byRule(rule::metaDuplicate);
        if (!document.is_object()) return damaged(fmt::format("{} is not a JSON object", what), 0);
        return document;
    } catch (const typename Json::parse_error& error) {
        // The parser counts the byte after the last one that it took.
        const uint64_t at = error.byte > 0 ? error.byte - 1 : 0;
        const bool ended = at >= text.size();
        Error out =
            damaged(fmt::format("{} is not valid JSON{}", what, ended ? ": it ends too early" : ""), at);
        return ended ? std::move(out).byRule(rule::fileTruncated) : std::move(out);
    } catch (const typename Json::exception& error) {
        return damaged(fmt::format("{} is not valid JSON", what), 0);
    }
}

template <class Json>
const Json* member(const Json& object, const char* key) {
    const auto it = object.find(key);
    return it == object.end() ? nullptr : &*it;
}

Error wrong(std::string_view what) {
    return damaged(std::string(what), 0).byRule(rule::metaInconsistent);
}

std::optional<int64_t> wholeNumber(const Json& value) {
    if (!value.is_number_integer()) return std::nullopt;
    if (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX))
        return std::nullopt;
    return value.get<int64_t>();
}

Status takeShape(MetaParameter& parameter, const Json& entry) {
    const auto bad = [&] {
        return wrong(fmt::format("param_meta of '{}' is not [shape, dtype, is_distributed]",
                                 parameter.structured))
            .ofTensor(parameter.structured);
    };
    if (!entry.is_array() || entry.size() < 2 || !entry[0].is_array() || entry[0].size() > kMaxRank)
        return bad();
    Dims shape;
    for (const Json& size : entry[0]) {
        const auto value = wholeNumber(size);
        if (!value || *value < 0 || *value > kMaxDim) return bad();
        shape.push_back(*value);
    }
    parameter.shape = std::move(shape);
    if (const auto dtype = wholeNumber(entry[1])) parameter.dtype = floatOfNumber(*dtype);
    if (entry.size() > 2) {
        if (!entry[2].is_boolean()) return bad();
        parameter.distributed = entry[2].get<bool>();
    }
    return {};
}

Result<GroupMeta> groupOf(const Json& json) {
    if (!json.is_object()) return wrong("the description of a group of ranks is not an object");
    GroupMeta group;
    if (const Json* strategy = member(json, "sharding_strategy"); strategy && strategy->is_string())
        group.strategy = strategy->get<std::string>();
    const Json* mapping = member(json, "structure_name_mapping");
    if (!mapping || !mapping->is_object()) return wrong("structure_name_mapping is missing");
    const Json* shapes = member(json, "param_meta");
    if (shapes && !shapes->is_object()) return wrong("param_meta is not an object");
    for (const auto& [structured, parameter] : mapping->items()) {
        if (!parameter.is_string())
            return wrong(fmt::format("structure_name_mapping gives '{}' no name", structured))
                .ofTensor(structured);
        MetaParameter entry;
        entry.structured = structured;
        entry.parameter = parameter.get<std::string>();
        if (shapes) {
            if (const auto it = shapes->find(structured); it != shapes->end())
                SHARDSCOPE_TRY(takeShape(entry, *it));
        }
        group.parameters.push_back(std::move(entry));
    }
    return group;
}

uint32_t degreeOf(const Json& config, const char* key) {
    const Json* value = member(config, key);
    const auto degree = value ? wholeNumber(*value) : std::nullopt;
    return degree && *degree > 0 && *degree < (1 << 20) ? static_cast<uint32_t>(*degree) : 0;
}

}  // namespace

std::optional<DType> floatOfNumber(int64_t number) {
    // framework.proto's VarType, then phi's DataType; no number of one is a float of the other with another
    // meaning.
    switch (number) {
        case 4:
        case 15:
            return DType::float16;
        case 5:
        case 10:
            return DType::float32;
        case 6:
        case 11:
            return DType::float64;
        case 22:
        case 16:
            return DType::bfloat16;
        case 32:
        case 17:
            return DType::float8E4M3FN;
        case 33:
        case 18:
            return DType::float8E5M2;
        default:
            return std::nullopt;
    }
}

Result<ModelMeta> parseModelMeta(std::string_view text) {
    SHARDSCOPE_ASSIGN(const Json json, parse(text, "model_meta.json"));
    ModelMeta meta;
    if (const Json* config = member(json, "parallel_config"); config && config->is_object()) {
        meta.tp = degreeOf(*config, "mp_degree");
        meta.pp = degreeOf(*config, "pp_degree");
        meta.sharding = degreeOf(*config, "sharding_degree");
    }
    const Json* groups = member(json, "sharding_metas");
    if (!groups) return meta;
    if (!groups->is_object()) return wrong("sharding_metas is not an object");
    for (const auto& [name, group] : groups->items()) {
        const auto at = parseGroupName(name);
        if (!at) return wrong(fmt::format("sharding_metas has '{}', which names no ranks", name));
        SHARDSCOPE_ASSIGN(GroupMeta parsed, groupOf(group));
        if (!meta.groups.emplace(*at, std::move(parsed)).second)
            return wrong(fmt::format("sharding_metas describes '{}' twice", name));
    }
    return meta;
}

Result<GroupMeta> parseShardMeta(std::string_view text) {
    SHARDSCOPE_ASSIGN(const Json json, parse(text, "the sharding metadata"));
    return groupOf(json);
}

Result<UnifiedIndex> parseUnifiedIndex(std::string_view text) {
    using Json = nlohmann::json;  // a weight_map is long
    SHARDSCOPE_ASSIGN(const Json json, parse<Json>(text, "the index"));
    UnifiedIndex index;
    index.map = json.contains("weight_map");
    const Json* metadata = member(json, "metadata");
    for (const Json* object : {&json, metadata}) {
        const Json* stage = object && object->is_object() ? member(*object, "ckpt_quant_stage") : nullptr;
        if (stage && stage->is_string() && *stage != "O0") index.quantStage = stage->get<std::string>();
    }
    return index;
}

}  // namespace shardscope::paddle_nlp
