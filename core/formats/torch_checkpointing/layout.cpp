#include "formats/torch_checkpointing/layout.h"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "encoding/pickle.h"
#include "formats/entry_tree.h"
#include "formats/rank_writer.h"
#include "formats/torch_checkpointing/metadata.h"
#include "model/paths.h"

namespace shardscope::torch_checkpointing {

namespace {

using PlacedKind = torch_save::DTensorSpec::Placement::Kind;

constexpr const char* kNoItem = "its first key cannot be the name of an item";

// torch_checkpointing/types.py: item keys are parts of file names.
bool isItemName(std::string_view name) {
    return !name.empty() && name.size() <= 200 && std::ranges::all_of(name, [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
               c == '-';
    });
}

std::string itemOf(const Path& path) {
    return path.empty() ? std::string() : path[0].toString();
}

// '["blocks",0,"w"]'
std::string leafText(const Path& path) {
    auto json = nlohmann::json::array();
    for (const PathPart& part : path) {
        switch (part.kind) {
            case PathPart::Kind::index:
            case PathPart::Kind::tupleIndex:
            case PathPart::Kind::integerKey:
                json.push_back(part.index);
                break;
            default:
                json.push_back(part.text);
        }
    }
    return json.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

class ItemsLayout final : public RankFileLayout {
  public:
    ItemsLayout(const Catalog& target, const WriteOptions& options)
        : RankFileLayout(target, options, deviceOf(options)), device_(deviceOf(options)) {}

    Status plan() {
        SHARDSCOPE_TRY(findPlacements());
        for (TensorId t = 0; t < target_.tensorCount(); ++t)
            items_[itemOf(target_.path(t))].tensors.push_back(t);
        for (const ObjectInfo& object : target_.objects())
            items_.try_emplace(itemOf(object.path));
        for (auto& [name, item] : items_) {
            if (!isItemName(name))
                return makeError(ErrorCode::impossible,
                                 fmt::format("'{}' cannot be the name of an item", name));
            item.tree =
                buildTree(target_, [&, &name = name](const Path& path) { return inside(path, name); });
            SHARDSCOPE_TRY(item.tree.check());
            // The framework saves into a stream, so archives are called "archive".
            for (uint32_t rank = 0; rank < ranks(); ++rank)
                SHARDSCOPE_TRY(addFile(defaultFileName(name, rank), "archive", rank,
                                       [this, &item = item](File& file) { return write(file, item); }));
        }
        if (files.empty()) return makeError(ErrorCode::impossible, "there is nothing to write");
        tie();
        return addMetadata();
    }

  private:
    struct ItemTree {
        Tree tree;
        std::vector<TensorId> tensors;
    };

    static const char* deviceOf(const WriteOptions& options) {
        return options.variant == "cpu" ? "cpu" : "cuda";
    }

    static std::optional<Path> inside(const Path& path, const std::string& item) {
        if (itemOf(path) != item) return std::nullopt;
        return below(path);
    }

    Status write(File& file, const ItemTree& item) const {
        std::vector<LeftOut> said;
        TreePickler pickler(target_, item.tree, file.archive.pickle(), said,
                            [&](TensorId t) { tensor(file, t); });
        return pickler.write();
    }

    // ------------------------------------------------------------------ metadata.pkl

    // What leaves have in common is one node, as in the framework's pickles.
    class Nodes {
      public:
        NodeId text(std::string_view value) {
            const auto [it, fresh] = texts_.try_emplace(std::string(value), kNoNode);
            if (fresh) it->second = graph.addText(ValueKind::text, value);
            return it->second;
        }
        NodeId integers(ValueKind kind, DimSpan values) {
            std::vector<NodeId> items;
            for (const int64_t value : values)
                items.push_back(graph.addInteger(value));
            return graph.addContainer(kind, items);
        }
        NodeId dict(std::initializer_list<std::pair<std::string_view, NodeId>> pairs) {
            std::vector<NodeId> items;
            for (const auto& [key, value] : pairs) {
                items.push_back(text(key));
                items.push_back(value);
            }
            return graph.addContainer(ValueKind::dict, items);
        }
        ValueGraph graph;

      private:
        std::map<std::string, NodeId> texts_;
    };

    Status addMetadata() {
        Nodes nodes;
        Dims all, sizes;
        for (uint32_t rank = 0; rank < ranks(); ++rank)
            all.push_back(rank);
        std::vector<NodeId> names;
        for (const MeshAxis& axis : mesh().axes) {
            sizes.push_back(axis.size);
            names.push_back(nodes.text(axis.name));
        }
        const auto world = static_cast<int64_t>(ranks());
        const NodeId ranksNode = nodes.integers(ValueKind::tuple, all);
        const auto meshOf = [&](std::string_view device, DimSpan shape, NodeId axes) {
            return nodes.dict({{"device_type", nodes.text(device)},
                               {"mesh_shape", nodes.integers(ValueKind::tuple, shape)},
                               {"mesh_data", ranksNode},
                               {"mesh_dim_names", axes}});
        };
        const NodeId own = meshOf(device_, sizes, nodes.graph.addContainer(ValueKind::tuple, names));
        // Plain tensors count as replicated over all ranks, on the device that they lay on.
        const NodeId plain = meshOf("cpu", {&world, 1}, nodes.graph.addNone());
        std::vector<NodeId> items;
        for (const auto& [name, item] : items_) {
            if (item.tensors.empty()) continue;
            std::vector<NodeId> leaves, layouts;
            for (const TensorId t : item.tensors) {
                const Path path = target_.path(t);
                leaves.push_back(nodes.text(leafText(below(path))));
                leaves.push_back(groupsOf(nodes, t, own, plain, ranksNode));
            }
            for (const int64_t rank : all) {
                layouts.push_back(nodes.graph.addInteger(rank));
                layouts.push_back(nodes.graph.addNone());
            }
            items.push_back(nodes.text(name));
            items.push_back(
                nodes.dict({{"nested_path_to_metadata", nodes.graph.addContainer(ValueKind::dict, leaves)},
                            {"rank_to_layout_info", nodes.graph.addContainer(ValueKind::dict, layouts)}}));
        }
        if (items.empty()) return {};
        const NodeId root = nodes.dict({{"metadata", nodes.graph.addContainer(ValueKind::dict, items)},
                                        {"world_size", nodes.graph.addInteger(world)},
                                        {"version", nodes.text("2.0")}});
        SHARDSCOPE_ASSIGN(std::string metadata,
                          encodePickle(makeValue(std::move(nodes.graph), root), PickleWriter::For::framed));
        addText(kMetadataFile, std::move(metadata));
        return {};
    }

    NodeId groupsOf(Nodes& nodes, TensorId t, NodeId own, NodeId plain, NodeId ranksNode) const {
        std::vector<NodeId> placed;
        for (const auto& placement : placements(t)) {
            placed.push_back(placement.kind == PlacedKind::shard
                                 ? nodes.dict({{"type", nodes.text("Shard")},
                                               {"dim", nodes.graph.addInteger(placement.dim)}})
                                 : nodes.dict({{"type", nodes.text("Replicate")}}));
        }
        const bool distributed = !placed.empty();
        if (!distributed) placed.push_back(nodes.dict({{"type", nodes.text("Replicate")}}));
        const DimSpan shape = target_.shape(t);
        const NodeId data =
            nodes.dict({{"global_shape", nodes.integers(ValueKind::list, shape)},
                        {"dtype", nodes.text(fmt::format("torch.{}", dtypeName(target_.dtype(t))))},
                        {"stride", nodes.integers(ValueKind::list, rowMajorStrides(shape))},
                        {"mesh_spec", distributed ? own : plain},
                        {"placements", nodes.graph.addContainer(ValueKind::list, placed)}});
        const NodeId group =
            nodes.dict({{"sharding_metadata",
                         nodes.dict({{"type", nodes.text("DTensorShardingMetadata")}, {"data", data}})},
                        {"ranks", ranksNode}});
        return nodes.graph.addContainer(ValueKind::list, {group});
    }

    const std::string device_;
    std::map<std::string, ItemTree> items_;
};

}  // namespace

Format::NewPath pathsFor(const Catalog& source, const Format::ReadValue&, const WriteOptions&) {
    if (source.format() == "torch-checkpointing") return {};
    std::set<std::string> own;
    for (const ObjectInfo& object : source.objects()) {
        if (object.path.size() == 1 && isItemName(itemOf(object.path))) own.insert(encodePath(object.path));
    }
    return [own = std::move(own)](const Path& path, bool optimizer) -> std::optional<Path> {
        if (path.empty()) return std::nullopt;
        const std::string first = itemOf(path);
        if (path.size() > 1 && (first == "model" || first == "optimizer")) return std::nullopt;
        if (path.size() > 1 && first == "optim") return joined({"optimizer"}, path, 1);
        const bool state = optimizer && (first == "state" || first == "param_groups");
        if (!state && own.contains(encodePath(path))) return std::nullopt;
        return joined({state ? "optimizer" : "model"}, path);
    };
}

std::vector<LeftOut> cannotHold(const Catalog& target, const WriteOptions&) {
    std::vector<LeftOut> out = leftOutOf(
        target,
        [&](TensorId t) {
            return isItemName(itemOf(target.path(t))) ? whyNotPickled(target.dtype(t)) : kNoItem;
        },
        [](const ObjectInfo& object) {
            return isItemName(itemOf(object.path)) ? whyNotPickled(object.value) : kNoItem;
        });
    buildTree(target).leaveOutCollisions(out);
    return out;
}

Result<std::unique_ptr<TargetLayout>> layOut(const Catalog& target, const WriteOptions& options) {
    return planned<ItemsLayout>(target, options);
}

}  // namespace shardscope::torch_checkpointing
