#include "expectation/contract.h"

#include <algorithm>

#include "base/names.h"
#include "storage/files_below.h"

namespace shardscope {

namespace {

using enum Need;

constexpr int kMostLevels = 8;  // of directories in a step

// '*' is any text, '/' too.
bool fitsGlob(std::string_view glob, std::string_view text) {
    size_t g = 0, t = 0, star = glob.npos, from = 0;
    while (t < text.size()) {
        if (g < glob.size() && glob[g] == '*') {
            star = g++;
            from = t;
        } else if (g < glob.size() && glob[g] == text[t]) {
            ++g, ++t;
        } else if (star != glob.npos) {
            g = star + 1;
            t = ++from;
        } else {
            return false;
        }
    }
    return std::all_of(glob.begin() + static_cast<ptrdiff_t>(g), glob.end(), [](char c) { return c == '*'; });
}

// transformers/trainer.py, _save_checkpoint(): model and training_args.bin, optimizer and scheduler, random
// states, trainer_state.json last. _load_rng_state() only warns without its file; a missing optimizer or
// scheduler is not told, and a missing config.json only stops from_pretrained(). With DeepSpeed the state is
// in global_stepN, which `latest` names.
constexpr NeededFile kTrainer[] = {
    {"trainer_state.json", resume, resume, true},
    {"latest", resume, resume, false},
    {"rng_state*.pth", result, resume, false},
    {"training_args.bin|generation_config.json|zero_to_*", nothing, nothing, false},
    {"config.json", nothing, resume, false},
    {"adapter_config.json", result, result, false},
};
// Folders of the same names that others write: all that one step has counts.
constexpr NeededFile kTrainerLike[] = {
    {"trainer_state.json", resume, resume, true},
    {"training_args.bin|generation_config.json|zero_to_*", nothing, nothing, false},
};
// PaddleNLP and PaddleFormers, trainer/trainer.py: the same order; saved_signal_R says that rank R has ended.
constexpr NeededFile kPaddle[] = {
    {"rng_state*.pth", result, resume, false},
    {"training_args.bin|generation_config.json|saved_signal_*|.*", nothing, nothing, false},
    {"config.json", nothing, resume, false},
};
// accelerate/checkpointing.py: load_accelerator_state() only logs that random states are missing. One that is
// torn tells of a save that was cut, or of data that did not reach the disk.
constexpr NeededFile kAccelerate[] = {
    {"random_states_*.pkl", result, resume, false},
};
// lightning/pytorch/strategies/fsdp.py: loops and callbacks, by rank 0 once all ranks have written.
constexpr NeededFile kLightning[] = {
    {"meta.pt", resume, resume, false},
};
// Megatron-Bridge, training/checkpointing.py: train_state.pt, both trackers and run_config.yaml come after
// the shards; loading without run_config.yaml takes the save for one of Megatron-LM, whose arguments it
// lacks.
constexpr NeededFile kBridge[] = {
    {"train_state.pt|run_config.yaml", resume, resume, true},
    {"*tokenizer/*", nothing, nothing, false},
};
// verl/utils/checkpoint/fsdp_checkpoint_manager.py: three files of each rank; what is under huggingface/ is
// for other programs.
constexpr NeededFile kVerl[] = {
    {"*huggingface/*|*fsdp_config.json|*lora_adapter/*", nothing, nothing, false},
};
// orbax: what restoring needs is judged by the reader; a JSON item is the file `metadata` of its directory.
constexpr NeededFile kOrbax[] = {
    {"*/commit_success.txt|commit_success.txt|*_METADATA|*_sharding|*array_metadatas/*|*ocdbt*|*/d/*",
     nothing, nothing, false},
    {"*/metadata", resume, resume, false},
};
// torch_checkpointing 0.1 writes metadata.pkl with the first save of a manager alone.
constexpr NeededFile kTorchCheckpointing[] = {
    {"metadata.pkl", nothing, resume, false},
};

// olmo/checkpoint.py: an unsharded save is model.pt, optim.pt, train.pt and config.yaml, or as safetensors.
constexpr NeededFile kOlmo[] = {
    {"train.pt", resume, resume, true},
};
// The same, sharded (`local`), config.yaml last: no file of a rank may lack.
constexpr NeededFile kOlmoLocal[] = {
    {"optim/rank*.pt|train/rank*.pt", resume, resume, true},
    {"config.yaml", result, result, true},
};
// OLMo-core, train/checkpoint.py: a directory without .metadata.json is no checkpoint to it. A run on other
// ranks takes the trainer's state of rank 0. OLMo with DCP (torch_new) has the same but the first.
constexpr NeededFile kOlmoCore[] = {
    {".metadata.json", resume, resume, true},
    {"train/rank0.pt", resume, resume, true},
    {"train/rank*.pt", result, result, false},
};

struct Entry {
    bool (*fits)(const StepContents&);
    Contract contract;
};

bool isCheckpointNumber(std::string_view name) {
    return name.starts_with("checkpoint-") && name.size() > 11 &&
           name.find_first_not_of("0123456789", 11) == name.npos;
}

const Entry kContracts[] = {
    {[](const StepContents& step) {
         return step.has("_CHECKPOINT_METADATA|*/_METADATA|*manifest.ocdbt|*commit_success.txt");
     },
     {"Orbax", "", kOrbax}},
    {[](const StepContents& step) {
         return step.has("*.pdparams|*.pdopt|saved_signal_*|optimizer*.safetensors*|master_weights*") &&
                (isCheckpointNumber(step.name) || step.has("trainer_state.json|training_args.bin"));
     },
     {"PaddleNLP", "", kPaddle}},
    {[](const StepContents& step) { return step.has("training_args.bin"); },
     {"Hugging Face Trainer", "trainer_state.json", kTrainer}},
    {[](const StepContents& step) { return step.has("*world_size_*_rank_*.pt"); }, {"verl", "", kVerl}},
    {[](const StepContents& step) {
         return step.has("random_states_*.pkl") || (step.has("optimizer.bin") && step.has("scheduler.bin"));
     },
     {"Accelerate", "random_states_0.pkl", kAccelerate}},
    {[](const StepContents& step) {
         return step.find("run_config.yaml") || (step.find("train_state.pt") && step.find("metadata.json"));
     },
     {"Megatron-Bridge", "run_config.yaml", kBridge}},
    {[](const StepContents& step) { return step.find("meta.pt") && step.find(".metadata"); },
     {"Lightning", "meta.pt", kLightning}},
    {[](const StepContents& step) {
         return step.find("config.yaml") && (step.find("optim.pt") || step.find("optim.safetensors")) &&
                (step.find("model.pt") || step.find("model.safetensors")) && !step.find("other.pt");
     },
     {"OLMo", "", kOlmo}},
    {[](const StepContents& step) { return step.find("metadata.yaml") && step.has("model/rank*.pt"); },
     {"OLMo", "", kOlmoLocal}},
    {[](const StepContents& step) {
         return step.find("model_and_optim/.metadata") && step.find("config.yaml");
     },
     {"OLMo", "", std::span(kOlmoCore).subspan(1)}},
    {[](const StepContents& step) {
         return step.find("model_and_optim/.metadata") &&
                (step.has("train/*") || step.find(".metadata.json"));
     },
     {"OLMo", "", kOlmoCore}},
    {[](const StepContents& step) { return step.has("metadata.pkl"); },
     {"torch_checkpointing", "", kTorchCheckpointing}},
    {[](const StepContents& step) {
         return step.has("trainer_state.json") ||
                (isCheckpointNumber(step.name) && step.has("optimizer.pt|scheduler.pt|rng_state*.pth"));
     },
     {"a trainer", "trainer_state.json", kTrainerLike}},
};
// Scripts, and later steps of torch_checkpointing.
constexpr Contract kScript{"", "", kTorchCheckpointing};

// A file that no contract names.
Need needOf(std::string_view path) {
    const StepPart part = stepPartOf(lastName(path));
    return part == StepPart::record || part == StepPart::tokenizer || part == StepPart::arguments ? nothing
                                                                                                  : resume;
}

bool isHash(std::string_view component) {
    return component.size() >= 16 &&
           component.find_first_not_of("0123456789abcdefABCDEF.-") == std::string_view::npos;
}

}  // namespace

std::string familyOf(std::string_view path) {
    std::string family;
    while (!path.empty()) {
        const size_t end = path.find('/');
        const std::string_view component = path.substr(0, end);
        family += isHash(component) ? "*" : withoutNumbers(component);
        if (end == path.npos) break;
        family += '/';
        path.remove_prefix(end + 1);
    }
    return family;
}

bool isStateFile(std::string_view name) {
    return fitsGlobs(
               "*.pt|*.pth|*.bin|*.pkl|*.ckpt|*.safetensors|*.pdparams|*.pdopt|*.json|*.npz|*.msgpack|*."
               "metadata",
               name) ||
           (name.find('.') == name.npos && isState(stepPartOf(name)));
}

std::string inside(std::string_view directory, std::string_view name) {
    if (directory.empty() || name.empty()) return std::string(directory.empty() ? name : directory);
    return joinPath(directory, name);
}

std::string_view lastName(std::string_view path) {
    return path.substr(path.rfind('/') + 1);
}

bool fitsGlobs(std::string_view globs, std::string_view path) {
    while (!globs.empty()) {
        const size_t end = globs.find('|');
        if (fitsGlob(globs.substr(0, end), path)) return true;
        globs = end == globs.npos ? std::string_view() : globs.substr(end + 1);
    }
    return false;
}

const StepFile* StepContents::find(std::string_view path) const {
    const auto at = std::ranges::lower_bound(files, path, {}, &StepFile::path);
    return at != files.end() && at->path == path ? &*at : nullptr;
}

bool StepContents::has(std::string_view globs) const {
    return std::ranges::any_of(files, [&](const StepFile& file) { return fitsGlobs(globs, file.path); });
}

Result<StepContents> listContents(const Directory& directory, const std::string& below) {
    StepContents step;
    step.name = splitPath(inside(directory.path(), below)).second;
    SHARDSCOPE_ASSIGN(const auto files, filesBelow(directory, below, kMostLevels, Closed::skip));
    for (const DirectoryEntry& file : files)
        step.files.push_back({file.name, file.size, file.modifiedNs, file.inode, file.changedNs});
    return step;
}

Severity severityOf(Need need) {
    return need == resume ? Severity::error : need == result ? Severity::warning : Severity::info;
}

const NeededFile* Contract::find(std::string_view path) const {
    const auto at =
        std::ranges::find_if(files, [&](const NeededFile& file) { return fitsGlobs(file.globs, path); });
    return at == files.end() ? nullptr : &*at;
}

Need Contract::absent(std::string_view path) const {
    const NeededFile* file = find(path);
    return file ? file->absent : needOf(path);
}

Need Contract::damaged(std::string_view path) const {
    const NeededFile* file = find(path);
    return file ? file->damaged : needOf(path);
}

const Contract& contractOf(const StepContents& step) {
    for (const Entry& entry : kContracts)
        if (entry.fits(step)) return entry.contract;
    return kScript;
}

}  // namespace shardscope
