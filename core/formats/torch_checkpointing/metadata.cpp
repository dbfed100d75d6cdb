#include "formats/torch_checkpointing/metadata.h"

#include <algorithm>
#include <set>
#include <unordered_map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/checked.h"
#include "base/rule.h"
#include "base/text.h"
#include "encoding/pickle.h"
#include "encoding/torch_tensor.h"
#include "storage/file_system.h"

namespace shardscope::torch_checkpointing {

namespace {

using Kind = torch_save::DTensorSpec::Placement::Kind;

constexpr int64_t kMostRanks = 1'000'000;
constexpr size_t kMostAxes = 16;
constexpr size_t kMostGroups = 16'000'000;   // of all leaves, shared ones counted each time
constexpr size_t kMostLayouts = 16'000'000;  // of all items
constexpr size_t kMostParts = 64;            // of a leaf's path

Error malformed(std::string what) {
    return damaged(std::move(what)).byRule(rule::metaInconsistent);
}

// One pickle, turned into Metadata. What the pickle shares stays shared, so that it cannot unfold.
class Decoder {
  public:
    explicit Decoder(const ValueGraph& graph) : g_(graph) {}

    Result<Metadata> decode(NodeId root) {
        if (!g_.isMapping(root)) return malformed("the pickle is not a dict");
        const auto world = integerAt(root, "world_size");
        if (!world || *world < 1 || *world > kMostRanks)
            return malformed("'world_size' is not a number of ranks");
        out_.world = static_cast<uint32_t>(*world);
        const NodeId version = g_.find(root, "version");
        out_.version = version != kNoNode && g_.kind(version) == ValueKind::text ? g_.text(version) : "1.0";
        const NodeId metadata = g_.find(root, "metadata");
        if (metadata == kNoNode || !g_.isMapping(metadata)) return malformed("'metadata' is not a dict");
        if (out_.version != "1.0" && out_.version != "2.0")
            note(Severity::warning, fmt::format("version '{}' is not known; it is read as version 2.0",
                                                printable(out_.version, kNameInMessage)));
        if (out_.version == "1.0") {
            SHARDSCOPE_TRY(firstVersion(metadata, g_.find(root, "rank_to_layout_info_mappings")));
        } else {
            SHARDSCOPE_TRY(secondVersion(metadata));
        }
        return std::move(out_);
    }

  private:
    // ------------------------------------------------------------------ items

    Status secondVersion(NodeId metadata) {
        const auto items = g_.pairs(metadata);
        for (size_t i = 0; i + 1 < items.size(); i += 2) {
            if (g_.kind(items[i]) != ValueKind::text) return malformed("the name of an item is not a text");
            Item& item = itemOf(g_.text(items[i]));
            const NodeId leaves = find(items[i + 1], "nested_path_to_metadata");
            if (leaves == kNoNode || !g_.isMapping(leaves))
                return malformed(fmt::format("item '{}' has no 'nested_path_to_metadata'", shown(item.name)));
            const auto pairs = g_.pairs(leaves);
            for (size_t p = 0; p + 1 < pairs.size(); p += 2) {
                SHARDSCOPE_ASSIGN(Path path, pathOf(pairs[p]));
                SHARDSCOPE_TRY(addLeaf(item, std::move(path), pairs[p + 1]));
            }
            const NodeId layouts = find(items[i + 1], "rank_to_layout_info");
            if (layouts == kNoNode || !g_.isMapping(layouts)) {
                note(Severity::error,
                     fmt::format("item '{}' does not state the files of its ranks", shown(item.name)));
                continue;
            }
            const auto ranks = g_.pairs(layouts);
            std::set<uint32_t> stated;
            for (size_t r = 0; r + 1 < ranks.size(); r += 2) {
                SHARDSCOPE_ASSIGN(const uint32_t rank, rankOf(ranks[r]));
                SHARDSCOPE_TRY(addLayout(item, rank, ranks[r + 1]));
                stated.insert(rank);
            }
            if (stated.size() != out_.world || *stated.rbegin() != out_.world - 1)
                note(Severity::error,
                     fmt::format("item '{}' states the files of {} ranks, the save was by {}",
                                 shown(item.name), stated.size(), out_.world));
        }
        return {};
    }

