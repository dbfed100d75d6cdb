// The optimizer without ZeRO: its states are numbered, and no file says which parameter a number is. The
// engine builds the groups from the model's parameters, so their order and shapes tell.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "base/rule.h"
#include "formats/deepspeed/opener.h"

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

}  // namespace

void Opener::addPlainStates() {
    std::vector<std::pair<std::string, uint32_t>> names;
    std::vector<const TagFile*> expertFiles;
    for (const TagFile& file : tag_.files) {
        const FileName& about = file.about;
        if (about.kind != FileName::Kind::expertOptimizer || about.mp >= mpWorld_ || about.dp >= dpWorld_)
            continue;
        names.emplace_back(file.name, rankOf(about.dp, about.mp));
        expertFiles.push_back(&file);
    }
    const auto indices = assembly_.addFiles(names);
    bool stages = false;
    for (const ModelFile& model : models_) {
        if (model.index == kNone) continue;
        const TensorFile& file = contents(model.index);
        std::vector<size_t> dense;
        for (const StoredTensor& tensor : file.tensors) {
            if (tensor.path.size() < 2 || tensor.path[0].text != "module" || tensor.sameAs != kNone) continue;
            const size_t p = parameterOf(pathName(Path(tensor.path.begin() + 1, tensor.path.end())));
            if (!parameters_[p].buffer) dense.push_back(p);
        }
        stages = stages || dense.empty();
        if (dense.empty()) continue;
        const auto mine = [&](const TagFile* f) { return f->about.mp == model.mp; };
        const auto expertRanks = std::ranges::count_if(expertFiles, mine);
        if (expertRanks == 0 || !indices.ok())
            addPlainFile(model.index, readPlainStates(file), dense, {}, model.mp, rankOf(model.dp, model.mp));
        for (size_t i = 0; i < expertFiles.size() && indices.ok(); ++i) {
            if (!mine(expertFiles[i]) || (*indices)[i] == kNone) continue;
            std::vector<size_t> experts;
            for (size_t p = 0; p < parameters_.size(); ++p) {
                const FileName* about = parameters_[p].expert;
                if (!about || about->mp != model.mp) continue;
                const auto& counts = model.states.experts;
                const int64_t all = about->layer < counts.size() ? counts[about->layer] : expertRanks;
                if (about->expert / std::max<int64_t>(all / expertRanks, 1) == expertFiles[i]->about.dp)
                    experts.push_back(p);
            }
            addPlainFile((*indices)[i], readPlainStates(contents((*indices)[i])), dense, experts, model.mp,
                         rankOf(expertFiles[i]->about.dp, model.mp));
        }
    }
    if (stages) addStages();
}

// Whether a flat group, of which only the length is known, has the length of these layers and of one more
// that an earlier stage has, with so many parameters.
bool Opener::tiedInFlat(const Stage& stage, const std::vector<std::vector<size_t>>& layers, size_t next,
                        size_t taken, size_t parameters) {
    const auto elementsIn = [&](size_t l) {
        int64_t sum = 0;
        for (size_t p : layers[l])
            sum += elementCount(parameters_[p].shapes[tpOf(stage.model->mp)].value_or(Dims{0}));
        return sum;
    };
    if (stage.states.groups.size() != 1 || stage.states.flatMasters.size() != 1) return false;
    const TensorFile& file = contents(stage.model->index);
    int64_t left = elementCount(file.tensors[stage.states.flatMasters.begin()->second].shape);
    for (size_t l = next; l < next + taken; ++l)
        left -= elementsIn(l);
    for (size_t l = 0; l < next; ++l)
        if (layers[l].size() == parameters && elementsIn(l) == left) return true;
    return false;
}

