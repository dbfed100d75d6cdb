// The optimizer without ZeRO: its states are numbered, and no file says which parameter a number is. The
// engine builds the groups from the model's parameters, so their order and shapes tell.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "base/units.h"
#include "formats/deepspeed/parameters.h"
#include "model/paths.h"

namespace shardscope::deepspeed {

namespace {

constexpr size_t kMostGaps = 64;            // layers that are named as missing
constexpr int64_t kMostCompared = 1 << 16;  // elements of a weight that are compared with its master

float halfToFloat(uint16_t bits) {
    const int exponent = (bits >> 10) & 31;
    const float fraction = static_cast<float>(bits & 1023);
    const float value =
        exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
    return bits & 0x8000 ? -value : value;
}

// Whether 16-bit weights are what the masters round to.
std::optional<bool> isCastOf(const TensorFiles& files, uint32_t index, uint32_t master, uint32_t weightFile,
                             uint32_t weight) {
    const StoredTensor& from = files[index].tensors[master];
    const DType to = files[weightFile].tensors[weight].dtype;
    if (from.dtype != DType::float32 || (to != DType::bfloat16 && to != DType::float16) ||
        elementCount(from.shape) > kMostCompared)
        return std::nullopt;
    const auto wide = files.bytesOf(index, master), narrow = files.bytesOf(weightFile, weight);
    if (!wide.ok() || !narrow.ok() || wide->size() != 2 * narrow->size()) return std::nullopt;
    for (size_t i = 0; i < narrow->size() / 2; ++i) {
        float value = 0;
        uint16_t bits = 0;
        std::memcpy(&value, wide->data() + 4 * i, 4);
        std::memcpy(&bits, narrow->data() + 2 * i, 2);
        const float rounded =
            to == DType::float16 ? halfToFloat(bits) : std::bit_cast<float>(uint32_t{bits} << 16);
        const float step = std::abs(value) * (to == DType::float16 ? 0x1p-11F : 0x1p-8F) + 0x1p-25F;
        if (std::isfinite(value) && std::isfinite(rounded) && std::abs(value - rounded) > step) return false;
    }
    return true;
}

// Adds the states in one file.
class PlainFile {
  public:
    PlainFile(Save& save, Parameters& parameters, uint32_t index, uint32_t mp, uint32_t rank)
        : save_(save), parameters_(parameters), index_(index), mp_(mp), rank_(rank) {}

    // Parameters that the optimizer may have, in the order of the model.
    void add(const PlainStates& states, const std::vector<size_t>& dense, const std::vector<size_t>& experts);

  private:
    // Candidates of one shape.
    struct Shape {
        std::vector<size_t> parameters;
        std::set<size_t> used;
        std::set<size_t> unsure;  // groups that took one by its order alone
    };

    const TensorFile& file() { return save_.contents(index_); }
    void addObject(const std::pair<std::string, const Value*>& object, size_t parameter);
    bool addFlatMaster(const PlainStates& states, size_t group, const std::vector<size_t>& members);
    bool addOne(uint32_t master, const GroupStates& held, bool experts, size_t group);
    size_t fitting(uint32_t master, Shape& candidates, bool& sure);

