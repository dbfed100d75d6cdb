#include "formats/torch_ranks/opener.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <unordered_map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/rule.h"
#include "formats/roles.h"
#include "formats/tensor_assembly.h"
#include "formats/torch_ranks/file_sets.h"

namespace shardscope::torch_ranks {

namespace {

using torch_save::DTensorSpec;
using torch_save::TensorPlacement;

constexpr uint32_t kMostWorld = 1'000'000;
constexpr uint32_t kMostMissing = 1000;  // files that are listed one by one
constexpr size_t kReprBytes = size_t{1} << 20;

Path prefixed(std::string_view prefix, const Path& path, std::optional<uint32_t> rank = std::nullopt) {
    Path out;
    if (!prefix.empty()) out.push_back(keyPart(prefix.substr(0, prefix.size() - 1)));
    if (rank) out.push_back(keyPart(fmt::format("rank_{}", *rank)));
    out.insert(out.end(), path.begin(), path.end());
    return out;
}

// {"FSDP_version": 2, "world_size": 8}, which verl writes beside the files.
std::optional<uint32_t> worldOfConfig(std::string_view text) {
    const auto json = nlohmann::json::parse(text, nullptr, false);
    if (!json.is_object() || !json.contains("world_size")) return std::nullopt;
    const auto& world = json["world_size"];
    if (!world.is_number_unsigned() || world.get<uint64_t>() > kMostWorld) return std::nullopt;
    return world.get<uint32_t>();
}

class RankFilesOpener {
  public:
    RankFilesOpener(const Source& source, const OpenOptions& options)
        : options_(options),
          source_(source),
          sets_(findFileSets(source.entries)),
          assembly_(source, options, "torch-ranks", "", "torch.save on each rank") {}

    Result<std::unique_ptr<Reader>> open() {
        SHARDSCOPE_TRY(chooseWorld());
        if (sets_.empty())
            return unsupported("holds no files of ranks, such as rank0.pt").inFile(source_.display);
        SHARDSCOPE_TRY(readFiles());
        findRoles();
        for (const RankFile& file : files_) {
            findParameters(file);
            addSharded(file);
        }
        addPlain();
        addObjects();
        addMissing();
        return assembly_.finish(world_, mesh());
    }

  private:
    struct RankFile {
        const FileSet* set = nullptr;
        uint32_t rank = 0;
        uint32_t index = kNone;  // of the assembly; kNone = it cannot be read
    };
    // A tensor that is not distributed, as one rank has it.
    struct PlainTensor {
        const RankFile* file = nullptr;
        uint32_t tensor = 0;
    };
    struct PlainTensors {
        Path path;
        std::vector<PlainTensor> ranks;
    };
    struct Parameter {
        Path path;
        Dims shape;
    };

    const TensorFile& contents(const RankFile& file) { return assembly_.files()[file.index]; }

    // ------------------------------------------------------------------ files

    // Files of saves by another number of ranks are left aside.
    Status chooseWorld() {
        std::set<uint32_t> worlds;
        for (const FileSet& set : sets_) {
            if (set.world) worlds.insert(*set.world);
        }
        std::optional<uint32_t> wanted;
        if (!options_.variant.empty()) {
            uint32_t world = 0;
            const std::string_view text = options_.variant;
            const auto [end, error] = std::from_chars(text.data() + std::min<size_t>(6, text.size()),
                                                      text.data() + text.size(), world);
            if (!text.starts_with("world=") || error != std::errc{} || end != text.data() + text.size())
                return makeError(ErrorCode::usage,
                                 fmt::format("'{}' is not a variant of rank files", options_.variant))
                    .withHint("world=8 opens the files that 8 ranks wrote");
            if (!worlds.contains(world))
                return makeError(ErrorCode::notFound, fmt::format("no files of {} ranks are here", world))
                    .inFile(source_.display);
            wanted = world;
        }
        const std::optional<uint32_t> stated = worldOfConfig(assembly_.addText("fsdp_config.json"));
        if (worlds.empty()) return {};
        if (!wanted && worlds.size() == 1) wanted = *worlds.begin();
        if (!wanted && stated && worlds.contains(*stated)) wanted = stated;
        if (!wanted)
            return unsupported(fmt::format("holds files of saves by {} ranks", fmt::join(worlds, " and by ")))
                .inFile(source_.display)
                .withHint(fmt::format("choose one of them, such as --variant world={}", *worlds.rbegin()));
        world_ = *wanted;
        if (stated && *stated != world_)
            assembly_.note(rule::metaInconsistent, Severity::warning,
                           fmt::format("it states {} ranks, the files are of {}", *stated, world_),
                           "fsdp_config.json");
        for (const FileSet& set : sets_) {
            if (!set.world || *set.world == world_) continue;
            for (const auto& [rank, entry] : set.files)
                assembly_.addUnused(*entry, rank);
            assembly_.note(rule::fileStale, Severity::warning,
                           fmt::format("files of a save by {} ranks in the same directory; this is the save "
                                       "by {} ranks",
                                       *set.world, world_),
                           set.files.begin()->second->name);
        }
        std::erase_if(sets_, [&](const FileSet& set) { return set.world && *set.world != world_; });
        return {};
    }

