#include "ui/models/placement_effect.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "plan/request_text.h"
#include "plan/steps.h"
#include "survey/facts.h"
#include "ui/models/texts.h"

namespace shardscope::ui {

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

QString cutNote(const Cut& cut, uint64_t tensors, SplitRule split) {
    const QString axis = toQString(cut.axis), size = QString::number(cut.size);
    const QString length = numberText(static_cast<uint64_t>(cut.length));
    const QString dim = QObject::tr("Dim %1 of %2")
                            .arg(QString::number(cut.dim),
                                 countedText(tensors, QObject::tr("1 tensor"), QObject::tr("%1 tensors")));
    if (cut.length < cut.size) {
        return QObject::tr("%1 (%2 rows) is smaller than %3=%4: some ranks get nothing.")
            .arg(dim, length, axis, size);
    }
    const int64_t first = splitPiece(cut.length, cut.size, 0, split).length;
    uint32_t full = 0, empty = 0;
    int64_t odd = first;
    for (uint32_t i = 0; i < cut.size; ++i) {
        const int64_t piece = splitPiece(cut.length, cut.size, i, split).length;
        full += piece == first;
        empty += piece == 0;
        if (piece != first && piece != 0) odd = piece;
    }
    QString note = QObject::tr("%1: %2 does not divide by %3=%4: ").arg(dim, length, axis, size);
    if (split == SplitRule::even)
        note += QObject::tr("%1 shards of %2, the others of %3.").arg(full).arg(first).arg(odd);
    else if (odd == first)
        note += QObject::tr("shards of %1").arg(first);
    else
        note += QObject::tr("shards of %1, the last one %2").arg(first).arg(odd);
    if (split != SplitRule::even)
        note += empty ? countedText(empty, QObject::tr(", 1 rank gets nothing."),
                                    QObject::tr(", %1 ranks get nothing."))
                      : QStringLiteral(".");
    return note;
}

void addNotes(RuleEffect& effect, const std::map<Cut, uint64_t>& uneven, SplitRule split) {
    // What hits most tensors comes first.
    std::vector<std::pair<Cut, uint64_t>> sorted(uneven.begin(), uneven.end());
    std::stable_sort(sorted.begin(), sorted.end(),
                     [](const auto& a, const auto& b) { return a.second > b.second; });
    for (size_t i = 0; i < sorted.size(); ++i) {
        if (i == kMostNotes) {
            effect.notes += countedText(sorted.size() - i, QObject::tr("And 1 more uneven sharding."),
                                        QObject::tr("And %1 more uneven shardings."));
            break;
        }
        effect.notes += cutNote(sorted[i].first, sorted[i].second, split);
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
        effect.shards.push_back({toQString(formatShardRule(rule)), 0, 0, {}});
    }
    for (const StageRule& rule : request.stage) {
        SHARDSCOPE_ASSIGN(NamePattern pattern, NamePattern::parse(rule.pattern));
        stagePatterns.push_back(std::move(pattern));
        effect.stages.push_back({toQString(formatStageRule(rule)), 0, 0, {}});
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
    for (size_t r = 0; r < effect.shards.size(); ++r) {
        RuleEffect& rule = effect.shards[r];
        if (rule.matched == 0)
            rule.notes += QObject::tr("No tensor has a name that this pattern matches.");
        else if (rule.tensors == 0)
            rule.notes += QObject::tr("Every tensor that it matches is taken by a rule above it.");
        addNotes(rule, uneven[r], request.split);
        const auto tensors = [](uint64_t n) {
            return countedText(n, QObject::tr("1 tensor"), QObject::tr("%1 tensors"));
        };
        for (const auto& [what, n] : lacking[r]) {
            rule.notes += QObject::tr("No dim %1 in %2: stored whole over %3, once.")
                              .arg(QString::number(what.second), tensors(n), toQString(what.first));
        }
        for (const auto& [axis, n] : held[r]) {
            rule.notes += QObject::tr("A stage rule puts %1 on one place of %2, so %2 does not shard there.")
                              .arg(tensors(n), toQString(axis));
        }
    }
    for (RuleEffect& rule : effect.stages) {
        if (rule.matched == 0)
            rule.notes += QObject::tr("No tensor has a name that this pattern matches.");
        else if (rule.tensors == 0)
            rule.notes += QObject::tr("Every tensor that it matches is taken by a rule above it.");
    }
    effect.before = bytesByRank(source);
    effect.after = bytesByRank(wanted);
    return effect;
}

}  // namespace shardscope::ui
