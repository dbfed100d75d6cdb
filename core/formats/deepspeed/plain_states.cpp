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
std::optional<bool> isCastOf(const TensorFiles& files, const TensorFile& file, uint32_t index,
                             uint32_t master, uint32_t weightFile, uint32_t weight) {
    const StoredTensor& from = file.tensors[master];
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
    std::map<std::pair<uint32_t, uint32_t>, uint32_t>
        expertFiles;  // of model-parallel and expert-parallel ranks
    std::vector<std::pair<std::string, uint32_t>> names;
    std::vector<const TagFile*> files;
    for (const TagFile& file : tag_.files) {
        if (file.about.kind != FileName::Kind::expertOptimizer || file.about.mp >= mpWorld_ ||
            file.about.dp >= dpWorld_)
            continue;
        names.emplace_back(file.name, rankOf(file.about.dp, file.about.mp));
        files.push_back(&file);
    }
    if (const auto indices = assembly_.addFiles(names); indices.ok()) {
        for (size_t i = 0; i < files.size(); ++i)
            if ((*indices)[i] != kNone) expertFiles[{files[i]->about.mp, files[i]->about.dp}] = (*indices)[i];
    }
    size_t layersBefore = 0;
    for (const ModelFile& model : models_) {
        if (model.index == kNone) continue;
        const TensorFile& file = contents(model.index);
        std::vector<size_t> dense, experts;
        for (const StoredTensor& tensor : file.tensors) {
            if (tensor.path.size() < 2 || tensor.path[0].text != "module" || tensor.sameAs != kNone) continue;
            const size_t p = parameterOf(pathName(Path(tensor.path.begin() + 1, tensor.path.end())));
            if (!parameters_[p].buffer) dense.push_back(p);
        }
        // Of a pipeline the layers: each stage has the next ones.
        const bool pipeline = dense.empty();
        for (size_t p = 0; p < parameters_.size() && pipeline; ++p) {
            const Parameter& parameter = parameters_[p];
            const bool here =
                !parameter.buffer && std::ranges::any_of(parameter.stored, [&](const StoredWeight& s) {
                    return s.tp == tpOf(model.mp) && !contents(s.file).tensors[s.tensor].path.empty();
                });
            if (here) dense.push_back(p);
        }
        if (pipeline) {
            dense.erase(dense.begin(),
                        dense.begin() + static_cast<int64_t>(std::min(layersBefore, dense.size())));
            PlainStates states = readPlainStates(file);
            size_t ids = 0;
            for (const auto& group : states.groups)
                ids += group.ids.size();
            // A layer that is used in several stages comes first where it is not stored again.
            if (ids > dense.size() && states.groups.size() == 1) {
                const size_t tied = ids - dense.size();
                states.groups[0].ids.erase(states.groups[0].ids.begin(),
                                           states.groups[0].ids.begin() + static_cast<int64_t>(tied));
                assembly_.note(
                    rule::metaInconsistent, Severity::info,
                    fmt::format(
                        "the states of {} parameters that another stage holds as well are not listed: "
                        "without ZeRO the files do not name them",
                        tied),
                    file.name);
                ids = dense.size();
            }
            if (mpWorld_ / tpDegree_ > 1) dense.resize(std::min(ids, dense.size()));
            addPlainFile(model.index, states, dense, {}, model.mp, rankOf(model.dp, model.mp));
            if (tpOf(model.mp) == tpDegree_ - 1) layersBefore += ids;
            continue;
        }
        const auto inModule = [&](uint32_t mp) {
            return std::ranges::count_if(expertFiles,
                                         [&](const auto& entry) { return entry.first.first == mp; });
        };
        const int64_t ranks = inModule(model.mp);
        if (ranks == 0) {
            addPlainFile(model.index, readPlainStates(file), dense, {}, model.mp, rankOf(model.dp, model.mp));
            continue;
        }
        for (const auto& [at, index] : expertFiles) {
            if (at.first != model.mp) continue;
            experts.clear();
            for (size_t p = 0; p < parameters_.size(); ++p) {
                for (const StoredWeight& stored : parameters_[p].stored) {
                    const auto about = parseFileName(contents(stored.file).name.substr(tag_.prefix.size()));
                    if (!about || about->kind != FileName::Kind::expert || about->mp != model.mp) continue;
                    const auto& counts = model.states.experts;
                    const int64_t all = about->layer < counts.size() ? counts[about->layer] : ranks;
                    const int64_t perRank = std::max<int64_t>(all / ranks, 1);
                    if (about->expert / perRank == at.second) experts.push_back(p);
                }
            }
            addPlainFile(index, readPlainStates(contents(index)), dense, experts, model.mp,
                         rankOf(at.second, model.mp));
        }
    }
}

