#include "formats/paddle_nlp/hybrid_axes.h"

#include <algorithm>
#include <cstring>
#include <map>

#include <fmt/format.h>

#include "base/checked.h"

namespace shardscope::paddle_nlp {

namespace {

constexpr size_t kSample = 4096;  // bytes of each parameter that are compared over ranks

// Whether the first bytes of a parameter are the same on all tensor-parallel ranks.
Result<TpQuestion::Content> compareRanks(const Source& source, uint32_t degree, const Parameter& p) {
    using Content = TpQuestion::Content;
    const State* state = nullptr;
    for (const State& s : p.states) {
        if (s.isCounter()) continue;
        if (!state || s.name.empty() || (s.name == "master_weight" && !state->name.empty())) state = &s;
    }
    if (!state || state->held.empty()) return Content::unknown;
    const RankPlace first = state->held[0].at();
    std::map<uint32_t, const StoredShard*> firsts;  // by tensor-parallel rank, of the lowest sharding rank
    for (const StoredShard& held : state->held) {
        const RankPlace at = held.at();
        if (at.pp != first.pp || at.moe != first.moe) continue;
        const auto [it, fresh] = firsts.try_emplace(at.tp, &held);
        if (!fresh && at.shard < it->second->at().shard) it->second = &held;
    }
    if (firsts.size() < degree) return Content::unknown;
    std::string sample;
    bool constant = true, same = true;
    for (const auto& [tp, held] : firsts) {
        if (held->entry->shape != firsts.begin()->second->entry->shape || held->entry->parts.empty())
            return Content::unknown;
        SHARDSCOPE_ASSIGN(const std::string bytes, sampleOf(source, *held));
        if (bytes.empty()) return Content::unknown;
        const size_t width = dtypeBytes(held->entry->parts[0].dtype);
        for (size_t at = width; at + width <= bytes.size(); at += width)
            constant = constant && std::memcmp(bytes.data(), bytes.data() + at, width) == 0;
        if (tp == firsts.begin()->first) {
            sample = bytes;
        } else {
            same = same && bytes == sample;
        }
    }
    if (!same) return Content::differs;
    // Few elements say as little as equal ones.
    return constant ? Content::sameConstant : Content::same;
}

// Experts over the tensor-parallel group are numbered through, and each is on one rank. Only where no file is
// missing, and every rank has experts of its own.
std::set<std::string> expertsOfRanks(const HybridFiles& files, const std::vector<Parameter>& parameters) {
    if (std::ranges::any_of(files.files, &RankFile::lost)) return {};
    std::set<std::string> owned;
    std::set<uint32_t> ranks;
    for (const Parameter& p : parameters) {
        if (p.name.find(".experts.") == std::string::npos || p.whole) continue;
        std::set<uint32_t> holders;
        for (const State& state : p.states) {
            for (const StoredShard& held : state.held)
                holders.insert(held.at().tp);
        }
        if (holders.size() != 1) return {};
        ranks.insert(*holders.begin());
        owned.insert(p.name);
    }
    return ranks.size() == files.tp ? owned : std::set<std::string>{};
}

}  // namespace

Result<std::string> sampleOf(const Source& source, const StoredShard& held) {
    const PaddleArray& array = held.entry->parts[0];
    if (array.raw == PaddleArray::Raw::inMemory) return array.bytes.substr(0, kSample);
    if (array.raw != PaddleArray::Raw::plain) return std::string();
    std::string bytes(static_cast<size_t>(std::min<uint64_t>(kSample, array.length)), '\0');
    SHARDSCOPE_ASSIGN(const auto file, source.directory->openFile(held.file->path));
    if (!rangeFits(array.offset, bytes.size(), file->size())) return std::string();
    SHARDSCOPE_TRY(file->readAt(array.offset, std::as_writable_bytes(std::span(bytes))));
    return bytes;
}

Result<ParameterAxes> concludeParameterAxes(const Source& source, const HybridFiles& files,
                                            const std::vector<Parameter>& parameters,
                                            const std::set<std::string>& disagreeing,
                                            const std::vector<TpRule>& stated) {
    ParameterAxes out;
    out.axis.assign(parameters.size(), TpAnswer::kReplicated);
    out.rules.assign(parameters.size(), nullptr);
    if (files.tp < 2) return out;
    out.owned = expertsOfRanks(files, parameters);
    if (!out.owned.empty()) {
        out.evidence.push_back(
            fmt::format("tp={}: {} experts, each whole on the one rank that holds it, such as {}", files.tp,
                        out.owned.size(), *out.owned.begin()));
    }
    std::vector<TpQuestion> questions;
    std::vector<size_t> asked;
    for (size_t i = 0; i < parameters.size(); ++i) {
        const Parameter& p = parameters[i];
        if (p.local.empty() || disagreeing.contains(p.name) || out.owned.contains(p.name)) continue;
        TpQuestion q;
        q.name = p.name;
        q.local = p.local.begin()->second;
        q.whole = p.whole;
        q.distributed = p.distributed;
        if (!q.whole && !q.distributed) {
            SHARDSCOPE_ASSIGN(q.content, compareRanks(source, files.tp, p));
        }
        questions.push_back(std::move(q));
        asked.push_back(i);
    }
    SHARDSCOPE_ASSIGN(const std::vector<TpAnswer> answers,
                      concludeTpAxes(questions, files.tp, files.config, stated));
    struct Reason {
        size_t count = 0;
        std::string example;
    };
    std::map<std::pair<int, std::string>, Reason> reasons;
    for (size_t k = 0; k < answers.size(); ++k) {
        out.axis[asked[k]] = answers[k].axis;
        out.rules[asked[k]] = answers[k].rule;
        Reason& reason = reasons[{answers[k].axis, answers[k].why}];
        if (++reason.count == 1) reason.example = questions[k].name;
    }
    for (const auto& [key, reason] : reasons) {
        out.evidence.push_back(fmt::format("tp={}: {} {} {} ({}), such as {}", files.tp, reason.count,
                                           reason.count == 1 ? "parameter" : "parameters",
                                           key.first == TpAnswer::kReplicated
                                               ? "whole on every rank"
                                               : fmt::format("sharded along dim {}", key.first),
                                           key.second, reason.example));
    }
    return out;
}

}  // namespace shardscope::paddle_nlp
