// What a file or a directory of a training step holds, told by its name alone. Frameworks and scripts name
// the parts of a step by few words; the tables are in step_part.cpp, with their sources.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace shardscope {

enum class StepPart : uint8_t {
    unknown,
    weights,    // "model.safetensors", "pytorch_model_fsdp_0", "actor"
    averages,   // an average of the weights: "ema.pt"
    optimizer,  // "optimizer.pt", "optim_world_size_2_rank_0.pt", "master_weights"
    scheduler,  // "scheduler.pt", "lr_scheduler"
    progress,   // step, counters, state of a trainer: "trainer_state.json", "extra_state"
    random,     // states of random generators: "rng_state_0.pth"
    loader,     // where the data loader is: "data.pt", "sampler.bin"
    scaler,     // loss scaling: "scaler.pt"
    arguments,  // how the run was started: "training_args.bin"
    config,     // of the model: "config.json", "adapter_config.json"
    tokenizer,  // vocabulary, templates and preprocessors
    record,     // for people: documentation, logs, scripts
};
std::string_view partName(StepPart part);  // "random states"; empty for unknown

// `name` is the last component of a path. Names of ranks, shards and worlds in it do not count.
StepPart stepPartOf(std::string_view name);

// Whether a resumed run reads it: anything but configuration, tokenizer, records and what is unknown.
bool isState(StepPart part);
// State that is never weights, whatever its tensors are called: random states, a scheduler, a data loader.
bool isBesideModel(StepPart part);

// A path with every run of digits as '#': the same for files that differ in ranks, shards and steps only.
std::string withoutNumbers(std::string_view path);

}  // namespace shardscope