// The stages of a pipeline have the layers one after the other, and each layer's file is of one stage. How
// many layers a stage has is not stored: its optimizer's states must be those of whole layers, and of tied
// ones, which are with the first stage that has them; the others hold the same states of them.
bool Opener::alignStages(std::vector<Stage>& stages, const std::vector<std::vector<size_t>>& layers,
                         size_t at, size_t next) {
    if (at == stages.size())
        return std::all_of(layers.begin() + static_cast<std::ptrdiff_t>(next), layers.end(),
                           [](const auto& layer) { return layer.empty(); });
    Stage& stage = stages[at];
    const uint32_t tp = tpOf(stage.model->mp);
    const TensorFile& file = contents(stage.model->index);
    std::map<Dims, int64_t> over;  // entries without a parameter, by shape
    int64_t unknown = 0;           // entries without a shape
    for (const Stage::Entry& entry : stage.entries)
        entry.tensor == kNone ? ++unknown : ++over[file.tensors[entry.tensor].shape];
    // As many layers as there can be first: least is then explained by ties.
    std::vector<std::map<Dims, int64_t>> after{over};
    std::vector<size_t> counts{0};
    for (size_t l = next; l < layers.size() && counts.back() <= stage.entries.size(); ++l) {
        after.push_back(after.back());
        for (size_t p : layers[l])
            --after.back()[parameters_[p].shapes[tp].value_or(Dims{})];
        counts.push_back(counts.back() + layers[l].size());
    }
    for (size_t taken = after.size(); taken-- > 0;) {
        if (counts[taken] > stage.entries.size()) continue;
        int64_t lacking = 0;
        for (const auto& [shape, count] : after[taken])
            lacking += std::max<int64_t>(-count, 0);
        if (lacking > unknown) continue;
        std::vector<size_t> drop;
        if (counts[taken] > stage.entries.size()) continue;
        auto left = after[taken];
        for (size_t e = 0; e < stage.entries.size(); ++e) {
            const Stage::Entry& entry = stage.entries[e];
            if (entry.tied && left[file.tensors[entry.tensor].shape] > 0) {
                --left[file.tensors[entry.tensor].shape];
                drop.push_back(e);
            }
        }
        const size_t more = stage.entries.size() - counts[taken] - drop.size();
        if (more > 0 && tiedInFlat(stage, layers, next, taken, more)) {
            for (size_t e = 0; e < more; ++e)
                drop.push_back(e);
        } else if (more > 0) {
            continue;
        }
        if (!alignStages(stages, layers, at + 1, next + taken)) continue;
        stage.layers = taken;
        stage.drop = std::move(drop);
        return true;
    }
    return false;
}

// Of a pipeline: no file says which layers a stage has.
void Opener::addStages() {
    for (uint32_t tp = 0; tp < tpDegree_; ++tp) {
        std::vector<Stage> stages;
        std::vector<std::pair<uint32_t, uint32_t>> seen;  // states of earlier stages: file and tensor
        for (const ModelFile& model : models_) {
            if (model.index == kNone || tpOf(model.mp) != tp || modelOf(model.mp) != &model) continue;
            const TensorFile& file = contents(model.index);
            Stage stage{&model, readPlainStates(file), {}, 0, {}};
            for (size_t g = 0; g < stage.states.groups.size(); ++g) {
                for (size_t i = 0; i < stage.states.groups[g].ids.size(); ++i) {
                    Stage::Entry entry{g, i, kNone, false};
                    if (g < stage.states.masters.size() && i < stage.states.masters[g].size())
                        entry.tensor = stage.states.masters[g][i];
                    const auto held = stage.states.states.find(stage.states.groups[g].ids[i]);
                    const bool flat = stage.states.flatMasters.contains(static_cast<int64_t>(g));
                    for (size_t s = 0; !flat && held != stage.states.states.end() && entry.tensor == kNone &&
                                       s < held->second.tensors.size();
                         ++s) {
                        const auto& [name, tensor] = held->second.tensors[s];
                        if (name != "step") entry.tensor = tensor;
                    }
                    entry.tied = entry.tensor != kNone && std::ranges::any_of(seen, [&](const auto& other) {
                                     return contents(other.first).tensors[other.second].shape ==
                                                file.tensors[entry.tensor].shape &&
                                            assembly_.files().equal(other.first, other.second, model.index,
                                                                    entry.tensor) == true;
                                 });
                    stage.entries.push_back(entry);
                }
            }
            for (const Stage::Entry& entry : stage.entries)
                if (entry.tensor != kNone) seen.emplace_back(model.index, entry.tensor);
            stages.push_back(std::move(stage));
        }
        if (std::ranges::all_of(stages, [](const Stage& stage) { return stage.entries.empty(); })) continue;
        std::vector<std::vector<size_t>> layers;
        uint32_t last = kNone;
        for (size_t p = 0; p < parameters_.size(); ++p) {
            const auto here = std::ranges::find(parameters_[p].stored, tp, &StoredWeight::tp);
            if (here == parameters_[p].stored.end() || parameters_[p].buffer) continue;
            if (std::exchange(last, here->file) != here->file) layers.emplace_back();
            layers.back().push_back(p);
        }
        if (!alignStages(stages, layers, 0, 0)) {
            noteUneven(stages, layers);
            continue;
        }
        size_t next = 0;
        for (Stage& stage : stages)
            addStage(stage, layers, next);
    }
}

