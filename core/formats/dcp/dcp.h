// PyTorch's distributed checkpoint (DCP). `.metadata` is a pickle of tensors, boxes and storage locations;
// each `__<rank>_<n>.distcp` is a sequence of torch.save archives. Reads torch 2.0 to 2.15 and
// Megatron-Core's torch_dist; writes for torch 2.3 and later. Facts and sources: docs/formats/dcp.md.
#pragma once

#include "formats/format.h"

namespace shardscope {

const Format& dcpFormat();
// For formats that open what this one does: further directories of the same save.
const FormatOption& furtherDirectoriesOption();

}  // namespace shardscope
