// Tells companions from files that may hold tensors, by the file's name and size alone.
#pragma once

#include <cstdint>
#include <string_view>

namespace shardscope {

// Files that belong to a healthy checkpoint without holding its tensors: configuration, tokenizer, the state
// of trainer, scheduler, data loader and random generators, Megatron's common.pt, Lightning's meta.pt,
// documentation. `name` has no directory.
bool isCompanionFile(std::string_view name);

// Companions whose contents are part of the checkpoint: the state besides the model that a run resumes from.
enum class CompanionState : uint8_t {
    none,
    json,   // trainer_state.json
    other,  // torch.save: scheduler, scaler, random generators (Accelerate's random_states_0.pkl, too), data
            // loader, averaged weights, the Trainer's arguments, Megatron's common.pt, Lightning's meta.pt
    optimizer,  // torch.save: the optimizer's state
};
CompanionState companionState(std::string_view name);

// Whether a file that is not a companion may hold tensors: it has an ending that frameworks use, or is larger
// than 1 MiB and not text.
bool mayHoldTensors(std::string_view name, uint64_t size);

// The name of a model format that Shardscope does not read ("ONNX"), empty for any other file. Repositories
// often hold the same model in such a format, too.
std::string_view otherModelFormat(std::string_view name);

}  // namespace shardscope
