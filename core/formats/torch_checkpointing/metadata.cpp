#include "formats/torch_checkpointing/metadata.h"

#include <algorithm>
#include <set>
#include <unordered_map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/checked.h"
#include "base/numbers.h"
#include "base/rule.h"
#include "base/text.h"
#include "base/units.h"
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
    Result<Metadata> decode(ValueView root) {
        if (!root.isMapping()) return malformed("the pickle is not a dict");
        const auto world = root["world_size"].integer();
        if (!world || *world < 1 || *world > kMostRanks)
            return malformed("'world_size' is not a number of ranks");
        out_.world = static_cast<uint32_t>(*world);
        out_.version = root["version"].textOr("1.0");
        const ValueView metadata = root["metadata"];
        if (!metadata.isMapping()) return malformed("'metadata' is not a dict");
        if (out_.version != "1.0" && out_.version != "2.0")
            note(Severity::warning, fmt::format("version '{}' is not known; it is read as version 2.0",
                                                printable(out_.version, kNameInMessage)));
        if (out_.version == "1.0") {
            SHARDSCOPE_TRY(firstVersion(metadata, root["rank_to_layout_info_mappings"]));
        } else {
            SHARDSCOPE_TRY(secondVersion(metadata));
        }
        return std::move(out_);
    }

  private:
    // ------------------------------------------------------------------ items

    Status secondVersion(ValueView metadata) {
        for (const auto& [name, about] : metadata.pairs()) {
            if (!name.text()) return malformed("the name of an item is not a text");
            Item& item = itemOf(*name.text());
            const ValueView leaves = about["nested_path_to_metadata"];
            if (!leaves.isMapping())
                return malformed(fmt::format("item '{}' has no 'nested_path_to_metadata'", shown(item.name)));
            for (const auto& [leaf, places] : leaves.pairs()) {
                SHARDSCOPE_ASSIGN(Path path, pathOf(leaf));
                SHARDSCOPE_TRY(addLeaf(item, std::move(path), places));
            }
            const ValueView layouts = about["rank_to_layout_info"];
            if (!layouts.isMapping()) {
                note(Severity::error,
                     fmt::format("item '{}' does not state the files of its ranks", shown(item.name)));
                continue;
            }
            std::set<uint32_t> stated;
            for (const auto& [number, layout] : layouts.pairs()) {
                SHARDSCOPE_ASSIGN(const uint32_t rank, rankOf(number));
                SHARDSCOPE_TRY(addLayout(item, rank, layout));
                stated.insert(rank);
            }
            if (stated.size() != out_.world || *stated.rbegin() != out_.world - 1)
                note(Severity::error,
                     fmt::format("item '{}' states the files of {}, the save was by {}", shown(item.name),
                                 counted(stated.size(), "rank"), out_.world));
        }
        return {};
    }

    // The item's name is the first part of each path, and the files are listed by rank.
    Status firstVersion(ValueView metadata, ValueView layouts) {
        for (const auto& [leaf, places] : metadata.pairs()) {
            SHARDSCOPE_ASSIGN(Path path, pathOf(leaf));
            if (path.empty() || path[0].kind != PathPart::Kind::key)
                return malformed("a path does not begin with the name of an item");
            Item& item = itemOf(path[0].text);
            path.erase(path.begin());
            SHARDSCOPE_TRY(addLeaf(item, std::move(path), places));
        }
        for (const auto& [number, items] : layouts.pairs()) {
            SHARDSCOPE_ASSIGN(const uint32_t rank, rankOf(number));
            for (const auto& [name, layout] : items.pairs()) {
                if (const auto known = byName_.find(name.textOr({})); known != byName_.end())
                    SHARDSCOPE_TRY(addLayout(out_.items[known->second], rank, layout));
            }
        }
        return {};
    }

    Item& itemOf(std::string_view name) {
        const auto [it, fresh] = byName_.try_emplace(std::string(name), out_.items.size());
        if (fresh) out_.items.push_back({std::string(name), {}, {}});
        return out_.items[it->second];
    }

    Status addLayout(Item& item, uint32_t rank, ValueView about) {
        if (++layouts_ > kMostLayouts) return tooMany("files of ranks");
        if (about.is(ValueKind::none)) return {};
        Layout layout;
        const ValueView path = about["file_path"];
        if (!path.text())
            return malformed(
                fmt::format("the file of item '{}' on rank {} has no path", shown(item.name), rank));
        layout.path = *path.text();
        auto safe = checkRelativeName(layout.path);
        if (!safe.ok()) return std::move(safe).error().byRule(rule::securityPath);
        const ValueView type = about["serialization_format"]["type"];
        if (type.isText("SafetensorsSerialization")) {
            layout.kind = Layout::Kind::safetensors;
        } else if (type.isText("JsonSerialization")) {
            layout.kind = Layout::Kind::json;
        } else if (type.isText("RawSerialization")) {
            layout.kind = Layout::Kind::raw;
        } else if (!type.isText("TorchSerialization")) {
            return unsupported(fmt::format("the file '{}' of item '{}' is of a kind that is not known",
                                           shown(layout.path), shown(item.name)));
        }
        item.layouts.insert_or_assign(rank, std::move(layout));
        return {};
    }

    // ------------------------------------------------------------------ leaves

    // '["blocks",0,"w"]'
    Result<Path> pathOf(ValueView key) {
        const std::string text = key.textOr({});
        const auto bad = [&] {
            return malformed(fmt::format("'{}' is not the path of a leaf", shown(text)));
        };
        const auto json = nlohmann::json::parse(text, nullptr, false);
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

    Status addLeaf(Item& item, Path path, ValueView places) {
        if (!places.isList())
            return malformed(
                fmt::format("'{}.{}' has no list of places", shown(item.name), shown(pathName(path))));
        const std::vector<ValueView> groups = places.items();
        groups_ += groups.size();
        if (groups_ > kMostGroups) return tooMany("places");
        auto& shared = groupLists_[places.node()];
        if (!shared) {
            auto list = std::make_shared<std::vector<Group>>();
            for (const ValueView one : groups) {
                SHARDSCOPE_ASSIGN(Group group, groupOf(one));
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

    Result<Group> groupOf(ValueView about) {
        Group group;
        SHARDSCOPE_ASSIGN(group.ranks, ranksOf(about["ranks"]));
        if (!group.ranks->empty() && group.ranks->back() >= out_.world)
            note(Severity::error, fmt::format("it names rank {}, the save was by {}", group.ranks->back(),
                                              counted(out_.world, "rank")));
        const ValueView sharding = about["sharding_metadata"];
        const ValueView type = sharding["type"], data = sharding["data"];
        const auto placed = type.isText("DTensorShardingMetadata") ? placeDTensor(data, group)
                            : type.isText("default_tensor_v1")
                                ? placeBoxes(data, group)
                                : Status(malformed(fmt::format("metadata of type '{}' is not known",
                                                               shown(type.textOr({})))));
        if (!placed.ok()) group.problem = placed.error().message;
        return group;
    }

    Status typeOf(ValueView data, Group& group) {
        std::string_view name = data["dtype"].text().value_or("");
        if (name.starts_with("torch.")) name.remove_prefix(6);
        const auto known = dtypeFromTorchGlobal("torch", name);
        if (!known) return malformed(fmt::format("its dtype '{}' is not known", shown(name)));
        SHARDSCOPE_ASSIGN(group.shape, asDims(data["global_shape"], "its shape"));
        int64_t elements = 0;
        if (!checkedProduct(group.shape, elements) ||
            std::ranges::any_of(group.shape, [](int64_t size) { return size < 0 || size > kMaxDim; }))
            return malformed("its shape is out of range");
        group.dtype = *known;
        return {};
    }

    Status placeDTensor(ValueView data, Group& group) {
        SHARDSCOPE_TRY(typeOf(data, group));
        const ValueView mesh = data["mesh_spec"];
        torch_save::DTensorSpec spec;
        SHARDSCOPE_ASSIGN(spec.mesh, asDims(mesh["mesh_shape"], "the shape of its mesh"));
        int64_t size = 0;
        if (spec.mesh.empty() || spec.mesh.size() > kMostAxes || !checkedProduct(spec.mesh, size) ||
            size < 1 || size > kMostRanks)
            return malformed("its mesh is out of range");
        SHARDSCOPE_ASSIGN(group.mesh, meshRanksOf(mesh["mesh_data"]));
        if (static_cast<int64_t>(group.mesh->places.size()) != size)
            return malformed(fmt::format("its mesh of shape {} lists {}", formatDims(spec.mesh),
                                         counted(group.mesh->places.size(), "rank")));
        spec.ascending = group.mesh->ascending;
        spec.world = int64_t{group.mesh->places.back().first} + 1;
        for (const ValueView name : mesh["mesh_dim_names"].items()) {
            if (name.text()) spec.axes.emplace_back(*name.text());
        }
        if (spec.axes.size() != spec.mesh.size()) spec.axes.clear();
        for (const ValueView one : data["placements"].items()) {
            const ValueView type = one["type"];
            const auto dim = one["dim"].integer(), groups = one["split_factor"].integer();
            if (type.isText("Replicate")) {
                spec.placements.push_back({Kind::replicate, 0});
            } else if (type.isText("Shard") && dim) {
                spec.placements.push_back({Kind::shard, *dim});
            } else if (type.isText("StridedShard") && dim && groups) {
                spec.placements.push_back({Kind::stridedShard, *dim, *groups});
            } else {
                return malformed(fmt::format("its placement '{}' is not known", shown(type.textOr({}))));
            }
        }
        if (spec.placements.size() != spec.mesh.size())
            return malformed(fmt::format("it has {} on a mesh of {}",
                                         counted(spec.placements.size(), "placement"),
                                         counted(spec.mesh.size(), "axis")));
        for (const auto& placement : spec.placements) {
            const auto rank = static_cast<int64_t>(group.shape.size());
            if (placement.kind != Kind::replicate && (placement.dim < -rank || placement.dim >= rank))
                return malformed(fmt::format("it is sharded along dimension {} of {}", placement.dim, rank));
        }
        group.spec = std::move(spec);
        return {};
    }

    Status placeBoxes(ValueView data, Group& group) {
        SHARDSCOPE_TRY(typeOf(data, group));
        const auto global = data["global_offsets"].items(), local = data["local_offsets"].items(),
                   sizes = data["local_sizes"].items();
        if (global.size() != local.size() || global.size() != sizes.size())
            return malformed("its offsets and sizes differ in number");
        for (size_t b = 0; b < sizes.size(); ++b) {
            torch_save::LocalBox box;
            SHARDSCOPE_ASSIGN(box.globalOffsets, asDims(global[b], "the place of a box"));
            SHARDSCOPE_ASSIGN(box.localOffsets, asDims(local[b], "the place of a box"));
            SHARDSCOPE_ASSIGN(box.lengths, asDims(sizes[b], "the size of a box"));
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

    // Keys are integers; the framework takes texts, too.
    Result<uint32_t> rankOf(ValueView number) const {
        int64_t rank = number.integer().value_or(-1);
        if (const auto text = number.text(); text && text->size() <= 7)
            rank = parseNumber<int64_t>(*text, 0).value_or(-1);
        if (rank < 0 || rank >= kMostRanks) return malformed("a rank is not a number from 0 on");
        return static_cast<uint32_t>(rank);
    }
    Result<std::shared_ptr<const RankList>> ranksOf(ValueView ranks) {
        if (!ranks) return malformed("a leaf does not say which ranks hold it");
        auto& shared = rankLists_[ranks.node()];
        if (!shared) {
            auto list = std::make_shared<RankList>();
            for (const ValueView item : ranks.items()) {
                SHARDSCOPE_ASSIGN(const uint32_t rank, rankOf(item));
                list->push_back(rank);
            }
            std::ranges::sort(*list);
            shared = std::move(list);
        }
        return shared;
    }
    Result<std::shared_ptr<const MeshRanks>> meshRanksOf(ValueView ranks) {
        if (!ranks) return malformed("its mesh lists no ranks");
        auto& shared = meshes_[ranks.node()];
        if (!shared) {
            auto mesh = std::make_shared<MeshRanks>();
            for (const ValueView item : ranks.items()) {
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
    const PickleLimits pickleLimits{.textBytes = limits.pickleText, .memory = limits.valueMemory};
    SHARDSCOPE_ASSIGN(const Pickle pickle, decodePickle(std::as_bytes(std::span(bytes)), pickleLimits));
    if (!pickle.globals.empty())
        return makeError(
                   ErrorCode::unsafe,
                   fmt::format("the pickle names the Python object '{}'; that of a checkpoint is plain data",
                               printable(pickle.globals[0], kNameInMessage)))
            .byRule(rule::securityGlobal)
            .withHint("do not load this checkpoint in Python");
    return Decoder().decode({pickle.graph, pickle.root});
}

}  // namespace shardscope::torch_checkpointing
