#include "formats/megatron/cuts.h"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "base/numbers.h"
#include "base/text.h"
#include "formats/megatron/tensor_parallel.h"

namespace shardscope::megatron {

namespace {

constexpr size_t kMostWeightsLooked = 256;  // stacked layers make for few of them
constexpr uint32_t kMostCutRanks = 1 << 24;

bool isState(std::string_view name) {
    return name.find("optimizer.") != name.npos;
}

}  // namespace

LeadingDims leadingDimsOf(std::string_view key) {
    LeadingDims out;
    constexpr std::string_view kLayers = "layers.";
    if (const size_t at = key.find(kLayers); at != key.npos) {
        std::string_view rest = key.substr(at + kLayers.size());
        out.layer = takeNumber<decltype(out.layer)>(rest).value_or(-1);
        out.layers = out.layer < 0;
    }
    out.experts = key.find(".experts.experts.") != key.npos;
    return out;
}

std::optional<ParallelSizes> sizesOfCuts(const Catalog& stored) {
    uint32_t tp = 0, world = 0;
    std::map<int64_t, uint32_t> rankOfLayer;
    size_t looked = 0;
    for (TensorId t = 0; t < stored.tensorCount() && looked < kMostWeightsLooked; ++t) {
        const std::string_view name = stored.name(t);
        const LeadingDims leading = leadingDimsOf(name);
        const DimSpan shape = stored.shape(t);
        if (isState(name) || leading.experts || shape.size() <= leading.count()) continue;
        // Halves of a gated layer are at twice as many places; they say nothing that others do not.
        const auto cut = cutOf(name, shape.size() - leading.count(), false);
        if (!cut || *cut == Cut::none || name.find("linear_fc1") != name.npos) continue;
        ++looked;
        const size_t axis = leading.count() + (*cut == Cut::columns ? 1 : 0);
        std::set<int64_t> places;
        for (ChunkId c = stored.firstChunk(t); c < stored.endChunk(t); ++c) {
            const ChunkInfo chunk = stored.chunk(t, c);
            if (chunk.rank == kNone || chunk.flat || axis >= chunk.offsets.size()) return std::nullopt;
            places.insert(chunk.offsets[axis]);
            world = std::max(world, chunk.rank + 1);
            if (chunk.offsets[axis] != 0 || (!leading.layers && leading.layer < 0)) continue;
            const int64_t layer = leading.layers ? chunk.offsets[0] : leading.layer;
            // Another rank for the same layer: replicas have shared the work.
            if (rankOfLayer.try_emplace(layer, chunk.rank).first->second != chunk.rank) return std::nullopt;
        }
        if (tp != 0 && tp != places.size()) return std::nullopt;
        tp = static_cast<uint32_t>(places.size());
    }
    if (tp == 0 || rankOfLayer.empty() || world > kMostCutRanks) return std::nullopt;
    std::set<uint32_t> stages;
    for (const auto& [layer, rank] : rankOfLayer)
        stages.insert(rank);
    ParallelSizes sizes;
    sizes.tp = tp;
    sizes.pp = static_cast<uint32_t>(stages.size());
    uint32_t perStage = (world + tp - 1) / tp * tp;
    if (stages.size() > 1) perStage = *std::next(stages.begin()) - *stages.begin();
    uint32_t stage = 0;
    for (const uint32_t rank : stages) {
        if (rank != stage++ * perStage) return std::nullopt;
    }
    if (perStage % tp != 0) return std::nullopt;
    sizes.dp = perStage / tp;
    sizes.evidence = "the cuts of the weights and the ranks of their files";
    sizes.inferred = true;
    return sizes;
}

void findExpertRanks(const Catalog& stored, ParallelSizes& sizes) {
    for (TensorId t = 0; t < stored.tensorCount(); ++t) {
        const std::string_view name = stored.name(t);
        const LeadingDims leading = leadingDimsOf(name);
        if (isState(name) || !leading.experts || stored.shape(t).size() < leading.count()) continue;
        const size_t axis = leading.count() - 1;
        const int64_t experts = stored.shape(t)[axis];
        std::map<int64_t, std::set<uint32_t>> ranks;  // of each expert of the first layer
        std::set<uint32_t> all;
        for (ChunkId c = stored.firstChunk(t); c < stored.endChunk(t); ++c) {
            const ChunkInfo chunk = stored.chunk(t, c);
            if (chunk.rank == kNone || chunk.rank >= sizes.ranks() || axis >= chunk.offsets.size()) return;
            if (leading.layers && chunk.offsets[0] != 0) continue;
            ranks[chunk.offsets[axis]].insert(sizes.at(chunk.rank).dp);
            all.insert(sizes.at(chunk.rank).dp);
        }
        const auto count = static_cast<int64_t>(all.size());
        if (count < 2 || experts % count != 0 || sizes.dp % count != 0) return;
        // Each rank has as many experts, one behind the other.
        for (const auto& [expert, owners] : ranks) {
            if (owners.size() != 1 || *owners.begin() % count != expert / (experts / count)) return;
        }
        sizes.ep = static_cast<uint32_t>(count);
        sizes.expertEvidence = fmt::format("the experts of '{}' are in files of {} ranks",
                                           printable(name, kNameInMessage), count);
        return;
    }
}

}  // namespace shardscope::megatron
