#include "formats/megatron/placement.h"

#include <algorithm>
#include <functional>
#include <map>
#include <queue>
#include <tuple>
#include <vector>

#include <fmt/format.h>

#include "base/checked.h"
#include "base/option_words.h"
#include "base/units.h"
#include "formats/megatron/run_state.h"
#include "formats/megatron/target_names.h"
#include "formats/megatron/tensor_parallel.h"
#include "formats/rank_cut.h"

namespace shardscope::megatron {

namespace {

constexpr int64_t kMostOfOneTensor = 1 << 20;  // layers and experts of one tensor
constexpr size_t kMostShards = size_t{1} << 22;
constexpr uint64_t kMostMeshRanks = 1 << 20;

// Which of `parts` a place of `count` is in, where the first parts have one more each if it does not divide.
uint32_t partOf(int64_t place, int64_t count, uint32_t parts) {
    if (count <= 0 || place <= 0) return 0;
    const int64_t least = count / parts, more = count % parts;
    const int64_t longer = more * (least + 1);
    const int64_t part =
        place < longer ? place / (least + 1) : more + (place - longer) / std::max<int64_t>(1, least);
    return static_cast<uint32_t>(std::min<int64_t>(part, parts - 1));
}

class RankPlacer {
  public:
    // `keep`: tensors of which the name says nothing keep their chunks.
    RankPlacer(const Catalog& target, const ParallelSizes& sizes, bool keep)
        : target_(target), sizes_(sizes), keep_(keep) {
        for (TensorId t = 0; t < target.tensorCount(); ++t)
            layers_ = std::max(
                layers_, leadingDimsOf(weightOfState(target.name(t)).value_or(target.name(t))).layer + 1);
    }

    Status addChunks(TensorId t, CatalogBuilder& builder) {
        const std::string_view name = target_.name(t);
        const Dims shape(target_.shape(t).begin(), target_.shape(t).end());
        const auto [cut, leading] = cutOfTensor(name, shape);
        const bool layers = leading.layers, experts = leading.experts;
        const int64_t firsts = layers ? shape[0] : 1, seconds = experts ? shape[layers ? 1 : 0] : 1;
        if (elementCount(shape) == 0)
            return builder.addChunk({0, kNone, 0, 0, Dims(shape.size(), 0), shape, {}});
        const int64_t named = leadingDimsOf(weightOfState(name).value_or(name)).layer;
        if (cut == Cut::none && !layers && !experts && named < 0 && keepsChunks(t))
            return copyChunks(t, builder);
        const size_t lead = leading.count();
        for (int64_t layer = 0; layer < firsts; ++layer) {
            const uint32_t stage = layers       ? partOf(layer, firsts, sizes_.pp)
                                   : named >= 0 ? partOf(named, layers_, sizes_.pp)
                                                : stageOf(name);
            for (int64_t expert = 0; expert < seconds; ++expert) {
                Dims offsets(shape.size(), 0), lengths = shape;
                if (layers) offsets[0] = layer, lengths[0] = 1;
                if (experts) offsets[lead - 1] = expert, lengths[lead - 1] = 1;
                const std::optional<uint32_t> ep =
                    experts ? std::optional(partOf(expert, seconds, sizes_.ep)) : std::nullopt;
                SHARDSCOPE_TRY(
                    addCut(t, builder, cut, lead, std::move(offsets), std::move(lengths), stage, ep));
            }
        }
        return {};
    }

  private:
    bool keepsChunks(TensorId t) const {
        if (!keep_ || target_.endChunk(t) - target_.firstChunk(t) < 2) return false;
        for (ChunkId c = target_.firstChunk(t); c < target_.endChunk(t); ++c) {
            const ChunkInfo chunk = target_.chunk(t, c);
            if (chunk.flat || chunk.rank >= sizes_.ranks()) return false;
        }
        return true;
    }
    Status copyChunks(TensorId t, CatalogBuilder& builder) const {
        for (ChunkId c = target_.firstChunk(t); c < target_.endChunk(t); ++c) {
            const ChunkInfo chunk = target_.chunk(t, c);
            SHARDSCOPE_TRY(builder.addChunk({chunk.rank, kNone, 0, 0, chunk.offsets, chunk.lengths, {}}));
        }
        return {};
    }
    // How a tensor is cut, and which dimensions in front are those of layers and experts.
    std::pair<Cut, LeadingDims> cutOfTensor(std::string_view name, const Dims& shape) const {
        if (name.starts_with(kCommonPrefix)) return {};
        const std::string_view weight = weightOfState(name).value_or(name);
        const LeadingDims leading = leadingDimsOf(weight);
        const size_t lead = leading.count();
        if (shape.size() < lead || !fits(shape, lead)) return {};
        Cut cut = cutOf(weight, shape.size() - lead, isGated(name, shape, lead)).value_or(Cut::none);
        const size_t axis = lead + (cut == Cut::columns ? 1 : 0);
        const int64_t shards = int64_t{sizes_.tp} * (cut == Cut::gateUp ? 2 : 1);
        if (cut != Cut::none && (axis >= shape.size() || shape[axis] % shards != 0)) cut = Cut::none;
        return {cut, leading};
    }
    // Shapes are what a file says: nothing of this size is a model.
    static bool fits(const Dims& shape, size_t lead) {
        int64_t chunks = 0;
        return checkedProduct(DimSpan(shape).first(lead), chunks) && chunks <= kMostOfOneTensor;
    }
    // The second layer takes half of what the first one gives.
    bool isGated(std::string_view name, const Dims& shape, size_t lead) const {
        const TensorId second = target_.find(secondLayerOf(name));
        if (second == kNone || target_.name(second) == name || shape.size() <= lead) return false;
        const DimSpan other = target_.shape(second);
        return other.size() == lead + 2 && shape[lead] == 2 * other[lead + 1];
    }
    uint32_t stageOf(std::string_view name) const {
        const std::string_view weight = weightOfState(name).value_or(name);
        const bool last = weight.find("final_layernorm.") != weight.npos ||
                          weight.starts_with("output_layer.") || weight.starts_with("lm_head.") ||
                          weight.starts_with("mtp.");
        return last ? sizes_.pp - 1 : 0;
    }

