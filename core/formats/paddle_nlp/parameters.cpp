#include "formats/paddle_nlp/parameters.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <unordered_map>

#include <fmt/format.h>

#include "base/checked.h"
#include "base/names.h"
#include "base/rule.h"
#include "base/text.h"
#include "base/units.h"
#include "formats/paddle_nlp/names.h"
#include "formats/paddle_nlp/rank_files.h"

namespace shardscope::paddle_nlp {

namespace {

// ------------------------------------------------------------------ names

// The optimizer has static names ("linear_2.w_0") in place of structured ones
// ("llama.layers.0.mlp.up_proj.weight"). Each pipeline stage numbers static names anew, so each (tp, pp) pair
// has its own map.

// The files of one tensor-parallel rank, pipeline stage and expert-parallel rank.
struct Group {
    RankPlace at;                            // but for the sharding rank
    std::vector<const RankFile*> weights;    // readable files
    std::vector<const RankFile*> optimizer;  // readable files, by sharding rank
    const GroupMeta* meta = nullptr;
};

struct NameMap {
    enum class Source : uint8_t { none, meta, table, replayed };
    Source source = Source::none;
    std::map<std::string, std::string, std::less<>> structured;  // by static name
    std::map<std::string, std::string, std::less<>> tied;        // alias -> structured name of the tensor
    StaticNames statics;
};

constexpr int64_t kSegment = 1 << 20;  // stage 3 slices what has more elements
constexpr size_t kListedNames = 6;

int64_t elementsOf(const Dims& shape) {
    int64_t count = 0;
    return checkedProduct(shape, count) ? count : -1;
}

// A parameter as the model lists it, and as an optimizer's file does.
struct Model {
    std::string name;
    Dims shape;
    int64_t elements = 0;
};
struct Stored {
    std::string name;
    Dims shape;
};

class Replay {
  public:
    Replay(const Group& group, uint32_t degree, uint32_t tp) : group_(group), degree_(degree), tp_(tp) {}

    // The matches that fit, each once: static names in the order of the model.
    using Match = std::vector<std::string>;
    std::set<Match> run() {
        listModel();
        listStored();
        std::set<Match> fitting;
        if (model_.empty() || stored_.empty()) return fitting;
        std::vector<size_t> all(model_.size());
        std::iota(all.begin(), all.end(), size_t{0});
        if (sameOnAll()) {
            tryOrder({all}, fitting, true);
            std::vector<size_t> slicedFirst = all;
            std::stable_partition(slicedFirst.begin(), slicedFirst.end(),
                                  [&](size_t i) { return model_[i].elements > kSegment; });
            tryOrder({slicedFirst}, fitting, true);
            return fitting;
        }
        for (const bool sorted : {false, true}) {
            const auto ranks = partition(sorted);
            tryOrder(ranks, fitting, false);
            auto inModelOrder = ranks;
            for (auto& rank : inModelOrder)
                std::sort(rank.begin(), rank.end());
            tryOrder(inModelOrder, fitting, false);
        }
        return fitting;
    }
    // The sharding degree that explains why some parameters have no state here: with it, the ranks that are
    // here own exactly what they hold, and those behind them the rest. 0 when nothing is missing, or nothing
    // explains it.
    uint32_t impliedDegree(const std::map<std::string, std::string, std::less<>>& structured) {
        constexpr uint32_t kTried = 64;
        listModel();
        listStored();
        std::vector<std::set<std::string>> held(degree_);
        size_t count = 0;
        for (uint32_t r = 0; r < degree_; ++r) {
            for (const Stored& stored : stored_[r]) {
                const auto it = structured.find(stored.name);
                if (it == structured.end()) return 0;
                held[r].insert(it->second);
            }
            count += held[r].size();
        }
        if (count == 0 || count >= model_.size()) return 0;
        const uint32_t here = degree_;
        uint32_t found = 0;
        for (uint32_t degree = here + 1; degree <= here + kTried && degree <= model_.size() && !found;
             ++degree) {
            degree_ = degree;
            for (const bool sorted : {true, false}) {
                const auto ranks = partition(sorted);
                bool same = true;
                for (uint32_t r = 0; r < here && same; ++r) {
                    std::set<std::string> owned;
                    for (size_t i : ranks[r])
                        owned.insert(model_[i].name);
                    same = owned == held[r];
                }
                if (same) found = degree;
            }
        }
        degree_ = here;
        return found;
    }
    const std::vector<Model>& model() const { return model_; }
    std::vector<std::string> statics() const {
        std::vector<std::string> names;
        for (const auto& rank : stored_) {
            for (const Stored& s : rank)
                names.push_back(s.name);
        }
        return names;
    }

