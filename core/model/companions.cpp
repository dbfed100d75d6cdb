#include "model/companions.h"

#include <algorithm>
#include <initializer_list>

#include "base/names.h"
#include "model/step_part.h"

namespace shardscope {

namespace {

constexpr uint64_t kLarge = uint64_t{1} << 20;

using Texts = std::initializer_list<std::string_view>;

bool startsWithAny(std::string_view name, Texts beginnings) {
    return std::ranges::any_of(beginnings, [&](std::string_view text) { return name.starts_with(text); });
}
bool endsWithAny(std::string_view name, Texts endings) {
    return std::ranges::any_of(endings, [&](std::string_view text) { return name.ends_with(text); });
}

}  // namespace

// Sources of the whole names: Megatron-LM megatron/core/dist_checkpointing/strategies/common.py, Lightning's
// strategies/fsdp.py, transformers' trainer.py and trainer_utils.py, accelerate's utils/constants.py, verl's
// checkpoint managers.
bool isCompanionFile(std::string_view name) {
    return isAmong(name,
                   {"common.pt", "meta.pt", "training_args.bin", "scheduler.pt", "scheduler.bin", "scaler.pt",
                    "rng_state.pth", "data.pt", "tokenizer.model", "spiece.model", "latest"}) ||
           startsWithAny(
               name, {"rng_state_", "random_states_", "extra_state_", "events.out.tfevents", "dl_state_dict",
                      "sampler", "dataloader", "custom_checkpoint_", "shardscope."}) ||
           endsWithAny(name, {".json", ".jsonl", ".yaml", ".yml", ".txt",  ".md",   ".log", ".csv",
                              ".py",   ".jinja", ".toml", ".cfg", ".ini",  ".html", ".sh",  ".out",
                              ".err",  ".png",   ".svg",  ".pdf", ".lock", ".ssidx"});
}

CompanionState companionState(std::string_view name) {
    if (name == "training_args.bin") return CompanionState::other;
    if (name == "trainer_state.json") return CompanionState::json;
    if (!endsWithAny(name, {".pt", ".pth", ".bin", ".pkl"})) return CompanionState::none;
    const StepPart part = stepPartOf(name);
    if (part == StepPart::optimizer) return CompanionState::optimizer;
    const bool other = isBesideModel(part) || part == StepPart::averages || part == StepPart::progress;
    return other ? CompanionState::other : CompanionState::none;
}

bool mayHoldTensors(std::string_view name, uint64_t size) {
    if (isCompanionFile(name) || name.starts_with('.')) return false;
    return endsWithAny(name, {".pt", ".pth", ".bin", ".distcp", ".safetensors", ".pdparams", ".pdopt",
                              ".ckpt", ".gguf", ".msgpack", ".npz", ".h5"}) ||
           size > kLarge;
}

std::string_view otherModelFormat(std::string_view name) {
    struct Ending {
        std::string_view ending, format;
    };
    constexpr Ending endings[] = {
        {".onnx", "ONNX"},       {".onnx_data", "ONNX"},    {".h5", "Keras HDF5"},
        {".msgpack", "Flax"},    {".ot", "rust-bert"},      {".tflite", "TensorFlow Lite"},
        {".gguf", "GGUF"},       {".mlmodel", "Core ML"},   {".pb", "TensorFlow"},
        {".engine", "TensorRT"}, {".nemo", "NeMo archive"},
    };
    for (const Ending& known : endings) {
        if (name.ends_with(known.ending)) return known.format;
    }
    return {};
}

}  // namespace shardscope
