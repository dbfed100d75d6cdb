#include "model/quantized.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <set>

#include <fmt/format.h>

#include "base/units.h"

namespace shardscope {
namespace {

using enum DType;
constexpr DType kFloat8[] = {float8E4M3FN, float8E5M2, float8E4M3FNUZ, float8E5M2FNUZ};
constexpr DType kScales[] = {float32, bfloat16, float16, float8E8M0FNU, uint8};
constexpr DType kFloats[] = {float32, bfloat16, float16};
constexpr DType kE4M3[] = {float8E4M3FN}, kF32[] = {float32}, kU8[] = {uint8}, kI8[] = {int8},
                kI32[] = {int32};
constexpr DType kPowers[] = {uint8, float8E8M0FNU}, kNibbles[] = {uint8, float4E2M1FNx2};
constexpr DType kShapes[] = {int64, int32}, kAbsmax[] = {float32, uint8};
// bitsandbytes stores its bytes as any of these (quant_storage).
constexpr DType kStorage[] = {uint8, bfloat16, float16, float32};

constexpr QuantScheme::Part kFp8Inverse[] = {{kPayload, "", kFloat8}, {kScale, "_scale_inv", kScales}};
constexpr QuantScheme::Part kFp8[] = {{kPayload, "", kFloat8}, {kScale, "_scale", kScales}};
constexpr QuantScheme::Part kInt8[] = {
    {kPayload, "", kI8}, {kScale, "_scale", kFloats}, {kZeros, "_zero_point", kI8, false}};
constexpr QuantScheme::Part kNvfp4[] = {
    {kPayload, "", kNibbles}, {kScale, "_scale", kE4M3}, {kSecond, "_scale_2", kF32}};
constexpr QuantScheme::Part kNvfp4Packed[] = {
    {kPayload, "_packed", kNibbles}, {kScale, "_scale", kE4M3}, {kSecond, "_global_scale", kF32}};
constexpr QuantScheme::Part kMxfp4[] = {{kPayload, "_blocks", kU8}, {kScale, "_scales", kPowers}};
constexpr QuantScheme::Part kMxfp4Packed[] = {{kPayload, "_packed", kNibbles}, {kScale, "_scale", kPowers}};
constexpr QuantScheme::Part kPacked[] = {{kPayload, "_packed", kI32},
                                         {kScale, "_scale", kFloats},
                                         {kSecond, "_shape", kShapes},
                                         {kZeros, "_zero_point", kI32, false},
                                         {kOrder, "_g_idx", kI32, false}};
constexpr QuantScheme::Part kColumns[] = {{kPayload, "qweight", kI32},
                                          {kZeros, "qzeros", kI32},
                                          {kScale, "scales", kFloats},
                                          {kOrder, "g_idx", kI32, false}};
constexpr QuantScheme::Part kNf4[] = {{kPayload, "", kStorage},
                                      {kSecond, ".quant_state.bitsandbytes__nf4", kU8},
                                      {kScale, ".absmax", kAbsmax},
                                      {kTable, ".quant_map", kF32},
                                      {kNestedScale, ".nested_absmax", kF32, false},
                                      {kNestedTable, ".nested_quant_map", kF32, false}};
constexpr QuantScheme::Part kFp4[] = {{kPayload, "", kStorage},
                                      {kSecond, ".quant_state.bitsandbytes__fp4", kU8},
                                      {kScale, ".absmax", kAbsmax},
                                      {kTable, ".quant_map", kF32},
                                      {kNestedScale, ".nested_absmax", kF32, false},
                                      {kNestedTable, ".nested_quant_map", kF32, false}};
constexpr QuantScheme::Part kRows[] = {
    {kPayload, "weight", kI8}, {kScale, "SCB", kF32}, {kSecond, "weight_format", kU8, false}};
// torchao: the tensors of its subclasses, of which those with values of 8 bits are computed.
constexpr DType kTorchao[] = {int8,       uint8,          int32,          float8E4M3FN,
                              float8E5M2, float8E4M3FNUZ, float8E5M2FNUZ, float4E2M1FNx2};
constexpr DType kTorchaoScales[] = {float32, bfloat16, float16, float8E8M0FNU, float8E4M3FN, uint8};
constexpr DType kTorchaoZeros[] = {int8, int32, float32, bfloat16, float16};
constexpr QuantScheme::Part kFlattened[] = {{kPayload, "_weight_qdata", kTorchao},
                                            {kScale, "_weight_scale", kTorchaoScales},
                                            {kZeros, "_weight_zero_point", kTorchaoZeros, false}};
constexpr QuantScheme::Part kSubclass[] = {{kPayload, "#qdata", kTorchao},
                                           {kScale, "#scale", kTorchaoScales},
                                           {kZeros, "#zero_point", kTorchaoZeros, false}};

constexpr QuantScheme kSchemes[] = {
    {QuantKind::scaled, "torchao", "torchao with scales", "weight", kFlattened},
    {QuantKind::scaled, "torchao", "torchao with scales", "", kSubclass},
    {QuantKind::scaled, "fp8-inverse", "fp8 with scales", "", kFp8Inverse},
    {QuantKind::scaled, "fp8", "fp8 with scales", "", kFp8},
    {QuantKind::scaled, "int8", "int8 with scales", "", kInt8},
    {QuantKind::nvfp4, "nvfp4", "NVFP4", "", kNvfp4},
    {QuantKind::nvfp4, "nvfp4-packed", "NVFP4 of compressed-tensors", "", kNvfp4Packed},
    {QuantKind::mxfp4, "mxfp4", "MXFP4", "", kMxfp4},
    {QuantKind::mxfp4, "mxfp4-packed", "MXFP4 of compressed-tensors", "", kMxfp4Packed},
    {QuantKind::packed, "pack-quantized", "packed integers of compressed-tensors", "", kPacked},
    {QuantKind::columns, "gptq", "GPTQ or AWQ", "weight", kColumns},
    {QuantKind::table, "bnb-nf4", "NF4 of bitsandbytes", "", kNf4},
    {QuantKind::table, "bnb-fp4", "FP4 of bitsandbytes", "", kFp4},
    {QuantKind::rows, "bnb-int8", "int8 of bitsandbytes", "weight", kRows},
};

bool fits(DType dtype, std::span<const DType> dtypes) {
    return std::ranges::find(dtypes, dtype) != dtypes.end();
}

int64_t dividedUp(int64_t a, int64_t b) {
    return a <= 0 || b <= 0 ? 0 : (a - 1) / b + 1;
}

// A name without its numbers.
std::string patternOf(std::string_view name) {
    std::string pattern;
    for (const char c : name)
        if (!std::isdigit(static_cast<unsigned char>(c))) pattern += c;
    return pattern;
}

std::string quoted(const Catalog& catalog, TensorId t) {
    return fmt::format("'{}' {}", catalog.name(t), formatDims(catalog.shape(t)));
}

// Rows or columns that one of `scales` scales is for; 0 = all, -1 = none fits. `stated`: what config.json
// says.
int64_t blockOf(int64_t length, int64_t scales, int64_t stated) {
    if (scales == 1) return 0;
    if (scales < 1 || scales > length) return -1;
    if (scales == length) return 1;
    if (stated > 0) return dividedUp(length, stated) == scales ? stated : -1;
    // DeepSeek's, which all others of this form have taken over.
    if (dividedUp(length, 128) == scales) return 128;
    if (length % scales == 0) return length / scales;
    for (int64_t block = 8; block <= 4096; block *= 2)
        if (dividedUp(length, block) == scales) return block;
    return -1;
}

class WeightFinder {
  public:
    WeightFinder(const Catalog& catalog, const QuantConfig& config)
        : catalog_(catalog), config_(config), claimed_(catalog.tensorCount(), false) {}

