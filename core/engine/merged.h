// A LoRA adapter that a conversion merges into the weights of its source (ConversionRequest::adapter).
// Private to this room.
//
// Sources: peft 0.21, tuners/lora/config.py (LoraConfig), layer.py (scaling, get_delta_weight),
// utils/other.py (get_pattern_key, ModulesToSaveWrapper), utils/save_and_load.py (names); Megatron-Bridge,
// peft/lora_layers.py ("adapter.linear_in", "adapter.linear_out").
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "execute/merge_adapter.h"

namespace shardscope {

struct AdapterMerge {
    Checkpoint adapter;
    std::vector<MergedTensor> tensors;  // in the dtype of the weight
    std::vector<std::string> how;       // of each: "W + 2 * B @ A of 'a', 'b' (rank 8)"
    std::vector<PlanLeftOut> notes;     // what of the adapter's checkpoint is not merged, and why
    std::string words;                  // all that decides values besides the bytes of both
    uint64_t held = 0;                  // bytes of the largest matrices
};

// Opens the adapter and finds the weight of each of its tensors. `base` may show computed tensors. Errors:
// usage (nothing says how the adapter is scaled), impossible (a tensor without a weight, or of another
// shape), unsupported (other kinds of adapter, by name), those of opening.
Result<AdapterMerge> adapterMerge(const Checkpoint& base, const std::string& path, const StopToken& stop);

// The checkpoint with the adapter merged in. Weights whose dtype `wanted` casts are computed as float32, so
// that they are rounded once; null = none. Errors: impossible (casts of parts of one weight differ).
Result<Checkpoint> mergedCheckpoint(const Checkpoint& base, const AdapterMerge& merge,
                                    const TargetSpec* wanted, const StopToken& stop);

// What cannot be merged into: optimizer state, which belongs to the weights as they were.
void checkMerged(const TargetSpec& spec, std::vector<PlanLeftOut>& impossible);

}  // namespace shardscope
