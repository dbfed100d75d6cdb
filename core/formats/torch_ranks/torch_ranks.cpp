#include "formats/torch_ranks/torch_ranks.h"

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <unordered_map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/numbers.h"
#include "base/option_words.h"
#include "base/rule.h"
#include "base/units.h"
#include "encoding/json_value.h"
#include "encoding/torch_file.h"
#include "formats/rank_parts.h"
#include "formats/torch_ranks/file_sets.h"
#include "formats/torch_ranks/layout.h"
#include "model/roles.h"
#include "model/value_view.h"

namespace shardscope::torch_ranks {

namespace {

using torch_save::TensorPlacement;

constexpr size_t kFilesAtOnce = 64;

Path prefixed(std::string_view prefix, const Path& path, std::optional<uint32_t> rank = std::nullopt) {
    Path out;
    if (!prefix.empty()) out.push_back(keyPart(prefix.substr(0, prefix.size() - 1)));
    if (rank) out.push_back(keyPart(fmt::format("rank_{}", *rank)));
    out.insert(out.end(), path.begin(), path.end());
    return out;
}

// {"FSDP_version": 2, "world_size": 8}, which verl writes beside the files.
std::optional<uint32_t> worldOfConfig(std::string_view text) {
    const Value config = jsonValue(text);
    const int64_t world = ValueView(config)["world_size"].integer().value_or(-1);
    return world >= 0 && world <= RankParts::kMostWorld ? std::optional(static_cast<uint32_t>(world))
                                                        : std::nullopt;
}

class RankFilesOpener {
  public:
    RankFilesOpener(const Source& source, const OpenOptions& options)
        : options_(options),
          source_(source),
          entries_(entriesOfRanks(source, RankParts::kMostWorld)),
          sets_(findFileSets(entries_)),
          assembly_(source, options, "torch-ranks", "", "torch.save on each rank") {}

    Result<std::unique_ptr<Reader>> open() {
        SHARDSCOPE_TRY(chooseWorld());
        if (sets_.empty())
            return unsupported("holds no files of ranks, such as rank0.pt").inFile(source_.display);
        SHARDSCOPE_TRY(readFiles());
        assembly_.setRoles(roles_);
        addPlain();
        noteMisfits();
        assembly_.noteDifferentCopies(Note::Lacks::anything, TensorAssembly::Vectors::mayDrift);
        addRankObjects(assembly_, objects_);
        addMissing();
        parts_.noteMissing();
        auto mesh = parts_.mesh("the DeviceMesh of the DTensors");
        if (!mesh && !parts_.largestMesh()) mesh = meshOfShards();
        return assembly_.finish(parts_.world(), std::move(mesh));
    }

  private:
    struct RankFile {
        const FileSet* set = nullptr;
        uint32_t rank = 0;
        uint32_t index = kNone;  // of the assembly; kNone = it cannot be read
        // How many parameters the only group of its optimizer has; nullopt where there are more groups, whose
        // numbers do not follow the model.
        std::optional<size_t> numbered;
    };
    // A tensor that is not distributed, as one rank has it.
    struct PlainTensor {
        const RankFile* file = nullptr;
        uint32_t tensor = 0;
    };
    struct PlainTensors {
        Path path;
        Path stored;  // without the prefix of its file
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
            const std::string_view text = options_.variant;
            wanted = parseNumber<uint32_t>(text.substr(std::min<size_t>(6, text.size())));
            if (!text.starts_with("world=") || !wanted)
                return makeError(ErrorCode::usage,
                                 fmt::format("'{}' is not a variant of rank files", options_.variant))
                    .withHint("world=8 opens the files that 8 ranks wrote");
            if (!worlds.contains(*wanted))
                return makeError(ErrorCode::notFound,
                                 fmt::format("no files of {} are here", counted(*wanted, "rank")))
                    .inFile(source_.display);
        }
        const std::optional<uint32_t> stated = worldOfConfig(assembly_.addText("fsdp_config.json"));
        if (worlds.empty()) return {};
        if (!wanted && worlds.size() == 1) wanted = *worlds.begin();
        if (!wanted && stated && worlds.contains(*stated)) wanted = stated;
        if (!wanted)
            return unsupported(fmt::format("holds files of saves by {} ranks", fmt::join(worlds, " and by ")))
                .inFile(source_.display)
                .withHint(fmt::format("choose one of them, such as {} world={}", option("variant"),
                                      *worlds.rbegin()));
        parts_.raiseWorld(*wanted);
        if (stated && *stated != *wanted)
            assembly_.note(
                rule::metaInconsistent, Severity::warning,
                fmt::format("it states {}, the files are of {}", counted(*stated, "rank"), *wanted),
                "fsdp_config.json");
        for (const FileSet& set : sets_) {
            if (!set.world || *set.world == *wanted) continue;
            for (const auto& [rank, entry] : set.files)
                assembly_.addUnused(*entry, rank);
            assembly_.note(rule::fileStale, Severity::warning,
                           fmt::format("files of a save by {} in the same directory; this is the save "
                                       "by {}",
                                       counted(*set.world, "rank"), counted(*wanted, "rank")),
                           set.files.begin()->second->name);
        }
        std::erase_if(sets_, [&](const FileSet& set) { return set.world && *set.world != *wanted; });
        return {};
    }

