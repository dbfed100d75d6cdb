// What the files of a save lack, and files of several saves.
#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include <fmt/format.h>

#include "base/names.h"
#include "base/units.h"
#include "formats/deepspeed/parameters.h"

namespace shardscope::deepspeed {

namespace {

constexpr size_t kMostMissing = 1000;  // weights that are listed one by one

// A step as text: a float32 of torch's AdamW, or an integer.
std::string stepText(DType dtype, const std::string& bytes) {
    float real = 0;
    int64_t integer = 0;
    if (dtype == DType::float32 && bytes.size() == sizeof real) {
        std::memcpy(&real, bytes.data(), sizeof real);
        return fmt::format("{}", real);
    }
    std::memcpy(&integer, bytes.data(), std::min(bytes.size(), sizeof integer));
    return fmt::format("{}", integer);
}

using FilesByStep =
    std::map<std::pair<uint32_t, int64_t>, std::map<std::string, std::vector<const OptimizerFile*>>>;

// By model-parallel rank and group: the text of the step, and the files that have it.
FilesByStep stepsOf(Save& save) {
    FilesByStep found;
    for (const OptimizerFile& file : save.optimizers) {
        if (file.index == kNone) continue;
        for (const auto& [number, group] : file.states.groups) {
            for (const auto& [state, tensor] : group.tensors) {
                const StoredTensor& stored = save.contents(file.index).tensors[tensor];
                if (state != "step" || stored.shape.size() > 1 || elementCount(stored.shape) != 1) continue;
                const auto bytes = save.assembly.files().bytesOf(file.index, tensor);
                if (!bytes.ok()) continue;
                found[{file.mp, number}][stepText(stored.dtype, *bytes)].push_back(&file);
            }
            for (const auto& [state, value] : group.objects) {
                if (state == "step") found[{file.mp, number}][valueRepr(*value, 40)].push_back(&file);
            }
        }
    }
    return found;
}

class MissingFiles {
  public:
    explicit MissingFiles(Save& save) : save_(save) {}

    void addRanks();
    void addWeights(const Parameters& parameters);
    void addExperts();
    void addExpertOptimizers();

  private:
    void add(std::string name, uint32_t rank, std::string message, Note::Lacks lacks);
    void noteUnread();

