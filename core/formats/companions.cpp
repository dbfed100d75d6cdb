#include "formats/companions.h"

#include <algorithm>
#include <array>

#include "formats/step_part.h"

namespace shardscope {

namespace {

using Texts = std::string_view;

// Whole names. Sources: Megatron-LM megatron/core/dist_checkpointing/strategies/common.py, Lightning's
// strategies/fsdp.py, transformers' trainer.py and trainer_utils.py, accelerate's utils/constants.py, verl's
// checkpoint managers.
constexpr std::array kNames{
    Texts("common.pt"),     Texts("meta.pt"),       Texts("training_args.bin"),
    Texts("scheduler.pt"),  Texts("scheduler.bin"), Texts("scaler.pt"),
    Texts("rng_state.pth"), Texts("data.pt"),       Texts("tokenizer.model"),
    Texts("spiece.model"),  Texts("latest"),
};
constexpr std::array kBeginnings{
    Texts("rng_state_"),          Texts("random_states_"),     Texts("extra_state_"),
    Texts("events.out.tfevents"), Texts("dl_state_dict"),      Texts("sampler"),
    Texts("dataloader"),          Texts("custom_checkpoint_"), Texts("shardscope."),
};
constexpr std::array kTextEndings{
    Texts(".json"), Texts(".jsonl"), Texts(".yaml"), Texts(".yml"),   Texts(".txt"),  Texts(".md"),
    Texts(".log"),  Texts(".csv"),   Texts(".py"),   Texts(".jinja"), Texts(".toml"), Texts(".cfg"),
    Texts(".ini"),  Texts(".html"),  Texts(".sh"),   Texts(".out"),   Texts(".err"),  Texts(".png"),
    Texts(".svg"),  Texts(".pdf"),   Texts(".lock"), Texts(".ssidx"),
};
constexpr std::array kDataEndings{
    Texts(".pt"),          Texts(".pth"),      Texts(".bin"),   Texts(".distcp"),
    Texts(".safetensors"), Texts(".pdparams"), Texts(".pdopt"), Texts(".ckpt"),
    Texts(".gguf"),        Texts(".msgpack"),  Texts(".npz"),   Texts(".h5"),
};
constexpr std::array kTorchEndings{Texts(".pt"), Texts(".pth"), Texts(".bin"), Texts(".pkl")};
constexpr uint64_t kLarge = uint64_t{1} << 20;

template <class List>
bool endsWithAny(std::string_view name, const List& endings) {
    return std::any_of(endings.begin(), endings.end(), [&](Texts ending) { return name.ends_with(ending); });
}

}  // namespace

bool isCompanionFile(std::string_view name) {
    return std::find(kNames.begin(), kNames.end(), name) != kNames.end() ||
           std::any_of(kBeginnings.begin(), kBeginnings.end(),
                       [&](Texts beginning) { return name.starts_with(beginning); }) ||
           endsWithAny(name, kTextEndings);
}

CompanionState companionState(std::string_view name) {
    for (const std::string_view other : {"common.pt", "meta.pt", "scheduler.pt", "scheduler.bin", "scaler.pt",
                                         "rng_state.pth", "training_args.bin"}) {
        if (name == other) return CompanionState::other;
    }
    if (name.starts_with("rng_state_") && name.ends_with(".pth")) return CompanionState::other;
    if (name.starts_with("random_states_") && name.ends_with(".pkl")) return CompanionState::other;
    if (name == "optimizer.pt" || name == "optimizer.bin") return CompanionState::optimizer;
    if (name == "trainer_state.json") return CompanionState::json;
    if (!endsWithAny(name, kTorchEndings)) return CompanionState::none;
    switch (stepPartOf(name)) {
        case StepPart::optimizer:
            return CompanionState::optimizer;
        case StepPart::averages:
        case StepPart::scheduler:
        case StepPart::progress:
        case StepPart::random:
        case StepPart::loader:
        case StepPart::scaler:
            return CompanionState::other;
        default:
            return CompanionState::none;
    }
}

bool mayHoldTensors(std::string_view name, uint64_t size) {
    if (isCompanionFile(name) || name.starts_with('.')) return false;
    return endsWithAny(name, kDataEndings) || size > kLarge;
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
