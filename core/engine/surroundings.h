// What else is in the directory of a checkpoint, so that nothing is called safe out of ignorance. Private
// to this room.
#pragma once

#include "engine/engine.h"

namespace shardscope {

// Errors: unsupported when the directory holds zarr arrays, which no format here reads; names them.
Status refuseZarr(const Source& source);

// Compares what `reader` accounts for with the data that is in its directory. Sets Checkpoint::reader, joined
// by the state in files beside it, notes and others. Where another format accounts for more than twice as
// much, `checkpoint` becomes that one (unless the caller chose a format). Twice: directories often hold one
// model in two formats of nearly the same size, and then the first one is meant. `source` is the place that
// was opened. Errors: those of refuseZarr() when the arrays are the larger share.
Status accountForDirectory(const Source& source, const CheckpointOptions& options,
                           std::unique_ptr<Reader> reader, Checkpoint& checkpoint);

// The format that fits a source: the first that is certain, else the first that is possible; null = none.
const Format* detectFormat(const Source& source);

}  // namespace shardscope