    std::vector<QuantizedWeight> find() {
        for (const QuantScheme& scheme : kSchemes)
            findWhole(scheme);
        const size_t whole = weights_.size();
        for (const QuantScheme& scheme : kSchemes)
            findHalf(scheme);
        findWithoutScale(whole);
        const auto first = [](const QuantizedWeight& weight) { return std::ranges::min(weight.tensors()); };
        std::ranges::sort(weights_, {}, first);
        return std::move(weights_);
    }

  private:
    // The stem of a name that a part has in this scheme; empty = it is none.
    std::string_view stemOf(TensorId t, const QuantScheme& scheme, const QuantScheme::Part& part) const {
        const std::string_view name = catalog_.name(t);
        if ((catalog_.special(t) != kNone) != part.suffix.starts_with('#')) return {};
        if (claimed_[t] || part.suffix.empty() || !fits(catalog_.dtype(t), part.dtypes) ||
            !name.ends_with(part.suffix) || name.size() == part.suffix.size())
            return {};
        const std::string_view stem = name.substr(0, name.size() - part.suffix.size());
        return scheme.weight.empty() || stem.ends_with('.') ? stem : std::string_view();
    }

    TensorId partOf(std::string_view stem, const QuantScheme::Part& part) const {
        const TensorId t = catalog_.find(std::string(stem) + std::string(part.suffix));
        if (t == kNone || claimed_[t] || !fits(catalog_.dtype(t), part.dtypes)) return kNone;
        // Parts of a subclass are named so by the reader.
        return (catalog_.special(t) != kNone) == part.suffix.starts_with('#') ? t : kNone;
    }

