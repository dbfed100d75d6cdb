// Whether 16-bit weights are what their fp32 masters round to. Private to this room.
#pragma once

#include <vector>

#include "base/stop.h"
#include "formats/format.h"

namespace shardscope {

// Optimizers round the masters to the weights after each step. Where the values of a file have nothing to do
// with those of the other side, it was exchanged with that of another rank, or is of another save. Reads some
// hundred elements of each file that holds weights or masters, at most some thousands of files. Such a file
// is an error without which a conversion would lack anything. Errors: cancelled.
Result<std::vector<Note>> masterNotes(const Reader& reader, const StopToken& stop);

}  // namespace shardscope
