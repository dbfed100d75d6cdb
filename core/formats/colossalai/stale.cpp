#include "formats/colossalai/stale.h"

#include <algorithm>
#include <set>
#include <unordered_map>

#include <fmt/format.h>

#include "base/checked.h"

namespace shardscope::colossalai {

namespace {

constexpr size_t kCompared = 100'000;  // pieces of one tensor with a piece of another rank

// Whether two pieces share elements without being the same piece.
bool cross(const PieceEntry& a, const PieceEntry& b) {
    if (a.offsets.size() != b.offsets.size() || (a.offsets == b.offsets && a.lengths == b.lengths))
        return false;
    for (size_t d = 0; d < a.offsets.size(); ++d) {
        if (a.offsets[d] >= b.offsets[d] + b.lengths[d] || b.offsets[d] >= a.offsets[d] + a.lengths[d])
            return false;
    }
    return true;
}

// In how many parts a piece's tensor is cut; 1 = not at all. The save asserts that all parts are equal.
int64_t partsOf(const PieceEntry& entry) {
    for (size_t d = 0; d < entry.lengths.size(); ++d) {
        if (entry.lengths[d] > 0 && entry.globalShape[d] > entry.lengths[d])
            return (entry.globalShape[d] + entry.lengths[d] - 1) / entry.lengths[d];
    }
    return 1;
}

// The parts in which most of a rank's tensors are cut, 1 when none is.
int64_t tpOf(const RankMetadata& metadata) {
    std::unordered_map<int64_t, size_t> votes;
    int64_t best = 1;
    for (const PieceEntry& entry : metadata.entries) {
        const int64_t parts = partsOf(entry);
        if (parts > 1 && ++votes[parts] > (best > 1 ? votes[best] : 0)) best = parts;
    }
    return best;
}

// Whether the ranks that are not foreign hold every element of every tensor that they name.
bool whole(const std::vector<RankFile>& ranks, const std::vector<bool>& foreign) {
    struct Sum {
        std::set<Dims> seen;
        int64_t elements = 0, wanted = 0;
    };
    std::unordered_map<std::string_view, Sum> sums;
    for (size_t r = 0; r < ranks.size(); ++r) {
        if (foreign[r]) continue;
        const RankMetadata& metadata = ranks[r].metadata;
        for (size_t e = 0; e < metadata.entries.size(); ++e) {
            const PieceEntry& entry = metadata.entries[e];
            Sum& sum = sums[metadata.names[e]];
            int64_t elements = 0;
            if (!checkedProduct(entry.lengths, elements) || !checkedProduct(entry.globalShape, sum.wanted))
                return false;
            if (sum.seen.insert(entry.offsets).second && !checkedAdd(sum.elements, elements, sum.elements))
                return false;
        }
    }
    return std::all_of(sums.begin(), sums.end(),
                       [](const auto& s) { return s.second.elements >= s.second.wanted; });
}

// Whether the ids of the ranks that stay are 0 to n - 1, n a whole number of stages, below all foreign ones.
bool contiguous(const std::vector<RankFile>& ranks, const std::vector<bool>& foreign, uint32_t tp) {
    uint32_t next = 0;
    bool behind = false;
    for (size_t r = 0; r < ranks.size(); ++r) {
        if (foreign[r]) {
            behind = true;
            continue;
        }
        if (behind || ranks[r].id != next) return false;
        ++next;
    }
    return next > 0 && next % tp == 0;
}

}  // namespace

SaveCheck checkSave(const std::vector<RankFile>& ranks) {
    SaveCheck check;
    check.foreign.assign(ranks.size(), false);
    if (ranks.empty()) return check;
    const int64_t tp = tpOf(ranks[0].metadata);
    check.tp = static_cast<uint32_t>(std::min<int64_t>(tp, 1'000'000));

    // Ranks whose tensors are cut in another number of parts, so that their pieces cross those of the others.
    // (The number alone says little: the last piece of an uneven cut is smaller.)
    std::unordered_map<std::string_view, std::vector<const PieceEntry*>> pieces;
    std::vector<uint32_t> others;
    std::set<int64_t> otherCuts;
    for (size_t r = 0; r < ranks.size(); ++r) {
        const RankMetadata& metadata = ranks[r].metadata;
        const int64_t here = tpOf(metadata);
        bool crosses = false;
        for (size_t e = 0; here != tp && !crosses && e < metadata.entries.size(); ++e) {
            const auto it = pieces.find(metadata.names[e]);
            if (it == pieces.end()) continue;
            for (size_t k = 0; k < std::min<size_t>(it->second.size(), kCompared) && !crosses; ++k)
                crosses = cross(*it->second[k], metadata.entries[e]);
        }
        if (crosses) {
            check.foreign[r] = true;
            others.push_back(ranks[r].id);
            otherCuts.insert(here);
            continue;
        }
        for (size_t e = 0; e < metadata.entries.size(); ++e)
            pieces[metadata.names[e]].push_back(&metadata.entries[e]);
    }
    check.whole = whole(ranks, check.foreign);
    if (!others.empty()) {
        check.why =
            fmt::format("rank 0 was saved with tp={}, {} with tp={}", tp,
                        others.size() == 1 ? fmt::format("rank {}", others[0])
                                           : fmt::format("{} ranks from {} on", others.size(), others[0]),
                        *otherCuts.begin());
        check.setAside = contiguous(ranks, check.foreign, check.tp) && check.whole;
        return check;
    }

    // Stages that bring nothing: a save with fewer stages holds all their tensors.
    std::set<std::string_view> known;
    size_t from = ranks.size();
    for (size_t r = 0; r < ranks.size();) {
        const uint32_t stage = ranks[r].id / check.tp;
        size_t end = r;
        bool news = false;
        for (; end < ranks.size() && ranks[end].id / check.tp == stage; ++end) {
            const RankMetadata& metadata = ranks[end].metadata;
            for (size_t e = 0; e < metadata.entries.size(); ++e)
                news = news || !known.contains(metadata.names[e]);
        }
        if (news || stage == 0) from = ranks.size();
        if (!news && stage > 0 && from == ranks.size()) from = r;
        for (; r < end; ++r) {
            for (size_t e = 0; e < ranks[r].metadata.entries.size(); ++e)
                known.insert(ranks[r].metadata.names[e]);
        }
    }
    if (from == ranks.size() || ranks[from].metadata.entries.empty()) return check;
    for (size_t r = from; r < ranks.size(); ++r)
        check.foreign[r] = true;
    check.why = fmt::format("the ranks before {} hold all tensors already", ranks[from].id);
    check.setAside = contiguous(ranks, check.foreign, check.tp) && whole(ranks, check.foreign);
    if (!check.setAside) check.foreign.assign(ranks.size(), false);
    return check;
}

}  // namespace shardscope::colossalai
