#include "survey/placement_effect.h"

#include <algorithm>
#include <map>
#include <tuple>

#include <fmt/format.h>

#include "base/units.h"
#include "plan/request_text.h"
#include "plan/steps.h"
#include "survey/facts.h"
#include "survey/svg.h"

namespace shardscope {

namespace {

constexpr int kMostNotes = 6;  // of one rule

std::vector<uint64_t> bytesByRank(const Catalog& catalog) {
    std::vector<uint64_t> bytes(std::max<uint32_t>(1, catalog.rankCount()), 0);
    for (TensorId t = 0; t < catalog.tensorCount(); ++t) {
        if (catalog.aliasOf(t) != kNone) continue;
        for (ChunkId c = catalog.firstChunk(t); c < catalog.endChunk(t); ++c) {
            const ChunkInfo chunk = catalog.chunk(t, c);
            const uint32_t rank = chunk.rank == kNone ? 0 : chunk.rank;
            if (rank < bytes.size()) bytes[rank] += elementBytes(catalog, chunk);
        }
    }
    return bytes;
}

// The length of a dimension cut over an axis.
struct Cut {
    std::string axis;
    int dim;
    int64_t length;
    uint32_t size;
    bool operator<(const Cut& o) const {
        return std::tie(axis, dim, length, size) < std::tie(o.axis, o.dim, o.length, o.size);
    }
};

std::string tensorsText(uint64_t count) {
    return counted(count, "tensor");
}

std::string cutNote(const Cut& cut, uint64_t tensors, SplitRule split) {
    const std::string dim = fmt::format("Dim {} of {}", cut.dim, tensorsText(tensors));
    const std::string length = countText(static_cast<uint64_t>(cut.length));
    if (cut.length < cut.size)
        return fmt::format("{} ({}) is smaller than {}={}: some ranks get nothing.", dim,
                           counted(static_cast<uint64_t>(cut.length), "row"), cut.axis, cut.size);
    const int64_t first = splitPiece(cut.length, cut.size, 0, split).length;
    uint32_t full = 0, empty = 0;
    int64_t odd = first;
    for (uint32_t i = 0; i < cut.size; ++i) {
        const int64_t piece = splitPiece(cut.length, cut.size, i, split).length;
        full += piece == first;
        empty += piece == 0;
        if (piece != first && piece != 0) odd = piece;
    }
    std::string note = fmt::format("{}: {} does not divide by {}={}: ", dim, length, cut.axis, cut.size);
    if (split == SplitRule::even)
        return note + fmt::format("{} of {}, the others of {}.", counted(full, "shard"), countText(first),
                                  countText(odd));
    note += odd == first ? fmt::format("shards of {}", countText(first))
                         : fmt::format("shards of {}, the last one {}", countText(first), countText(odd));
    if (!empty) return note + '.';
    return note + fmt::format(", nothing for {}.", counted(empty, "rank"));
}

void addNotes(RuleEffect& effect, const std::map<Cut, uint64_t>& uneven, SplitRule split) {
    // What hits most tensors comes first.
    std::vector<std::pair<Cut, uint64_t>> sorted(uneven.begin(), uneven.end());
    std::stable_sort(sorted.begin(), sorted.end(),
                     [](const auto& a, const auto& b) { return a.second > b.second; });
    for (size_t i = 0; i < sorted.size(); ++i) {
        if (i == kMostNotes) {
            effect.notes.push_back(
                fmt::format("And {}.", counted(sorted.size() - i, "more uneven sharding")));
            break;
        }
        effect.notes.push_back(cutNote(sorted[i].first, sorted[i].second, split));
    }
}

}  // namespace

Result<PlacementEffect> placementEffect(const Catalog& source, const Catalog& wanted,
                                        const TargetRequest& request, const StopToken& stop) {
    PlacementEffect effect;
    std::vector<NamePattern> shardPatterns, stagePatterns;
    for (const ShardRule& rule : request.shard) {
        SHARDSCOPE_ASSIGN(NamePattern pattern, NamePattern::parse(rule.pattern));
        shardPatterns.push_back(std::move(pattern));
        effect.shards.push_back({formatShardRule(rule), 0, 0, {}});
    }
    for (const StageRule& rule : request.stage) {
        SHARDSCOPE_ASSIGN(NamePattern pattern, NamePattern::parse(rule.pattern));
        stagePatterns.push_back(std::move(pattern));
        effect.stages.push_back({formatStageRule(rule), 0, 0, {}});
    }
    std::vector<std::map<Cut, uint64_t>> uneven(request.shard.size());
    std::vector<std::map<std::pair<std::string, int>, uint64_t>> lacking(request.shard.size());
    std::vector<std::map<std::string, uint64_t>> held(request.shard.size());
    for (TensorId t = 0; t < wanted.tensorCount(); ++t) {
        if (t % 1024 == 0) SHARDSCOPE_TRY(stop.poll());
        const std::string_view name = wanted.name(t);
        std::string stageAxis;
        bool staged = false;
        for (size_t r = 0; r < stagePatterns.size(); ++r) {
            if (!stagePatterns[r].matches(name)) continue;
            ++effect.stages[r].matched;
            if (staged) continue;
            staged = true;
            stageAxis = request.stage[r].axis;
            ++effect.stages[r].tensors;
        }
        bool taken = false;
        for (size_t r = 0; r < shardPatterns.size(); ++r) {
            if (!shardPatterns[r].matches(name)) continue;
            ++effect.shards[r].matched;
            if (taken) continue;
            taken = true;
            ++effect.shards[r].tensors;
            if (!request.mesh) continue;
            const DimSpan shape = wanted.shape(t);
            Dims lengths(shape.begin(), shape.end());
            if (elementCount(shape) == 0) continue;
            auto cuts = request.shard[r].axisDims;
            std::stable_sort(cuts.begin(), cuts.end(), [&](const auto& a, const auto& b) {
                return request.mesh->axisIndex(a.first) < request.mesh->axisIndex(b.first);
            });
            for (auto [axis, dim] : cuts) {
                const int a = request.mesh->axisIndex(axis);
                if (a < 0) continue;
                const int asked = dim;
                if (dim < 0) dim += static_cast<int>(shape.size());
                if (dim < 0 || dim >= static_cast<int>(shape.size())) {
                    ++lacking[r][{axis, asked}];
                    continue;
                }
                if (axis == stageAxis) {
                    ++held[r][axis];
                    continue;
                }
                const uint32_t size = request.mesh->axes[static_cast<size_t>(a)].size;
                int64_t& length = lengths[static_cast<size_t>(dim)];
                if (length % size != 0) ++uneven[r][{axis, dim, length, size}];
                // What the next axis cuts is the largest piece of this one.
                length = splitPiece(length, size, 0, request.split).length;
                if (length == 0) break;
            }
        }
        effect.whole += !taken;
    }
    for (auto* rules : {&effect.shards, &effect.stages}) {
        for (RuleEffect& rule : *rules) {
            if (rule.matched == 0)
                rule.notes.emplace_back("No tensor has a name that this pattern matches.");
            else if (rule.tensors == 0)
                rule.notes.emplace_back("Every tensor that it matches is taken by a rule above it.");
        }
    }
    for (size_t r = 0; r < effect.shards.size(); ++r) {
        RuleEffect& rule = effect.shards[r];
        addNotes(rule, uneven[r], request.split);
        for (const auto& [what, n] : lacking[r])
            rule.notes.push_back(fmt::format("No dim {} in {}: stored whole over {}, once.", what.second,
                                             tensorsText(n), what.first));
        for (const auto& [axis, n] : held[r])
            rule.notes.push_back(
                fmt::format("A stage rule puts {} on one place of {}, so {} does not shard there.",
                            tensorsText(n), axis, axis));
    }
    effect.before = bytesByRank(source);
    effect.after = bytesByRank(wanted);
    return effect;
}

}  // namespace shardscope