    // Some files at a time: what each says of its own tensors is much more than what is kept of it.
    Status readFiles() {
        for (const FileSet& set : sets_) {
            for (const auto& [rank, entry] : set.files) {
                files_.push_back({&set, rank, kNone, std::nullopt});
                parts_.raiseWorld(rank + 1);
            }
        }
        size_t count = 0;
        for (size_t first = 0; first < files_.size(); first += count) {
            const Kind kind = files_[first].set->kind;
            for (count = 1; count < kFilesAtOnce && first + count < files_.size(); ++count)
                if (files_[first + count].set->kind != kind) break;
            auto some = std::span(files_).subspan(first, count);
            SHARDSCOPE_TRY(assembly_.addEach(
                some,
                [](const RankFile& file) {
                    return std::pair(file.set->files.at(file.rank)->name, file.rank);
                },
                kind == Kind::model ? Note::Lacks::nothing : Note::Lacks::optimizerState));
            for (RankFile& file : some) {
                if (file.index == kNone) continue;
                addNames(file);
                findParameters(file);
                addSharded(file);
                takeObjects(file);
                assembly_.files().forgetNames(file.index);
            }
        }
        return {};
    }

    void addNames(const RankFile& file) {
        for (const StoredTensor& tensor : contents(file).tensors)
            roles_.add(file.set->prefix + tensor.name);
        for (const StoredObject& object : contents(file).objects)
            roles_.add(file.set->prefix + object.name);
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
                if (fresh) plain_.push_back({path, stored.path, {}});
                plain_[it->second].ranks.push_back({&file, t});
            }
        }
        for (const TensorPlacement& placement : saved.placements)
            parts_.raiseWorld(placement.dtensor ? placement.dtensor->world : placement.world);
    }

    void addDTensor(const RankFile& file, uint32_t t) {
        const TensorFile& saved = contents(file);
        const StoredTensor& stored = saved.tensors[t];
        const SpecialTensor& whole = saved.specials[stored.special];
        const Path path = prefixed(file.set->prefix, whole.path);
        for (auto& piece : parts_.partsOf(file.index, t, file.rank, path)) {
            sharded_ = true;
            assembly_.addPiece(path, stored.dtype, whole.shape, Role::parameter, std::move(piece));
        }
    }

    void addShard(const RankFile& file, uint32_t t) {
        const TensorFile& saved = contents(file);
        const StoredTensor& stored = saved.tensors[t];
        const SpecialTensor& whole = saved.specials[stored.special];
        const Path path = prefixed(file.set->prefix, whole.path);
        if (stored.shardOffsets.size() != stored.shape.size() || whole.shape.size() != stored.shape.size()) {
            return assembly_.wrong("the place of its shard cannot be read from the file", saved.name,
                                   pathName(path), Note::Lacks::anything);
        }
        const uint32_t rank = parts_.rankOf(file.index, file.rank, saved.placements[stored.special].rank);
        sharded_ = true;
        shardPlaces_[encodePath(path)].insert(stored.shardOffsets);
        const std::string name = pathName(path);
        if (name.ends_with("_flat_param") && !std::exchange(flatNoted_, true)) {
            assembly_.note(rule::layoutFused, Severity::info,
                           "flat parameters of FSDP with LOCAL_STATE_DICT: each joins the parameters of a "
                           "module, whose names and shapes are not stored, so they cannot be taken apart",
                           saved.name, name);
        }
        assembly_.addPiece(
            path, stored.dtype, whole.shape, Role::parameter,
            {rank, StoredPart::whole(file.index, t), stored.shardOffsets, stored.shape, std::nullopt});
    }

    // HYBRID_SHARD: groups of ranks that hold the same shards.
    std::optional<Mesh> meshOfShards() const {
        size_t shards = 0;
        for (const auto& [path, places] : shardPlaces_)
            shards = std::max(shards, places.size());
        const uint32_t world = parts_.world(), group = static_cast<uint32_t>(shards);
        if (group < 2 || group >= world || world % group != 0) return std::nullopt;
        Mesh mesh;
        mesh.axes = {{"replicate", world / group}, {"fsdp", group}};
        mesh.evidence = {fmt::format("{}: {} wrote ShardedTensors of {}", formatMesh(mesh),
                                     counted(world, "rank"), counted(group, "shard"))};
        return mesh;
    }

    // Tensors without a placement are copies of one, or differ by rank.
    void addPlain() {
        for (const PlainTensors& tensors : plain_) {
            const FileSet& set = *tensors.ranks[0].file->set;
            if (addFlatState(tensors)) continue;
            const bool copies = set.kind != Kind::extra && areCopies(tensors.ranks);
            if (!copies && set.kind == Kind::model && stored(tensors.ranks[0]).shape.size() > 1)
                assembly_.note(
                    rule::metaDuplicate, Severity::error,
                    "ranks hold different values under this name, and nothing says how they make one "
                    "tensor: experts of several groups, or parts of tensor-parallel ranks. They are "
                    "shown below the names of the ranks",
                    contents(*tensors.ranks[0].file).name, pathName(tensors.path), Note::Lacks::anything);
            for (const PlainTensor& tensor : tensors.ranks) {
                Path path = tensors.path;
                if (!copies) path = prefixed(set.prefix, tensors.stored, tensor.file->rank);
                Role role = roles_.role(pathName(tensors.path));
                // Parameters are distributed where anything is.
                if (role == Role::parameter && sharded_ && set.kind == Kind::model) role = Role::buffer;
                assembly_.addWhole(tensor.file->index, tensor.tensor, std::move(path), role,
                                   tensor.file->rank);
            }
        }
    }

    void noteMisfits() {
        if (misfits_ == 0) return;
        assembly_.wrong(
            fmt::format("the flat shards that the ranks hold have {} in all, its parameter has {}; so it is "
                        "with {}: a rank's file is missing, a copy of another one, or of another save",
                        counted(misfit_.held, "element"), countText(misfit_.elements),
                        counted(misfits_, "state")),
            {}, misfit_.name, Note::Lacks::optimizerState);
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
        const Path& path = tensors.stored;
        if (set.kind != Kind::optimizer || path.size() != 3 || path[0].toString() != "state" ||
            path[1].kind != PathPart::Kind::integerKey)
            return false;
        const std::optional<size_t>& numbered = tensors.ranks[0].file->numbered;
        if (!numbered) return false;
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
        if (elements == 0 || static_cast<int64_t>(groups.size()) != replicaGroups()) return false;
        for (const auto& [number, group] : groups) {
            if (group.held == elements) continue;
            // Where nothing is frozen or tied, the numbers are sure.
            if (*numbered == parameters_.size() && ++misfits_ == 1)
                misfit_ = {pathName(tensors.path), group.held, elements};
            return false;
        }
        const Role role = roles_.role(pathName(tensors.path));
        for (const auto& [number, group] : groups) {
            int64_t at = 0;
            for (const PlainTensor* tensor : group.members) {
                const int64_t count = elementCount(stored(*tensor).shape);
                if (count == 0) continue;
                assembly_.addPiece(tensors.path, stored(*tensor).dtype, parameter.shape, role,
                                   TensorAssembly::Piece::range(tensor->file->rank, tensor->file->index,
                                                                tensor->tensor, 0, {at, at + count}));
                at += count;
            }
        }
        return true;
    }

    // Of the mesh (replicas, shards): ranks of one row hold the parameters once.
    uint32_t replicaGroupOf(uint32_t rank) const {
        const auto& mesh = parts_.largestMesh();
        return mesh && mesh->mesh.size() == 2 ? rank / static_cast<uint32_t>(mesh->mesh[1]) : 0;
    }
    int64_t replicaGroups() const {
        const auto& mesh = parts_.largestMesh();
        return mesh && mesh->mesh.size() == 2 ? mesh->mesh[0] : 1;
    }

    // ------------------------------------------------------------------ objects

    static std::optional<size_t> onlyGroupOf(const Value& value) {
        const std::vector<ValueView> groups = ValueView(value).items();
        return groups.size() == 1 ? std::optional(groups[0]["params"].items().size()) : std::nullopt;
    }

    void takeObjects(RankFile& file) {
        const auto when =
            file.set->kind == Kind::extra ? RankObject::When::always : RankObject::When::differing;
        for (const StoredObject& object : contents(file).objects) {
            objects_.push_back({prefixed(file.set->prefix, object.path),
                                prefixed(file.set->prefix, object.path, file.rank), file.index, file.rank,
                                &values_.emplace_back(object.value), when});
            if (object.name == "param_groups") file.numbered = onlyGroupOf(object.value);
        }
    }

    // ------------------------------------------------------------------ ranks

    void addMissing() {
        for (const FileSet& set : sets_) {
            for (uint32_t rank = 0; rank < parts_.world(); ++rank) {
                if (!set.files.contains(rank))
                    parts_.addMissing(set.nameOf(rank), rank, set.kind != Kind::extra);
            }
        }
    }

    const OpenOptions& options_;
    const Source& source_;
    const std::vector<DirectoryEntry> entries_;  // that the sets point to
    std::vector<FileSet> sets_;
    TensorAssembly assembly_;
    std::vector<RankFile> files_;
    RankParts parts_{assembly_};
    RoleFinder roles_;
    std::vector<Parameter> parameters_;
    std::vector<PlainTensors> plain_;
    std::unordered_map<std::string, size_t> plainByPath_;  // encoded
    std::deque<Value> values_;                             // of objects_
    std::vector<RankObject> objects_;
    std::map<std::string, std::set<Dims>> shardPlaces_;  // of ShardedTensors, by encoded path
    bool sharded_ = false, flatNoted_ = false;
    size_t misfits_ = 0;  // states whose flat pieces do not add up to their parameter; the first one:
    struct {
        std::string name;
        int64_t held = 0, elements = 0;
    } misfit_;
};

