// PyTorch's distributed checkpoint (DCP): a directory with `.metadata` (a pickle of tensors, boxes and where
// they are stored) and `__<rank>_<n>.distcp` files, each a sequence of torch.save archives. Read: torch 2.0
// to 2.15, Megatron-Core's torch_dist. Written: what torch 2.3 and later load. Facts and their sources:
// docs/formats/dcp.md.
#pragma once

#include "formats/format.h"

namespace shardscope {

const Format& dcpFormat();

}  // namespace shardscope
