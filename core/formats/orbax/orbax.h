// JAX checkpoints of Orbax 0.2.7 to 0.12 (Flax, MaxText, ...): one item or a step with several. Arrays are
// zarr v2 or v3, in OCDBT or plain files. Also reads Flax's older MessagePack files. Layout:
// docs/formats/orbax.md.
#pragma once

#include "formats/format.h"

namespace shardscope {

const Format& orbaxFormat();
// Levanter's checkpoints: zarr arrays as well, in directories nested like its tree or in one database.
const Format& levanterFormat();

}  // namespace shardscope
