// The optimizer without ZeRO: its states are numbered, and no file says which parameter a number is. The
// engine builds the groups from the model's parameters, so their order and shapes tell.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include "base/rule.h"
#include "formats/deepspeed/opener.h"

namespace shardscope::deepspeed {

namespace {

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
    size_t layersBefore = 0;
    for (const ModelFile& model : models_) {
        if (model.index == kNone) continue;
        const TensorFile& file = contents(model.index);
        std::vector<size_t> dense;
        for (const StoredTensor& tensor : file.tensors) {
            if (tensor.path.size() < 2 || tensor.path[0].text != "module" || tensor.sameAs != kNone) continue;
            const size_t p = parameterOf(pathName(Path(tensor.path.begin() + 1, tensor.path.end())));
            if (!parameters_[p].buffer) dense.push_back(p);
        }
        if (dense.empty()) {
            addStage(model, layersBefore);
            continue;
        }
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
}

// A layer that an earlier stage has as well is not stored again, but the optimizer of this stage numbers it.
// The engine registers tied layers before all others, so of each shape the first ones are left over; where
// the shapes do not tell, the first of all. Returns how many were taken out of the groups.
size_t Opener::dropTied(const TensorFile& file, uint32_t tp, const std::vector<size_t>& layers,
                        PlainStates& states) const {
    std::map<Dims, size_t> free;
    for (size_t p : layers)
        ++free[parameters_[p].shapes[tp].value_or(Dims{})];
    size_t surplus = 0;
    for (const auto& group : states.groups)
        surplus += group.ids.size();
    if (surplus <= layers.size()) return 0;
    surplus -= layers.size();
    const auto shapeOf = [&](size_t g, size_t i) -> const Dims* {
        if (g < states.masters.size() && i < states.masters[g].size())
            return &file.tensors[states.masters[g][i]].shape;
        const auto held = states.states.find(states.groups[g].ids[i]);
        if (held == states.states.end()) return nullptr;
        const auto state =
            std::ranges::find_if(held->second.tensors, [](const auto& t) { return t.first != "step"; });
        return state == held->second.tensors.end() ? nullptr : &file.tensors[state->second].shape;
    };
    // How many of each shape have no layer here.
    std::map<Dims, size_t> extra;
    size_t known = 0;
    for (size_t g = 0; g < states.groups.size(); ++g) {
        for (size_t i = 0; i < states.groups[g].ids.size(); ++i) {
            const Dims* shape = shapeOf(g, i);
            if (!shape) continue;
            if (size_t& left = free[*shape]; left > 0) {
                --left;
            } else {
                ++extra[*shape];
                ++known;
            }
        }
    }
    const bool byShape = known == surplus;
    if (!byShape && states.groups.size() > 1) return 0;
    size_t dropped = 0;
    for (size_t g = 0; g < states.groups.size(); ++g) {
        auto& ids = states.groups[g].ids;
        std::vector<int64_t> kept;
        std::vector<uint32_t> keptMasters;
        for (size_t i = 0; i < ids.size(); ++i) {
            const Dims* shape = byShape ? shapeOf(g, i) : nullptr;
            const auto over = shape ? extra.find(*shape) : extra.end();
            if (dropped < surplus && (byShape ? over != extra.end() && over->second > 0 : true)) {
                if (byShape) --over->second;
                ++dropped;
                continue;
            }
            kept.push_back(ids[i]);
            if (g < states.masters.size() && i < states.masters[g].size())
                keptMasters.push_back(states.masters[g][i]);
        }
        ids = std::move(kept);
        if (g < states.masters.size()) states.masters[g] = std::move(keptMasters);
    }
    return dropped;
}

// Of a pipeline: each stage has the next layers.
void Opener::addStage(const ModelFile& model, size_t& layersBefore) {
    std::vector<size_t> layers;
    for (size_t p = 0; p < parameters_.size(); ++p) {
        const bool here = std::ranges::count(parameters_[p].stored, tpOf(model.mp), &StoredWeight::tp) > 0;
        if (here && !parameters_[p].buffer) layers.push_back(p);
    }
    layers.erase(layers.begin(),
                 layers.begin() + static_cast<int64_t>(std::min(layersBefore, layers.size())));
    PlainStates states = readPlainStates(contents(model.index));
    size_t count = 0;
    for (const auto& group : states.groups)
        count += group.ids.size();
    if (const size_t tied = dropTied(contents(model.index), tpOf(model.mp), layers, states); tied > 0) {
        count -= tied;
        assembly_.note(
            rule::metaInconsistent, Severity::info,
            fmt::format(
                "the states of {} parameters that another stage holds as well are not listed: without "
                "ZeRO the files do not name them",
                tied),
            contents(model.index).name);
    }
    layers.resize(std::min(count, layers.size()));
    addPlainFile(model.index, states, layers, {}, model.mp, rankOf(model.dp, model.mp));
    if (tpOf(model.mp) == tpDegree_ - 1) layersBefore += count;
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
