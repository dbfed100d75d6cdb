// Weights of 8 bits that Transformer Engine pickles as one object: their values, and the scales by which
// these are multiplied. They are listed as two tensors, named as in files of fp8 weights.
#pragma once

#include "encoding/torch_tensor.h"

namespace shardscope::torch_save {

// What the name of the scales has behind that of the values.
inline constexpr const char* kScaleSuffix = "_scale_inv";

struct ScaledTensor {
    TorchTensor values, scales;
};

bool isScaled(const ValueGraph& graph, NodeId node);
// Errors: damaged, unsupported (kinds and layouts that are not known).
Result<ScaledTensor> asScaled(const ValueGraph& graph, NodeId node);

}  // namespace shardscope::torch_save