  private:
    void listModel() {
        for (const RankFile* file : group_.weights) {
            for (const StoredTensor& entry : file->content->tensors)
                model_.push_back({entry.name, entry.shape, elementsOf(entry.shape)});
        }
    }

    // In each file the parameters in the order of the first state that is as large as they are.
    void listStored() {
        stored_.assign(degree_, {});
        const StaticNames none;
        for (const RankFile* file : group_.optimizer) {
            if (file->at().shard >= degree_) continue;
            std::vector<Stored>& out = stored_[file->at().shard];
            std::string first;
            for (const StoredTensor& entry : file->content->tensors) {
                const auto state = parseStateName(entry.path, none);
                if (!state || state->state.ends_with("pow_acc") || state->state == "master_weight") continue;
                if (first.empty()) first = state->state;
                if (state->state == first) out.push_back({state->parameter, entry.shape});
            }
        }
    }

    bool sameOnAll() const {
        for (const auto& rank : stored_) {
            if (rank.size() != stored_[0].size()) return false;
            for (size_t i = 0; i < rank.size(); ++i) {
                if (rank[i].name != stored_[0][i].name || rank[i].shape != stored_[0][i].shape) return false;
            }
        }
        return true;
    }

    // As DygraphShardingOptimizer gives parameters to ranks: to the one with the fewest elements so far.
    std::vector<std::vector<size_t>> partition(bool sorted) const {
        std::vector<size_t> order(model_.size());
        std::iota(order.begin(), order.end(), size_t{0});
        if (sorted) {
            std::stable_sort(order.begin(), order.end(),
                             [&](size_t a, size_t b) { return model_[a].elements > model_[b].elements; });
        }
        std::vector<std::vector<size_t>> ranks(degree_);
        std::vector<int64_t> sizes(degree_, 0);
        for (size_t i : order) {
            const auto least =
                static_cast<size_t>(std::min_element(sizes.begin(), sizes.end()) - sizes.begin());
            ranks[least].push_back(i);
            if (!checkedAdd(sizes[least], model_[i].elements, sizes[least])) sizes[least] = INT64_MAX;
        }
        return ranks;
    }

    bool shapeFits(const Model& model, const Dims& shape, bool everywhere) const {
        if (shape == model.shape) return true;
        if (everywhere) {
            // A slice of the flattened, padded parameter.
            int64_t total = 0;
            if (shape.size() == 1 && checkedMul<int64_t>(shape[0], degree_, total) &&
                total >= model.elements && total - model.elements < int64_t{256} * degree_ + 256)
                return true;
        }
        // Whole weights beside optimizer state of tensor-parallel ranks.
        if (tp_ < 2 || shape.size() != model.shape.size()) return false;
        size_t cut = 0;
        for (size_t d = 0; d < shape.size(); ++d) {
            if (shape[d] == model.shape[d]) continue;
            if (shape[d] > kMaxDim / tp_ || shape[d] * tp_ != model.shape[d]) return false;
            ++cut;
        }
        return cut == 1;
    }