// Whether a torch.save file holds tensors that are distributed over ranks.
bool holdsDistributed(const Directory& directory, const std::string& name) {
    auto file = directory.openFile(name);
    if (!file.ok()) return false;
    const auto opened = torch_save::openTorchFile(std::move(file).value(), {});
    if (!opened.ok()) return false;
    const auto& globals = opened->pickle.globals;
    return std::any_of(globals.begin(), globals.end(), [](std::string_view global) {
        return global.starts_with("torch.distributed") &&
               (global.ends_with(".DTensor") || global.ends_with(".ShardedTensor"));
    });
}

// Whether the file is one of torch.save. A damaged one contradicts nothing.
bool mayBeTorchFile(const Directory& directory, const std::string& name) {
    const auto file = directory.openFile(name);
    if (!file.ok()) return true;
    const auto first = torch_save::firstBytesOf(**file);
    return !first.ok() || torch_save::fileKind(*first) != torch_save::FileKind::none || (*file)->size() == 0;
}

Probe probe(const Source& source) {
    if (!source.entry.empty()) return {};
    const std::vector<DirectoryEntry> entries = entriesOfRanks(source, 1);
    for (const FileSet& set : findFileSets(entries)) {
        const std::string& first = set.files.begin()->second->name;
        if (set.known ? mayBeTorchFile(*source.directory, first) : holdsDistributed(*source.directory, first))
            // OLMo's oldest checkpoints have such files beside their configuration.
            return {
                !set.known && source.hasFile("config.yaml") ? Probe::Match::possible : Probe::Match::certain,
                "has " + first + ", the part of one rank"};
    }
    return {};
}

