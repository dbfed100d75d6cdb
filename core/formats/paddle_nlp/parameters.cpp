#include "formats/paddle_nlp/parameters.h"

#include <algorithm>
#include <set>
#include <unordered_map>

#include <fmt/format.h>

#include "base/checked.h"
#include "base/rule.h"
#include "base/text.h"

namespace shardscope::paddle_nlp {

namespace {

constexpr std::string_view kExperts = ".experts.";

// The number behind ".experts.": where it stands, and what it is.
struct Expert {
    size_t at = 0, length = 0;
    uint64_t number = 0;
};
std::optional<Expert> expertOf(std::string_view name) {
    const size_t found = name.find(kExperts);
    if (found == name.npos) return std::nullopt;
    Expert expert;
    expert.at = found + kExperts.size();
    while (expert.at + expert.length < name.size() && expert.length < 7) {
        const char c = name[expert.at + expert.length];
        if (c < '0' || c > '9') break;
        expert.number = expert.number * 10 + static_cast<uint64_t>(c - '0');
        ++expert.length;
    }
    if (expert.length == 0) return std::nullopt;
    return expert;
}

class Gathering {
  public:
    explicit Gathering(const HybridFiles& files) : files_(files) {}

    Parameters run() {
        makeGroups();
        countExperts();
        for (const Group& group : out_.groups)
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
            out_.groups.push_back(std::move(group));
        }
    }

    // With experts spread over data-parallel ranks each rank counts its own from 0.
    void countExperts() {
        if (files_.moe < 2) return;
        std::map<uint32_t, std::set<std::string>> names;
        for (const Group& group : out_.groups) {
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
            out_.notes.push_back(
                noteOf(rule::metaInconsistent, Severity::info,
                       fmt::format("each group of experts counts its {} experts from 0; those of group n are "
                                   "numbered on from {} n here",
                                   experts_, experts_)));
        }
    }

    std::string nameIn(const Group& group, const std::string& name) const {
        if (experts_ == 0 || group.at.moe == 0) return name;
        const auto expert = expertOf(name);
        if (!expert) return name;
        return name.substr(0, expert->at) + std::to_string(expert->number + group.at.moe * experts_) +
               name.substr(expert->at + expert->length);
    }

    Parameter& parameter(const std::string& name) {
        const auto [it, fresh] = index_.try_emplace(name, out_.list.size());
        if (fresh) {
            out_.list.emplace_back();
            out_.list.back().name = name;
        }
        return out_.list[it->second];
    }

    void error(std::string message, const std::string& file, const std::string& tensor, Note::Lacks lacks) {
        out_.notes.push_back(
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
        NameMap names = findNames(group, files_.sharding, files_.tp);
        out_.notes.insert(out_.notes.end(), std::make_move_iterator(names.notes.begin()),
                          std::make_move_iterator(names.notes.end()));
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
    Parameters out_;
    std::unordered_map<std::string, size_t> index_;
    std::set<std::string> weighed_;
    uint64_t experts_ = 0;  // of each group; 0 = names are not local
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

Parameters gatherParameters(const HybridFiles& files) {
    return Gathering(files).run();
}

}  // namespace shardscope::paddle_nlp
