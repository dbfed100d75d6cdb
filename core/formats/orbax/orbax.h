// Orbax checkpoints of JAX (Flax, MaxText, ...), Orbax 0.2.7 to 0.12: one item or a step with several, zarr
// v2 and v3 arrays in OCDBT or in plain files; and Flax's older single files of MessagePack.
// docs/formats/orbax.md has the layout.
#pragma once

#include "formats/format.h"

namespace shardscope {

const Format& orbaxFormat();
// Levanter's checkpoints: the same arrays, in directories as its tree nests them or in one database.
const Format& levanterFormat();

}  // namespace shardscope
