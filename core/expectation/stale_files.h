// Files of a step that are byte for byte those of an earlier step of its run, while others of the step
// changed. It is a copy that was not replaced, or a save that died in between.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/stop.h"
#include "expectation/contents.h"

namespace shardscope {

// What the tensors of a file are, as the reader knows it. Files without tensors go by their names.
struct HeldTensors {
    bool weights = false, optimizer = false;
    bool trained = false;  // of weights: the optimizer has moments of some
};
using HeldByFile = std::map<std::string, HeldTensors, std::less<>>;  // by path in the step
// `below`: what stands before the catalog's paths, "actor/".
HeldByFile heldByFile(const Catalog& catalog, const std::string& below);

// `earlier`: the last whole steps, newest first. Optimizer state changes with every step; what else does is
// told by the steps before. Where there is one only, weights that did not change while the optimizer that has
// their moments did are a doubt. A step that is a copy as a whole agrees with itself, so it gives nothing.
// Reads the ends of all files, at most some thousands. Of files that are alike it reads more: all of a file
// of up to 16 MiB, else samples. Errors: cancelled.
Result<std::vector<Note>> staleFileNotes(const StepOnDisk& step, const HeldByFile& held,
                                         const Contract& contract, std::span<const StepOnDisk> earlier,
                                         const StopToken& stop);

}  // namespace shardscope