    Save& save_;
};

void MissingFiles::add(std::string name, uint32_t rank, std::string message, Note::Lacks lacks) {
    save_.assembly.addMissingRank(save_.tag.prefix + name, rank, Severity::error, std::move(message), lacks);
}

// What only files name that cannot be read is not in the catalog.
void MissingFiles::noteUnread() {
    const auto unread = [&](const TagFile& file, Note::Lacks lacks) {
        save_.assembly.note(rule::rankMissing, Severity::error,
                            "it cannot be read; what only it says of the tensors is lacking", file.name, {},
                            lacks);
    };
    for (const ModelFile& model : save_.models)
        if (!save_.modelOf(model.mp)) unread(*model.file, Note::Lacks::anything);
    std::set<uint32_t> readable;
    for (const OptimizerFile& file : save_.optimizers)
        if (file.index != kNone) readable.insert(file.mp);
    for (const OptimizerFile& file : save_.optimizers)
        if (!readable.contains(file.mp)) unread(*file.file, save_.lacksOfOptimizer());
}

void MissingFiles::addRanks() {
    noteUnread();
    std::set<std::pair<uint32_t, uint32_t>> models, optimizers;
    for (const ModelFile& model : save_.models)
        models.emplace(model.mp, model.dp);
    for (const OptimizerFile& file : save_.optimizers)
        optimizers.emplace(file.mp, file.dp);
    const bool perRank = save_.stage == 3;
    const bool bf16 =
        std::ranges::any_of(save_.optimizers, [](const OptimizerFile& f) { return f.file->about.bf16; });
    for (uint32_t mp = 0; mp < save_.mpWorld; ++mp) {
        for (uint32_t dp = 0; dp < (perRank ? save_.dpWorld : 1); ++dp) {
            if (models.contains({mp, dp})) continue;
            add(perRank ? fmt::format("zero_pp_rank_{}_mp_rank_{:02}_model_states.pt", dp, mp)
                        : fmt::format("mp_rank_{:02}_model_states.pt", mp),
                save_.rankOf(dp, mp), "the model states of this rank are missing",
                save_.modelOf(mp) ? Note::Lacks::nothing : Note::Lacks::anything);
        }
        for (uint32_t dp = 0; dp < save_.dpWorld && save_.stage > 0 && !save_.tag.universal; ++dp) {
            if (optimizers.contains({mp, dp})) continue;
            add(fmt::format("{}zero_pp_rank_{}_mp_rank_{:02}_optim_states.pt", bf16 ? "bf16_" : "", dp, mp),
                save_.rankOf(dp, mp),
                fmt::format("the optimizer states of this rank are missing; the save was by {}",
                            counted(save_.dpWorld, "data-parallel rank")),
                save_.lacksOfOptimizer());
        }
    }
}

// Parameters without a weight: those of a pipeline are in the file of their layer.
void MissingFiles::addWeights(const Parameters& parameters) {
    if (save_.stage == 3 || save_.tag.universal) return;
    const bool layers = std::ranges::any_of(
        save_.tag.files, [](const TagFile& file) { return file.about.kind == FileName::Kind::layer; });
    std::set<std::string> lacking;
    for (const Parameter& parameter : parameters.all()) {
        if (!parameter.stored.empty() || !parameter.placed()) continue;
        const std::string layer = parameter.name.substr(0, parameter.name.find('.'));
        const bool numbered = layers && isDigits(layer);
        if (numbered && lacking.insert(layer).second) {
            add(save_.layerFile(layer), 0, "the weights of this layer are missing", Note::Lacks::anything);
        } else if (!numbered && lacking.size() < kMostMissing && lacking.insert(parameter.name).second) {
            save_.assembly.wrong("param_shapes lists it, and no file here holds its weight",
                                 save_.modelOf(0) ? save_.modelOf(0)->file->name : "", parameter.name,
                                 Note::Lacks::anything);
        }
    }
}

// Each layer has all of its experts.
void MissingFiles::addExperts() {
    std::set<std::pair<uint32_t, uint32_t>> experts;
    for (const TagFile& file : save_.tag.files) {
        if (file.about.kind == FileName::Kind::expert) experts.emplace(file.about.layer, file.about.expert);
    }
    const ModelFile* first = save_.modelOf(0);
    if (!first || experts.empty()) return;
    const auto& counts = first->states.experts;
    for (uint32_t layer = 0; layer < counts.size(); ++layer) {
        for (uint32_t e = 0; e < std::min<int64_t>(counts[layer], Save::kMostWorld); ++e) {
            if (!experts.contains({layer, e}))
                add(fmt::format("layer_{}_expert_{}_mp_rank_00_model_states.pt", layer, e), 0,
                    "the weights of this expert are missing", Note::Lacks::anything);
        }
    }
}

// Without ZeRO a model with experts keeps the optimizer's state in a file for each expert-parallel rank. How
// many there are is not stored (runtime/engine.py, _save_moe_checkpoint and _load_checkpoint).
void MissingFiles::addExpertOptimizers() {
    const ModelFile* first = save_.modelOf(0);
    const bool experts = std::ranges::any_of(
        save_.tag.files, [](const TagFile& file) { return file.about.kind == FileName::Kind::expert; });
    if (save_.stage != 0 || save_.tag.universal || !first || !experts) return;
    std::map<uint32_t, std::set<uint32_t>> ranks;  // by model-parallel rank
    for (const TagFile& file : save_.tag.files)
        if (file.about.kind == FileName::Kind::expertOptimizer) ranks[file.about.mp].insert(file.about.dp);
    uint32_t most = 0;
    for (const auto& [mp, found] : ranks)
        most = std::max(most, std::min(*found.rbegin(), Save::kMostWorld));
    for (uint32_t mp = 0; mp < save_.mpWorld; ++mp) {
        for (uint32_t rank = 0; rank <= most; ++rank) {
            if (ranks[mp].contains(rank)) continue;
            add(fmt::format("expp_rank_{}_mp_rank_{:02}_optim_states.pt", rank, mp), save_.rankOf(rank, mp),
                "the optimizer states of this expert-parallel rank are missing", Note::Lacks::optimizerState);
            break;  // the first tells what happened
        }
    }
}

}  // namespace

void addMissingFiles(Save& save, const Parameters& parameters) {
    MissingFiles missing(save);
    missing.addRanks();
    missing.addWeights(parameters);
    missing.addExperts();
    missing.addExpertOptimizers();
}

void noteMixedSteps(Save& save) {
    std::optional<int64_t> steps;
    for (const ModelFile& model : save.models) {
        if (model.index == kNone || !model.states.steps) continue;
        if (!steps) steps = model.states.steps;
        if (*model.states.steps != *steps)
            save.assembly.wrong(fmt::format("it is of step {}, '{}' of step {}: files of two saves are mixed",
                                            *model.states.steps, save.models[0].file->name, *steps),
                                model.file->name);
    }
    std::set<std::string> named;
    for (const auto& [group, byStep] : stepsOf(save)) {
        if (byStep.size() < 2) continue;
        // What the model states say counts; else what most files say.
        auto usual = steps ? byStep.find(fmt::format("{}", *steps)) : byStep.end();
        if (usual == byStep.end())
            usual =
                std::ranges::max_element(byStep, {}, [](const auto& entry) { return entry.second.size(); });
        for (const auto& [step, files] : byStep) {
            if (step == usual->first) continue;
            for (const OptimizerFile* file : files) {
                if (named.insert(file->file->name).second)
                    save.assembly.wrong(
                        fmt::format("its states are of step {}, those of '{}' of step {}: files of two "
                                    "saves are mixed",
                                    step, usual->second[0]->file->name, usual->first),
                        file->file->name);
            }
        }
    }
}

}  // namespace shardscope::deepspeed