    void findWhole(const QuantScheme& scheme) {
        const QuantScheme::Part& key = scheme.parts[1];
        for (TensorId t = 0; t < catalog_.tensorCount(); ++t) {
            const std::string_view stem = stemOf(t, scheme, key);
            if (!stem.empty() && partOf(stem, scheme.parts[0]) != kNone) add(scheme, stem);
        }
    }

    // Parts whose payload, or whose scale, is not there.
    void findHalf(const QuantScheme& scheme) {
        for (TensorId t = 0; t < catalog_.tensorCount(); ++t) {
            for (const QuantScheme::Part& part : scheme.parts.first(2)) {
                const std::string_view stem = stemOf(t, scheme, part);
                if (stem.empty() || !isSure(scheme, part, stem, t)) continue;
                add(scheme, stem);
                break;
            }
        }
    }

    // Whether the name of one part says that the others should be there.
    bool isSure(const QuantScheme& scheme, const QuantScheme::Part& part, std::string_view stem,
                TensorId t) const {
        // A subclass that has no such part is another one.
        if (part.suffix.starts_with('#')) return false;
        // A weight of another dtype does without it.
        if (scheme.parts[0].suffix.empty() && catalog_.find(stem) != kNone) return false;
        if (scheme.kind == QuantKind::mxfp4 && scheme.parts[0].suffix == "_blocks") {
            const DimSpan shape = catalog_.shape(t);
            return part.part == kPayload ? shape.size() >= 3 && shape.back() == 16
                                         : shape.size() >= 2 && catalog_.dtype(t) == uint8;
        }
        // Many weights are int8.
        if (scheme.kind == QuantKind::rows) return part.part == kScale;
        return part.suffix == "_scale_inv" || !scheme.weight.empty() || stem.ends_with("weight");
    }

    // float8 weights without a scale, where others of the same name have one.
    void findWithoutScale(size_t whole) {
        std::map<std::string, const QuantScheme*> patterns;
        for (size_t i = 0; i < whole; ++i)
            if (weights_[i].scheme->kind == QuantKind::scaled)
                patterns.try_emplace(patternOf(weights_[i].name), weights_[i].scheme);
        if (patterns.empty()) return;
        for (TensorId t = 0; t < catalog_.tensorCount(); ++t) {
            if (claimed_[t] || !fits(catalog_.dtype(t), kFloat8)) continue;
            const auto known = patterns.find(patternOf(catalog_.name(t)));
            if (known != patterns.end()) add(*known->second, catalog_.name(t));
        }
    }

