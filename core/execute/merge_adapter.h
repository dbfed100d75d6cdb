// Shows the weights of a checkpoint with a LoRA adapter merged into them. The values are computed while they
// are read, in blocks: nothing else has to know of it. Chunks stay as the source has them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/stop.h"
#include "formats/format.h"

namespace shardscope {

// What becomes of one tensor of the source. Where both `down` and `replacement` are kNone, only its dtype
// changes.
struct MergedTensor {
    TensorId base = kNone;
    DType dtype = DType::float32;  // of the result: float16, bfloat16 or float32
    // Of the adapter: the matrices A and B. With R[r, columns] and L[rows, r] the weight, as a matrix of its
    // first dimension and all others, gets scaling * (L @ R).
    //   as it is    R = A, L = B
    //   transposed  R = B transposed, L = A transposed: embeddings, and layers that keep [in, out]
    TensorId down = kNone, up = kNone;
    bool transposed = false;
    int64_t rank = 0;
    float scaling = 1;
    // A and B of several experts: A is [experts * rank, in], expert after expert; B is [out, rank * experts],
    // an expert's columns `experts` apart. The weights of all experts, one below the other, are one matrix,
    // of which the tensor holds the rows from `firstRow` on.
    int64_t experts = 1, firstRow = 0;
    // Of the adapter, DoRA's: one number for each row of the weight (for each column where `transposed`). The
    // sum is multiplied by the number and divided by the norm of its row.
    TensorId magnitude = kNone;
    // Of the adapter, same shape: takes the place of the weight, to which the product is added then, too.
    TensorId replacement = kNone;
};

// An element is W + scaling * (L @ R). Products are summed in the order of r, each one added with one
// rounding (fused multiply-add). Then come the product with `scaling` and the sum with W, each rounded to
// float32. At the end the result is rounded to `dtype`, to nearest, ties to even. Source of the formula: peft
// 0.21, tuners/lora/layer.py (get_delta_weight, merge); its matrix product on processors has this order. With
// a magnitude the sum is multiplied by magnitude / norm before it is rounded. The norm is the root of the sum
// of squares in float64, in the order of the row, rounded to float32. Source: DoraLinearVariant of
// tuners/lora/variants.py, dora.py. torch adds up its norms in float32 in an order of its own. The weight is
// read once more for that. Shapes fit, dtypes are float16, bfloat16 or float32. A and B of a weight are held
// while it is read. Errors: limit (matrices that are too large to be held) and those of locate() come when a
// weight is read.
Result<std::unique_ptr<Reader>> mergedReader(std::shared_ptr<const Reader> source, std::string directory,
                                             std::shared_ptr<const Reader> adapter,
                                             std::vector<MergedTensor> tensors, const StopToken& stop);

}  // namespace shardscope