Result<std::unique_ptr<Reader>> open(const Source& source, const OpenOptions& options) {
    SHARDSCOPE_TRY(requireDirectory(source));
    return RankFilesOpener(source, options).open();
}
}  // namespace

}  // namespace shardscope::torch_ranks

namespace shardscope {

const Format& torchRanksFormat() {
    static const Format format{
        .about = {.name = "torch-ranks",
                  .title = "torch.save file of each rank",
                  .synonyms = {"torch_ranks", "verl"},
                  .before = {{"olmo", "OLMo's oldest files have names like those of scripts"},
                             {"torch", "its files are those of torch.save"}},
                  .reads = true,
                  .writes = true,
                  .generations = {"verl and SkyRL: model_world_size_W_rank_R.pt",
                                  "Accelerate: pytorch_model_fsdp_0_rank0.bin",
                                  "DTensors and ShardedTensors of torch 2.0 to 2.15 in rank0.pt, ..."},
                  .variants = {"verl", "verl-cpu", "accelerate", "accelerate-cpu"},
                  .shards = true,
                  .replicas = true,
                  .objects = true,
                  .aliases = true,
                  .nesting = true,
                  .assets = "huggingface"},
        .probe = torch_ranks::probe,
        .open = torch_ranks::open,
        .pathFor = torch_ranks::pathFor,
        .cannotHold = torch_ranks::cannotHold,
        .layout = torch_ranks::layOut};
    return format;
}

}  // namespace shardscope