    void add(const QuantScheme& scheme, std::string_view stem) {
        QuantizedWeight weight;
        weight.scheme = &scheme;
        weight.name = std::string(stem) + std::string(scheme.weight);
        weight.parts.fill(kNone);
        std::string missing, there;
        for (const QuantScheme::Part& part : scheme.parts) {
            const TensorId t = partOf(stem, part);
            weight.parts[part.part] = t;
            if (t != kNone) {
                claimed_[t] = true;
                if (there.empty()) there = catalog_.name(t);
            } else if (part.required) {
                missing += fmt::format("{}'{}{}'", missing.empty() ? "" : ", ", stem, part.suffix);
            }
        }
        if (missing.empty()) {
            measure(weight);
        } else {
            weight.problem = fmt::format("'{}' is a part of a quantized weight ({}), and {} is missing",
                                         there, scheme.title, missing);
        }
        weights_.push_back(std::move(weight));
    }

    // Rows and columns of the payload, with so many values in an element of its last dimension.
    void matricesOf(QuantizedWeight& weight, int64_t valuesInElement) const {
        const DimSpan shape = catalog_.shape(weight.part(kPayload));
        weight.shape.assign(shape.begin(), shape.end());
        if (shape.empty()) return;
        weight.shape.back() *= valuesInElement;
        setMatrices(weight);
    }
    static void setMatrices(QuantizedWeight& weight) {
        const size_t rank = weight.shape.size();
        weight.columns = weight.shape[rank - 1];
        weight.rows = rank > 1 ? weight.shape[rank - 2] : 1;
        for (size_t d = 0; d + 2 < rank; ++d)
            weight.matrices *= weight.shape[d];
    }

    void doesNotFit(QuantizedWeight& weight, QuantPart part, std::string_view expected = {}) const {
        weight.problem =
            fmt::format("{} does not fit {}{}{}", quoted(catalog_, weight.part(part)),
                        quoted(catalog_, weight.part(kPayload)), expected.empty() ? "" : ": ", expected);
    }

    // Blocks by the shape of the scales.
    void measureScale(QuantizedWeight& weight) const {
        const DimSpan scale = catalog_.shape(weight.part(kScale));
        const size_t rank = weight.shape.size();
        if (elementCount(scale) == 1) {
            weight.oneScale = true;
            return;
        }
        const DimSpan matrices = DimSpan(weight.shape).first(rank >= 2 ? rank - 2 : 0);
        int64_t rows = 0, columns = 1;
        if (scale.size() == rank && rank >= 2 && std::ranges::equal(scale.first(rank - 2), matrices)) {
            rows = scale[rank - 2];
            columns = scale[rank - 1];
        } else if (scale.size() + 1 == rank &&
                   std::ranges::equal(scale, DimSpan(weight.shape).first(rank - 1))) {
            rows = weight.rows;
        } else if (rank > 2 && std::ranges::equal(scale, matrices)) {
            rows = 1;
        } else {
            return doesNotFit(weight, kScale);
        }
        weight.blockRows = blockOf(weight.rows, rows, config_.blockRows);
        weight.blockColumns = blockOf(weight.columns, columns, config_.blockColumns);
        if (weight.blockRows < 0 || weight.blockColumns < 0) doesNotFit(weight, kScale);
    }

