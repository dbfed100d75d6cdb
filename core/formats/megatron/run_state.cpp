#include "formats/megatron/run_state.h"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "base/checked.h"
#include "base/numbers.h"
#include "base/text.h"
#include "base/units.h"
#include "formats/megatron/tensor_parallel.h"

namespace shardscope::megatron {

namespace {

constexpr int64_t kMostRanks = 1 << 24;
constexpr std::string_view kArguments = "the args in ";

// "0.1" to [0, 1].
std::optional<Dims> numbersOf(std::string_view text) {
    Dims out;
    for (;; text.remove_prefix(1)) {
        const auto number = takeNumber<int64_t>(text);
        if (!number || out.size() >= kMaxRank) return std::nullopt;
        out.push_back(*number);
        if (text.empty()) return out;
        if (text[0] != '.') return std::nullopt;
    }
}

constexpr size_t kMostWeightsLooked = 256;  // stacked layers make for few of them
constexpr uint32_t kMostCutRanks = 1 << 24;

bool isState(std::string_view name) {
    return name.find("optimizer.") != name.npos;
}

}  // namespace

Value entryOf(const Value& mapping, std::string_view key) {
    const ValueView entry = ValueView(mapping)[key];
    return entry ? Value{mapping.graph, entry.node()} : Value{};
}

Mesh ParallelSizes::mesh() const {
    Mesh mesh;
    if (inferred) mesh.source = Mesh::Source::inferred;
    const auto add = [&](const char* name, uint32_t size, const char* argument) {
        mesh.axes.push_back({name, size});
        const bool named = evidence.starts_with(kArguments);
        const bool cuts = name == std::string_view("ep") && !expertEvidence.empty();
        mesh.evidence.push_back(cuts ? fmt::format("{}={}: {}", name, size, expertEvidence)
                                     : fmt::format("{}={}: {}{}{}", name, size, evidence, named ? " " : "",
                                                   named ? argument : ""));
    };
    if (pp > 1) add("pp", pp, "pipeline_model_parallel_size");
    // Experts are spread over ranks that are data parallel for everything else.
    const bool experts = ep > 1 && dp % ep == 0;
    if (const uint32_t data = experts ? dp / ep : dp; data > 1) add("dp", data, "data_parallel_size");
    if (experts) add("ep", ep, "expert_model_parallel_size");
    if (cp > 1) add("cp", cp, "context_parallel_size");
    if (tp > 1) add("tp", tp, "tensor_model_parallel_size");
    if (virtualStages > 1)
        mesh.evidence.push_back(
            fmt::format("each pipeline stage has {} virtual ones; the stored names are the same without them",
                        virtualStages));
    return mesh;
}

std::optional<ParallelSizes> sizesOf(const Arguments& args, std::string_view file) {
    if (!args) return std::nullopt;
    ParallelSizes sizes;
    const auto size = [&](const char* name, uint32_t& out) {
        const auto value = args.integer(name);
        if (value && (*value < 1 || *value > kMostRanks)) return false;
        if (value) out = static_cast<uint32_t>(*value);
        return true;
    };
    if (!args.integer("tensor_model_parallel_size") || !size("tensor_model_parallel_size", sizes.tp) ||
        !size("pipeline_model_parallel_size", sizes.pp) || !size("context_parallel_size", sizes.cp) ||
        !size("expert_model_parallel_size", sizes.ep) || !size("data_parallel_size", sizes.dp) ||
        !size("virtual_pipeline_model_parallel_size", sizes.virtualStages))
        return std::nullopt;
    int64_t model = 0, ranks = 0;
    if (!checkedMul(int64_t{sizes.tp} * sizes.pp, int64_t{sizes.cp}, model) ||
        !checkedMul(model, int64_t{sizes.dp}, ranks) || ranks > kMostRanks)
        return std::nullopt;
    // data_parallel_size is not among the arguments of all versions.
    const int64_t world = args.integer("world_size").value_or(ranks);
    if (world < 1 || world > kMostRanks || world % model != 0) return std::nullopt;
    sizes.dp = static_cast<uint32_t>(world / model);
    sizes.evidence = fmt::format("{}{} state", kArguments, file);
    return sizes;
}

std::optional<ShardedName> parseShardedName(std::string_view name) {
    constexpr std::string_view kShard = "/shard_";
    const size_t at = name.rfind(kShard);
    if (at == name.npos || at == 0) return std::nullopt;
    const std::string_view rest = name.substr(at + kShard.size());
    const size_t between = rest.find('_');
    if (between == rest.npos) return std::nullopt;
    const auto offsets = numbersOf(rest.substr(0, between)), grid = numbersOf(rest.substr(between + 1));
    if (!offsets || !grid) return std::nullopt;
    ShardedName out{name.substr(0, at), *offsets, *grid};
    if (out.grid.size() + 1 == out.offsets.size()) out.grid.push_back(out.offsets.back() + 1);
    if (out.grid.size() != out.offsets.size()) return std::nullopt;
    for (size_t d = 0; d < out.grid.size(); ++d) {
        if (out.offsets[d] >= out.grid[d]) return std::nullopt;
    }
    return out;
}

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
    sizes.evidence = "the shards of the weights and the ranks of their files";
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
        sizes.expertEvidence = fmt::format("the experts of '{}' are in files of {}",
                                           printable(name, kNameInMessage), counted(count, "rank"));
        return;
    }
}

}  // namespace shardscope::megatron