void Opener::addStage(Stage& stage, const std::vector<std::vector<size_t>>& layers, size_t& next) {
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
        assembly_.note(
            rule::metaInconsistent, Severity::info,
            fmt::format(
                "the states of {} parameters that another stage holds as well are not listed: without "
                "ZeRO the files do not name them",
                stage.drop.size()),
            contents(model.index).name);
    std::vector<size_t> parameters;
    for (size_t l = 0; l < stage.layers; ++l)
        parameters.insert(parameters.end(), layers[next + l].begin(), layers[next + l].end());
    next += stage.layers;
    addPlainFile(model.index, states, parameters, {}, model.mp, rankOf(model.dp, model.mp));
}

// States and layers do not come out even: whose the states are cannot be known then, and none is named.
void Opener::noteUneven(const std::vector<Stage>& stages, const std::vector<std::vector<size_t>>& layers) {
    size_t states = 0, parameters = 0;
    for (const Stage& stage : stages)
        states += stage.entries.size();
    for (const auto& layer : layers)
        parameters += layer.size();
    const std::string& file = contents(stages[0].model->index).name;
    if (states <= parameters) {
        assembly_.note(
            rule::metaInconsistent, Severity::warning,
            fmt::format("the stages' optimizers have states of {} parameters, the layer files hold "
                        "{}, and they do not fit each other layer by layer: which states are whose is "
                        "not known, and they are not listed",
                        states, parameters),
            file, {}, Note::Lacks::optimizerState);
        return;
    }
    std::set<uint32_t> numbers;
    for (const TagFile& tagged : tag_.files)
        if (tagged.about.kind == FileName::Kind::layer) numbers.insert(tagged.about.layer);
    const uint32_t end = numbers.empty() ? 0 : *numbers.rbegin();
    const std::string why = fmt::format(
        "the stages' optimizers have states of {} parameters, the layer files hold {}, and no tied "
        "layer explains the others: the file of a layer is missing; the states are not listed, "
        "because whose they are is not known",
        states, parameters);
    size_t gaps = 0;
    for (uint32_t number = 0; number < end && gaps < kMostGaps; ++number) {
        if (numbers.contains(number)) continue;
        ++gaps;
        assembly_.addMissing(fmt::format("{}layer_{:02}-{}model_states.pt", tag_.prefix, number,
                                         tpDegree_ > 1 ? "model_00-" : ""),
                             0, Severity::error, why, Note::Lacks::anything);
    }
    if (gaps == 0)
        assembly_.note(rule::metaInconsistent, Severity::error,
                       fmt::format("{}; none is missing between 0 and {}, so it is the last one", why, end),
                       file, {}, Note::Lacks::anything);
}

// FP16_Optimizer: a group is one flat tensor, of which only the length is known.
bool Opener::addFlatMaster(uint32_t index, const PlainStates& states, size_t group,
                           const std::vector<size_t>& members, uint32_t mp, uint32_t rank) {
    const TensorFile& file = contents(index);
    const uint32_t master = states.flatMasters.at(static_cast<int64_t>(group));
    const auto elements = [&](size_t p) {
        return elementCount(parameters_[p].shapes[tpOf(mp)].value_or(Dims{0}));
    };
    int64_t total = 0;
    for (size_t p : members)
        total += elements(p);
    if (states.groups.size() > 1 || file.tensors[master].shape != Dims{total}) return false;
    OptimizerFile place;
    place.mp = mp;
    place.index = index;
    GroupStates all;
    const auto& ids = states.groups[group].ids;
    if (const auto found = states.states.find(ids.empty() ? 0 : ids[0]); found != states.states.end())
        all = found->second;
    all.tensors.emplace_back("fp32", master);
    for (const auto& [state, tensor] : all.tensors) {
        int64_t at = 0;
        for (size_t p : members) {
            const StoredTensor& stored = file.tensors[tensor];
            if (stored.shape != Dims{total}) {
                addState(parameters_[p].name, state, index, tensor, rank);
            } else if (!parameters_[p].placement.shards.empty()) {
                addFlat(statePath(parameters_[p].name, state), stored.dtype, Role::optimizer, place, tensor,
                        {p, 0, elements(p), at}, parameters_[p]);
            }
            at += elements(p);
        }
    }
    for (const auto& [state, value] : all.objects) {
        for (size_t p : members)
            addStateObject(parameters_[p].name, state, *value, index, rank);
    }
    return true;
}

