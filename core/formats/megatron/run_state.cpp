#include "formats/megatron/run_state.h"

#include <fmt/format.h>

#include "base/checked.h"
#include "base/numbers.h"

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

}  // namespace

Arguments::Arguments(Value args) : args_(std::move(args)) {
    if (!args_) return;
    const ValueGraph& g = *args_.graph;
    if (g.isMapping(args_.node)) {
        mapping_ = args_.node;
    } else if (args_.kind() == ValueKind::object && g.object(args_.node).state != kNoNode &&
               g.isMapping(g.object(args_.node).state)) {
        mapping_ = g.object(args_.node).state;
    }
}

NodeId Arguments::node(std::string_view name) const {
    return mapping_ == kNoNode ? kNoNode : args_.graph->find(mapping_, name);
}

std::optional<int64_t> Arguments::integer(std::string_view name) const {
    const NodeId found = node(name);
    if (found == kNoNode || args_.graph->kind(found) != ValueKind::integer) return std::nullopt;
    return args_.graph->integer(found);
}

bool Arguments::isTrue(std::string_view name) const {
    const NodeId found = node(name);
    return found != kNoNode && args_.graph->kind(found) == ValueKind::boolean && args_.graph->boolean(found);
}

Value entryOf(const Value& mapping, std::string_view key) {
    if (!mapping || !mapping.graph->isMapping(mapping.node)) return {};
    const NodeId found = mapping.graph->find(mapping.node, key);
    return found == kNoNode ? Value{} : Value{mapping.graph, found};
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

}  // namespace shardscope::megatron