    void tryOrder(const std::vector<std::vector<size_t>>& ranks, std::set<Match>& fitting,
                  bool everywhere) const {
        Match match(model_.size());
        for (size_t r = 0; r < ranks.size(); ++r) {
            if (ranks[r].size() != stored_[r].size()) return;
            for (size_t i = 0; i < ranks[r].size(); ++i) {
                const Model& model = model_[ranks[r][i]];
                if (!shapeFits(model, stored_[r][i].shape, everywhere)) return;
                match[ranks[r][i]] = stored_[r][i].name;
            }
        }
        // Layers of a kind are numbered as they are made, which is the order of the model.
        std::map<std::string_view, uint64_t> last;
        for (const std::string& name : match) {
            const auto layer = numberedLayer(name);
            if (!layer) continue;
            const auto [it, fresh] = last.try_emplace(layer->first, layer->second);
            if (!fresh && layer->second < it->second) return;
            it->second = layer->second;
        }
        fitting.insert(std::move(match));
    }

    const Group& group_;
    uint32_t degree_;
    const uint32_t tp_;
    std::vector<Model> model_;
    std::vector<std::vector<Stored>> stored_;  // by sharding rank
};

std::string listedNames(std::vector<std::string> names) {
    for (std::string& name : names)
        name = fmt::format("'{}'", name);
    return listed(names, kListedNames);
}

// Parameters of the group's optimizer files, as far as their endings tell.
std::set<std::string> storedParameters(const Group& group, const StaticNames& known) {
    std::set<std::string> names;
    for (const RankFile* file : group.optimizer) {
        for (const StoredTensor& entry : file->content->tensors) {
            if (auto state = parseStateName(entry.path, known)) names.insert(std::move(state->parameter));
        }
    }
    return names;
}

// `degree`: of sharding; `tp`: of tensor parallelism. Never fails: adds notes that name the unresolved names.
NameMap findNames(const Group& group, uint32_t degree, uint32_t tp, CatalogBuilder& builder) {
    NameMap out;
    const std::string where = formatGroupName(group.at.tp, group.at.pp);
    const std::string file = group.optimizer.empty() ? std::string() : group.optimizer[0]->path;
    const auto take = [&](const std::string& structured, const std::string& parameter) {
        const auto [it, fresh] = out.structured.emplace(parameter, structured);
        if (!fresh && it->second != structured) out.tied.emplace(structured, it->second);
        out.statics.add(parameter);
    };
    std::map<std::string, std::string, std::less<>>
        owner;  // structured -> static, to see a name that two claim
    const auto claim = [&](const std::string& structured, const std::string& parameter,
                           const std::string& by) {
        const auto [it, fresh] = owner.emplace(structured, parameter);
        if (fresh || it->second == parameter) return take(structured, parameter);
        builder.addNote(noteOf(rule::metaInconsistent, Severity::error,
                               fmt::format("two parameters of {} claim the name '{}': '{}' and '{}'", where,
                                           structured, it->second, parameter),
                               by, structured, Note::Lacks::anything));
    };
    if (group.meta) {
        out.source = NameMap::Source::meta;
        for (const MetaParameter& parameter : group.meta->parameters)
            claim(parameter.structured, parameter.parameter, "model_meta.json");
    } else {
        for (const RankFile* weights : group.weights) {
            for (const StoredTensor& entry : weights->content->tensors) {
                if (!entry.parameter.empty() && entry.name != entry.parameter)
                    claim(entry.name, entry.parameter, weights->path);
            }
        }
        if (!out.structured.empty()) out.source = NameMap::Source::table;
    }
    out.statics.finish();
    if (group.optimizer.empty()) return out;

    const std::set<std::string> stored = storedParameters(group, out.statics);
    const bool anyKnown = std::any_of(stored.begin(), stored.end(),
                                      [&](const std::string& s) { return out.structured.contains(s); });
    if (anyKnown && !group.meta && degree > 1) {
        // The file of the last sharding rank is not missed by the names of the others.
        if (const uint32_t implied = Replay(group, degree, tp).impliedDegree(out.structured)) {
            RankFileName last = group.optimizer.back()->name;
            last.shard = degree;
            const std::string path = formatRankFileName(last);
            builder.addNote(noteOf(rule::fileMissing, Severity::error,
                                   fmt::format("'{}' is missing: {} has {}, sharded as for {}", path, where,
                                               counted(degree, "sharding rank"), counted(implied, "rank")),
                                   path, {}, Note::Lacks::optimizerState));
        }
    }
    if (anyKnown || group.meta || stored.empty()) return out;

    // The table of the weights speaks of other names, or there is none: what the trainer did is done again.
    Replay replay(group, degree, tp);
    const auto matches = replay.run();
    out.structured.clear();
    out.tied.clear();
    out.statics = StaticNames();
    out.source = NameMap::Source::none;
    if (matches.size() == 1) {
        out.source = NameMap::Source::replayed;
        const auto& match = *matches.begin();
        for (size_t i = 0; i < match.size(); ++i)
            take(replay.model()[i].name, match[i]);
        out.statics.finish();
        builder.addNote(noteOf(rule::metaInconsistent, Severity::info,
                               fmt::format("the parameters of {} were matched to the optimizer's names by "
                                           "doing the partition of sharding again; nothing in the files "
                                           "says it",
                                           where),
                               file));
        return out;
    }
    Note note = noteOf(rule::metaInconsistent, Severity::error, {}, file, {}, Note::Lacks::optimizerState);
    if (matches.empty()) {
        std::vector<std::string> names(stored.begin(), stored.end());
        note.message = fmt::format(
            "no weight of {} is known to be {}: there is no model_meta.json, and by order and "
            "shape they do not match the {}",
            where, listedNames(std::move(names)), counted(replay.model().size(), "weight"));
    } else {
        std::vector<std::string> names;
        for (size_t i = 0; i < replay.model().size(); ++i) {
            const bool open = std::any_of(matches.begin(), matches.end(), [&](const Replay::Match& m) {
                return m[i] != (*matches.begin())[i];
            });
            if (open) names.push_back(replay.model()[i].name);
        }
        note.tensor = names.empty() ? std::string() : names[0];
        note.message = fmt::format(
            "whose optimizer state {} holds cannot be told: without model_meta.json {} ways of "
            "partitioning fit, which differ in {}",
            where, matches.size(), listedNames(std::move(names)));
    }
    builder.addNote(std::move(note));
    return out;
}

// ------------------------------------------------------------------ parameters

std::optional<NumberInName> expertOf(std::string_view name) {
    return NumberInName::behind(name, ".experts.", 9'999'999);
}

class Gathering {
  public:
    Gathering(const HybridFiles& files, CatalogBuilder& builder) : files_(files), builder_(builder) {}

