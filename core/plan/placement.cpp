#include "plan/placement.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/option_words.h"
#include "base/units.h"

namespace shardscope {
namespace {

Result<int> axisOf(const Mesh& mesh, const std::string& name, const std::string& rule) {
    const int axis = mesh.axisIndex(name);
    if (axis < 0) {
        return makeError(ErrorCode::usage,
                         fmt::format("{} names axis '{}', the mesh is {}", rule, name, formatMesh(mesh)));
    }
    return axis;
}

}  // namespace

Result<Placer> Placer::make(const Mesh& mesh, const TargetRequest& request, bool replicas) {
    Placer placer;
    placer.mesh_ = mesh;
    placer.split_ = request.split;
    placer.replicas_ = replicas;
    placer.load_.resize(mesh.ranks());
    for (const ShardRule& rule : request.shard) {
        SHARDSCOPE_ASSIGN(NamePattern pattern, NamePattern::parse(rule.pattern));
        Shard shard{std::move(pattern), {}};
        for (const auto& [name, dim] : rule.axisDims) {
            SHARDSCOPE_ASSIGN(const int axis, axisOf(mesh, name, option("shard")));
            shard.axisDims.emplace_back(axis, dim);
        }
        std::sort(shard.axisDims.begin(), shard.axisDims.end());
        for (size_t i = 1; i < shard.axisDims.size(); ++i) {
            if (shard.axisDims[i].first == shard.axisDims[i - 1].first) {
                return makeError(ErrorCode::usage,
                                 fmt::format("{} '{}' names axis '{}' twice", option("shard"), rule.pattern,
                                             mesh.axes[shard.axisDims[i].first].name));
            }
        }
        placer.shards_.push_back(std::move(shard));
    }
    for (const StageRule& rule : request.stage) {
        SHARDSCOPE_ASSIGN(NamePattern pattern, NamePattern::parse(rule.pattern));
        SHARDSCOPE_ASSIGN(const int axis, axisOf(mesh, rule.axis, option("stage")));
        if (rule.coordinate >= mesh.axes[axis].size) {
            return makeError(
                ErrorCode::usage,
                fmt::format("{} puts '{}' on {}={}, the axis has {}", option("stage"), rule.pattern,
                            rule.axis, rule.coordinate, counted(mesh.axes[axis].size, "place")));
        }
        placer.stages_.push_back({std::move(pattern), axis, rule.coordinate});
    }
    return placer;
}

std::vector<PlacedBox> Placer::place(std::string_view name, DType dtype, DimSpan shape, Role role) {
    const auto rank = static_cast<int>(shape.size());
    std::vector<std::pair<int, int>> cuts;
    for (const Shard& shard : shards_) {
        if (!shard.pattern.matches(name)) continue;
        for (auto [axis, dim] : shard.axisDims) {
            if (dim < 0) dim += rank;
            if (dim >= 0 && dim < rank) cuts.emplace_back(axis, dim);
        }
        break;
    }
    if (replicas_ && shards_.empty() && !keptWhole(name, dtype, shape, role))
        cuts.emplace_back(static_cast<int>(mesh_.axes.size()) - 1, 0);
    std::vector<int> fixed(mesh_.axes.size(), -1);  // coordinate that a stage rule demands
    for (const Stage& stage : stages_) {
        if (stage.pattern.matches(name)) {
            fixed[stage.axis] = static_cast<int>(stage.coordinate);
            break;
        }
    }
    // A format with replicas says of every tensor how it is cut.
    if (elementCount(shape) == 0 && !replicas_) cuts.clear();
    // An axis that both cuts and is fixed cannot cut: all of the tensor is at that coordinate.
    std::erase_if(cuts, [&](const auto& cut) { return fixed[cut.first] >= 0; });

    std::vector<bool> cutting(mesh_.axes.size(), false);
    size_t shards = 1;
    for (const auto& cut : cuts) {
        cutting[cut.first] = true;
        shards *= mesh_.axes[cut.first].size;
    }

    std::vector<PlacedBox> out;
    std::vector<uint32_t> coordinates(mesh_.axes.size(), 0);
    for (size_t s = 0; s < shards; ++s) {
        size_t rest = s;
        for (size_t i = cuts.size(); i-- > 0;) {
            const uint32_t size = mesh_.axes[cuts[i].first].size;
            coordinates[cuts[i].first] = static_cast<uint32_t>(rest % size);
            rest /= size;
        }
        Box box{Dims(shape.size(), 0), Dims(shape.begin(), shape.end())};
        for (const auto& [axis, dim] : cuts) {
            const Span1 piece =
                splitPiece(box.lengths[dim], mesh_.axes[axis].size, coordinates[axis], split_);
            box.offsets[dim] += piece.offset;
            box.lengths[dim] = piece.length;
        }
        if (boxIsEmpty(box.lengths) && elementCount(shape) != 0) continue;

        // Over the axes that neither cut nor are fixed the shard is replicated; keep it where there is least.
        uint32_t best = kNone;
        std::vector<uint32_t> candidate = coordinates;
        for (size_t i = 0; i < candidate.size(); ++i) {
            if (!cutting[i]) candidate[i] = fixed[i] >= 0 ? static_cast<uint32_t>(fixed[i]) : 0;
        }
        for (;;) {
            const uint32_t r = mesh_.rankAt(candidate);
            if (replicas_) out.push_back({r, box});
            if (best == kNone || load_[r] < load_[best]) best = r;
            size_t i = candidate.size();
            while (i-- > 0) {
                if (cutting[i] || fixed[i] >= 0) continue;
                if (++candidate[i] < mesh_.axes[i].size) break;
                candidate[i] = 0;
            }
            if (i == static_cast<size_t>(-1)) break;
        }
        if (replicas_) continue;
        load_[best] += static_cast<uint64_t>(elementCount(box.lengths)) * dtypeBytes(dtype);
        out.push_back({best, std::move(box)});
    }
    return out;
}

}  // namespace shardscope
