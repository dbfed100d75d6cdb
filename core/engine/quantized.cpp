#include "engine/quantized.h"

#include <algorithm>
#include <cstring>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/checked.h"
#include "base/option_words.h"
#include "base/rule.h"
#include "base/text.h"
#include "base/units.h"
#include "engine/dequantized.h"
#include "engine/model_config.h"
#include "execute/dequantize.h"
#include "execute/region_reading.h"
#include "storage/open_files.h"

namespace shardscope {
namespace {

using Json = nlohmann::json;

// What no entry of a config.json of this kind needs.
constexpr int64_t kMostState = 4096;     // bytes of a part that states a shape
constexpr int64_t kLargestBlock = 4096;  // of bitsandbytes
constexpr const char* kQuantizationKeys[] = {"quantization_config", "compression_config"};

std::string textIn(const Json& object, const char* key) {
    const auto found = object.is_object() ? object.find(key) : object.end();
    return object.is_object() && found != object.end() && found->is_string() ? found->get<std::string>()
                                                                             : std::string();
}

// Two positive numbers.
bool blockIn(const Json& object, const char* key, QuantConfig& config) {
    const auto found = object.is_object() ? object.find(key) : object.end();
    if (!object.is_object() || found == object.end() || !found->is_array() || found->size() != 2)
        return false;
    const auto rows = integerOf((*found)[0]), columns = integerOf((*found)[1]);
    if (!rows || !columns || *rows < 1 || *columns < 1) return false;
    config.blockRows = *rows;
    config.blockColumns = *columns;
    return true;
}

QuantConfig quantConfigOf(const Checkpoint& checkpoint) {
    QuantConfig config;
    const auto stated = statedConfig(checkpoint, {});
    Json said;
    for (const char* key : kQuantizationKeys) {
        if (!stated->values.is_object() || said.is_object()) break;
        if (const auto found = stated->values.find(key); found != stated->values.end()) said = *found;
    }
    config.method = textIn(said, "quant_method");
    config.layout = textIn(said, "checkpoint_format");
    if (config.layout.empty()) config.layout = textIn(said, "version");
    blockIn(said, "weight_block_size", config);
    if (said.is_object() && said.contains("config_groups") && said["config_groups"].is_object()) {
        for (const Json& group : said["config_groups"])
            if (group.is_object() && group.contains("weights"))
                blockIn(group["weights"], "block_structure", config);
    }
    if (!config.method.empty()) return config;
    const auto files = checkpoint.fileSystem ? checkpoint.fileSystem : systemFileSystem();
    const auto directory = files->openDirectory(directoryOf(checkpoint));
    if (directory.ok() && !smallFile(**directory, "hf_quant_config.json", kMostConfig).empty())
        config.method = "modelopt";
    return config;
}

bool maySuggest(const Catalog& catalog) {
    for (TensorId t = 0; t < catalog.tensorCount(); ++t) {
        switch (catalog.dtype(t)) {
            case DType::int8:
            case DType::uint8:
            case DType::int32:
            case DType::float8E4M3FN:
            case DType::float8E5M2:
            case DType::float8E4M3FNUZ:
            case DType::float8E5M2FNUZ:
            case DType::float4E2M1FNx2:
                return true;
            default:
                break;
        }
    }
    return false;
}

// ------------------------------------------------------------------ what small parts say

// Of a state that bitsandbytes stores as JSON.
void takeState(const Catalog& catalog, const std::string& text, QuantizedWeight& weight) {
    const Json state = parseConfig("quant_state.json", text);
    const auto number = [&](const char* key) { return numberIn(state, key).value_or(0); };
    Dims shape;
    if (state.is_object() && state.contains("shape") && state["shape"].is_array()) {
        for (const Json& dim : state["shape"])
            shape.push_back(integerOf(dim).value_or(-1));
    }
    weight.blockColumns = number("blocksize");
    weight.nestedBlock = number("nested_blocksize");
    const auto offset = state.is_object() ? state.find("nested_offset") : state.end();
    if (state.is_object() && offset != state.end() && offset->is_number())
        weight.nestedOffset = static_cast<float>(offset->get<double>());
    int64_t elements = 0;
    const bool dims = std::ranges::all_of(shape, [](int64_t d) { return d >= 0 && d <= kMaxDim; });
    if (shape.empty() || !dims || !checkedProduct(shape, elements) || elements > kMaxDim ||
        weight.blockColumns < 1 || weight.blockColumns > kLargestBlock || weight.nestedBlock < 0) {
        weight.problem = fmt::format("'{}' does not state a shape and the size of blocks",
                                     catalog.name(weight.part(kSecond)));
        return;
    }
    const DimSpan payload = catalog.shape(weight.part(kPayload));
    if (payload.size() == 2 && payload[0] == 1 && payload[1] > 1) {
        weight.refused = "it is stored transposed, as old releases of bitsandbytes did";
        return;
    }
    setShape(catalog, weight, shape, 4);
}

void takeShape(const Catalog& catalog, std::span<const std::byte> bytes, QuantizedWeight& weight) {
    const bool wide = catalog.dtype(weight.part(kSecond)) == DType::int64;
    Dims shape;
    for (size_t i = 0; i < bytes.size() / (wide ? 8 : 4); ++i) {
        int64_t dim = 0;
        int32_t narrow = 0;
        if (wide)
            std::memcpy(&dim, bytes.data() + i * 8, 8);
        else
            std::memcpy(&narrow, bytes.data() + i * 4, 4);
        shape.push_back(wide ? dim : narrow);
    }
    const DimSpan payload = catalog.shape(weight.part(kPayload));
    const bool dims = shape.size() == 2 && payload.size() == 2 &&
                      std::ranges::all_of(shape, [](int64_t d) { return d >= 1 && d <= kMaxDim; });
    // Of the widths that divide a word, the one with which a row fills as many words.
    for (const unsigned bits : {4U, 8U, 2U}) {
        if (dims && (shape[1] * bits - 1) / 32 + 1 == payload[1])
            return setShape(catalog, weight, shape, bits);
    }
    if (!dims)
        weight.problem =
            fmt::format("'{}' does not state the shape of a matrix", catalog.name(weight.part(kSecond)));
    else
        weight.refused = fmt::format("a row of {} in {} is not of 2, 4 or 8 bits", counted(shape[1], "value"),
                                     counted(payload[1], "word"));
}

// Reads what states shapes and layouts, all at once.
Status readStates(const Checkpoint& checkpoint, std::vector<QuantizedWeight>& weights,
                  const StopToken& stop) {
    const Catalog& catalog = checkpoint.catalog();
    std::vector<std::vector<std::byte>> bytes(weights.size());
    std::vector<RegionRead> reads;
    for (size_t i = 0; i < weights.size(); ++i) {
        const QuantizedWeight& weight = weights[i];
        const QuantKind kind = weight.scheme->kind;
        const TensorId state = weight.part(kSecond);
        if (!weight.problem.empty() || state == kNone || kind == QuantKind::nvfp4) continue;
        if (catalog.bytes(state) == 0 || catalog.bytes(state) > kMostState) continue;
        const DimSpan shape = catalog.shape(state);
        bytes[i].resize(catalog.bytes(state));
        reads.push_back({state, Dims(shape.size(), 0), Dims(shape.begin(), shape.end()),
                         Dims(shape.size(), 1), bytes[i].data(), rowMajorStrides(shape)});
    }
    if (!reads.empty()) {
        JobResources resources(0, kStandardMemory / 8, nullptr, stop);
        SHARDSCOPE_ASSIGN(const uint64_t read,
                          readRegions(*checkpoint.reader, reads, FillGaps::refuse, resources));
        static_cast<void>(read);
    }
    for (size_t i = 0; i < weights.size(); ++i) {
        QuantizedWeight& weight = weights[i];
        if (!weight.problem.empty()) continue;
        if (weight.scheme->kind == QuantKind::table) {
            takeState(catalog, std::string(reinterpret_cast<const char*>(bytes[i].data()), bytes[i].size()),
                      weight);
        } else if (weight.scheme->kind == QuantKind::packed) {
            takeShape(catalog, bytes[i], weight);
        } else if (weight.scheme->kind == QuantKind::rows && !bytes[i].empty() &&
                   bytes[i][0] != std::byte{0}) {
            weight.refused = "its rows are in the order of a GPU's kernels (weight_format)";
        }
    }
    return {};
}

std::string partsText(const Catalog& catalog, const QuantizedWeight& weight) {
    std::string text;
    for (const TensorId t : weight.tensors())
        text += fmt::format("{}'{}'", text.empty() ? "" : ", ", printable(catalog.name(t), kNameInMessage));
    return text;
}

}  // namespace

std::vector<QuantizedWeight> quantizedOf(const Checkpoint& checkpoint) {
    const Catalog& catalog = checkpoint.catalog();
    if (!maySuggest(catalog)) return {};
    std::vector<QuantizedWeight> weights = quantizedWeights(catalog);
    return weights.empty() ? weights : quantizedWeights(catalog, quantConfigOf(checkpoint));
}

std::vector<QuantizedShare> sharesOf(const Catalog& catalog, const std::vector<QuantizedWeight>& weights) {
    std::map<std::string, QuantizedShare> shares;
    for (const QuantizedWeight& weight : weights) {
        const std::string title = schemeText(weight);
        QuantizedShare& share = shares[title];
        share.scheme = weight.scheme->name;
        share.title = title;
        ++share.weights;
        for (const TensorId t : weight.tensors()) {
            ++share.tensors;
            share.bytes += catalog.bytes(t);
        }
    }
    std::vector<QuantizedShare> list;
    for (auto& [title, share] : shares)
        list.push_back(std::move(share));
    return list;
}

std::vector<Note> quantizedNotes(const Checkpoint& checkpoint) {
    std::vector<Note> notes;
    for (const QuantizedWeight& weight : quantizedOf(checkpoint)) {
        if (weight.problem.empty()) continue;
        Note note;
        note.rule = rule::quantPart;
        note.severity = Severity::error;
        note.message = weight.problem;
        note.tensor = checkpoint.catalog().name(weight.tensors().front());
        notes.push_back(std::move(note));
    }
    return notes;
}

Result<DType> dequantizedDtype(const std::string& text) {
    const auto dtype = dtypeFromName(text);
    if (dtype == DType::bfloat16 || dtype == DType::float16 || dtype == DType::float32) return *dtype;
    return makeError(ErrorCode::usage,
                     fmt::format("'{}' is not a dtype that quantized weights are computed in",
                                 printable(text, kNameInMessage)))
        .withHint("bf16, fp16 or fp32");
}

Result<Checkpoint> dequantized(const Checkpoint& checkpoint, DType dtype, const StopToken& stop) {
    return dequantized(checkpoint, dtype, stop, {});
}

Result<Checkpoint> dequantized(const Checkpoint& checkpoint, DType dtype, const StopToken& stop,
                               const std::set<std::string, std::less<>>& wide) {
    const Catalog& catalog = checkpoint.catalog();
    SHARDSCOPE_TRY(needData(checkpoint, option("dequantize")));
    std::vector<QuantizedWeight> weights = quantizedOf(checkpoint);
    SHARDSCOPE_TRY(readStates(checkpoint, weights, stop));
    auto made = std::make_shared<Dequantized>();
    std::string refused;
    for (const QuantizedWeight& weight : weights) {
        const std::string& why = weight.problem.empty() ? weight.refused : weight.problem;
        if (why.empty()) continue;
        if (refused.empty()) refused = fmt::format("'{}': {}", printable(weight.name, kNameInMessage), why);
        for (const TensorId t : weight.tensors())
            made->left.emplace(catalog.name(t), why);
    }
    std::erase_if(weights, [](const QuantizedWeight& w) { return !w.problem.empty() || !w.refused.empty(); });
    if (weights.empty()) {
        const std::string method = quantConfigOf(checkpoint).method;
        return unsupported(!refused.empty() ? "no quantized weight can be computed: " + refused
                           : method.empty()
                               ? "the checkpoint holds no quantized weights of a scheme that is documented"
                               : fmt::format("the config.json says '{}', and no weights of a scheme that is "
                                             "documented are here",
                                             printable(method, kNameInMessage)))
            .inFile(checkpoint.path)
            .withHint("docs/quantized.md lists the schemes");
    }
    made->dtype = dtype;
    auto computed = std::make_shared<ComputedTensors>();
    std::vector<DType> dtypes;
    for (const QuantizedWeight& weight : weights) {
        dtypes.push_back(wide.contains(weight.name) ? DType::float32 : dtype);
        ComputedTensor& one = (*computed)[weight.name];
        one.how = fmt::format("dequantized: {}, of {}", schemeText(weight), partsText(catalog, weight));
        for (const TensorId t : weight.tensors())
            one.stored += catalog.bytes(t);
    }
    Checkpoint result = checkpoint;
    SHARDSCOPE_ASSIGN(result.reader, dequantizedReader(checkpoint.reader, directoryOf(checkpoint),
                                                       std::move(weights), std::move(dtypes), stop));
    result.dequantized = std::move(made);
    result.computed = std::move(computed);
    return result;
}

// ------------------------------------------------------------------ all parts or none

namespace {

struct Taken {
    TensorId target = kNone;
    bool changed = false;  // by a step of a recipe
};

}  // namespace

void checkQuantized(const Checkpoint& checkpoint, const TargetSpec& spec,
                    std::vector<PlanLeftOut>& impossible, std::vector<PlanLeftOut>& notes) {
    const Catalog& source = checkpoint.catalog();
    const auto weights = checkpoint.dequantized ? std::vector<QuantizedWeight>() : quantizedOf(checkpoint);
    if (weights.empty() && !checkpoint.dequantized) return;
    std::vector<Taken> taken(source.tensorCount());
    for (TensorId w = 0; w < spec.target.tensorCount(); ++w) {
        const TensorSource& from = spec.sources[w];
        for (const TensorId t : from.tensors())
            if (t < taken.size()) taken[t] = {w, taken[t].changed || from.source == kNone};
    }
    if (checkpoint.dequantized) {
        for (const auto& [name, why] : checkpoint.dequantized->left)
            if (const TensorId t = source.find(name); t != kNone && taken[t].target != kNone)
                impossible.push_back({name, why});
    }
    const std::string instead = option("dequantize", "bf16");
    for (const QuantizedWeight& weight : weights) {
        const std::vector<TensorId> parts = weight.tensors();
        const auto isTaken = [&](TensorId t) { return taken[t].target != kNone; };
        const auto with = std::ranges::find_if(parts, isTaken);
        if (with == parts.end()) continue;
        const std::string name(source.name(*with));
        if (!weight.problem.empty()) {
            impossible.push_back({name, weight.problem});
            continue;
        }
        const auto without = std::ranges::find_if_not(parts, isTaken);
        if (without != parts.end()) {
            impossible.push_back(
                {name,
                 fmt::format("it is a part of a quantized weight ({}), and '{}' would be left behind: take "
                             "both, or {} writes the weight itself",
                             schemeText(weight), source.name(*without), instead)});
            continue;
        }
        for (const TensorId t : parts) {
            const Taken& part = taken[t];
            const bool cast = spec.target.dtype(part.target) != source.dtype(t);
            if (!cast && !part.changed) continue;
            impossible.push_back(
                {std::string(source.name(t)),
                 fmt::format(
                     "it is a part of a quantized weight ({}), of which '{}' says what it means; {}: {} "
                     "writes the weight itself",
                     schemeText(weight), source.name(parts[t == parts[0] ? 1 : 0]),
                     cast ? fmt::format("a cast to {} would lose that",
                                        dtypeName(spec.target.dtype(part.target)))
                          : std::string("the recipe would change one without the other"),
                     instead)});
            break;
        }
        // Names that belong together still do.
        const std::string_view payload = spec.target.name(taken[weight.part(kPayload)].target);
        const std::string_view suffix = weight.scheme->parts[0].suffix;
        const std::string stem(payload.substr(0, payload.size() - std::min(payload.size(), suffix.size())));
        for (const QuantScheme::Part& part : weight.scheme->parts) {
            const TensorId t = weight.part(part.part);
            if (t == kNone) continue;
            const std::string_view now = spec.target.name(taken[t].target);
            if (now == stem + std::string(part.suffix)) continue;
            notes.push_back(
                {std::string(source.name(t)),
                 fmt::format("it is called '{}', and the weight that it is a part of '{}': loaders "
                             "will not take them for one quantized weight",
                             now, payload)});
            break;
        }
    }
}

std::string configWithoutQuantization(const std::string& text) {
    // In the order of the file.
    auto config = nlohmann::ordered_json::parse(text, nullptr, false);
    if (!parseConfig("config.json", text).is_object() || !config.is_object()) return {};
    size_t gone = 0;
    for (const char* key : kQuantizationKeys)
        gone += config.erase(key);
    for (auto& [name, inner] : config.items()) {
        for (const char* key : kQuantizationKeys)
            if (inner.is_object()) gone += inner.erase(key);
    }
    return gone == 0 ? std::string()
                     : config.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace shardscope
