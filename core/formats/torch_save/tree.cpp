#include "formats/torch_save/tree.h"

#include <algorithm>
#include <unordered_map>

namespace shardscope::torch_save {

namespace {

// The path as it is rebuilt: a run of attributes is one key.
Path keysOf(Path path, std::string_view name) {
    if (path.empty() && !name.empty()) return {keyPart(name)};
    Path keys;
    bool inAttributes = false;
    for (PathPart& part : path) {
        const bool attribute = part.kind == PathPart::Kind::attribute;
        if (attribute && inAttributes) {
            keys.back().text += "." + part.text;
        } else {
            if (attribute) part.kind = PathPart::Kind::key;
            keys.push_back(std::move(part));
        }
        inAttributes = attribute;
    }
    return keys;
}

class Builder {
  public:
    explicit Builder(Tree& tree) : tree_(tree) { tree_.nodes.emplace_back(); }

    void add(const Path& path, TreeNode::Kind kind, uint32_t entry, std::string_view name) {
        uint32_t at = 0;
        std::string key;
        for (const PathPart& part : path) {
            if (isLeaf(at)) return collide(name);
            key.assign(reinterpret_cast<const char*>(&at), sizeof at);
            key += encodePath({part});
            const auto [it, fresh] = places_.try_emplace(key, static_cast<uint32_t>(tree_.nodes.size()));
            if (fresh) {
                tree_.nodes.emplace_back();
                tree_.nodes.back().part = part;
                tree_.nodes[at].children.push_back(it->second);
            }
            at = it->second;
        }
        TreeNode& leaf = tree_.nodes[at];
        if (isLeaf(at) || !leaf.children.empty()) return collide(name);
        leaf.kind = kind;
        leaf.entry = entry;
    }

    // Decides what each container is.
    void finish() {
        for (TreeNode& node : tree_.nodes) {
            if (node.entry != kNone || node.children.empty()) continue;
            const PathPart::Kind first = tree_.nodes[node.children[0]].part.kind;
            if (first != PathPart::Kind::index && first != PathPart::Kind::tupleIndex) continue;
            std::vector<uint32_t> sorted = node.children;
            std::stable_sort(sorted.begin(), sorted.end(), [&](uint32_t a, uint32_t b) {
                return tree_.nodes[a].part.index < tree_.nodes[b].part.index;
            });
            bool whole = true;
            for (size_t i = 0; i < sorted.size(); ++i) {
                const PathPart& part = tree_.nodes[sorted[i]].part;
                whole = whole && part.kind == first && part.index == static_cast<int64_t>(i);
            }
            if (!whole) continue;
            node.kind = first == PathPart::Kind::index ? TreeNode::Kind::list : TreeNode::Kind::tuple;
            node.children = std::move(sorted);
        }
    }

  private:
    bool isLeaf(uint32_t at) const { return tree_.nodes[at].entry != kNone; }
    void collide(std::string_view name) { tree_.collisions.emplace_back(name); }

    Tree& tree_;
    std::unordered_map<std::string, uint32_t> places_;  // parent and part -> node
};

}  // namespace

Tree buildTree(const Catalog& target) {
    Tree tree;
    Builder builder(tree);
    // Of several at one place the one that has its name keeps it.
    std::vector<TensorId> renamed;
    for (TensorId t = 0; t < target.tensorCount(); ++t) {
        Path keys = keysOf(target.path(t), target.name(t));
        if (target.name(t).find('~') != std::string_view::npos && pathName(keys) != target.name(t))
            renamed.push_back(t);
        else
            builder.add(keys, TreeNode::Kind::tensor, t, target.name(t));
    }
    for (const TensorId t : renamed)
        builder.add(keysOf(target.path(t), target.name(t)), TreeNode::Kind::tensor, t, target.name(t));
    for (ObjectId o = 0; o < target.objects().size(); ++o) {
        const ObjectInfo& object = target.objects()[o];
        builder.add(keysOf(object.path, object.name), TreeNode::Kind::object, o, object.name);
    }
    builder.finish();
    return tree;
}

}  // namespace shardscope::torch_save
