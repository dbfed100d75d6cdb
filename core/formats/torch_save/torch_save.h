// Files of torch.save: zip archives of torch 1.6 to 2.15 and the older streams. Facts and their sources:
// docs/formats/torch_save.md.
#pragma once

#include "formats/format.h"

namespace shardscope {

const Format& torchSaveFormat();

}  // namespace shardscope