    std::vector<Parameter> run() {
        makeGroups();
        countExperts();
        for (const Group& group : groups_)
            takeGroup(group);
        return std::move(out_);
    }

  private:
    void makeGroups() {
        std::map<RankPlace, Group> groups;
        const auto at = [&](RankPlace place) -> Group& {
            place.shard = 0;
            Group& group = groups[place];
            group.at = place;
            return group;
        };
        for (const auto& [key, meta] : files_.meta.groups) {
            if (key.first < files_.tp && key.second < files_.pp)
                at({.pp = key.second, .tp = key.first}).meta = &meta;
        }
        for (const RankFile& file : files_.files) {
            if (!file.readable()) continue;
            RankPlace place = file.at();
            if (file.name.optimizer) {
                at(place).optimizer.push_back(&file);
                continue;
            }
            // Whole weights belong to every tensor-parallel rank.
            const uint32_t last = files_.wholeWeights ? files_.tp - 1 : place.tp;
            for (place.tp = files_.wholeWeights ? 0 : place.tp; place.tp <= last; ++place.tp)
                at(place).weights.push_back(&file);
        }
        for (auto& [key, group] : groups) {
            const auto meta = files_.meta.groups.find({group.at.tp, group.at.pp});
            if (meta != files_.meta.groups.end()) group.meta = &meta->second;
            groups_.push_back(std::move(group));
        }
    }