void Opener::addPlainFile(uint32_t index, const PlainStates& states, const std::vector<size_t>& dense,
                          const std::vector<size_t>& experts, uint32_t mp, uint32_t rank) {
    const TensorFile& file = contents(index);
    const uint32_t tp = tpOf(mp);
    const auto shapeOf = [&](size_t p) { return parameters_[p].shapes[tp].value_or(Dims{}); };
    std::vector<bool> used(parameters_.size(), false);
    // The groups that parameters of one shape are in; SIZE_MAX where no content says so.
    std::map<Dims, std::set<size_t>> groupsOf;
    bool unsure = false;
    size_t unknown = 0;
    for (size_t g = 0; g < states.groups.size(); ++g) {
        const PlainStates::Group& group = states.groups[g];
        const std::vector<size_t>& candidates = group.experts ? experts : dense;
        if (const auto flat = states.flatMasters.find(static_cast<int64_t>(g));
            flat != states.flatMasters.end()) {
            // FP16_Optimizer: a group is one flat tensor, of which only the length is known.
            std::vector<size_t> members;
            int64_t total = 0;
            for (size_t p : candidates) {
                if (used[p]) continue;
                members.push_back(p);
                total += elementCount(shapeOf(p));
            }
            if (total != elementCount(file.tensors[flat->second].shape) || states.groups.size() > 1) {
                assembly_.note(
                    rule::metaInconsistent, Severity::warning,
                    fmt::format(
                        "which parameters the flat group {} joins is not stored; its states are not listed",
                        g),
                    file.name, {}, Note::Lacks::optimizerState);
                continue;
            }
            OptimizerFile place;
            place.mp = mp;
            place.index = index;
            GroupStates all;
            if (const auto found = states.states.find(group.ids.empty() ? 0 : group.ids[0]);
                found != states.states.end())
                all = found->second;
            all.tensors.emplace_back("fp32", flat->second);
            for (const auto& [state, tensor] : all.tensors) {
                int64_t at = 0;
                for (size_t p : members) {
                    const int64_t count = elementCount(shapeOf(p));
                    const StoredTensor& stored = file.tensors[tensor];
                    if (elementCount(stored.shape) != total) {
                        addState(parameters_[p].name, state, index, tensor, rank);
                    } else {
                        addFlat(statePath(parameters_[p].name, state), stored.dtype, Role::optimizer, place,
                                tensor, {p, 0, count, at}, parameters_[p]);
                    }
                    at += count;
                }
            }
            continue;
        }
        for (size_t i = 0; i < group.ids.size(); ++i) {
            const auto found = states.states.find(group.ids[i]);
            const GroupStates none;
            const GroupStates& held = found == states.states.end() ? none : found->second;
            const bool hasMaster = g < states.masters.size() && i < states.masters[g].size();
            std::optional<Dims> shape;
            if (hasMaster) shape = file.tensors[states.masters[g][i]].shape;
            for (const auto& [state, tensor] : held.tensors) {
                if (!shape && state != "step") shape = file.tensors[tensor].shape;
            }
            size_t chosen = SIZE_MAX;
            bool sure = false;
            for (size_t p : candidates) {
                if (used[p] || (shape && shapeOf(p) != *shape)) continue;
                std::optional<bool> cast;
                for (const StoredWeight& weight : parameters_[p].stored) {
                    if (hasMaster && weight.tp == tp)
                        cast = isCastOf(assembly_.files(), file, index, states.masters[g][i], weight.file,
                                        weight.tensor);
                }
                if (cast == false) continue;
                chosen = p;
                sure = cast == true;
                break;
            }
            if (chosen == SIZE_MAX) {
                ++unknown;
                continue;
            }
            used[chosen] = true;
            if (!sure) groupsOf[shapeOf(chosen)].insert(g);
            const Parameter& parameter = parameters_[chosen];
            const auto add = [&](const std::string& state, uint32_t tensor) {
                const StoredTensor& stored = file.tensors[tensor];
                if (stored.shape != shapeOf(chosen) || parameter.placement.shards.empty())
                    return addState(parameter.name, state, index, tensor, rank);
                for (const Run& run : parameter.placement.shards[tp]) {
                    TensorAssembly::Piece piece;
                    piece.rank = rank;
                    piece.part = parameter.placement.shards[tp].size() == 1
                                     ? StoredPart::whole(index, tensor)
                                     : StoredPart::range(index, tensor, run.first, run.count);
                    piece.offsets = run.offsets;
                    piece.lengths = run.lengths;
                    assembly_.addPiece(statePath(parameter.name, state), stored.dtype,
                                       parameter.placement.whole, Role::optimizer, std::move(piece));
                }
            };
            if (hasMaster) add("fp32", states.masters[g][i]);
            for (const auto& [state, tensor] : held.tensors)
                add(state, tensor);
            for (const auto& [state, value] : held.objects)
                addStateObject(parameter.name, state, *value, index, rank);
        }
    }
    for (const auto* list : {&dense, &experts}) {
        for (size_t p : *list) {
            const auto groups = groupsOf.find(shapeOf(p));
            if (groups == groupsOf.end()) continue;
            // Left over, or of a shape that several groups have.
            unsure = unsure || !used[p] || groups->second.size() > 1;
        }
    }
    if (unknown > 0)
        assembly_.note(
            rule::metaInconsistent, Severity::warning,
            fmt::format(
                "{} of the parameters that the optimizer numbers fit no weight; their states are not listed",
                unknown),
            file.name, {}, Note::Lacks::optimizerState);
    if (unsure)
        assembly_.note(
            rule::metaInconsistent, Severity::warning,
            "the optimizer's states have no names, and parameters of the same shape are in several groups or "
            "frozen: the names of such states follow the order of the model, which may be wrong",
            file.name);
}

}  // namespace shardscope::deepspeed
