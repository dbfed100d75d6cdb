#include "formats/torch_checkpointing/layout.h"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "encoding/pickle.h"
#include "formats/entry_tree.h"
#include "formats/file_layout.h"
#include "formats/paths.h"
#include "formats/rank_writer.h"
#include "formats/torch_checkpointing/metadata.h"

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

class ItemsLayout final : public FileLayout {
  public:
    ItemsLayout(const Catalog& target, const WriteOptions& options)
        : FileLayout(target),
          stop_(options.stop),
          device_(options.variant == "cpu" ? "cpu" : "cuda"),
          writer_(target, device_) {
        needsCrc = true;
    }

    Status plan() {
        SHARDSCOPE_TRY(writer_.plan());
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
            for (uint32_t rank = 0; rank < ranks(); ++rank) {
                SHARDSCOPE_TRY(stop_.poll());
                SHARDSCOPE_ASSIGN(const auto file, build(item, rank));
                RankWriter::place(*file, defaultFileName(name, rank), *this);
                owners_.emplace_back(&item, rank);
            }
        }
        if (files.empty()) return makeError(ErrorCode::impossible, "there is nothing to write");
        writer_.tie(*this);
        SHARDSCOPE_TRY(makeMetadata());
        if (!metadata_.empty()) files.push_back({kMetadataFile, metadata_.size(), true});
        return {};
    }

    Status fileLiterals(FileId id, std::span<const uint32_t> chunkCrcs,
                        const LiteralSink& sink) const override {
        if (files[id].metadata) return writeText(id, metadata_, sink);
        SHARDSCOPE_ASSIGN(const auto file, build(*owners_[id].first, owners_[id].second));
        return RankWriter::literals(*file, id, chunkCrcs, sink);
    }

  private:
    struct ItemTree {
        Tree tree;
        std::vector<TensorId> tensors;
    };

    uint32_t ranks() const { return writer_.mesh().ranks(); }

    static std::optional<Path> inside(const Path& path, const std::string& item) {
        if (itemOf(path) != item) return std::nullopt;
        return below(path);
    }

    // The framework saves into a stream, so archives are called "archive".
    Result<std::unique_ptr<RankWriter::File>> build(const ItemTree& item, uint32_t rank) const {
        auto file = writer_.start("archive", rank);
        std::vector<LeftOut> said;
        TreePickler pickler(target_, item.tree, file->archive.pickle(), said,
                            [&](TensorId t) { writer_.tensor(*file, t); });
        SHARDSCOPE_TRY(pickler.write());
        file->archive.finish();
        return file;
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

    Status makeMetadata() {
        Nodes nodes;
        Dims all, sizes;
        for (uint32_t rank = 0; rank < ranks(); ++rank)
            all.push_back(rank);
        std::vector<NodeId> names;
        for (const MeshAxis& axis : writer_.mesh().axes) {
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
        const NodeId mesh = meshOf(device_, sizes, nodes.graph.addContainer(ValueKind::tuple, names));
        // Plain tensors count as replicated over all ranks, on the device that they lay on.
        const NodeId plain = meshOf("cpu", {&world, 1}, nodes.graph.addNone());
        std::vector<NodeId> items;
        for (const auto& [name, item] : items_) {
            if (item.tensors.empty()) continue;
            std::vector<NodeId> leaves, layouts;
            for (const TensorId t : item.tensors) {
                const Path path = target_.path(t);
                leaves.push_back(nodes.text(leafText(below(path))));
                leaves.push_back(groupsOf(nodes, t, mesh, plain, ranksNode));
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
        SHARDSCOPE_ASSIGN(metadata_,
                          encodePickle(makeValue(std::move(nodes.graph), root), PickleWriter::For::framed));
        return {};
    }

    NodeId groupsOf(Nodes& nodes, TensorId t, NodeId mesh, NodeId plain, NodeId ranksNode) const {
        std::vector<NodeId> placements;
        for (const auto& placement : writer_.placements(t)) {
            placements.push_back(placement.kind == PlacedKind::shard
                                     ? nodes.dict({{"type", nodes.text("Shard")},
                                                   {"dim", nodes.graph.addInteger(placement.dim)}})
                                     : nodes.dict({{"type", nodes.text("Replicate")}}));
        }
        const bool distributed = !placements.empty();
        if (!distributed) placements.push_back(nodes.dict({{"type", nodes.text("Replicate")}}));
        const DimSpan shape = target_.shape(t);
        const NodeId data =
            nodes.dict({{"global_shape", nodes.integers(ValueKind::list, shape)},
                        {"dtype", nodes.text(fmt::format("torch.{}", dtypeName(target_.dtype(t))))},
                        {"stride", nodes.integers(ValueKind::list, rowMajorStrides(shape))},
                        {"mesh_spec", distributed ? mesh : plain},
                        {"placements", nodes.graph.addContainer(ValueKind::list, placements)}});
        const NodeId group =
            nodes.dict({{"sharding_metadata",
                         nodes.dict({{"type", nodes.text("DTensorShardingMetadata")}, {"data", data}})},
                        {"ranks", ranksNode}});
        return nodes.graph.addContainer(ValueKind::list, {group});
    }

    const StopToken stop_;
    const std::string device_;
    RankWriter writer_;
    std::map<std::string, ItemTree> items_;
    std::vector<std::pair<const ItemTree*, uint32_t>> owners_;  // of each file
    std::string metadata_;
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
