#include "encoding/torch_walk.h"

#include <array>
#include <unordered_map>

#include <fmt/format.h>

#include "base/numbers.h"
#include "base/rule.h"
#include "encoding/container_walk.h"
#include "encoding/torch_scaled.h"
#include "model/value_view.h"

namespace shardscope::torch_save {

namespace {

// An nn.Module pickled whole: its parts are those of its state_dict().
bool isModule(const ValueGraph& g, NodeId node) {
    if (g.kind(node) != ValueKind::object || g.object(node).state == kNoNode) return false;
    const NodeId state = g.object(node).state;
    return g.isMapping(state) && g.isMapping(g.find(state, "_modules")) &&
           g.isMapping(g.find(state, "_parameters")) && g.isMapping(g.find(state, "_buffers"));
}

// Attributes of an object that is nothing known: its state, or the dict part of (dict, slots).
NodeId attributesOf(const ValueGraph& g, NodeId node) {
    if (g.kind(node) != ValueKind::object || isTensorLike(g, node) || g.isMapping(node)) return kNoNode;
    NodeId state = g.object(node).state;
    if (state != kNoNode && g.kind(state) == ValueKind::tuple && g.items(state).size() == 2) {
        state = g.isMapping(g.items(state)[0]) ? g.items(state)[0] : g.items(state)[1];
    }
    return state != kNoNode && g.isMapping(state) ? state : kNoNode;
}

struct Child {
    PathPart part;
    NodeId node;
    bool inModule = false;
    bool buffer = false;
};

class Walker : private ContainerWalk<Child> {
  public:
    Walker(const ValueGraph& graph, uint64_t budget)
        : g_(graph), budget_(budget), textBudget_(16 * budget), holds_(graph.size(), Holds::unknown) {}

    Result<Found> run(NodeId root) {
        SHARDSCOPE_TRY(walkFrom(
            {{}, root}, [&](const Child& child) { return enter(child.node, child.inModule, child.buffer); }));
        return std::move(found_);
    }

  private:
    enum class Holds : uint8_t { unknown, visiting, no, yes };

    Status spend(uint64_t steps) {
        if (steps > budget_) {
            return makeError(ErrorCode::limit,
                             "the object in the pickle repeats its parts too often to be listed");
        }
        budget_ -= steps;
        return {};
    }

    // Names are made of keys, and a key may be long and stand in many names.
    Status spendText(uint64_t bytes) {
        if (bytes > textBudget_) {
            return makeError(ErrorCode::limit,
                             "the object in the pickle repeats long keys too often to be listed");
        }
        textBudget_ -= bytes;
        return {};
    }

    // Takes a leaf, or opens a container whose children come next.
    Status enter(NodeId node, bool inModule = false, bool buffer = false) {
        SHARDSCOPE_TRY(spend(1));
        pathBytes_ = pathBytes();
        SHARDSCOPE_TRY(spendText(pathBytes_));
        if (isTensorLike(g_, node)) return tensor(node, buffer);
        std::vector<Child> children;
        if (isOpen(node)) {
            // A container inside itself is shown, once, as an object.
            addObject(node);
            return {};
        }
        if (isModule(g_, node)) {
            if (!inModule) addObject(node);
            moduleChildren(node, children);
        } else if (g_.isMapping(node) && (!g_.pairs(node).empty() || path_.empty())) {
            mappingChildren(node, children);
        } else if ((g_.kind(node) == ValueKind::list || g_.kind(node) == ValueKind::tuple) &&
                   holdsTensor(node)) {
            const auto kind =
                g_.kind(node) == ValueKind::list ? PathPart::Kind::index : PathPart::Kind::tupleIndex;
            int64_t index = 0;
            for (NodeId item : g_.items(node))
                children.push_back({{kind, {}, index++}, item});
        } else {
            if (!inModule) addObject(node);
            objectChildren(node, children);
            if (children.empty()) return {};
        }
        SHARDSCOPE_TRY(spend(children.size()));
        for (const Child& child : children)
            SHARDSCOPE_TRY(spendText(child.part.text.size()));
        open(node, std::move(children));
        return {};
    }

