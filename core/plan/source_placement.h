// Shard rules that cut the tensors of a checkpoint over another mesh, along the dimensions along which they
// are cut already. That is what somebody means who asks for another number of ranks.
#pragma once

#include <string>
#include <vector>

#include "model/catalog.h"
#include "plan/plan.h"

namespace shardscope {

// Tensors that are cut alike, and the rules that cut them so.
struct PlacementClass {
    std::vector<std::pair<std::string, int>> axisDims;  // axes of the target's mesh, in its order
    size_t tensors = 0;
    std::string example;                // the name of one
    std::vector<std::string> patterns;  // re:..., which match these names and none of another class
};

struct SourcePlacement {
    std::vector<PlacementClass> classes;  // the largest first
    // Axes of the target that cut nothing: the source has no axis of their name.
    std::vector<std::string> unused;
    // Tensors in several pieces which no axis of the source's mesh explains: no rule cuts them.
    size_t unexplained = 0;

    std::vector<ShardRule> rules() const;
};

// `from`: the mesh of the source (meshOf()). An axis goes to the axis of its name. Where the source cuts over
// one axis, and the target has one that it does not name, it goes to that.
SourcePlacement placementOfSource(const Catalog& catalog, const Mesh& from, const Mesh& to);

}  // namespace shardscope
