// What the kinds of saves add to the catalog besides weights. Private to this format.
#pragma once

#include "formats/deepspeed/parameters.h"

namespace shardscope::deepspeed {

// ZeRO: the flat partitions of all ranks. Returns what Reader::fileNotes() answers; may be empty.
FindNotes addPartitions(Save& save, Parameters& parameters);
// The optimizer without ZeRO.
void addPlainStates(Save& save, Parameters& parameters);
// A universal checkpoint: a directory for each parameter. Errors: those of reading `optimizer_state.pt`.
Status addUniversal(Save& save, Parameters& parameters);

// Files that ranks should have written, and weights that no file holds.
void addMissingFiles(Save& save, const Parameters& parameters);
// Says where files are of several steps.
void noteMixedSteps(Save& save);

}  // namespace shardscope::deepspeed