    // The item's name is the first part of each path, and the files are listed by rank.
    Status firstVersion(NodeId metadata, NodeId layouts) {
        const auto leaves = g_.pairs(metadata);
        for (size_t p = 0; p + 1 < leaves.size(); p += 2) {
            SHARDSCOPE_ASSIGN(Path path, pathOf(leaves[p]));
            if (path.empty() || path[0].kind != PathPart::Kind::key)
                return malformed("a path does not begin with the name of an item");
            Item& item = itemOf(path[0].text);
            path.erase(path.begin());
            SHARDSCOPE_TRY(addLeaf(item, std::move(path), leaves[p + 1]));
        }
        if (layouts == kNoNode || !g_.isMapping(layouts)) return {};
        const auto ranks = g_.pairs(layouts);
        for (size_t r = 0; r + 1 < ranks.size(); r += 2) {
            SHARDSCOPE_ASSIGN(const uint32_t rank, rankOf(ranks[r]));
            if (!g_.isMapping(ranks[r + 1])) continue;
            const auto items = g_.pairs(ranks[r + 1]);
            for (size_t i = 0; i + 1 < items.size(); i += 2) {
                if (g_.kind(items[i]) != ValueKind::text) continue;
                if (const auto known = byName_.find(std::string(g_.text(items[i]))); known != byName_.end())
                    SHARDSCOPE_TRY(addLayout(out_.items[known->second], rank, items[i + 1]));
            }
        }
        return {};
    }

    Item& itemOf(std::string_view name) {
        const auto [it, fresh] = byName_.try_emplace(std::string(name), out_.items.size());
        if (fresh) out_.items.push_back({std::string(name), {}, {}});
        return out_.items[it->second];
    }

    Status addLayout(Item& item, uint32_t rank, NodeId node) {
        if (++layouts_ > kMostLayouts) return tooMany("files of ranks");
        if (g_.kind(node) == ValueKind::none) return {};
        Layout layout;
        const NodeId path = find(node, "file_path");
        if (path == kNoNode || g_.kind(path) != ValueKind::text)
            return malformed(
                fmt::format("the file of item '{}' on rank {} has no path", shown(item.name), rank));
        layout.path = g_.text(path);
        auto safe = checkRelativeName(layout.path);
        if (!safe.ok()) return std::move(safe).error().byRule(rule::securityPath);
        const NodeId type = find(find(node, "serialization_format"), "type");
        if (g_.isText(type, "SafetensorsSerialization")) {
            layout.kind = Layout::Kind::safetensors;
        } else if (g_.isText(type, "JsonSerialization")) {
            layout.kind = Layout::Kind::json;
        } else if (g_.isText(type, "RawSerialization")) {
            layout.kind = Layout::Kind::raw;
        } else if (!g_.isText(type, "TorchSerialization")) {
            return unsupported(fmt::format("the file '{}' of item '{}' is of a kind that is not known",
                                           shown(layout.path), shown(item.name)));
        }
        item.layouts.insert_or_assign(rank, std::move(layout));
        return {};
    }

    // ------------------------------------------------------------------ leaves

    // '["blocks",0,"w"]'
    Result<Path> pathOf(NodeId key) {
        const auto bad = [&] {
            return malformed(fmt::format("'{}' is not the path of a leaf", shown(textOf(key))));
        };
        if (g_.kind(key) != ValueKind::text) return bad();
        const auto json = nlohmann::json::parse(g_.text(key), nullptr, false);
        if (!json.is_array() || json.size() > kMostParts) return bad();
        Path path;
        for (const auto& part : json) {
            if (part.is_string()) {
                path.push_back(keyPart(part.get_ref<const std::string&>()));
            } else if (part.is_number_integer() &&
                       (!part.is_number_unsigned() ||
                        part.get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX))) {
                path.push_back(indexPart(part.get<int64_t>()));
            } else {
                return bad();
            }
        }
        return path;
    }

