#include "model/step_part.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <span>
#include <vector>

namespace shardscope {

namespace {

using enum StepPart;

struct Known {
    std::string_view name;
    StepPart part;
};

// Names that are more than the sum of their words, after endings and numbers are taken off. Sources:
// transformers' trainer.py, accelerate's utils/constants.py, Megatron-LM's checkpointing.py, OLMo-core's
// checkpoint.py, Colossal-LLaMA's ckpt_io.py, Lightning's strategies/fsdp.py, PaddleFormers' trainer, Orbax's
// array files.
constexpr std::array kWhole{
    Known{"model_optim_rng", weights},
    Known{"model_and_optim", weights},
    Known{"dist_ckpt", weights},
    Known{"modeling", weights},
    Known{"opt", optimizer},
    Known{"lr", scheduler},
    Known{"lr_scheduler", scheduler},
    Known{"data", loader},
    Known{"dl_state_dict", loader},
    Known{"train", progress},
    Known{"trainer_state", progress},
    Known{"train_state", progress},
    Known{"training_state", progress},
    Known{"extra_state", progress},
    Known{"running_states", progress},
    Known{"running_state", progress},
    Known{"latest_train_state", progress},
    Known{"client_state", progress},
    Known{"custom_checkpoint", progress},
    Known{"common", progress},
    Known{"state", progress},
    Known{"meta", progress},
    Known{"progress", progress},
    Known{"latest", progress},
    Known{"zero_to_fp", record},
    Known{"losses", record},
    Known{"metrics", record},
    Known{"eval_results", record},
    Known{"train_results", record},
    Known{"all_results", record},
    Known{"zero_to_torch", record},
    Known{"saved_signal", record},
};
// The first word of this list that the name has decides: an optimizer's file may name the model, too. Only
// words that no model is called by.
constexpr std::array kWords{
    Known{"optimizer", optimizer}, Known{"optim", optimizer},        Known{"optimizers", optimizer},
    Known{"master", optimizer},    Known{"scheduler", scheduler},    Known{"sched", scheduler},
    Known{"rng", random},          Known{"random", random},          Known{"scaler", scaler},
    Known{"dataloader", loader},   Known{"sampler", loader},         Known{"ema", averages},
    Known{"args", arguments},      Known{"arguments", arguments},    Known{"hparams", arguments},
    Known{"tokenizer", tokenizer}, Known{"vocab", tokenizer},        Known{"merges", tokenizer},
    Known{"spiece", tokenizer},    Known{"special", tokenizer},      Known{"added", tokenizer},
    Known{"template", tokenizer},  Known{"preprocessor", tokenizer}, Known{"processor", tokenizer},
    Known{"model", weights},       Known{"models", weights},         Known{"weights", weights},
    Known{"weight", weights},      Known{"params", weights},         Known{"parameters", weights},
    Known{"net", weights},         Known{"network", weights},        Known{"policy", weights},
    Known{"actor", weights},       Known{"critic", weights},         Known{"generator", weights},
    Known{"adapter", weights},     Known{"consolidated", weights},   Known{"module", weights},
    Known{"lora", weights},        Known{"unet", weights},
};
bool isLetter(char c) {
    return std::isalpha(static_cast<unsigned char>(c)) != 0;
}

// Letters between anything else, in lower case: "optim", "world", "size", "rank".
std::vector<std::string> wordsOf(std::string_view name) {
    std::vector<std::string> words;
    bool inside = false;
    for (const char c : name) {
        if (isLetter(c)) {
            if (!inside) words.emplace_back();
            words.back() += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
        }
        inside = isLetter(c);
    }
    return words;
}

std::string joined(std::span<const std::string> words) {
    std::string all;
    for (const std::string& word : words)
        all += (all.empty() ? "" : "_") + word;
    return all;
}

}  // namespace

std::string_view partName(StepPart part) {
    // In the order of StepPart.
    constexpr std::string_view names[] = {"",
                                          "weights",
                                          "averaged weights",
                                          "optimizer state",
                                          "learning rate scheduler",
                                          "step and trainer state",
                                          "random states",
                                          "data loader",
                                          "loss scaler",
                                          "arguments of the run",
                                          "model configuration",
                                          "tokenizer",
                                          "records"};
    return names[static_cast<size_t>(part)];
}

StepPart stepPartOf(std::string_view name) {
    if (name.starts_with("events.out.tfevents") || name.starts_with("README") || name.starts_with("LICENSE"))
        return record;
    if (name.starts_with("latest") && name.ends_with(".txt")) return progress;
    for (const std::string_view ending :
         {".md", ".log", ".txt", ".py", ".sh", ".csv", ".jsonl", ".html", ".png", ".out", ".err", ".svg"}) {
        // Tokenizers keep merges and vocabularies as text.
        if (name.ends_with(ending)) return name == "merges.txt" || name == "vocab.txt" ? tokenizer : record;
    }
    if (name.ends_with(".pdopt")) return optimizer;
    const size_t dot = name.find('.', 1);
    const bool describes = name.find("config.") != name.npos || name.find("configuration.") != name.npos;
    std::vector<std::string> words = wordsOf(name.substr(0, dot));
    for (const std::string_view number :
         {"world", "size", "rank", "shard", "of", "tp", "pp", "dp", "mp", "part"})
        std::erase(words, number);
    const std::string whole = joined(words);
    for (const Known& known : kWhole)
        if (known.name == whole) return known.part;
    for (const Known& known : kWords) {
        // "scheduler_config.json" configures one; only a tokenizer is all configuration.
        if (describes && known.part != tokenizer) continue;
        if (std::ranges::count(words, known.name)) return known.part;
    }
    if (describes) return config;
    return name.ends_with(".safetensors") ? weights : unknown;
}

StepPart stepPartOfPath(std::string_view path) {
    const auto last = [](std::string_view text) { return text.substr(text.rfind('/') + 1); };
    const StepPart part = stepPartOf(last(path));
    const size_t slash = path.rfind('/');
    return part != unknown || slash == path.npos ? part : stepPartOf(last(path.substr(0, slash)));
}

bool isState(StepPart part) {
    return part != unknown && part != config && part != tokenizer && part != record;
}

bool isBesideModel(StepPart part) {
    return part == scheduler || part == random || part == loader || part == scaler;
}

}  // namespace shardscope
