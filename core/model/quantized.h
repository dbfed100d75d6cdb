// Quantized weights: weights that a checkpoint stores as several tensors, such as values of few bits and
// their scales, which mean something together only. They are found by names, dtypes and shapes, in any
// format.
//
// Sources of the schemes: transformers 5.24 (integrations/finegrained_fp8.py, mxfp4.py, bitsandbytes.py),
// compressed-tensors 0.20 (compressors/*), Model Optimizer 0.47 (torch/quantization/qtensor), bitsandbytes
// 0.50 (functional.py), GPTQModel 7 (nn_modules/qlinear), AutoAWQ 0.2.9 (utils/packing_utils.py), torchao
// 0.18 (quantization/quantize_/workflows, prototype/safetensors).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/catalog.h"

namespace shardscope {

enum class QuantKind : uint8_t {
    scaled,   // elements of 8 bits and their scales
    nvfp4,    // two values of float4 in a byte, a scale for each 16, one for all
    mxfp4,    // two values of float4 in a byte, a power of two for each 32
    packed,   // integers of few bits, packed along rows into int32
    columns,  // GPTQ and AWQ: integers of 4 bits in int32, stored transposed
    table,    // bitsandbytes: indices of 4 bits into a table of 16 values
    rows      // bitsandbytes: int8, the greatest magnitude of each row
};

// What the parts of a weight are to each other. Not every scheme has all.
enum QuantPart : uint8_t { kPayload, kScale, kSecond, kZeros, kOrder, kTable, kNestedScale, kNestedTable };
constexpr size_t kQuantParts = 8;

struct QuantScheme {
    struct Part {
        QuantPart part;
        std::string_view suffix;  // after the stem
        std::span<const DType> dtypes;
        bool required = true;
    };
    QuantKind kind;
    std::string_view name;        // in JSON: "fp8"
    std::string_view title;       // "fp8 with scales"
    std::string_view weight;      // what the stem lacks of the weight's name: "" or "weight"
    std::span<const Part> parts;  // the payload first, then the part by which the scheme is known
};

// What a model's config.json says of it (quantization_config); what it does not say stays 0 or empty.
struct QuantConfig {
    std::string method;                       // quant_method: "fp8", "compressed-tensors", "gptq"
    std::string layout;                       // "gptq_v2", "gemm"
    int64_t blockRows = 0, blockColumns = 0;  // weight_block_size
};

struct QuantizedWeight {
    const QuantScheme* scheme = nullptr;
    std::string name;                         // of the weight: "model.layers.0.mlp.up_proj.weight"
    std::array<TensorId, kQuantParts> parts;  // kNone = it has none
    Dims shape;                               // of the weight; empty where only the values of its parts tell
    // How the payload is laid out: matrices of rows and columns, of the weight or (`transposed`) of its
    // transpose. One scale is for blockRows x blockColumns of them; 0 = for all of a matrix in that
    // direction.
    bool transposed = false;
    int64_t matrices = 1, rows = 0, columns = 0;
    int64_t blockRows = 0, blockColumns = 0;
    bool oneScale = false;  // for all matrices
    unsigned bits = 0;      // of one value
    // bitsandbytes: scales that are quantized themselves, one scale for so many of them, and what is added.
    int64_t nestedBlock = 0;
    float nestedOffset = 0;
    bool interleaved = false;   // AWQ: the values of a word are in the order 0 2 4 6 1 3 5 7
    bool zerosLessOne = false;  // GPTQ: the zeros are stored as one less
    bool targetDtype = false;   // Model Optimizer: it computes in the dtype that is asked for
    std::string problem;        // why its parts do not make up a weight, a sentence; empty = they do
    std::string refused;        // why it cannot be computed though nothing is wrong with it
    TensorId part(QuantPart which) const { return parts[which]; }
    std::vector<TensorId> tensors() const;  // its parts that are there
};

// All of a catalog, in the order of their payloads. A weight of which only some parts are there is one, too,
// with a `problem` that names what is missing.
std::vector<QuantizedWeight> quantizedWeights(const Catalog& catalog, const QuantConfig& config = {});

// Of each tensor the index of its weight, or kNone.
std::vector<uint32_t> quantizedByTensor(const Catalog& catalog, std::span<const QuantizedWeight> weights);

// "fp8 with scales for blocks of 128x128"
std::string schemeText(const QuantizedWeight& weight);

// What a part is called in this scheme: "values", "scale".
std::string_view partWord(const QuantScheme& scheme, QuantPart part);

// Completes a weight whose shape stands in a part of it: QuantKind::packed, and QuantKind::table, whose
// blockColumns are set. It has dimensions that a catalog could hold, and values of 2, 4 or 8 bits. Sets
// `problem` where the other parts do not fit.
void setShape(const Catalog& catalog, QuantizedWeight& weight, DimSpan shape, unsigned bits);

}  // namespace shardscope