    Status addLeaf(Item& item, Path path, NodeId groups) {
        if (groups == kNoNode || (g_.kind(groups) != ValueKind::list && g_.kind(groups) != ValueKind::tuple))
            return malformed(
                fmt::format("'{}.{}' has no list of places", shown(item.name), shown(pathName(path))));
        groups_ += g_.items(groups).size();
        if (groups_ > kMostGroups) return tooMany("places");
        auto& shared = groupLists_[groups];
        if (!shared) {
            auto list = std::make_shared<std::vector<Group>>();
            for (NodeId node : g_.items(groups)) {
                SHARDSCOPE_ASSIGN(Group group, groupOf(node));
                if (!group.problem.empty())
                    note(Severity::error, group.problem,
                         item.name + (path.empty() ? "" : ".") + pathName(path));
                list->push_back(std::move(group));
            }
            shared = std::move(list);
        }
        item.leaves.push_back({std::move(path), shared});
        return {};
    }

    Result<Group> groupOf(NodeId node) {
        Group group;
        SHARDSCOPE_ASSIGN(group.ranks, ranksOf(find(node, "ranks")));
        if (!group.ranks->empty() && group.ranks->back() >= out_.world)
            note(Severity::error,
                 fmt::format("it names rank {}, the save was by {} ranks", group.ranks->back(), out_.world));
        const NodeId sharding = find(node, "sharding_metadata");
        const NodeId type = find(sharding, "type"), data = find(sharding, "data");
        const auto placed =
            g_.isText(type, "DTensorShardingMetadata") ? placeDTensor(data, group)
            : g_.isText(type, "default_tensor_v1")
                ? placeBoxes(data, group)
                : Status(malformed(fmt::format("metadata of type '{}' is not known", shown(textOf(type)))));
        if (!placed.ok()) group.problem = placed.error().message;
        return group;
    }

    Status typeOf(NodeId data, Group& group) {
        const NodeId dtype = find(data, "dtype"), shape = find(data, "global_shape");
        std::string_view name = textOf(dtype);
        if (name.starts_with("torch.")) name.remove_prefix(6);
        const auto known = dtypeFromTorchGlobal("torch", name);
        if (!known) return malformed(fmt::format("its dtype '{}' is not known", shown(name)));
        SHARDSCOPE_ASSIGN(group.shape, dimsOf(shape, "its shape"));
        int64_t elements = 0;
        if (!checkedProduct(group.shape, elements) ||
            std::ranges::any_of(group.shape, [](int64_t size) { return size < 0 || size > kMaxDim; }))
            return malformed("its shape is out of range");
        group.dtype = *known;
        return {};
    }

    Status placeDTensor(NodeId data, Group& group) {
        SHARDSCOPE_TRY(typeOf(data, group));
        const NodeId mesh = find(data, "mesh_spec");
        torch_save::DTensorSpec spec;
        SHARDSCOPE_ASSIGN(spec.mesh, dimsOf(find(mesh, "mesh_shape"), "the shape of its mesh"));
        int64_t size = 0;
        if (spec.mesh.empty() || spec.mesh.size() > kMostAxes || !checkedProduct(spec.mesh, size) ||
            size < 1 || size > kMostRanks)
            return malformed("its mesh is out of range");
        SHARDSCOPE_ASSIGN(group.mesh, meshRanksOf(find(mesh, "mesh_data")));
        if (static_cast<int64_t>(group.mesh->places.size()) != size)
            return malformed(fmt::format("its mesh of shape {} lists {} ranks", formatDims(spec.mesh),
                                         group.mesh->places.size()));
        spec.ascending = group.mesh->ascending;
        spec.world = int64_t{group.mesh->places.back().first} + 1;
        for (NodeId name : itemsOf(find(mesh, "mesh_dim_names"))) {
            if (g_.kind(name) == ValueKind::text) spec.axes.emplace_back(g_.text(name));
        }
        if (spec.axes.size() != spec.mesh.size()) spec.axes.clear();
        for (NodeId node : itemsOf(find(data, "placements"))) {
            const NodeId type = find(node, "type");
            const auto dim = integerAt(node, "dim");
            const auto groups = integerAt(node, "split_factor");
            if (g_.isText(type, "Replicate")) {
                spec.placements.push_back({Kind::replicate, 0});
            } else if (g_.isText(type, "Shard") && dim) {
                spec.placements.push_back({Kind::shard, *dim});
            } else if (g_.isText(type, "StridedShard") && dim && groups) {
                spec.placements.push_back({Kind::stridedShard, *dim, *groups});
            } else {
                return malformed(fmt::format("its placement '{}' is not known", shown(textOf(type))));
            }
        }
        if (spec.placements.size() != spec.mesh.size())
            return malformed(fmt::format("it has {} placements on a mesh of {} axes", spec.placements.size(),
                                         spec.mesh.size()));
        for (const auto& placement : spec.placements) {
            const auto rank = static_cast<int64_t>(group.shape.size());
            if (placement.kind != Kind::replicate && (placement.dim < -rank || placement.dim >= rank))
                return malformed(fmt::format("it is sharded along dimension {} of {}", placement.dim, rank));
        }
        group.spec = std::move(spec);
        return {};
    }

