// What placement rules come to, before a job runs: how many tensors each takes, where cuts do not divide, the
// bytes of each rank. Worked out off the GUI thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/stop.h"
#include "model/catalog.h"
#include "plan/plan.h"

namespace shardscope {

struct RuleEffect {
    std::string rule;                // as the command line writes it
    uint64_t tensors = 0;            // that it decides about: matched, and by no rule before it
    uint64_t matched = 0;            // that its pattern matches at all
    std::vector<std::string> notes;  // sentences on what is uneven, empty or without effect
};

struct PlacementEffect {
    std::vector<RuleEffect> shards, stages;  // in the order of the rules
    std::vector<uint64_t> before, after;     // bytes by rank
    uint64_t whole = 0;                      // tensors of the target that no shard rule cuts
};

// `wanted` is the catalog that the conversion would make. Names in rules are those of the target. Errors:
// usage (malformed patterns), cancelled.
Result<PlacementEffect> placementEffect(const Catalog& source, const Catalog& wanted,
                                        const TargetRequest& request, const StopToken& stop);

}  // namespace shardscope