// The first of the candidates that is free and, as far as its values tell, has this master.
size_t Opener::fitting(uint32_t index, uint32_t master, uint32_t tp, const std::vector<size_t>& candidates,
                       std::set<size_t>& used, bool& sure) {
    for (size_t p : candidates) {
        if (used.contains(p)) continue;
        std::optional<bool> cast;
        for (const StoredWeight& weight : parameters_[p].stored) {
            if (master != kNone && weight.tp == tp)
                cast = isCastOf(assembly_.files(), index, master, weight.file, weight.tensor);
        }
        if (cast == false) continue;
        sure = cast == true;
        used.insert(p);
        return p;
    }
    return SIZE_MAX;
}

void Opener::addPlainFile(uint32_t index, const PlainStates& states, const std::vector<size_t>& dense,
                          const std::vector<size_t>& experts, uint32_t mp, uint32_t rank) {
    const TensorFile& file = contents(index);
    const uint32_t tp = tpOf(mp);
    // Candidates of one shape, in the order of the model.
    struct Shape {
        std::vector<size_t> parameters;
        std::set<size_t> used;
        std::set<size_t> unsure;  // groups that took one by its order alone
    };
    std::map<std::pair<bool, Dims>, Shape> shapes;
    for (const bool expert : {false, true}) {
        for (size_t p : expert ? experts : dense)
            shapes[{expert, parameters_[p].shapes[tp].value_or(Dims{})}].parameters.push_back(p);
    }
    size_t unknown = 0;
    for (size_t g = 0; g < states.groups.size(); ++g) {
        const PlainStates::Group& group = states.groups[g];
        if (states.flatMasters.contains(static_cast<int64_t>(g))) {
            if (!addFlatMaster(index, states, g, group.experts ? experts : dense, mp, rank))
                assembly_.note(
                    rule::metaInconsistent, Severity::warning,
                    fmt::format("which parameters the flat group {} joins is not stored; its states are not "
                                "listed",
                                g),
                    file.name, {}, Note::Lacks::optimizerState);
            continue;
        }
        for (size_t i = 0; i < group.ids.size(); ++i) {
            const auto held = states.states.find(group.ids[i]);
            std::vector<std::pair<std::string, uint32_t>> tensors;
            if (g < states.masters.size() && i < states.masters[g].size())
                tensors.emplace_back("fp32", states.masters[g][i]);
            const uint32_t master = tensors.empty() ? kNone : tensors[0].second;
            if (held != states.states.end())
                tensors.insert(tensors.end(), held->second.tensors.begin(), held->second.tensors.end());
            const auto first = std::ranges::find_if(tensors, [](const auto& t) { return t.first != "step"; });
            // Without states, such as those of a parameter that got no gradient: nothing to name.
            if (first == tensors.end()) continue;
            const Dims& shape = file.tensors[first->second].shape;
            const auto candidates = shapes.find({group.experts, shape});
            bool sure = false;
            const size_t p = candidates == shapes.end()
                                 ? SIZE_MAX
                                 : fitting(index, master, tp, candidates->second.parameters,
                                           candidates->second.used, sure);
            if (p == SIZE_MAX || parameters_[p].placement.shards.empty()) {
                ++unknown;
                continue;
            }
            if (!sure) candidates->second.unsure.insert(g);
            const Parameter& parameter = parameters_[p];
            for (const auto& [state, tensor] : tensors) {
                const StoredTensor& stored = file.tensors[tensor];
                if (stored.shape != shape) {
                    addState(parameter.name, state, index, tensor, rank);
                } else {
                    addShard(statePath(parameter.name, state), stored.dtype, Role::optimizer, parameter,
                             {tp, rank, index, tensor});
                }
            }
            for (size_t o = 0; held != states.states.end() && o < held->second.objects.size(); ++o)
                addStateObject(parameter.name, held->second.objects[o].first, *held->second.objects[o].second,
                               index, rank);
        }
    }
    if (unknown > 0)
        assembly_.note(
            rule::metaInconsistent, Severity::warning,
            fmt::format("{} of the parameters that the optimizer numbers fit no weight; their states are not "
                        "listed",
                        unknown),
            file.name, {}, Note::Lacks::optimizerState);
    // Some are left over, or several groups took some.
    const bool unsure = std::ranges::any_of(shapes, [](const auto& entry) {
        const Shape& shape = entry.second;
        return !shape.unsure.empty() &&
               (shape.unsure.size() > 1 || shape.used.size() < shape.parameters.size());
    });
    if (unsure)
        assembly_.note(
            rule::metaInconsistent, Severity::warning,
            "the optimizer's states have no names, and parameters of the same shape are in several groups or "
            "frozen: the names of such states follow the order of the model, which may be wrong",
            file.name);
}

}  // namespace shardscope::deepspeed