    Status readFiles() {
        std::vector<std::pair<std::string, uint32_t>> names;
        for (const FileSet& set : sets_) {
            for (const auto& [rank, entry] : set.files) {
                files_.push_back({&set, rank, kNone});
                names.emplace_back(entry->name, rank);
                world_ = std::max(world_, rank + 1);
            }
        }
        SHARDSCOPE_ASSIGN(const std::vector<uint32_t> indices, assembly_.addFiles(names));
        for (size_t f = 0; f < files_.size(); ++f)
            files_[f].index = indices[f];
        std::erase_if(files_, [](const RankFile& file) { return file.index == kNone; });
        return {};
    }

    void findRoles() {
        for (const RankFile& file : files_) {
            for (const StoredTensor& tensor : contents(file).tensors)
                roles_.add(file.set->prefix + tensor.name);
            for (const StoredObject& object : contents(file).objects)
                roles_.add(file.set->prefix + object.name);
        }
    }

    // ------------------------------------------------------------------ tensors

    // The parameters in the order of the first model file: an optimizer numbers them so.
    void findParameters(const RankFile& file) {
        if (file.set->kind != Kind::model || !parameters_.empty()) return;
        const TensorFile& saved = contents(file);
        std::set<uint32_t> seen;
        for (const StoredTensor& tensor : saved.tensors) {
            if (tensor.special == kNone || tensor.sameAs != kNone || !seen.insert(tensor.special).second)
                continue;
            const SpecialTensor& whole = saved.specials[tensor.special];
            parameters_.push_back({whole.path, whole.shape});
        }
    }

    void addSharded(const RankFile& file) {
        const TensorFile& saved = contents(file);
        std::vector<bool> held(saved.specials.size(), false);
        for (uint32_t t = 0; t < saved.tensors.size(); ++t) {
            const StoredTensor& stored = saved.tensors[t];
            const std::string kind =
                stored.special == kNone ? std::string() : saved.specials[stored.special].kind;
            if (kind == "dtensor") {
                addDTensor(file, t);
            } else if (kind == "sharded_tensor") {
                addShard(file, t);
            } else {
                const Path path = prefixed(file.set->prefix, stored.path);
                const auto [it, fresh] = plainByPath_.try_emplace(encodePath(path), plain_.size());
                if (fresh) plain_.push_back({path, {}});
                plain_[it->second].ranks.push_back({&file, t});
            }
        }
        for (const TensorPlacement& placement : saved.placements)
            raiseWorld(placement.dtensor ? placement.dtensor->world : placement.world);
    }

    void raiseWorld(int64_t world) {
        if (world <= kMostWorld) world_ = std::max(world_, static_cast<uint32_t>(world));
    }