    void mappingChildren(NodeId node, std::vector<Child>& children) {
        const std::span<const NodeId> pairs = g_.pairs(node);
        for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
            PathPart part;
            switch (g_.kind(pairs[i])) {
                case ValueKind::text:
                    part = keyPart(g_.text(pairs[i]));
                    break;
                case ValueKind::integer:
                    part = {PathPart::Kind::integerKey, {}, g_.integer(pairs[i])};
                    break;
                default:
                    part = {PathPart::Kind::otherKey, valueRepr(view(pairs[i]), 1000), 0};
            }
            children.push_back({std::move(part), pairs[i + 1]});
        }
        dropRepeatedKeys(children);
    }

    // As in Python the last value counts, at the place of the first.
    void dropRepeatedKeys(std::vector<Child>& children) {
        std::unordered_map<std::string, size_t> places;
        std::vector<Child> kept;
        kept.reserve(children.size());
        for (Child& child : children) {
            const auto [it, fresh] = places.try_emplace(encodePath({child.part}), kept.size());
            if (fresh) {
                kept.push_back(std::move(child));
                continue;
            }
            found_.notes.push_back(
                {rule::metaDuplicate,
                 Severity::warning,
                 fmt::format("the key '{}' is set twice; the last value counts", child.part.toString()),
                 {},
                 nameOf(&child.part),
                 std::nullopt});
            kept[it->second].node = child.node;
        }
        children = std::move(kept);
    }

    void moduleChildren(NodeId node, std::vector<Child>& children) {
        const NodeId state = g_.object(node).state;
        const NodeId transient = g_.find(state, "_non_persistent_buffers_set");
        const auto isTransient = [&](std::string_view name) {
            if (transient == kNoNode || g_.kind(transient) != ValueKind::set) return false;
            for (NodeId item : g_.items(transient)) {
                if (g_.isText(item, name)) return true;
            }
            return false;
        };
        for (const char* group : {"_parameters", "_buffers", "_modules"}) {
            const std::span<const NodeId> pairs = g_.pairs(g_.find(state, group));
            const bool buffers = group == std::string_view("_buffers");
            for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
                if (g_.kind(pairs[i]) != ValueKind::text || g_.kind(pairs[i + 1]) == ValueKind::none)
                    continue;
                if (buffers && isTransient(g_.text(pairs[i]))) continue;
                children.push_back({{PathPart::Kind::attribute, std::string(g_.text(pairs[i])), 0},
                                    pairs[i + 1],
                                    true,
                                    buffers});
            }
        }
    }

    // Of an object that is nothing known, whatever holds tensors: attributes, and what it was made of (fields
    // of a named tuple), filled with (a deque, a list of a class of its own) or given as another kind of
    // state.
    void objectChildren(NodeId node, std::vector<Child>& children) {
        if (g_.kind(node) != ValueKind::object || g_.isMapping(node)) return;
        const ValueObject& object = g_.object(node);
        const NodeId attributes = attributesOf(g_, node);
        if (attributes != kNoNode) attributeChildren(attributes, children);
        const bool filled = object.appended != kNoNode || object.pairs != kNoNode;
        if (object.appended != kNoNode) itemChildren(object.appended, "", children);
        if (object.arguments != kNoNode) itemChildren(object.arguments, filled ? "arguments." : "", children);
        for (const auto& [name, part] : {std::pair("keywords", object.keywords), {"items", object.pairs}}) {
            if (part != kNoNode && holdsTensor(part))
                children.push_back({{PathPart::Kind::attribute, name, 0}, part});
        }
        if (attributes == kNoNode && object.state != kNoNode &&
            (isTensorLike(g_, object.state) || holdsTensor(object.state))) {
            children.push_back({{PathPart::Kind::attribute, "state", 0}, object.state});
        }
        dropRepeatedKeys(children);
    }

