// The walk over the containers of an unpickled object, depth first, without recursion. What is inside may be
// nested as deep as it likes, and may contain itself.
#pragma once

#include <unordered_set>
#include <utility>
#include <vector>

#include "base/result.h"
#include "model/path.h"
#include "model/value.h"

namespace shardscope {

// Child has a PathPart `part`, a NodeId `node`, and whatever else its parent states of it.
template <class Child>
class ContainerWalk {
  protected:
    // Calls `enter` for the root and for every child of what it opens; path_ is then the way to it.
    template <class Enter>
    Status walkFrom(const Child& root, Enter&& enter) {
        SHARDSCOPE_TRY(enter(root));
        while (!frames_.empty()) {
            Frame& frame = frames_.back();
            if (frame.next == frame.children.size()) {
                onPath_.erase(frame.node);
                frames_.pop_back();
                if (!path_.empty()) path_.pop_back();
                continue;
            }
            Child child = std::move(frame.children[frame.next++]);
            path_.push_back(std::move(child.part));
            const size_t depth = frames_.size();
            SHARDSCOPE_TRY(enter(child));
            if (frames_.size() == depth) path_.pop_back();
        }
        return {};
    }
    // Called by `enter`: the children of `node` come next.
    void open(NodeId node, std::vector<Child> children) {
        onPath_.insert(node);
        frames_.push_back({node, std::move(children)});
    }
    // Whether the node contains the one that is entered.
    bool isOpen(NodeId node) const { return onPath_.contains(node); }
    // Bytes of the path's names, for a budget of text.
    uint64_t pathBytes() const {
        uint64_t bytes = 0;
        for (const PathPart& part : path_)
            bytes += part.text.size() + 8;
        return bytes;
    }

    Path path_;

  private:
    struct Frame {
        NodeId node;
        std::vector<Child> children;
        size_t next = 0;
    };
    std::vector<Frame> frames_;
    std::unordered_set<NodeId> onPath_;
};

}  // namespace shardscope