    void measure(QuantizedWeight& weight) const {
        weight.targetDtype = config_.method == "modelopt";
        weight.bits =
            weight.scheme->kind == QuantKind::scaled || weight.scheme->kind == QuantKind::rows ? 8 : 4;
        if (catalog_.shape(weight.part(kPayload)).empty()) {
            weight.problem = fmt::format("{} has no dimension", quoted(catalog_, weight.part(kPayload)));
            return;
        }
        switch (weight.scheme->kind) {
            case QuantKind::scaled:
                matricesOf(weight, 1);
                if (isTorchao(weight)) return measureTorchao(weight);
                measureScale(weight);
                if (const TensorId zeros = weight.part(kZeros);
                    zeros != kNone &&
                    !std::ranges::equal(catalog_.shape(zeros), catalog_.shape(weight.part(kScale))))
                    doesNotFit(weight, kZeros, "zero points have the shape of the scales");
                return;
            case QuantKind::nvfp4:
                return measureFour(weight, 16);
            case QuantKind::mxfp4:
                return weight.scheme->parts[0].suffix == "_blocks" ? measureBlocks(weight)
                                                                   : measureFour(weight, 32);
            case QuantKind::columns:
                return measureColumns(weight);
            case QuantKind::rows:
                matricesOf(weight, 1);
                weight.blockRows = 1;
                if (elementCount(catalog_.shape(weight.part(kScale))) != weight.rows || weight.matrices != 1)
                    doesNotFit(weight, kScale, "it has one number for each row");
                return;
            case QuantKind::packed:
            case QuantKind::table:
                return;  // setShape()
        }
    }

    static bool isTorchao(const QuantizedWeight& weight) { return weight.scheme->name == "torchao"; }

    // Int8Tensor, IntxUnpackedToInt8Tensor and Float8Tensor: scales in the payload's order, for blocks that
    // divide its sides evenly. What else there is packs values of fewer bits.
    void measureTorchao(QuantizedWeight& weight) const {
        const TensorId payload = weight.part(kPayload), zeros = weight.part(kZeros);
        const DimSpan scale = catalog_.shape(weight.part(kScale));
        const size_t rank = weight.shape.size();
        const bool known =
            (catalog_.dtype(payload) == int8 || fits(catalog_.dtype(payload), kFloat8)) &&
            fits(catalog_.dtype(weight.part(kScale)), kFloats) && scale.size() == rank && rank >= 2 &&
            std::ranges::equal(scale.first(rank - 2), DimSpan(weight.shape).first(rank - 2)) &&
            scale[rank - 2] > 0 && scale[rank - 1] > 0 && weight.rows % scale[rank - 2] == 0 &&
            weight.columns % scale[rank - 1] == 0 &&
            (zeros == kNone ||
             (catalog_.dtype(zeros) == int8 && std::ranges::equal(catalog_.shape(zeros), scale)));
        if (!known) {
            weight.refused = "of torchao's layouts those of 8 bits (int8, float8) are computed";
            return;
        }
        weight.oneScale = elementCount(scale) == 1;
        const auto block = [](int64_t length, int64_t scales) { return scales == 1 ? 0 : length / scales; };
        weight.blockRows = block(weight.rows, scale[rank - 2]);
        weight.blockColumns = block(weight.columns, scale[rank - 1]);
    }

    // Two values in a byte, a scale for each `group` of a row.
    void measureFour(QuantizedWeight& weight, int64_t group) const {
        matricesOf(weight, 2);
        weight.blockRows = 1;
        weight.blockColumns = group;
        Dims scales = weight.shape;
        scales.back() /= group;
        if (weight.columns % group != 0 || !std::ranges::equal(scales, catalog_.shape(weight.part(kScale))))
            return doesNotFit(weight, kScale, fmt::format("one scale is for {}", counted(group, "value")));
        const TensorId second = weight.part(kSecond);
        if (second == kNone) return;
        const int64_t count = elementCount(catalog_.shape(second));
        if (count != 1 && count != weight.matrices) doesNotFit(weight, kSecond);
    }

    // [matrices..., rows, groups, 16 bytes], and [matrices..., rows, groups].
    void measureBlocks(QuantizedWeight& weight) const {
        const DimSpan blocks = catalog_.shape(weight.part(kPayload));
        const size_t rank = blocks.size();
        if (rank < 3 || !std::ranges::equal(blocks.first(rank - 1), catalog_.shape(weight.part(kScale))))
            return doesNotFit(weight, kScale, "one scale is for each block");
        weight.shape.assign(blocks.begin(), blocks.end() - 1);
        weight.shape.back() *= blocks.back() * 2;
        setMatrices(weight);
        weight.blockRows = 1;
        weight.blockColumns = blocks.back() * 2;
        // Experts: transformers has them as [experts, in, out].
        weight.transposed = rank == 4;
        if (weight.transposed) std::swap(weight.shape[1], weight.shape[2]);
    }