    // With experts spread over data-parallel ranks each rank counts its own from 0.
    void countExperts() {
        if (files_.moe < 2) return;
        std::map<uint32_t, std::set<std::string>> names;
        for (const Group& group : groups_) {
            for (const RankFile* file : group.weights) {
                for (const StoredTensor& entry : file->content->tensors) {
                    const auto expert = expertOf(entry.name);
                    if (!expert) continue;
                    names[group.at.moe].insert(fmt::format("{}/{}", group.at.tp, entry.name));
                    experts_ = std::max(experts_, expert->number + 1);
                }
            }
        }
        bool repeated = false;
        for (const auto& [moe, own] : names) {
            for (const std::string& name : own)
                repeated = repeated || (moe > 0 && names[0].contains(name));
        }
        if (!repeated) experts_ = 0;
        if (experts_) {
            builder_.addNote(
                noteOf(rule::metaInconsistent, Severity::info,
                       fmt::format("each group of experts counts its {} from 0; those of group n are "
                                   "numbered on from {} n here",
                                   counted(experts_, "expert"), experts_)));
        }
    }

    std::string nameIn(const Group& group, const std::string& name) const {
        if (experts_ == 0 || group.at.moe == 0) return name;
        const auto expert = expertOf(name);
        if (!expert) return name;
        return expert->with(name, expert->number + group.at.moe * experts_);
    }

    Parameter& parameter(const std::string& name) {
        const auto [it, fresh] = index_.try_emplace(name, out_.size());
        if (fresh) {
            out_.emplace_back();
            out_.back().name = name;
        }
        return out_[it->second];
    }

    void error(std::string message, const std::string& file, const std::string& tensor, Note::Lacks lacks) {
        builder_.addNote(
            noteOf(rule::metaInconsistent, Severity::error, std::move(message), file, tensor, lacks));
    }

    void takeShape(Parameter& parameter, const Group& group, const Dims& shape, const std::string& file) {
        const auto [it, fresh] = parameter.local.emplace(group.at.tp, shape);
        if (fresh || it->second == shape) return;
        error(
            fmt::format("its shape on {} is {} here, {} elsewhere", formatGroupName(group.at.tp, group.at.pp),
                        formatDims(shape), formatDims(it->second)),
            file, parameter.name, Note::Lacks::anything);
    }

    void takeGroup(const Group& group) {
        const NameMap names = findNames(group, files_.sharding, files_.tp, builder_);
        std::map<std::string, std::string, std::less<>> statics;  // structured -> static
        for (const auto& [parameter, structured] : names.structured)
            statics.emplace(structured, parameter);
        if (group.meta) {
            for (const MetaParameter& meta : group.meta->parameters)
                takeMeta(group, names, meta);
        }
        for (const RankFile* file : group.weights)
            takeWeights(group, names, statics, *file);
        for (const RankFile* file : group.optimizer)
            takeStates(group, names, *file);
    }

    void takeMeta(const Group& group, const NameMap& names, const MetaParameter& meta) {
        Parameter& p = parameter(nameIn(group, meta.structured));
        p.stages.emplace(std::pair(group.at.pp, group.at.moe), meta.parameter);
        if (const auto tied = names.tied.find(meta.structured); tied != names.tied.end())
            p.tiedTo = nameIn(group, tied->second);
        if (meta.shape) takeShape(p, group, *meta.shape, "model_meta.json");
        if (meta.dtype && !p.dtype) p.dtype = meta.dtype;
        if (meta.distributed) p.distributed = p.distributed.value_or(false) || *meta.distributed;
    }

