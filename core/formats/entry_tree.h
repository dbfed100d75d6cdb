// The nested object that a file's entries make up, rebuilt from their paths.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "encoding/pickle.h"
#include "formats/format.h"
#include "model/catalog.h"

namespace shardscope {

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
// `inside`: the path of an entry in this object, or nothing for one that is not part of it; may be empty.
using PathInside = std::function<std::optional<Path>(const Path&)>;
Tree buildTree(const Catalog& target, const PathInside& inside = {});

// Why a pickle of torch.save cannot hold the value; empty when it can.
std::string whyNotPickled(const Value& value);

// Writes the object as a pickle; tensors are the caller's business.
class TreePickler {
  public:
    TreePickler(const Catalog& target, const Tree& tree, PickleWriter& out, std::vector<LeftOut>& changed,
                std::function<void(TensorId)> tensor)
        : target_(target), tree_(tree), out_(out), changed_(changed), tensor_(std::move(tensor)) {}

    // Errors: limit for depth; those of PickleWriter::value, with the entry's name.
    Status write() { return node(0, 0); }

  private:
    Status node(uint32_t id, int depth);
    Status dict(const TreeNode& node, int depth);
    Status list(const TreeNode& node, int depth);
    Status tuple(const TreeNode& node, int depth);
    Status key(const TreeNode& node);

    const Catalog& target_;
    const Tree& tree_;
    PickleWriter& out_;
    std::vector<LeftOut>& changed_;
    const std::function<void(TensorId)> tensor_;
};

}  // namespace shardscope