    Save& save_;
    Parameters& parameters_;
    const uint32_t index_, mp_, rank_;
    std::map<std::pair<bool, Dims>, Shape> shapes_;  // of experts and of others
};

void PlainFile::addObject(const std::pair<std::string, const Value*>& object, size_t parameter) {
    parameters_.addStateObject(parameters_[parameter].name, object.first, *object.second, index_, rank_);
}

// FP16_Optimizer: a group is one flat tensor, of which only the length is known.
bool PlainFile::addFlatMaster(const PlainStates& states, size_t group, const std::vector<size_t>& members) {
    const uint32_t master = states.flatMasters.at(static_cast<int64_t>(group)), tp = save_.tpOf(mp_);
    int64_t total = 0;
    for (size_t p : members)
        total += parameters_[p].elementsOn(tp);
    if (states.groups.size() > 1 || file().tensors[master].shape != Dims{total}) return false;
    GroupStates all;
    const auto& ids = states.groups[group].ids;
    if (const auto found = states.states.find(ids.empty() ? 0 : ids[0]); found != states.states.end())
        all = found->second;
    all.tensors.emplace_back("fp32", master);
    for (const auto& [state, tensor] : all.tensors) {
        const StoredTensor& stored = file().tensors[tensor];
        int64_t at = 0;
        for (size_t p : members) {
            const Parameter& parameter = parameters_[p];
            const int64_t elements = parameter.elementsOn(tp);
            if (stored.shape != Dims{total}) {
                parameters_.addState(parameter.name, state, index_, tensor, rank_);
            } else if (parameter.placed()) {
                parameters_.addFlat(statePath(parameter.name, state), stored.dtype, Role::optimizer,
                                    parameter, {tp, save_.rankOf(0, mp_), index_, tensor}, {0, elements}, at);
            }
            at += elements;
        }
    }
    for (const auto& object : all.objects) {
        for (size_t p : members)
            addObject(object, p);
    }
    return true;
}

// The first of the candidates that is free and, as far as its values tell, has this master.
size_t PlainFile::fitting(uint32_t master, Shape& candidates, bool& sure) {
    for (size_t p : candidates.parameters) {
        if (candidates.used.contains(p)) continue;
        std::optional<bool> cast;
        for (const StoredWeight& weight : parameters_[p].stored) {
            if (master != kNone && weight.tp == save_.tpOf(mp_))
                cast = isCastOf(save_.assembly.files(), index_, master, weight.file, weight.tensor);
        }
        if (cast == false) continue;
        sure = cast == true;
        candidates.used.insert(p);
        return p;
    }
    return SIZE_MAX;
}

// The states of one parameter. False where no weight fits them.
bool PlainFile::addOne(uint32_t master, const GroupStates& held, bool experts, size_t group) {
    auto tensors = held.tensors;
    if (master != kNone) tensors.emplace(tensors.begin(), "fp32", master);
    const auto first = std::ranges::find_if(tensors, [](const auto& t) { return t.first != "step"; });
    // Without states, such as those of a parameter that got no gradient: nothing to name.
    if (first == tensors.end()) return true;
    const Dims& shape = file().tensors[first->second].shape;
    const auto candidates = shapes_.find({experts, shape});
    if (candidates == shapes_.end()) return false;
    bool sure = false;
    const size_t p = fitting(master, candidates->second, sure);
    if (p == SIZE_MAX || !parameters_[p].placed()) return false;
    if (!sure) candidates->second.unsure.insert(group);
    const Parameter& parameter = parameters_[p];
    for (const auto& [state, tensor] : tensors) {
        const StoredTensor& stored = file().tensors[tensor];
        if (stored.shape != shape) {
            parameters_.addState(parameter.name, state, index_, tensor, rank_);
        } else {
            parameters_.addShard(statePath(parameter.name, state), stored.dtype, Role::optimizer, parameter,
                                 {save_.tpOf(mp_), rank_, index_, tensor});
        }
    }
    for (const auto& object : held.objects)
        addObject(object, p);
    return true;
}

void PlainFile::add(const PlainStates& states, const std::vector<size_t>& dense,
                    const std::vector<size_t>& experts) {
    for (const bool expert : {false, true}) {
        for (size_t p : expert ? experts : dense)
            shapes_[{expert, parameters_[p].shapes[save_.tpOf(mp_)].value_or(Dims{})}].parameters.push_back(
                p);
    }
    size_t unknown = 0;
    for (size_t g = 0; g < states.groups.size(); ++g) {
        const PlainStates::Group& group = states.groups[g];
        if (states.flatMasters.contains(static_cast<int64_t>(g))) {
            if (!addFlatMaster(states, g, group.experts ? experts : dense))
                save_.inconsistent(
                    Severity::warning,
                    fmt::format("which parameters the flat group {} joins is not stored; its states are not "
                                "listed",
                                g),
                    file().name, {}, Note::Lacks::optimizerState);
            continue;
        }
        for (size_t i = 0; i < group.ids.size(); ++i) {
            const auto found = states.states.find(group.ids[i]);
            const GroupStates held = found == states.states.end() ? GroupStates() : found->second;
            unknown += !addOne(states.masterOf(g, i), held, group.experts, g);
        }
    }
    if (unknown > 0)
        save_.inconsistent(
            Severity::warning,
            fmt::format(
                "no weight fits {} of the parameters that the optimizer numbers; their states are not listed",
                countText(unknown)),
            file().name, {}, Note::Lacks::optimizerState);
    // Some are left over, or several groups took some.
    const bool unsure = std::ranges::any_of(shapes_, [](const auto& entry) {
        const Shape& shape = entry.second;
        return !shape.unsure.empty() &&
               (shape.unsure.size() > 1 || shape.used.size() < shape.parameters.size());
    });
    if (unsure)
        save_.inconsistent(
            Severity::warning,
            "the optimizer's states have no names, and parameters of the same shape are in several groups or "
            "frozen: the names of such states follow the order of the model, which may be wrong",
            file().name);
}

// ------------------------------------------------------------------ pipelines

// A stage of a pipeline without ZeRO: what its optimizer holds, and of which layers.
struct Stage {
    struct Entry {
        size_t group = 0, index = 0;  // in PlainStates
        uint32_t tensor = kNone;      // one of its states; kNone = it has none
        bool tied = false;            // an earlier stage has the same values
    };
    const ModelFile* model = nullptr;
    PlainStates states;
    std::vector<Entry> entries;
    size_t layers = 0;         // how many layers the stage has
    std::vector<size_t> drop;  // entries of parameters that an earlier stage lists
};

// The stages of one tensor-parallel rank; no file says which layers a stage has.
class Pipeline {
  public:
    Pipeline(Save& save, Parameters& parameters, uint32_t tp)
        : save_(save), parameters_(parameters), tp_(tp) {}

