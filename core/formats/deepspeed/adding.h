// Adds to the catalog what each kind of save holds besides weights. Private to this format.
#pragma once

#include "formats/deepspeed/parameters.h"

namespace shardscope::deepspeed {

// Adds the flat ZeRO partitions of all ranks. Returns the implementation of Reader::fileNotes(); may be
// empty.
FindNotes addPartitions(Save& save, Parameters& parameters);
// Adds the state of an optimizer without ZeRO.
void addPlainStates(Save& save, Parameters& parameters);
// Adds a universal checkpoint, with a directory for each parameter. Errors: those of reading
// `optimizer_state.pt`.
Status addUniversal(Save& save, Parameters& parameters);

// Notes files that ranks should have written, and weights that no file holds.
void addMissingFiles(Save& save, const Parameters& parameters);
// Notes files of different steps.
void noteMixedSteps(Save& save);

}  // namespace shardscope::deepspeed
