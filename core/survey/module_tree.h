// The tree of modules that tensor names make up ("model.layers.3.mlp.w1"), in columns. Built for all tensors
// or for those that a filter lets through. Children are in natural order: layers.2 before layers.10.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/stop.h"
#include "model/catalog.h"

namespace shardscope {

class ModuleTree {
  public:
    using Node = uint32_t;
    static constexpr Node kRoot = 0;

    ModuleTree() = default;
    // The catalog must outlive the tree.
    static ModuleTree build(const Catalog& catalog, const std::vector<TensorId>& tensors,
                            const StopToken& stop = {});
    static ModuleTree buildAll(const Catalog& catalog, const StopToken& stop = {});

    size_t size() const { return parent_.size(); }  // with the root, which has no name
    bool empty() const { return size() <= 1; }
    Node parent(Node n) const { return parent_[n]; }
    uint32_t row(Node n) const { return row_[n]; }  // among its siblings
    uint32_t childCount(Node n) const { return childCount_[n]; }
    Node child(Node n, uint32_t row) const { return children_[firstChild_[n] + row]; }
    // kNone for a module. A name may be both ("w" and "w.scale"): then the tensor is its module's first
    // child.
    TensorId tensor(Node n) const { return tensor_[n]; }
    std::string_view label(Node n) const;     // last part
    std::string_view fullName(Node n) const;  // path from the root
    uint64_t bytes(Node n) const { return bytes_[n]; }
    uint32_t tensorCount(Node n) const { return tensors_[n]; }
    Node nodeOf(TensorId tensor) const;          // kRoot when it is not in the tree
    Node find(std::string_view fullName) const;  // module or tensor; kRoot when absent
    // Tensors below a node, in tree order; those of the whole tree for the root.
    std::vector<TensorId> tensorsBelow(Node n) const;
    // All tensors in tree order, one entry for each.
    const std::vector<TensorId>& order() const { return order_; }
    // The range of order() that is below a node.
    std::pair<uint32_t, uint32_t> range(Node n) const { return {orderBegin_[n], orderEnd_[n]}; }

  private:
    const Catalog* catalog_ = nullptr;
    std::vector<Node> parent_, firstChild_, children_;
    std::vector<uint32_t> row_, childCount_, tensors_, orderBegin_, orderEnd_;
    std::vector<TensorId> tensor_;
    std::vector<TensorId> sample_;  // some tensor below, whose name starts with the node's
    std::vector<uint32_t> nameEnd_, labelBegin_;
    std::vector<uint64_t> bytes_;
    std::vector<TensorId> order_;
    std::vector<Node> nodeOf_;  // by tensor
};

// "a2" before "a10": runs of digits compare as numbers.
bool naturalLess(std::string_view a, std::string_view b);

}  // namespace shardscope