    Status placeBoxes(NodeId data, Group& group) {
        SHARDSCOPE_TRY(typeOf(data, group));
        const auto global = itemsOf(find(data, "global_offsets")),
                   local = itemsOf(find(data, "local_offsets")), sizes = itemsOf(find(data, "local_sizes"));
        if (global.size() != local.size() || global.size() != sizes.size())
            return malformed("its offsets and sizes differ in number");
        for (size_t b = 0; b < sizes.size(); ++b) {
            torch_save::LocalBox box;
            SHARDSCOPE_ASSIGN(box.globalOffsets, dimsOf(global[b], "the place of a box"));
            SHARDSCOPE_ASSIGN(box.localOffsets, dimsOf(local[b], "the place of a box"));
            SHARDSCOPE_ASSIGN(box.lengths, dimsOf(sizes[b], "the size of a box"));
            if (box.localOffsets.size() != group.shape.size() ||
                !boxInside(box.globalOffsets, box.lengths, group.shape))
                return malformed(fmt::format("its box {} is outside of its shape {}",
                                             formatBox(box.globalOffsets, box.lengths),
                                             formatDims(group.shape)));
            group.boxes.push_back(std::move(box));
        }
        return {};
    }

    // ------------------------------------------------------------------ values

    NodeId find(NodeId mapping, std::string_view key) const {
        return mapping == kNoNode || !g_.isMapping(mapping) ? kNoNode : g_.find(mapping, key);
    }
    std::string_view textOf(NodeId node) const {
        return node != kNoNode && g_.kind(node) == ValueKind::text ? g_.text(node) : std::string_view();
    }
    std::optional<int64_t> integerAt(NodeId mapping, std::string_view key) const {
        const NodeId node = find(mapping, key);
        if (node == kNoNode || g_.kind(node) != ValueKind::integer) return std::nullopt;
        return g_.integer(node);
    }
    std::span<const NodeId> itemsOf(NodeId node) const {
        if (node == kNoNode || (g_.kind(node) != ValueKind::list && g_.kind(node) != ValueKind::tuple))
            return {};
        return g_.items(node);
    }
    Result<Dims> dimsOf(NodeId node, std::string_view what) const {
        if (node == kNoNode) return malformed(fmt::format("{} is missing", what));
        return asDims(g_, node, what);
    }
    // Keys are integers; the framework takes texts, too.
    Result<uint32_t> rankOf(NodeId node) const {
        int64_t rank = -1;
        if (g_.kind(node) == ValueKind::integer) rank = g_.integer(node);
        if (const std::string_view text = textOf(node);
            !text.empty() && text.size() <= 7 && text.find_first_not_of("0123456789") == text.npos)
            rank = std::stoll(std::string(text));
        if (rank < 0 || rank >= kMostRanks) return malformed("a rank is not a number from 0 on");
        return static_cast<uint32_t>(rank);
    }
    Result<std::shared_ptr<const RankList>> ranksOf(NodeId node) {
        if (node == kNoNode) return malformed("a leaf does not say which ranks hold it");
        auto& shared = rankLists_[node];
        if (!shared) {
            auto list = std::make_shared<RankList>();
            for (NodeId item : itemsOf(node)) {
                SHARDSCOPE_ASSIGN(const uint32_t rank, rankOf(item));
                list->push_back(rank);
            }
            std::ranges::sort(*list);
            shared = std::move(list);
        }
        return shared;
    }
    Result<std::shared_ptr<const MeshRanks>> meshRanksOf(NodeId node) {
        if (node == kNoNode) return malformed("its mesh lists no ranks");
        auto& shared = meshes_[node];
        if (!shared) {
            auto mesh = std::make_shared<MeshRanks>();
            for (NodeId item : itemsOf(node)) {
                SHARDSCOPE_ASSIGN(const uint32_t rank, rankOf(item));
                mesh->places.emplace_back(rank, static_cast<uint32_t>(mesh->places.size()));
            }
            mesh->ascending = std::ranges::is_sorted(mesh->places);
            std::ranges::sort(mesh->places);
            const auto twice =
                std::ranges::adjacent_find(mesh->places, {}, &std::pair<uint32_t, uint32_t>::first);
            if (twice != mesh->places.end())
                return malformed(fmt::format("its mesh lists rank {} twice", twice->first));
            shared = std::move(mesh);
        }
        return shared;
    }

