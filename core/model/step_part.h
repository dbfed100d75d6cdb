// Tells by its name alone which part of a step a file or directory holds. step_part.cpp has the tables of
// names, with their sources.
#pragma once

#include <cstdint>
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
    loader,     // position of the data loader: "data.pt", "sampler.bin"
    scaler,     // loss scaling: "scaler.pt"
    arguments,  // arguments of the run: "training_args.bin"
    config,     // of the model: "config.json", "adapter_config.json"
    tokenizer,  // vocabulary, templates and preprocessors
    record,     // for people: documentation, logs, scripts
};
std::string_view partName(StepPart part);  // "random states"; empty for unknown

// `name` is the last component of a path. Parts of it that name ranks, shards or world sizes are ignored.
StepPart stepPartOf(std::string_view name);
// Of a file below a step: by its name or, where that says nothing, by its directory's ("optim/rank0.pt").
StepPart stepPartOfPath(std::string_view path);

// Whether a resumed run reads this part: true unless it is config, tokenizer, record or unknown.
bool isState(StepPart part);
// Whether the part never holds weights, whatever its tensors are named: random states, a scheduler, a data
// loader.
bool isBesideModel(StepPart part);

}  // namespace shardscope