    void add();

  private:
    void readStages();
    void readLayers();
    bool isTied(const Stage& stage, uint32_t tensor);
    bool tiedInFlat(const Stage& stage, size_t next, size_t taken, size_t parameters);
    bool align(size_t stage, size_t layer);
    void addStage(Stage& stage, size_t& next);
    void noteUneven();

    Save& save_;
    Parameters& parameters_;
    const uint32_t tp_;
    std::vector<Stage> stages_;
    std::vector<std::pair<uint32_t, uint32_t>> seen_;  // states of earlier stages: file and tensor
    std::vector<std::vector<size_t>> layers_;          // their parameters
};

bool Pipeline::isTied(const Stage& stage, uint32_t tensor) {
    const uint32_t file = stage.model->index;
    const Dims& shape = save_.contents(file).tensors[tensor].shape;
    return std::ranges::any_of(seen_, [&](const auto& other) {
        return save_.contents(other.first).tensors[other.second].shape == shape &&
               save_.assembly.files().equal(other.first, other.second, file, tensor) == true;
    });
}

void Pipeline::readStages() {
    for (const ModelFile& model : save_.models) {
        if (model.index == kNone || save_.tpOf(model.mp) != tp_ || !save_.isFirst(model)) continue;
        Stage stage{&model, readPlainStates(save_.contents(model.index)), {}, 0, {}};
        const PlainStates& states = stage.states;
        for (size_t g = 0; g < states.groups.size(); ++g) {
            const bool flat = states.flatMasters.contains(static_cast<int64_t>(g));
            for (size_t i = 0; i < states.groups[g].ids.size(); ++i) {
                Stage::Entry entry{g, i, states.masterOf(g, i), false};
                const auto held = states.states.find(states.groups[g].ids[i]);
                if (!flat && held != states.states.end() && entry.tensor == kNone) {
                    const auto& tensors = held->second.tensors;
                    const auto first =
                        std::ranges::find_if(tensors, [](const auto& t) { return t.first != "step"; });
                    if (first != tensors.end()) entry.tensor = first->second;
                }
                entry.tied = entry.tensor != kNone && isTied(stage, entry.tensor);
                stage.entries.push_back(entry);
            }
        }
        for (const Stage::Entry& entry : stage.entries)
            if (entry.tensor != kNone) seen_.emplace_back(model.index, entry.tensor);
        stages_.push_back(std::move(stage));
    }
}

void Pipeline::readLayers() {
    uint32_t last = kNone;
    for (size_t p = 0; p < parameters_.all().size(); ++p) {
        const auto& stored = parameters_[p].stored;
        const auto here = std::ranges::find(stored, tp_, &StoredWeight::tp);
        if (here == stored.end() || parameters_[p].buffer) continue;
        if (std::exchange(last, here->file) != here->file) layers_.emplace_back();
        layers_.back().push_back(p);
    }
}

void Pipeline::add() {
    readStages();
    if (std::ranges::all_of(stages_, [](const Stage& stage) { return stage.entries.empty(); })) return;
    readLayers();
    if (!align(0, 0)) return noteUneven();
    size_t next = 0;
    for (Stage& stage : stages_)
        addStage(stage, next);
}

// Whether a flat group, of which only the length is known, has the length of these layers and of one more
// that an earlier stage has, with so many parameters.
bool Pipeline::tiedInFlat(const Stage& stage, size_t next, size_t taken, size_t parameters) {
    const auto elementsIn = [&](size_t l) {
        int64_t sum = 0;
        for (size_t p : layers_[l])
            sum += parameters_[p].elementsOn(tp_);
        return sum;
    };
    if (stage.states.groups.size() != 1 || stage.states.flatMasters.size() != 1) return false;
    const TensorFile& file = save_.contents(stage.model->index);
    int64_t left = elementCount(file.tensors[stage.states.flatMasters.begin()->second].shape);
    for (size_t l = next; l < next + taken; ++l)
        left -= elementsIn(l);
    for (size_t l = 0; l < next; ++l)
        if (layers_[l].size() == parameters && elementsIn(l) == left) return true;
    return false;
}

// The stages of a pipeline have the layers one after the other, and each layer's file is of one stage. How
// many layers a stage has is not stored: its optimizer's states must be those of whole layers, and of tied
// ones, which are with the first stage that has them; the others hold the same states of them.
bool Pipeline::align(size_t at, size_t next) {
    if (at == stages_.size())
        return std::all_of(layers_.begin() + static_cast<std::ptrdiff_t>(next), layers_.end(),
                           [](const auto& layer) { return layer.empty(); });
    Stage& stage = stages_[at];
    const TensorFile& file = save_.contents(stage.model->index);
    std::map<Dims, int64_t> over;  // entries without a parameter, by shape
    int64_t unknown = 0;           // entries without a shape
    for (const Stage::Entry& entry : stage.entries)
        entry.tensor == kNone ? ++unknown : ++over[file.tensors[entry.tensor].shape];
    // As many layers as there can be first: least is then explained by ties.
    std::vector<std::map<Dims, int64_t>> after{over};
    std::vector<size_t> counts{0};
    for (size_t l = next; l < layers_.size() && counts.back() <= stage.entries.size(); ++l) {
        after.push_back(after.back());
        for (size_t p : layers_[l])
            --after.back()[parameters_[p].shapes[tp_].value_or(Dims{})];
        counts.push_back(counts.back() + layers_[l].size());
    }
    for (size_t taken = after.size(); taken-- > 0;) {
        if (counts[taken] > stage.entries.size()) continue;
        int64_t lacking = 0;
        for (const auto& [shape, count] : after[taken])
            lacking += std::max<int64_t>(-count, 0);
        if (lacking > unknown) continue;
        std::vector<size_t> drop;
        auto left = after[taken];
        for (size_t e = 0; e < stage.entries.size(); ++e) {
            const Stage::Entry& entry = stage.entries[e];
            if (entry.tied && left[file.tensors[entry.tensor].shape] > 0) {
                --left[file.tensors[entry.tensor].shape];
                drop.push_back(e);
            }
        }
        const size_t more = stage.entries.size() - counts[taken] - drop.size();
        if (more > 0 && tiedInFlat(stage, next, taken, more)) {
            for (size_t e = 0; e < more; ++e)
                drop.push_back(e);
        } else if (more > 0) {
            continue;
        }
        if (!align(at + 1, next + taken)) continue;
        stage.layers = taken;
        stage.drop = std::move(drop);
        return true;
    }
    return false;
}

void Pipeline::addStage(Stage& stage, size_t& next) {
    PlainStates& states = stage.states;
    for (size_t d = stage.drop.size(); d-- > 0;) {
        const Stage::Entry& entry = stage.entries[stage.drop[d]];
        auto& ids = states.groups[entry.group].ids;
        ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(entry.index));
        if (entry.group < states.masters.size() && entry.index < states.masters[entry.group].size())
            states.masters[entry.group].erase(states.masters[entry.group].begin() +
                                              static_cast<std::ptrdiff_t>(entry.index));
    }
    const ModelFile& model = *stage.model;
    if (!stage.drop.empty())
        save_.inconsistent(
            Severity::info,
            fmt::format("the states of {} that another stage holds as well are not listed: without "
                        "ZeRO the files do not name them",
                        counted(stage.drop.size(), "parameter")),
            save_.contents(model.index).name);
    std::vector<size_t> parameters;
    for (size_t l = 0; l < stage.layers; ++l)
        parameters.insert(parameters.end(), layers_[next + l].begin(), layers_[next + l].end());
    next += stage.layers;
    PlainFile(save_, parameters_, model.index, model.mp, save_.rankOf(model.dp, model.mp))
        .add(states, parameters, {});
}

// States and layers do not come out even: whose the states are cannot be known then, and none is named.
void Pipeline::noteUneven() {
    size_t states = 0, parameters = 0;
    for (const Stage& stage : stages_)
        states += stage.entries.size();
    for (const auto& layer : layers_)
        parameters += layer.size();
    const std::string& file = save_.contents(stages_[0].model->index).name;
    if (states <= parameters) {
        save_.inconsistent(
            Severity::warning,
            fmt::format(
                "the stages' optimizers have states of {}, the layer files hold {}, and they do not fit each "
                "other layer by layer: which states are whose is not known, and they are not listed",
                counted(states, "parameter"), countText(parameters)),
            file, {}, Note::Lacks::optimizerState);
        return;
    }
    std::set<uint32_t> numbers;
    for (const TagFile& tagged : save_.tag.files)
        if (tagged.about.kind == FileName::Kind::layer) numbers.insert(tagged.about.layer);
    const uint32_t end = numbers.empty() ? 0 : *numbers.rbegin();
    const std::string why = fmt::format(
        "the stages' optimizers have states of {}, the layer files hold {}, and no tied layer explains the "
        "others: the file of a layer is missing; the states are not listed, because whose they are is not "
        "known",
        counted(states, "parameter"), countText(parameters));
    size_t gaps = 0;
    for (uint32_t number = 0; number < end && gaps < kMostGaps; ++number) {
        if (numbers.contains(number)) continue;
        ++gaps;
        save_.assembly.addMissing(save_.tag.prefix + save_.layerFile(fmt::format("{}", number)), 0,
                                  Severity::error, why, Note::Lacks::anything);
    }
    if (gaps == 0)
        save_.assembly.wrong(
            fmt::format("{}; none is missing between 0 and {}, so it is the last one", why, end), file, {},
            Note::Lacks::anything);
}

// The parameters that `module` has itself, in its order.
std::vector<size_t> moduleOf(const TensorFile& file, Parameters& parameters) {
    std::vector<size_t> dense;
    for (const StoredTensor& tensor : file.tensors) {
        if (tensor.path.size() < 2 || tensor.path[0].text != "module" || tensor.sameAs != kNone) continue;
        const size_t p = parameters.indexOf(pathName(below(tensor.path)));
        if (!parameters[p].buffer) dense.push_back(p);
    }
    return dense;
}

// Those of the experts of one of `ranks` expert-parallel ranks.
std::vector<size_t> expertsOn(uint32_t rank, const ModelFile& model, int64_t ranks,
                              const Parameters& parameters) {
    std::vector<size_t> experts;
    const auto& counts = model.states.experts;
    for (size_t p = 0; p < parameters.all().size(); ++p) {
        const FileName* about = parameters[p].expert;
        if (!about || about->mp != model.mp) continue;
        const int64_t all = about->layer < counts.size() ? counts[about->layer] : ranks;
        if (about->expert / std::max<int64_t>(all / ranks, 1) == rank) experts.push_back(p);
    }
    return experts;
}

}  // namespace