    // Says once for a file that it holds the parts of another rank than its name says.
    uint32_t checkRank(const RankFile& file, std::optional<int64_t> stated) {
        if (!stated || *stated < 0 || *stated >= kMostWorld || *stated == file.rank) return file.rank;
        if (misplaced_.insert(file.index).second) {
            assembly_.note(
                rule::metaInconsistent, Severity::error,
                fmt::format("the name says rank {}, the tensors in it are those of rank {}: the file "
                            "was copied or renamed",
                            file.rank, *stated),
                contents(file).name);
        }
        return static_cast<uint32_t>(*stated);
    }

    void addDTensor(const RankFile& file, uint32_t t) {
        const TensorFile& saved = contents(file);
        const StoredTensor& stored = saved.tensors[t];
        const SpecialTensor& whole = saved.specials[stored.special];
        const auto& spec = saved.placements[stored.special].dtensor;
        const Path path = prefixed(file.set->prefix, whole.path);
        const auto fail = [&](std::string message, Note::Lacks lacks = Note::Lacks::nothing) {
            assembly_.note(rule::metaInconsistent, Severity::error, std::move(message), saved.name,
                           pathName(path), lacks);
        };
        if (!spec) return fail("its placement cannot be read from the file", Note::Lacks::anything);
        if (!spec->coordinate) return;  // nothing of it is on this rank
        auto box = torch_save::localBox(*spec, whole.shape);
        if (!box.ok()) {
            if (refused_.insert(encodePath(path)).second) fail(box.error().message, Note::Lacks::anything);
            return;
        }
        TensorAssembly::Piece piece;
        piece.rank = checkRank(file, spec->rank);
        if (elementCount(box->lengths) == 0 && elementCount(stored.shape) == 0) {
            piece.part.elements = 0;
        } else if (box->lengths != stored.shape) {
            return fail(fmt::format("the part of rank {} has shape {}, its placement says {}", piece.rank,
                                    formatDims(stored.shape), formatDims(box->lengths)));
        }
        noteMesh(*spec);
        piece.part.file = file.index;
        piece.part.tensor = t;
        piece.offsets = std::move(box->offsets);
        piece.lengths = std::move(box->lengths);
        sharded_ = true;
        assembly_.addPiece(path, stored.dtype, whole.shape, roles_.role(pathName(path)), std::move(piece));
    }

    void addShard(const RankFile& file, uint32_t t) {
        const TensorFile& saved = contents(file);
        const StoredTensor& stored = saved.tensors[t];
        const SpecialTensor& whole = saved.specials[stored.special];
        const Path path = prefixed(file.set->prefix, whole.path);
        if (stored.shardOffsets.size() != stored.shape.size() || whole.shape.size() != stored.shape.size()) {
            assembly_.note(rule::metaInconsistent, Severity::error,
                           "the place of its shard cannot be read from the file", saved.name, pathName(path),
                           Note::Lacks::anything);
            return;
        }
        TensorAssembly::Piece piece;
        piece.rank = checkRank(file, saved.placements[stored.special].rank);
        piece.part.file = file.index;
        piece.part.tensor = t;
        piece.offsets = stored.shardOffsets;
        piece.lengths = stored.shape;
        sharded_ = true;
        const std::string name = pathName(path);
        if (name.ends_with("_flat_param") && !std::exchange(flatNoted_, true)) {
            assembly_.note(rule::layoutFused, Severity::info,
                           "flat parameters of FSDP with LOCAL_STATE_DICT: each joins the parameters of a "
                           "module, whose names and shapes are not stored, so they cannot be taken apart",
                           saved.name, name);
        }
        assembly_.addPiece(path, stored.dtype, whole.shape, roles_.role(name), std::move(piece));
    }

    // Tensors without a placement are copies of one, or differ by rank.
    void addPlain() {
        for (const PlainTensors& tensors : plain_) {
            const FileSet& set = *tensors.ranks[0].file->set;
            if (addFlatState(tensors)) continue;
            const bool copies = set.kind != Kind::extra && areCopies(tensors.ranks);
            for (const PlainTensor& tensor : tensors.ranks) {
                Path path = tensors.path;
                if (!copies) path = prefixed(set.prefix, stored(tensor).path, tensor.file->rank);
                Role role = roles_.role(pathName(tensors.path));
                // Parameters are distributed where anything is.
                if (role == Role::parameter && sharded_ && set.kind == Kind::model) role = Role::buffer;
                assembly_.addWhole(tensor.file->index, tensor.tensor, std::move(path), role,
                                   tensor.file->rank);
            }
        }
    }