    void takeWeights(const Group& group, const NameMap& names,
                     const std::map<std::string, std::string, std::less<>>& statics, const RankFile& file) {
        for (const StoredTensor& entry : file.content->tensors) {
            Parameter& p = parameter(nameIn(group, entry.name));
            const auto known = statics.find(entry.name);
            p.stages.emplace(std::pair(group.at.pp, group.at.moe),
                             known == statics.end() ? std::string() : known->second);
            if (const auto tied = names.tied.find(entry.name);
                tied != names.tied.end() && p.name != tied->second)
                p.tiedTo = nameIn(group, tied->second);
            DType dtype = entry.parts.empty() ? DType::float32 : paddleDType(entry.parts[0].dtype);
            // The bits of a float8 are stored as int8; only model_meta.json says what they are.
            const bool float8 = p.dtype == DType::float8E4M3FN || p.dtype == DType::float8E5M2;
            if (dtype == DType::int8 && float8) dtype = *p.dtype;
            if (weighed_.insert(p.name).second) {
                p.dtype = dtype;
            } else if (p.dtype != dtype) {
                error(fmt::format("ranks disagree about its dtype: {} and {}", dtypeName(*p.dtype),
                                  dtypeName(dtype)),
                      file.path, p.name, Note::Lacks::anything);
                continue;
            }
            if (files_.wholeWeights) {
                if (p.whole && *p.whole != entry.shape) {
                    error(fmt::format("stages disagree about its shape: {} and {}", formatDims(*p.whole),
                                      formatDims(entry.shape)),
                          file.path, p.name, Note::Lacks::anything);
                    continue;
                }
                p.whole = entry.shape;
                if (group.at.tp > 0) continue;  // taken with the first
            } else {
                takeShape(p, group, entry.shape, file.path);
                if (p.local.at(group.at.tp) != entry.shape) continue;
            }
            State& weight = p.get("");
            if (std::ranges::count(weight.held, file.at(), &StoredShard::at) == 0)
                weight.held.push_back({&file, &entry});
        }
    }

    void takeStates(const Group& group, const NameMap& map, const RankFile& file) {
        std::set<std::string> unknown;
        std::string first;
        for (const StoredTensor& entry : file.content->tensors) {
            const auto state = parseStateName(entry.path, map.statics);
            const auto it = state ? map.structured.find(state->parameter) : map.structured.end();
            if (it == map.structured.end()) {
                // Where no name is known at all, that has been said.
                if (map.source == NameMap::Source::none && state) continue;
                if (unknown.empty()) first = entry.name;
                unknown.insert(state ? state->parameter : entry.name);
                continue;
            }
            Parameter& p = parameter(nameIn(group, it->second));
            p.stages.emplace(std::pair(group.at.pp, group.at.moe), state->parameter);
            State& s = p.get(state->state);
            // Entries of one file follow each other.
            if (!s.held.empty() && s.held.back().file == &file) {
                error(fmt::format("'{}' and '{}' are both its {}", s.held.back().entry->name, entry.name,
                                  s.name),
                      file.path, p.name, Note::Lacks::optimizerState);
                continue;
            }
            s.held.push_back({&file, &entry, state->sliced});
        }
        if (unknown.empty()) return;
        std::vector<std::string> names;
        for (const std::string& name : unknown)
            names.push_back(fmt::format("'{}'", name));
        error(fmt::format("holds optimizer state of {}, and nothing says which parameter of {} that is",
                          listed(names, 6), formatGroupName(group.at.tp, group.at.pp)),
              file.path, first, Note::Lacks::optimizerState);
    }

    const HybridFiles& files_;
    CatalogBuilder& builder_;
    std::vector<Group> groups_;
    std::vector<Parameter> out_;
    std::unordered_map<std::string, size_t> index_;
    std::set<std::string> weighed_;
    int64_t experts_ = 0;  // of each group; 0 = names are not local
};

}  // namespace

State* Parameter::find(std::string_view state) {
    const auto it =
        std::find_if(states.begin(), states.end(), [&](const State& s) { return s.name == state; });
    return it == states.end() ? nullptr : &*it;
}

State& Parameter::get(std::string_view state) {
    if (State* found = find(state)) return *found;
    states.push_back({std::string(state), {}});
    return states.back();
}

bool Parameter::hasStates() const {
    return std::ranges::any_of(states, [](const State& s) { return !s.isWeight(); });
}

bool Parameter::sliced() const {
    return std::ranges::any_of(
        states, [](const State& s) { return std::ranges::count(s.held, true, &StoredShard::sliced); });
}

std::vector<Parameter> gatherParameters(const HybridFiles& files, CatalogBuilder& builder) {
    return Gathering(files, builder).run();
}

}  // namespace shardscope::paddle_nlp