    Status addCut(TensorId t, CatalogBuilder& builder, Cut cut, size_t lead, Dims offsets, Dims lengths,
                  uint32_t stage, std::optional<uint32_t> ep) {
        if (cut == Cut::none) return add(t, builder, offsets, lengths, stage, 0, ep);
        const size_t axis = lead + (cut == Cut::columns ? 1 : 0);
        const int64_t halves = cut == Cut::gateUp ? 2 : 1, whole = lengths[axis], each = whole / sizes_.tp;
        const std::vector<int64_t> parts(static_cast<size_t>(halves), whole / halves);
        for (uint32_t tp = 0; tp < sizes_.tp; ++tp) {
            for (const CutPart& part : RankCut::share(static_cast<int>(axis), parts, tp * each, each).parts) {
                offsets[axis] = part.offset;
                lengths[axis] = part.length;
                SHARDSCOPE_TRY(add(t, builder, offsets, lengths, stage, tp, ep));
            }
        }
        return {};
    }

    Status add(TensorId t, CatalogBuilder& builder, const Dims& offsets, const Dims& lengths, uint32_t stage,
               uint32_t tp, std::optional<uint32_t> ep) {
        auto [it, fresh] = replicas_.try_emplace({stage, tp, ep.value_or(kNone)});
        auto& replicas = it->second;
        for (uint32_t d = 0; fresh && d < sizes_.dp; ++d) {
            if (ep && d % sizes_.ep != *ep) continue;
            for (uint32_t c = 0; c < sizes_.cp; ++c)
                replicas.push({0, ((stage * sizes_.dp + d) * sizes_.cp + c) * sizes_.tp + tp});
        }
        auto [load, rank] = replicas.top();
        replicas.pop();
        load += static_cast<uint64_t>(elementCount(lengths)) * dtypeBytes(target_.dtype(t));
        replicas.push({load, rank});
        if (builder.chunkCount() >= kMostShards)
            return makeError(ErrorCode::limit,
                             fmt::format("more than {} of layers and experts", counted(kMostShards, "shard")))
                .ofTensor(target_.name(t));
        return builder.addChunk({rank, kNone, 0, 0, offsets, lengths, {}});
    }

    const Catalog& target_;
    const ParallelSizes& sizes_;
    const bool keep_;
    int64_t layers_ = 0;                            // where names have their numbers
    using Replica = std::pair<uint64_t, uint32_t>;  // bytes so far, rank
    std::map<std::tuple<uint32_t, uint32_t, uint32_t>,
             std::priority_queue<Replica, std::vector<Replica>, std::greater<>>>
        replicas_;  // of a pipeline stage, tensor-parallel and expert-parallel rank
};

}  // namespace

std::optional<ParallelSizes> sizesOf(const Mesh& mesh) {
    ParallelSizes sizes;
    const std::map<std::string_view, uint32_t*> known{
        {"tp", &sizes.tp}, {"pp", &sizes.pp}, {"cp", &sizes.cp}, {"dp", &sizes.dp}, {"ep", &sizes.ep}};
    for (const MeshAxis& axis : mesh.axes) {
        const auto size = known.find(axis.name);
        if (size == known.end()) return std::nullopt;
        *size->second = axis.size;
    }
    // Experts are spread over ranks that are data parallel for everything else.
    if (!checkedMul(sizes.dp, sizes.ep, sizes.dp)) return std::nullopt;
    return sizes;
}

Result<Catalog> place(const Catalog& target, const std::optional<Mesh>& asked, const Catalog& source,
                      const WriteOptions&) {
    std::optional<ParallelSizes> sizes;
    if (asked) {
        sizes = sizesOf(*asked);
        if (!sizes)
            return makeError(ErrorCode::usage,
                             fmt::format("Megatron-Core has no mesh {}: its axes are pp, dp, ep, cp and tp",
                                         formatMesh(*asked)))
                .withHint(fmt::format("for example {} pp=2,dp=2,tp=2; {} and {} place tensors on any mesh",
                                      option("mesh"), option("shard"), option("stage")));
    } else if (source.format() == "megatron" && source.mesh()) {
        sizes = sizesOf(*source.mesh());
    }
    if (!sizes) sizes.emplace();
    uint64_t ranks = 1;
    for (const uint32_t size : {sizes->tp, sizes->pp, sizes->cp, sizes->dp}) {
        if (!checkedMul(ranks, uint64_t{size}, ranks) || ranks > kMostMeshRanks)
            return makeError(ErrorCode::limit, fmt::format("more than {}", counted(kMostMeshRanks, "rank")));
    }
    Mesh mesh = sizes->mesh();
    mesh.evidence.clear();
    RankPlacer placer(target, *sizes, !asked);
    return withChunks(target, std::move(mesh), [&](TensorId t, const TensorInfo&, CatalogBuilder& builder) {
        return placer.addChunks(t, builder);
    });
}

}  // namespace shardscope::megatron