    void itemChildren(NodeId items, const char* before, std::vector<Child>& children) {
        if (g_.kind(items) != ValueKind::tuple && g_.kind(items) != ValueKind::list) return;
        int64_t index = 0;
        for (NodeId item : g_.items(items)) {
            if (isTensorLike(g_, item) || holdsTensor(item)) {
                children.push_back({{PathPart::Kind::attribute, before + std::to_string(index), 0}, item});
            }
            ++index;
        }
    }

    void attributeChildren(NodeId attributes, std::vector<Child>& children) {
        const std::span<const NodeId> pairs = g_.pairs(attributes);
        for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
            if (g_.kind(pairs[i]) != ValueKind::text) continue;
            if (!isTensorLike(g_, pairs[i + 1]) && !holdsTensor(pairs[i + 1])) continue;
            children.push_back(
                {{PathPart::Kind::attribute, std::string(g_.text(pairs[i])), 0}, pairs[i + 1]});
        }
    }

    // Child `next` of the node, for holdsTensor; none after the last.
    std::optional<NodeId> childOf(NodeId node, size_t next) const {
        std::span<const NodeId> items;
        if (g_.isMapping(node)) {
            items = g_.pairs(node);
            next = 2 * next + 1;
        } else if (g_.kind(node) == ValueKind::list || g_.kind(node) == ValueKind::tuple) {
            items = g_.items(node);
        } else if (g_.kind(node) == ValueKind::object) {
            const ValueObject& object = g_.object(node);
            const std::array parts{object.state, object.arguments, object.keywords, object.appended,
                                   object.pairs};
            if (next >= parts.size()) return std::nullopt;
            return parts[next];
        }
        if (next >= items.size()) return std::nullopt;
        return items[next];
    }

    // Whether a tensor is anywhere in lists, tuples, mappings and objects below the node.
    bool holdsTensor(NodeId root) {
        if (holds_[root] != Holds::unknown) return holds_[root] == Holds::yes;
        std::vector<std::pair<NodeId, size_t>> stack{{root, 0}};
        holds_[root] = Holds::visiting;
        while (!stack.empty()) {
            auto& [node, next] = stack.back();
            const std::optional<NodeId> child = childOf(node, next);
            if (holds_[node] == Holds::yes || !child) {
                const bool yes = holds_[node] == Holds::yes;
                if (!yes) holds_[node] = Holds::no;
                stack.pop_back();
                if (yes && !stack.empty()) holds_[stack.back().first] = Holds::yes;
                continue;
            }
            ++next;
            if (*child == kNoNode) continue;
            if (holds_[*child] == Holds::yes || isTensorLike(g_, *child)) {
                holds_[node] = Holds::yes;
            } else if (holds_[*child] == Holds::unknown) {
                holds_[*child] = Holds::visiting;
                stack.emplace_back(*child, 0);
            }
        }
        return holds_[root] == Holds::yes;
    }

    Status tensor(NodeId node, bool buffer) {
        const std::string name = nameOf();
        if (isScaled(g_, node)) return scaled(node, name);
        auto dense = asTorchTensor(g_, node);
        if (!dense.ok()) return unreadable(std::move(dense).error(), name);
        if (*dense && (*dense)->storage.location == "meta") {
            Special meta;
            meta.about.kind = "meta";
            meta.about.dtype = dtypeName((*dense)->dtype);
            meta.about.shape = (*dense)->shape;
            return addSpecial(std::move(meta), name);
        }
        if (*dense) {
            found_.tensors.push_back({name, path_, std::move(**dense), kNone, buffer, {}});
            return {};
        }
        auto special = asSpecial(g_, node);
        if (!special.ok()) return unreadable(std::move(special).error(), name);
        return addSpecial(std::move(special).value(), name);
    }

    Status unreadable(Error error, const std::string& name) {
        if (error.code != ErrorCode::unsupported) return std::move(error).ofTensor(name);
        return addSpecial({{{}, {}, "subclass", {}, {}, {}}, {}, std::move(error.message)}, name);
    }

    // As files of fp8 weights name them: the scales beside the values.
    Status scaled(NodeId node, const std::string& name) {
        auto parts = asScaled(g_, node);
        if (!parts.ok()) return unreadable(std::move(parts).error(), name);
        found_.tensors.push_back({name, path_, std::move(parts->values), kNone, false, {}});
        SHARDSCOPE_TRY(spend(1));
        SHARDSCOPE_TRY(spendText(pathBytes_));
        Path path = path_;
        if (path.empty()) path.push_back(keyPart(""));
        path.back() = {PathPart::Kind::key, path.back().toString() + kScaleSuffix, 0};
        found_.tensors.push_back(
            {name + kScaleSuffix, std::move(path), std::move(parts->scales), kNone, false, {}});
        return {};
    }

    Status addSpecial(Special special, const std::string& name) {
        special.about.name = name;
        special.about.path = path_;
        const auto id = static_cast<uint32_t>(found_.specials.size());
        if (!special.warning.empty()) {
            found_.notes.push_back({rule::metaInconsistent,
                                    Severity::warning,
                                    fmt::format("the tensor '{}' cannot be read: {}", name, special.warning),
                                    {},
                                    name,
                                    std::nullopt});
        }
        found_.specials.push_back(std::move(special.about));
        found_.placements.push_back(std::move(special.placement));
        SHARDSCOPE_TRY(spend(special.parts.size()));
        SHARDSCOPE_TRY(spendText(special.parts.size() * pathBytes_));
        for (SpecialPart& part : special.parts) {
            // The part is shown beside its tensor: "name#part".
            Path path = path_;
            if (path.empty()) {
                path.push_back(keyPart("#" + part.name));
            } else {
                PathPart& last = path.back();
                last = {PathPart::Kind::key, last.toString() + "#" + part.name, 0};
            }
            found_.tensors.push_back({name + "#" + part.name, std::move(path), std::move(part.tensor), id,
                                      false, std::move(part.shardOffsets)});
        }
        return {};
    }

    void addObject(NodeId node) { found_.objects.push_back({nameOf(), path_, node}); }

    std::string nameOf(const PathPart* extra = nullptr) const {
        std::string name = pathName(path_);
        if (extra) name += (path_.empty() ? "" : ".") + extra->toString();
        return name;
    }

    // For representations only: the graph outlives the walk.
    Value view(NodeId node) const {
        return {std::shared_ptr<const ValueGraph>(std::shared_ptr<void>(), &g_), node};
    }

    const ValueGraph& g_;
    uint64_t budget_;
    uint64_t textBudget_;
    uint64_t pathBytes_ = 0;  // of the path that is being entered
    std::vector<Holds> holds_;
    Found found_;
};

}  // namespace

Result<Found> walk(const ValueGraph& graph, NodeId root, uint64_t streamBytes) {
    return Walker(graph, 4 * streamBytes + 100'000).run(root);
}

namespace {

std::optional<int> deviceOf(const std::vector<FoundTensor>& tensors) {
    std::optional<int> device;
    for (const FoundTensor& tensor : tensors) {
        const std::string_view location = tensor.tensor.storage.location;
        if (location == "cpu") continue;
        const size_t colon = location.find(':');
        if (colon == location.npos) return std::nullopt;
        const auto number = parseNumber<int>(location.substr(colon + 1), 0, 65'535);
        if (!number || device.value_or(*number) != *number) return std::nullopt;
        device = number;
    }
    return device;
}

}  // namespace

WrittenBy writerOf(const ValueGraph& graph, const Found& found) {
    WrittenBy writer{std::nullopt, deviceOf(found.tensors)};
    for (const FoundObject& object : found.objects) {
        const ValueView value(graph, object.node);
        if (object.name == "args")
            writer.process = value["rank"].integer();
        else if (object.name == "rank" || object.name == "args.rank")
            writer.process = value.integer();
        if (writer.process) break;
    }
    return writer;
}

}  // namespace shardscope::torch_save