    const StoredTensor& stored(const PlainTensor& tensor) {
        return contents(*tensor.file).tensors[tensor.tensor];
    }

    // Whether all ranks hold the same, as far as that can be told cheaply. `validate` compares what is taken
    // for copies.
    bool areCopies(const std::vector<PlainTensor>& ranks) {
        return std::ranges::all_of(ranks, [&](const PlainTensor& other) {
            return assembly_.files()
                .equal(ranks[0].file->index, ranks[0].tensor, other.file->index, other.tensor)
                .value_or(true);
        });
    }

    // State of an optimizer over FSDP1's original parameters: each rank holds the elements of its part of the
    // flat parameter, in one dimension and without a place. In the order of the ranks they are the whole.
    bool addFlatState(const PlainTensors& tensors) {
        const FileSet& set = *tensors.ranks[0].file->set;
        const Path& path = stored(tensors.ranks[0]).path;
        if (set.kind != Kind::optimizer || path.size() != 3 || path[0].toString() != "state" ||
            path[1].kind != PathPart::Kind::integerKey || !oneGroup(tensors.ranks[0]))
            return false;
        const int64_t id = path[1].index;
        if (id < 0 || id >= static_cast<int64_t>(parameters_.size())) return false;
        const Parameter& parameter = parameters_[static_cast<size_t>(id)];
        const int64_t elements = elementCount(parameter.shape);
        // Each replica group of a mesh holds the whole once.
        struct Group {
            std::vector<const PlainTensor*> members;
            int64_t held = 0;
        };
        std::map<uint32_t, Group> groups;
        for (const PlainTensor& tensor : tensors.ranks) {
            if (stored(tensor).shape.size() != 1 || stored(tensor).dtype != stored(tensors.ranks[0]).dtype)
                return false;
            Group& group = groups[replicaGroupOf(tensor.file->rank)];
            group.members.push_back(&tensor);
            group.held += elementCount(stored(tensor).shape);
        }
        if (elements == 0 || static_cast<int64_t>(groups.size()) != replicaGroups() ||
            std::ranges::any_of(groups, [&](const auto& group) { return group.second.held != elements; }))
            return false;
        const Role role = roles_.role(pathName(tensors.path));
        for (const auto& [number, group] : groups) {
            int64_t at = 0;
            for (const PlainTensor* tensor : group.members) {
                const int64_t count = elementCount(stored(*tensor).shape);
                if (count == 0) continue;
                TensorAssembly::Piece piece;
                piece.rank = tensor->file->rank;
                piece.part = StoredPart::range(tensor->file->index, tensor->tensor, 0, count);
                piece.flat = FlatRange{at, at + count};
                at += count;
                assembly_.addPiece(tensors.path, stored(*tensor).dtype, parameter.shape, role,
                                   std::move(piece));
            }
        }
        return true;
    }

    // Optimizers number their parameters by group; with several groups the numbers do not follow the model.
    bool oneGroup(const PlainTensor& tensor) {
        for (const StoredObject& object : contents(*tensor.file).objects) {
            if (object.name != "param_groups") continue;
            return object.value && object.value.kind() == ValueKind::list &&
                   object.value.graph->items(object.value.node).size() == 1;
        }
        return false;
    }

    // Of the mesh (replicas, shards): ranks of one row hold the parameters once.
    uint32_t replicaGroupOf(uint32_t rank) const {
        return mesh_ && mesh_->mesh.size() == 2 ? rank / static_cast<uint32_t>(mesh_->mesh[1]) : 0;
    }
    int64_t replicaGroups() const { return mesh_ && mesh_->mesh.size() == 2 ? mesh_->mesh[0] : 1; }

    // ------------------------------------------------------------------ objects

