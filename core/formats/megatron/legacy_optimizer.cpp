// The optimizer's state in mp_rank_* directories: buffers of a distributed optimizer, or states by number.
//
// Source: megatron/core/optimizer/{optimizer,distrib_optimizer}.py of megatron-core 0.16.
#include <algorithm>
#include <numeric>
#include <tuple>

#include <fmt/format.h>

#include "base/checked.h"
#include "base/rule.h"
#include "formats/megatron/buffers.h"
#include "formats/megatron/legacy.h"
#include "model/paths.h"

namespace shardscope::megatron {

// What is not part of the model goes under its own names, per rank where ranks differ; optimizer state under
// those of the parameters where they can be told.
Status LegacyOpener::addOptimizer() {
    for (const RankFiles& rank : ranks_) {
        for (const uint32_t file : {rank.model, rank.optimizer}) {
            if (file == kNone) continue;
            const bool optimizerFile = file == rank.optimizer;
            std::set<uint32_t> named;
            SHARDSCOPE_TRY(optimizerFile ? addBuffers(rank, named) : addNumberedStates(rank, named));
            const auto pathOf = [&](const Path& path) {
                return optimizerFile ? joined({rank.directory, "distrib_optim"}, path)
                                     : joined({rank.directory}, path);
            };
            const auto isModel = [&](const Path& path) {
                if (place_.nemo()) return true;
                return !optimizerFile && path.size() > 1 && path[0].kind == PathPart::Kind::key &&
                       virtualStageOf(path[0].text);
            };
            bool carried = false;
            for (uint32_t t = 0; t < contents(file).tensors.size(); ++t) {
                const StoredTensor& tensor = contents(file).tensors[t];
                if (named.contains(t) || (isModel(tensor.path) && tensor.special == kNone)) continue;
                const bool optimizer = optimizerFile || tensor.name.starts_with("optimizer.");
                carried = carried || optimizer;
                assembly_.addWhole(file, t, pathOf(tensor.path), optimizer ? Role::optimizer : Role::other,
                                   rank.rank);
            }
            if (carried && !saidCarried_) {
                saidCarried_ = true;
                assembly_.note(
                    rule::metaInconsistent, Severity::info,
                    "which parameters the optimizer's state belongs to cannot be told; it is listed "
                    "below the names of the directories",
                    contents(file).name);
            }
            for (const StoredObject& object : contents(file).objects) {
                if (isModel(object.path)) continue;
                if (optimizerFile)
                    assembly_.addObject(file, pathOf(object.path), object.value, rank.rank);
                else
                    addObject(rank, object.path, object.value,
                              object.name.starts_with("rng_state") ? RankObject::When::always
                                                                   : RankObject::When::firstIsMain);
            }
        }
    }
    return {};
}

// The trained parameters of a rank, in the order of the model.
std::vector<LegacyOpener::RankParameter> LegacyOpener::parametersOf(const RankFiles& rank) {
    std::vector<RankParameter> all;
    forModelEntries(rank, [&](uint32_t v, const std::string& local, uint32_t tensor, const Value*) {
        if (tensor == kNone) return;
        const std::string name = globalName(rank, v, local);
        const StoredTensor& from = contents(rank.model).tensors[tensor];
        if (!dtypeIsFloat(from.dtype) || name.ends_with("expert_bias") || name.ends_with("_extra_state") ||
            scaledBy(parameters_[byName_.at(name)]))
            return;
        RankParameter parameter;
        parameter.parameter = byName_.at(name);
        parameter.tensor = tensor;
        parameter.virtualStage = v;
        parameter.elements = elementCount(from.shape);
        parameter.dtype = from.dtype;
        parameter.expert = name.find(".experts.") != name.npos && name.find("shared_experts") == name.npos;
        // The first and the last stage share it, in a bucket of its own.
        const bool tied = sizes_.pp > 1 && !args_.isTrue("untie_embeddings_and_output_weights");
        parameter.alone = tied && ((rank.pp == 0 && name.ends_with("word_embeddings.weight")) ||
                                   (rank.pp + 1 == sizes_.pp && name.ends_with("output_layer.weight")));
        all.push_back(parameter);
    });
    return all;
}

Result<bool> LegacyOpener::isMaster(uint32_t file, uint32_t master, int64_t first, const RankFiles& rank,
                                    const RankParameter& parameter) {
    const int64_t count = std::min(kMostCompared, parameter.elements);
    const DType dtype = contents(file).tensors[master].dtype;
    if (count == 0 || !isComparable(parameter.dtype, dtype)) return true;
    const auto one = assembly_.files().extent(StoredPart::range(file, master, first, count));
    const auto two = assembly_.files().extent(StoredPart::range(rank.model, parameter.tensor, 0, count));
    if (!one.ok() || !two.ok()) return true;
    SHARDSCOPE_ASSIGN(const auto masters, firstValues(*one, 0, count, dtype));
    SHARDSCOPE_ASSIGN(const auto weights, firstValues(*two, 0, count, parameter.dtype));
    return looksLikeMaster(masters, weights);
}

// distrib_optim.pt: {buffer: {(dtype of parameters, of gradients): {"param": ..., "exp_avg": ...}}}, each a
// vector of all buckets without the padding at their ends; in a list where optimizers are chained.
Status LegacyOpener::addBuffers(const RankFiles& rank, std::set<uint32_t>& named) {
    if (rank.model == kNone) return {};
    const TensorFile& file = contents(rank.optimizer);
    using Key = std::tuple<int64_t, std::string, int64_t>;  // optimizer, dtypes, buffer
    std::map<Key, std::map<std::string, uint32_t>> buffers;
    for (uint32_t t = 0; t < file.tensors.size(); ++t) {
        const Path& path = file.tensors[t].path;
        const size_t at = path.size() == 4 && path[0].kind != PathPart::Kind::key ? 1 : 0;
        if (path.size() != at + 3 || path[at].kind != PathPart::Kind::integerKey ||
            path[at + 1].kind != PathPart::Kind::otherKey || path[at + 2].kind != PathPart::Kind::key)
            continue;
        buffers[{at ? path[0].index : 0, path[at + 1].text, path[at].index}][path[at + 2].text] = t;
    }
    const std::vector<RankParameter> all = parametersOf(rank);
    std::map<std::pair<int64_t, std::string>, uint32_t> stages;
    for (const auto& [key, states] : buffers) {
        const auto& [chain, dtypes, buffer] = key;
        const uint32_t stage = stages[{chain, dtypes}]++;
        const Dims shape = file.tensors[states.begin()->second].shape;
        const bool vectors = shape.size() == 1 && std::ranges::all_of(states, [&](const auto& state) {
                                 return file.tensors[state.second].shape == shape;
                             });
        if (!vectors) continue;
        for (const bool experts : {false, true}) {
            std::vector<RankParameter> parameters;
            std::vector<int64_t> elements;
            std::vector<bool> alone;
            for (const RankParameter& parameter : all) {
                if (parameter.virtualStage != stage || parameter.expert != experts ||
                    dtypes.find(fmt::format("(torch.{},", dtypeName(parameter.dtype))) != 0)
                    continue;
                parameters.push_back(parameter);
                elements.push_back(parameter.elements);
                alone.push_back(parameter.alone);
            }
            SHARDSCOPE_ASSIGN(const auto starts,
                              startsIn(rank, states, shape[0], parameters, elements, alone));
            if (starts.empty()) continue;
            for (const auto& [kind, t] : states) {
                named.insert(t);
                for (size_t p = 0; p < parameters.size(); ++p) {
                    const Parameter& parameter = parameters_[parameters[p].parameter];
                    if (!parameter.cut) continue;
                    const Dims local = contents(rank.model).tensors[parameters[p].tensor].shape;
                    const Path path = statePath(parameter.name, kind);
                    if (refused(parameter, path, file.tensors[t].dtype, Role::optimizer)) continue;
                    assembly_.addBoxes(path, file.tensors[t].dtype, parameter.whole, Role::optimizer,
                                       {rank.rank, StoredPart::whole(rank.optimizer, t), {}, {}, {}},
                                       boxesOf(parameter, local, rank), starts[p]);
                }
            }
            break;
        }
    }
    return {};
}

// Where each parameter starts in the vectors; empty where they cannot hold these parameters.
Result<std::vector<int64_t>> LegacyOpener::startsIn(const RankFiles& rank,
                                                    const std::map<std::string, uint32_t>& states,
                                                    int64_t length,
                                                    const std::vector<RankParameter>& parameters,
                                                    const std::vector<int64_t>& elements,
                                                    const std::vector<bool>& alone) {
    // arguments.py: --ddp-bucket-size; by default 40 million elements, and a million for each data-parallel
    // rank.
    const int64_t usual = std::max<int64_t>(40'000'000, int64_t{1'000'000} * sizes_.dp);
    for (const std::optional<int64_t> limit :
         {std::optional<int64_t>(), std::optional(args_.integer("ddp_bucket_size").value_or(usual))}) {
        for (const bool apart : {true, false}) {
            const std::vector<int64_t> buckets =
                bucketsOf(elements, apart ? alone : std::vector<bool>(), limit);
            int64_t all = 0;
            for (const int64_t bucket : buckets)
                if (!checkedAdd(all, bucket, all)) return std::vector<int64_t>();
            if (buckets.empty() || all != length) continue;
            const auto places = placeInBuckets(elements, buckets);
            if (!places) continue;
            std::vector<int64_t> starts;
            for (const BufferPlace& place : *places)
                starts.push_back(std::accumulate(
                    buckets.begin(), buckets.begin() + static_cast<int64_t>(place.bucket), place.first));
            const auto master = states.find("param");
            bool fits = true;
            const size_t step = std::max<size_t>(1, parameters.size() / kMostParametersCompared);
            for (size_t p = 0; master != states.end() && fits && p < parameters.size(); p += step) {
                SHARDSCOPE_ASSIGN(fits,
                                  isMaster(rank.optimizer, master->second, starts[p], rank, parameters[p]));
            }
            if (fits) return starts;
        }
    }
    return std::vector<int64_t>();
}

// An optimizer that is not distributed numbers its parameters, group by group: those with weight decay
// (matrices) and those without (vectors and biases), experts apart. The masters of 16-bit parameters are in
// lists of the same order.
Status LegacyOpener::addNumberedStates(const RankFiles& rank, std::set<uint32_t>& named) {
    const TensorFile& file = contents(rank.model);
    struct Optimizer {
        std::map<int64_t, std::vector<std::pair<std::string, uint32_t>>> states;
        std::map<std::pair<int64_t, int64_t>, uint32_t> masters;
        std::vector<std::vector<int64_t>> groups;
    };
    std::map<std::string, Optimizer> optimizers;  // by what stands before "state", "param_groups"
    const auto split = [](const Path& path, std::string_view key) -> std::optional<size_t> {
        if (path.empty() || path[0].text != "optimizer") return std::nullopt;
        for (size_t i = 1; i < path.size() && i < 4; ++i) {
            if (path[i].kind == PathPart::Kind::key && path[i].text == key) return i;
        }
        return std::nullopt;
    };
    const auto owner = [](const Path& path, size_t at) {
        Path before(path.begin(), path.begin() + static_cast<int64_t>(at));
        // {"optimizer": {"state": ...}, "fp32_from_fp16_params": ...}
        if (before.size() > 1 && before.back().kind == PathPart::Kind::key &&
            before.back().text == "optimizer")
            before.pop_back();
        return encodePath(before);
    };
    for (uint32_t t = 0; t < file.tensors.size(); ++t) {
        const Path& path = file.tensors[t].path;
        if (const auto at = split(path, "state"); at && path.size() == *at + 3 &&
                                                  path[*at + 1].kind == PathPart::Kind::integerKey &&
                                                  path[*at + 2].kind == PathPart::Kind::key) {
            optimizers[owner(path, *at)].states[path[*at + 1].index].emplace_back(path[*at + 2].text, t);
        } else if (const auto list = split(path, "fp32_from_fp16_params");
                   list && path.size() == *list + 3 && path[*list + 2].kind == PathPart::Kind::index) {
            optimizers[owner(path, *list)].masters[{path[*list + 1].index, path[*list + 2].index}] = t;
        }
    }
    for (const StoredObject& object : file.objects) {
        const auto at = split(object.path, "param_groups");
        if (!at || object.path.size() != *at + 1) continue;
        auto& groups = optimizers[owner(object.path, *at)].groups;
        for (const ValueView group : ValueView(object.value).items()) {
            auto& ids = groups.emplace_back();
            for (const ValueView id : group["params"].items())
                if (id.integer()) ids.push_back(*id.integer());
        }
    }
    const std::vector<RankParameter> all = parametersOf(rank);
    std::set<size_t> used;
    for (const auto& entry : optimizers) {
        const Optimizer& optimizer = entry.second;
        for (size_t g = 0; g < optimizer.groups.size(); ++g) {
            const std::vector<int64_t>& ids = optimizer.groups[g];
            // A tensor of the shape of the group's k-th parameter.
            const auto tensorOf = [&](size_t k) -> uint32_t {
                const auto master =
                    optimizer.masters.find({static_cast<int64_t>(g), static_cast<int64_t>(k)});
                if (master != optimizer.masters.end()) return master->second;
                const auto states = optimizer.states.find(ids[k]);
                if (states == optimizer.states.end()) return kNone;
                for (const auto& [kind, t] : states->second)
                    if (kind == "exp_avg" || kind == "momentum_buffer") return t;
                return kNone;
            };
            SHARDSCOPE_ASSIGN(const auto parameters,
                              membersOf(rank, all, used, tensorOf, ids.size(), !optimizer.masters.empty()));
            for (size_t k = 0; k < parameters.size(); ++k) {
                const Parameter& parameter = parameters_[all[parameters[k]].parameter];
                const Dims local = contents(rank.model).tensors[all[parameters[k]].tensor].shape;
                used.insert(parameters[k]);
                if (!parameter.cut) continue;
                const auto add = [&](const std::string& kind, uint32_t t) {
                    const StoredTensor& tensor = file.tensors[t];
                    named.insert(t);
                    if (tensor.shape == local && !local.empty())
                        addShard(parameter, statePath(parameter.name, kind), tensor.dtype, local,
                                 Role::optimizer, rank.model, t, rank);
                    else
                        assembly_.addWhole(rank.model, t, statePath(parameter.name, kind), Role::optimizer,
                                           rank.rank);
                };
                if (const auto states = optimizer.states.find(optimizer.groups[g][k]);
                    states != optimizer.states.end())
                    for (const auto& [kind, t] : states->second)
                        add(kind, t);
                if (const auto master =
                        optimizer.masters.find({static_cast<int64_t>(g), static_cast<int64_t>(k)});
                    master != optimizer.masters.end())
                    add("fp32_param", master->second);
            }
        }
    }
    return {};
}

// The parameters whose shapes are those of a group's tensors, `tensorOf(k)`, in this order; empty where no
// kind of parameters fits.
Result<std::vector<size_t>> LegacyOpener::membersOf(const RankFiles& rank,
                                                    const std::vector<RankParameter>& all,
                                                    const std::set<size_t>& used,
                                                    const std::function<uint32_t(size_t)>& tensorOf,
                                                    size_t count, bool masters) {
    for (const int kind : {0, 1, 2, 3, 4, 5}) {  // with decay, without, both; then of experts
        std::vector<size_t> members;
        for (size_t i = 0; i < all.size(); ++i) {
            const Parameter& parameter = parameters_[all[i].parameter];
            const bool decay = contents(rank.model).tensors[all[i].tensor].shape.size() != 1 &&
                               !parameter.name.ends_with(".bias");
            if (used.contains(i) || all[i].expert != (kind > 2) ||
                (kind % 3 != 2 && decay != (kind % 3 == 0)))
                continue;
            members.push_back(i);
        }
        bool fits = count > 0 && members.size() == count;
        const size_t step = std::max<size_t>(1, count / kMostParametersCompared);
        for (size_t k = 0; fits && k < count; ++k) {
            const uint32_t t = tensorOf(k);
            const RankParameter& parameter = all[members[k]];
            fits = t != kNone && contents(rank.model).tensors[t].shape ==
                                     contents(rank.model).tensors[parameter.tensor].shape;
            if (fits && masters && k % step == 0) {
                SHARDSCOPE_ASSIGN(fits, isMaster(rank.model, t, 0, rank, parameter));
            }
        }
        if (fits) return members;
    }
    return std::vector<size_t>();
}

}  // namespace shardscope::megatron