    // qweight [in / values, out] (GPTQ) or [in, out / values] (AWQ), scales [groups, out], qzeros
    // [groups, out / values].
    void measureColumns(QuantizedWeight& weight) const {
        const DimSpan payload = catalog_.shape(weight.part(kPayload));
        const DimSpan scales = catalog_.shape(weight.part(kScale)),
                      zeros = catalog_.shape(weight.part(kZeros));
        if (payload.size() != 2 || scales.size() != 2 || zeros.size() != 2 || elementCount(scales) == 0 ||
            elementCount(payload) == 0 || elementCount(zeros) == 0)
            return doesNotFit(weight, kScale);
        const int64_t out = scales[1], groups = scales[0];
        if (payload[0] == scales[0] && payload[1] != out && weight.part(kOrder) == kNone) {
            weight.refused = "the layout of AWQ's GEMV kernels is not documented";
            return;
        }
        const int64_t bits = zeros[1] * 32 / out;
        if (zeros[0] != groups || (bits != 2 && bits != 4 && bits != 8)) {
            if (zeros[0] == groups && bits >= 2 && bits < 8)
                weight.refused =
                    fmt::format("values of {} across the bounds of words are not read", counted(bits, "bit"));
            else
                doesNotFit(weight, kZeros);
            return;
        }
        const int64_t values = 32 / bits;
        weight.bits = static_cast<unsigned>(bits);
        weight.interleaved = payload[1] != out;
        weight.zerosLessOne = !weight.interleaved && config_.layout != "gptq_v2";
        const int64_t in = weight.interleaved ? payload[0] : payload[0] * values;
        if (weight.interleaved ? payload[1] * values != out : payload[1] != out)
            return doesNotFit(weight, kScale);
        if (zeros[1] * values != out) return doesNotFit(weight, kZeros);
        if (weight.interleaved && bits != 4) {
            weight.refused = fmt::format("AWQ with {} is not documented", counted(bits, "bit"));
            return;
        }
        const TensorId order = weight.part(kOrder);
        if (order != kNone && elementCount(catalog_.shape(order)) != in)
            return doesNotFit(weight, kOrder, fmt::format("it has one entry for each of {} inputs", in));
        if (order == kNone && in % groups != 0) return doesNotFit(weight, kScale);
        weight.shape = {out, in};
        weight.transposed = true;
        weight.rows = in;
        weight.columns = out;
        weight.blockRows = order != kNone ? dividedUp(in, groups) : in / groups;
        weight.blockColumns = 1;
    }

