// Which boxes of a tensor are on which rank, for a mesh and the user's rules.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/plan.h"

namespace shardscope {

struct PlacedBox {
    uint32_t rank = 0;
    Box box;
};

// The compiled rules of one request. Each shard is stored once. Of the ranks that would hold a replica, the
// one with the fewest bytes so far keeps it (the lowest rank on a tie). So files come out even. With
// `replicas` all of them keep it. Without rules the last axis then shards dimension 0 of tensors that are not
// kept whole (keptWhole()), as FSDP does.
class Placer {
  public:
    // Errors: usage.
    static Result<Placer> make(const Mesh& mesh, const TargetRequest& request, bool replicas = false);

    // Never empty: a tensor without elements has one empty chunk. Empty pieces of other tensors are left out.
    std::vector<PlacedBox> place(std::string_view name, DType dtype, DimSpan shape,
                                 Role role = Role::parameter);

  private:
    struct Shard {
        NamePattern pattern;
        std::vector<std::pair<int, int>> axisDims;  // (mesh axis, tensor dimension), in mesh order
    };
    struct Stage {
        NamePattern pattern;
        int axis;
        uint32_t coordinate;
    };
    Mesh mesh_;
    SplitRule split_ = SplitRule::torch;
    bool replicas_ = false;
    std::vector<Shard> shards_;
    std::vector<Stage> stages_;
    std::vector<uint64_t> load_;  // bytes by rank
};

}  // namespace shardscope