void addPlainStates(Save& save, Parameters& parameters) {
    std::vector<OtherFile> expertFiles;
    for (const TagFile& file : save.tag.files) {
        const FileName& about = file.about;
        if (about.kind == FileName::Kind::expertOptimizer && about.mp < save.mpWorld &&
            about.dp < save.dpWorld)
            expertFiles.push_back({&file, kNone});
    }
    const Status read = save.readOthers(
        expertFiles, [&](const FileName& about) { return save.rankOf(about.dp, about.mp); },
        Note::Lacks::optimizerState);
    bool stages = false;
    for (const ModelFile& model : save.models) {
        if (model.index == kNone) continue;
        const std::vector<size_t> dense = moduleOf(save.contents(model.index), parameters);
        stages = stages || dense.empty();
        if (dense.empty()) continue;
        const auto add = [&](uint32_t index, uint32_t dp, const std::vector<size_t>& experts) {
            PlainFile(save, parameters, index, model.mp, save.rankOf(dp, model.mp))
                .add(readPlainStates(save.contents(index)), dense, experts);
        };
        const auto expertRanks =
            std::ranges::count(expertFiles, model.mp, [](const OtherFile& f) { return f.file->about.mp; });
        if (expertRanks == 0 || !read.ok()) add(model.index, model.dp, {});
        for (const auto& [file, index] : expertFiles) {
            if (file->about.mp == model.mp && index != kNone)
                add(index, file->about.dp, expertsOn(file->about.dp, model, expertRanks, parameters));
        }
    }
    for (uint32_t tp = 0; stages && tp < save.tpDegree; ++tp)
        Pipeline(save, parameters, tp).add();
}

}  // namespace shardscope::deepspeed