    void addObjects() {
        struct SameName {
            Path path;
            std::vector<std::pair<const RankFile*, const StoredObject*>> ranks;
        };
        std::vector<SameName> all;
        std::unordered_map<std::string, size_t> byPath;
        for (const RankFile& file : files_) {
            for (const StoredObject& object : contents(file).objects) {
                const Path path = prefixed(file.set->prefix, object.path);
                const auto [it, fresh] = byPath.try_emplace(encodePath(path), all.size());
                if (fresh) all.push_back({path, {}});
                all[it->second].ranks.emplace_back(&file, &object);
            }
        }
        for (const SameName& named : all) {
            const FileSet& set = *named.ranks[0].first->set;
            bool equal = set.kind != Kind::extra;
            const std::string first = equal ? valueRepr(named.ranks[0].second->value, kReprBytes) : "";
            for (size_t r = 1; r < named.ranks.size() && equal; ++r)
                equal = valueRepr(named.ranks[r].second->value, kReprBytes) == first;
            for (const auto& [file, object] : named.ranks) {
                const Path path = equal ? named.path : prefixed(set.prefix, object->path, file->rank);
                assembly_.addObject(file->index, path, object->value, file->rank);
                if (equal) break;
            }
        }
    }

    // ------------------------------------------------------------------ ranks

    void addMissing() {
        // Of replicas a part may be missing without loss.
        const bool complete = assembly_.complete();
        uint32_t listed = 0;
        for (const FileSet& set : sets_) {
            const bool lost = !complete && set.kind != Kind::extra;
            for (uint32_t rank = 0; rank < world_; ++rank) {
                if (set.files.contains(rank)) continue;
                if (++listed > kMostMissing) continue;
                assembly_.addMissing(
                    set.nameOf(rank), rank, lost ? Severity::error : Severity::warning,
                    lost ? fmt::format("the file of rank {} of {} is missing", rank, world_)
                         : fmt::format("the file of rank {} of {} is missing; the tensors are "
                                       "complete without it",
                                       rank, world_));
            }
        }
        if (listed > kMostMissing)
            assembly_.note(rule::rankMissing, Severity::error,
                           fmt::format("files of {} ranks are missing in all", listed));
    }

    // The largest mesh that any tensor is on.
    void noteMesh(const DTensorSpec& spec) {
        if (!mesh_ || elementCount(spec.mesh) > elementCount(mesh_->mesh) ||
            (elementCount(spec.mesh) == elementCount(mesh_->mesh) && spec.mesh.size() > mesh_->mesh.size()))
            mesh_ = spec;
    }

    std::optional<Mesh> mesh() {
        const bool stated = mesh_ && elementCount(mesh_->mesh) == world_ && mesh_->ascending;
        if (!stated) return std::nullopt;
        Mesh mesh;
        std::string text;
        for (size_t axis = 0; axis < mesh_->mesh.size(); ++axis) {
            std::string name = axis < mesh_->axes.size() ? mesh_->axes[axis] : fmt::format("mesh{}", axis);
            mesh.axes.push_back({std::move(name), static_cast<uint32_t>(mesh_->mesh[axis])});
        }
        mesh.evidence = {fmt::format("{}: the DeviceMesh of the DTensors", formatMesh(mesh))};
        return mesh;
    }

    const OpenOptions& options_;
    const Source& source_;
    std::vector<FileSet> sets_;
    TensorAssembly assembly_;
    std::vector<RankFile> files_;
    uint32_t world_ = 1;
    RoleFinder roles_;
    std::vector<Parameter> parameters_;
    std::vector<PlainTensors> plain_;
    std::unordered_map<std::string, size_t> plainByPath_;  // encoded
    std::set<uint32_t> misplaced_;                         // files that hold another rank's parts
    std::set<std::string> refused_;                        // encoded paths
    std::optional<DTensorSpec> mesh_;
    bool sharded_ = false, flatNoted_ = false;
};

}  // namespace

Result<std::unique_ptr<Reader>> openRankFiles(const Source& source, const OpenOptions& options) {
    return RankFilesOpener(source, options).open();
}

}  // namespace shardscope::torch_ranks
