#include "formats/entry_tree.h"

#include <algorithm>
#include <unordered_map>

#include <fmt/format.h>

#include "base/units.h"
#include "encoding/key_literal.h"
#include "encoding/torch_tensor.h"

namespace shardscope {

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

class TreeBuilder {
  public:
    explicit TreeBuilder(Tree& tree) : tree_(tree) { tree_.nodes.emplace_back(); }

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

constexpr const char* kTaken = "its place in the nested object is taken by another entry";
constexpr size_t kBatch = 1000;  // items between MARK and SETITEMS, as picklers write them

template <class One, class Single, class Batch>
Status inBatches(PickleWriter& out, const std::vector<uint32_t>& children, One&& one, Single&& single,
                 Batch&& batch) {
    if (children.size() == 1) {
        SHARDSCOPE_TRY(one(children[0]));
        single();
        return {};
    }
    for (size_t i = 0; i < children.size(); i += kBatch) {
        out.mark();
        for (size_t k = i; k < std::min(i + kBatch, children.size()); ++k)
            SHARDSCOPE_TRY(one(children[k]));
        batch();
    }
    return {};
}

}  // namespace

Status Tree::check() const {
    if (collisions.empty()) return {};
    return makeError(ErrorCode::impossible, kTaken).ofTensor(collisions[0]);
}

void Tree::leaveOutCollisions(std::vector<LeftOut>& out) const {
    for (const std::string& name : collisions)
        out.push_back({name, kTaken});
}

Tree buildTree(const Catalog& target, const PathInside& inside) {
    Tree tree;
    TreeBuilder builder(tree);
    // Of several at one place the one that has its name keeps it.
    std::vector<TensorId> renamed;
    const auto placeOf = [&](const Path& path, std::string_view name) -> std::optional<Path> {
        if (!inside) return keysOf(path, name);
        auto place = inside(path.empty() ? Path{keyPart(name)} : path);
        return place ? std::optional(keysOf(std::move(*place), {})) : std::nullopt;
    };
    for (TensorId t = 0; t < target.tensorCount(); ++t) {
        const auto place = placeOf(target.path(t), target.name(t));
        if (!place) continue;
        const Path& keys = *place;
        const std::string own = pathName(keys);
        const bool named = inside ? target.name(t).ends_with(own) : target.name(t) == own;
        if (target.name(t).find('~') != std::string_view::npos && !named)
            renamed.push_back(t);
        else
            builder.add(keys, TreeNode::Kind::tensor, t, target.name(t));
    }
    for (const TensorId t : renamed)
        builder.add(*placeOf(target.path(t), target.name(t)), TreeNode::Kind::tensor, t, target.name(t));
    for (ObjectId o = 0; o < target.objects().size(); ++o) {
        const ObjectInfo& object = target.objects()[o];
        if (const auto place = placeOf(object.path, object.name))
            builder.add(*place, TreeNode::Kind::object, o, object.name);
    }
    builder.finish();
    return tree;
}

std::string whyNotPickled(const Value& value) {
    if (!value) return "its value was not read";
    ValueGraph copy;
    copyValue(value, copy, SIZE_MAX);
    for (NodeId node = 0; node < copy.size(); ++node) {
        if (copy.kind(node) == ValueKind::persistent)
            return "it has tensors inside an object, whose data is not carried";
    }
    const auto pickle = encodePickle(value);
    return pickle.ok() ? std::string() : pickle.error().message;
}

std::string whyNotPickled(DType dtype) {
    const std::string_view name = dtypeName(dtype);
    if (!dtypeFromTorchGlobal("torch", name)) return fmt::format("torch has no dtype {}", name);
    return name.starts_with('q') ? fmt::format("{} data means nothing without its scale", name)
                                 : std::string();
}

void writeStateDict(PickleWriter& out, size_t count, const std::function<std::string_view(size_t)>& name,
                    const std::function<void(size_t)>& tensor) {
    out.memoGlobal("collections", "OrderedDict");
    out.emptyTuple();
    out.reduce();
    out.put();
    for (size_t i = 0; i < count; i += kBatch) {
        out.mark();
        for (size_t k = i; k < std::min(i + kBatch, count); ++k) {
            out.memoText(name(k));
            tensor(k);
        }
        out.setItems();
    }
}

Status TreePickler::node(uint32_t id, int depth) {
    if (depth > kMaxValueDepth) {
        return makeError(ErrorCode::limit,
                         fmt::format("an entry is deeper than {}", counted(kMaxValueDepth, "level")));
    }
    const TreeNode& n = tree_.nodes[id];
    switch (n.kind) {
        case TreeNode::Kind::tensor:
            tensor_(n.entry);
            return {};
        case TreeNode::Kind::object: {
            const ObjectInfo& object = target_.objects()[n.entry];
            auto written = out_.value(object.value);
            if (!written.ok()) return std::move(written).error().ofTensor(object.name);
            return {};
        }
        case TreeNode::Kind::dict:
            return dict(n, depth);
        case TreeNode::Kind::list:
            return list(n, depth);
        case TreeNode::Kind::tuple:
            return tuple(n, depth);
    }
    return {};
}

Status TreePickler::dict(const TreeNode& n, int depth) {
    out_.emptyDict();
    out_.put();
    return inBatches(
        out_, n.children,
        [&](uint32_t child) -> Status {
            SHARDSCOPE_TRY(key(tree_.nodes[child]));
            return node(child, depth + 1);
        },
        [&] { out_.setItem(); }, [&] { out_.setItems(); });
}
Status TreePickler::list(const TreeNode& n, int depth) {
    out_.emptyList();
    out_.put();
    return inBatches(
        out_, n.children, [&](uint32_t child) { return node(child, depth + 1); }, [&] { out_.append(); },
        [&] { out_.appends(); });
}
Status TreePickler::tuple(const TreeNode& n, int depth) {
    out_.beginTuple(n.children.size());
    for (uint32_t child : n.children)
        SHARDSCOPE_TRY(node(child, depth + 1));
    out_.endTuple(n.children.size());
    out_.put();
    return {};
}

Status TreePickler::key(const TreeNode& n) {
    const PathPart& part = n.part;
    switch (part.kind) {
        case PathPart::Kind::integerKey:
        case PathPart::Kind::index:
        case PathPart::Kind::tupleIndex:
            out_.integer(part.index);
            return {};
        case PathPart::Kind::otherKey:
            if (const Value literal = torch_save::parseKeyLiteral(part.text)) return out_.value(literal);
            changed_.push_back({part.text, "the key cannot be read back and is written as text"});
            break;
        default:
            break;
    }
    out_.text(part.text);
    out_.put();
    return {};
}

}  // namespace shardscope