    static std::string shown(std::string_view text) { return printable(text, kNameInMessage); }
    static Error tooMany(std::string_view what) {
        return makeError(ErrorCode::limit, fmt::format("it lists more {} than are read", what));
    }
    void note(Severity severity, std::string message, std::string tensor = {}) {
        if (out_.notes.size() < 1000)
            out_.notes.push_back(
                {rule::metaInconsistent, severity, std::move(message), kMetadataFile, std::move(tensor), {}});
    }

    const ValueGraph& g_;
    Metadata out_;
    size_t groups_ = 0, layouts_ = 0;
    std::unordered_map<std::string, size_t> byName_;
    std::unordered_map<NodeId, std::shared_ptr<const std::vector<Group>>> groupLists_;
    std::unordered_map<NodeId, std::shared_ptr<const RankList>> rankLists_;
    std::unordered_map<NodeId, std::shared_ptr<const MeshRanks>> meshes_;
};

}  // namespace

bool Group::holds(uint32_t rank) const {
    return std::ranges::binary_search(*ranks, rank);
}

bool Group::replicated() const {
    return spec && std::ranges::all_of(spec->placements, [](const auto& placement) {
               return placement.kind == Kind::replicate;
           });
}

Result<torch_save::LocalParts> Group::partsOf(uint32_t rank) const {
    if (!spec) return torch_save::LocalParts{{}, boxes};
    const auto place =
        std::ranges::lower_bound(mesh->places, rank, {}, &std::pair<uint32_t, uint32_t>::first);
    if (place == mesh->places.end() || place->first != rank) return torch_save::LocalParts();
    torch_save::DTensorSpec here = *spec;
    here.coordinate.emplace(here.mesh.size(), 0);
    int64_t left = place->second;
    for (size_t axis = here.mesh.size(); axis-- > 0;) {
        (*here.coordinate)[axis] = left % here.mesh[axis];
        left /= here.mesh[axis];
    }
    return torch_save::localParts(here, shape);
}

std::string defaultFileName(std::string_view item, uint32_t rank) {
    return fmt::format("{}_{}.pt", item, rank);
}

bool isMetadataStart(std::string_view head) {
    // The keys stand in this order, and dicts of any number of items begin the same way.
    return head.size() > 2 && head[0] == '\x80' && head.substr(0, 48).find("metadata") != head.npos;
}

Result<Metadata> decodeMetadata(std::string_view bytes, const Limits& limits) {
    PickleLimits pickleLimits;
    pickleLimits.textBytes = limits.pickleText;
    pickleLimits.memory = limits.valueMemory;
    SHARDSCOPE_ASSIGN(const Pickle pickle, decodePickle(std::as_bytes(std::span(bytes)), pickleLimits));
    if (!pickle.globals.empty())
        return makeError(
                   ErrorCode::unsafe,
                   fmt::format("the pickle names the Python object '{}'; that of a checkpoint is plain data",
                               printable(pickle.globals[0], kNameInMessage)))
            .byRule(rule::securityGlobal)
            .withHint("do not load this checkpoint in Python");
    return Decoder(pickle.graph).decode(pickle.root);
}

}  // namespace shardscope::torch_checkpointing
