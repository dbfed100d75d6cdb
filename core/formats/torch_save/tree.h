// The nested object that a file's entries make up, rebuilt from their paths.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/catalog.h"

namespace shardscope::torch_save {

struct TreeNode {
    enum class Kind : uint8_t { dict, list, tuple, tensor, object };
    Kind kind = Kind::dict;
    uint32_t entry = kNone;  // tensor or object
    PathPart part;           // under which it stands in its parent
    std::vector<uint32_t> children;
};

struct Tree {
    std::vector<TreeNode> nodes;          // nodes[0] is the root
    std::vector<std::string> collisions;  // names of entries whose place is taken, or is inside another entry
};

// Lists and tuples come back where the indices are 0 to n-1, dicts elsewhere; attributes of a module are one
// key, as in its state_dict(). Children stand in the order of the catalog (lists: by index).
Tree buildTree(const Catalog& target);

}  // namespace shardscope::torch_save
