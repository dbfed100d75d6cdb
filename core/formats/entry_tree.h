// Rebuilds the nested object (dicts, lists, tuples) of a file from the paths of its entries, and pickles it.
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
    PathPart part;           // its key or index in the parent
    std::vector<uint32_t> children;
};

struct Tree {
    std::vector<TreeNode> nodes;          // nodes[0] is the root
    std::vector<std::string> collisions;  // names of entries whose path is taken, or is below another entry

    Status check() const;  // errors: impossible where there are collisions
    void leaveOutCollisions(std::vector<LeftOut>& out) const;
};

// Returns the path of an entry within the object; nullopt for an entry outside of it.
using PathInside = std::function<std::optional<Path>(const Path&)>;
// Indices 0 to n-1 become a list or tuple, any others a dict. Attributes of a module become one key, as in
// its state_dict(). Children are in catalog order, those of lists by index. `inside` may be empty: then all
// entries belong to the object.
Tree buildTree(const Catalog& target, const PathInside& inside = {});

// Why a pickle of torch.save cannot hold the value, or a tensor of the dtype; empty when it can.
std::string whyNotPickled(const Value& value);
std::string whyNotPickled(DType dtype);

// Writes a module's state dict, an OrderedDict of `count` tensors: `name` gives the key of one, and `tensor`
// writes its value.
void writeStateDict(PickleWriter& out, size_t count, const std::function<std::string_view(size_t)>& name,
                    const std::function<void(size_t)>& tensor);

// Writes the object as a pickle. Calls `tensor` where the caller has to write a tensor.
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