    const Catalog& catalog_;
    const QuantConfig& config_;
    std::vector<bool> claimed_;
    std::vector<QuantizedWeight> weights_;
};

}  // namespace

std::vector<TensorId> QuantizedWeight::tensors() const {
    std::vector<TensorId> all;
    for (const TensorId t : parts)
        if (t != kNone) all.push_back(t);
    return all;
}

std::vector<QuantizedWeight> quantizedWeights(const Catalog& catalog, const QuantConfig& config) {
    return WeightFinder(catalog, config).find();
}

std::vector<uint32_t> quantizedByTensor(const Catalog& catalog, std::span<const QuantizedWeight> weights) {
    std::vector<uint32_t> of(catalog.tensorCount(), kNone);
    for (size_t i = 0; i < weights.size(); ++i)
        for (const TensorId t : weights[i].tensors())
            of[t] = static_cast<uint32_t>(i);
    return of;
}

std::string schemeText(const QuantizedWeight& weight) {
    std::string text(weight.scheme->title);
    if (weight.scheme->kind == QuantKind::columns && weight.bits != 0 && weight.problem.empty())
        text = fmt::format("{}, {}", weight.interleaved ? "AWQ" : "GPTQ", counted(weight.bits, "bit"));
    if (weight.scheme->kind == QuantKind::packed && !weight.shape.empty())
        text += fmt::format(", {}", counted(weight.bits, "bit"));
    if (weight.scheme->kind == QuantKind::scaled && weight.problem.empty()) {
        if (weight.oneScale)
            text = fmt::format("{} one scale", text.substr(0, text.find(' ') + 5));
        else if (weight.blockRows == 1 && weight.blockColumns == 0)
            text += " for each row";
        else if (weight.blockRows == 0 && weight.blockColumns == 0)
            text += " for each matrix";
        else
            text += fmt::format(" for blocks of {}x{}", weight.blockRows ? weight.blockRows : weight.rows,
                                weight.blockColumns ? weight.blockColumns : weight.columns);
    }
    return text;
}

std::string_view partWord(const QuantScheme& scheme, QuantPart part) {
    switch (part) {
        case kPayload:
            return "values";
        case kScale:
            return "scale";
        case kSecond:
            return scheme.kind == QuantKind::nvfp4    ? "second scale"
                   : scheme.kind == QuantKind::packed ? "shape"
                                                      : "state";
        case kZeros:
            return "zero points";
        case kOrder:
            return "order";
        case kTable:
            return "table";
        case kNestedScale:
            return "scale of scales";
        case kNestedTable:
            return "table of scales";
    }
    return {};
}

void setShape(const Catalog& catalog, QuantizedWeight& weight, DimSpan shape, unsigned bits) {
    const auto doesNotFit = [&](QuantPart part) {
        weight.problem = fmt::format("{} does not fit the shape {} that its parts state",
                                     quoted(catalog, weight.part(part)), formatDims(shape));
    };
    weight.shape.assign(shape.begin(), shape.end());
    weight.bits = bits;
    const DimSpan scale = catalog.shape(weight.part(kScale));
    if (weight.scheme->kind == QuantKind::table) {
        // Counted through, whatever the shape.
        weight.rows = 1;
        weight.columns = elementCount(shape);
        const int64_t bytes = elementCount(catalog.shape(weight.part(kPayload))) *
                              static_cast<int64_t>(dtypeBytes(catalog.dtype(weight.part(kPayload))));
        if (bytes < dividedUp(weight.columns, 2)) return doesNotFit(kPayload);
        weight.blockRows = 1;
        if (weight.blockColumns < 1 || elementCount(scale) != dividedUp(weight.columns, weight.blockColumns))
            doesNotFit(kScale);
        return;
    }
    const DimSpan payload = catalog.shape(weight.part(kPayload));
    if (shape.size() != 2 || payload.size() != 2 || payload[0] != shape[0]) return doesNotFit(kPayload);
    weight.rows = shape[0];
    weight.columns = shape[1];
    if (dividedUp(weight.columns * bits, 32) != payload[1]) return doesNotFit(kPayload);
    if (elementCount(scale) == 1) {
        weight.oneScale = true;
    } else if (scale.empty() || scale.size() > 2 || scale[0] != weight.rows ||
               (scale.size() == 2 && (scale[1] < 1 || weight.columns % scale[1] != 0))) {
        return doesNotFit(kScale);
    } else {
        weight.blockRows = 1;
        weight.blockColumns = scale.size() == 2 && scale[1] > 1 ? weight.columns / scale[1] : 0;
    }
    const TensorId zeros = weight.part(kZeros), order = weight.part(kOrder);
    if (order != kNone && elementCount(catalog.shape(order)) != weight.columns) return doesNotFit(kOrder);
    if (zeros == kNone) return;
    const DimSpan have = catalog.shape(zeros);
    const int64_t scaleColumns = scale.size() == 2 ? scale[1] : 1;
    if (have.size() != 2 || have[0] != dividedUp(weight.rows * bits, 32) || have[1] != scaleColumns)
        doesNotFit(kZeros);
}

}  // namespace shardscope
