#include "formats/torch_checkpointing/torch_checkpointing.h"

#include <algorithm>
#include <set>
#include <unordered_map>

#include <fmt/format.h>

#include "base/rule.h"
#include "base/text.h"
#include "base/units.h"
#include "encoding/json_value.h"
#include "formats/rank_parts.h"
#include "formats/torch_checkpointing/item_files.h"
#include "formats/torch_checkpointing/layout.h"
#include "formats/torch_checkpointing/metadata.h"
#include "model/paths.h"
#include "model/roles.h"
#include "model/value_make.h"
#include "model/value_view.h"
#include "storage/files_below.h"
#include "storage/open_files.h"

namespace shardscope::torch_checkpointing {

namespace {

constexpr uint64_t kMostText = uint64_t{4} << 20;     // bytes of a JSON or raw file that are read
constexpr uint64_t kMostTexts = uint64_t{256} << 20;  // of all of them

// "model" and `path`: "model.path"; with a rank "model@0.path".
Path itemPath(std::string_view item, const Path& path, std::optional<uint32_t> rank = std::nullopt) {
    return joined({rank ? fmt::format("{}@{}", item, *rank) : std::string(item)}, path);
}

// A leaf as metadata.pkl spells it: there integer keys, list and tuple indices are the same.
std::string leafKey(Path path) {
    for (PathPart& part : path) {
        if (part.kind == PathPart::Kind::index || part.kind == PathPart::Kind::tupleIndex)
            part.kind = PathPart::Kind::integerKey;
    }
    return encodePath(path);
}

class ItemsOpener {
  public:
    ItemsOpener(const Source& source, const OpenOptions& options)
        : options_(options),
          source_(source),
          assembly_(source, options, "torch-checkpointing", "", "torch_checkpointing") {}

    Result<std::unique_ptr<Reader>> open() {
        SHARDSCOPE_TRY(readMetadata());
        SHARDSCOPE_TRY(findFiles());
        SHARDSCOPE_TRY(readFiles());
        findRoles();
        for (const Item& item : metadata_.items)
            addItem(item);
        for (auto& [name, files] : items_) {
            if (!listed_.contains(name)) addWithoutMetadata(name, files);
        }
        addObjects();
        noteNoMetadata();
        parts_.noteMissing();
        noteUnfinished();
        return assembly_.finish(parts_.world(), parts_.mesh("the device mesh of the DTensors"));
    }

  private:
    struct HeldFile : ItemFile {
        uint32_t index = kNone;                            // of the assembly, for files of tensors
        std::unordered_map<std::string, uint32_t> leaves;  // leafKey -> stored tensor
        std::vector<bool> covered;                         // by stored tensor
    };
    using HeldFiles = std::vector<HeldFile>;

    const TensorFile& contents(const HeldFile& file) { return assembly_.files()[file.index]; }

    // ------------------------------------------------------------------ files

    Status readMetadata() {
        if (!source_.hasFile(kMetadataFile)) return {};
        assembly_.addText(kMetadataFile);
        auto bytes = textOf(kMetadataFile, options_.limits.pickleBytes);
        auto decoded = bytes.ok() ? decodeMetadata(*bytes, options_.limits) : bytes.error();
        if (!decoded.ok()) {
            Error error = std::move(decoded).error().inFile(source_.directory->path() + "/" + kMetadataFile);
            if (error.code != ErrorCode::damaged || !holdsItemFiles(source_)) return error;
            assembly_.note(rule::metaInconsistent, Severity::error,
                           "it cannot be read, so tensors are placed by what the files of the ranks state: " +
                               error.message,
                           kMetadataFile, {}, Note::Lacks::nothing, error.location.offset);
            return {};
        }
        hasMetadata_ = true;
        metadata_ = std::move(decoded).value();
        for (Note& note : metadata_.notes)
            assembly_.builder().addNote(std::move(note));
        parts_.raiseWorld(metadata_.world);
        return {};
    }

    Result<std::string> textOf(const std::string& name, uint64_t most) {
        SHARDSCOPE_ASSIGN(const auto file, source_.directory->openFile(name));
        return wholeText(*file, most);
    }

    Status findFiles() {
        std::set<std::string> here;
        for (const DirectoryEntry& entry : source_.entries) {
            if (entry.kind == DirectoryEntry::Kind::file) here.insert(entry.name);
        }
        std::map<std::string, std::pair<std::string, size_t>> taken;  // path -> item and place in its files
        std::vector<std::string> known;
        for (const Item& item : metadata_.items) {
            SHARDSCOPE_TRY(checkRelativeName(defaultFileName(item.name, 0)));
            listed_.insert(item.name);
            // The files that tensors depend on.
            std::set<uint32_t> needed;
            for (const RankList* ranks : rankListsOf(item))
                needed.insert(ranks->begin(), ranks->end());
            HeldFiles& files = items_[item.name];
            for (uint32_t rank = 0; rank < metadata_.world; ++rank) {
                SHARDSCOPE_TRY(options_.stop.poll());
                const auto stated = item.layouts.find(rank);
                Layout layout = stated == item.layouts.end()
                                    ? Layout{defaultFileName(item.name, rank), Layout::Kind::torch}
                                    : stated->second;
                if (const auto other = taken.find(layout.path); other != taken.end()) {
                    if (other->second.first == item.name) {
                        files[other->second.second].ranks.push_back(rank);
                    } else {
                        assembly_.wrong(fmt::format("items '{}' and '{}' name the same file",
                                                    printable(other->second.first, kNameInMessage),
                                                    printable(item.name, kNameInMessage)),
                                        layout.path);
                    }
                    continue;
                }
                const bool present = layout.path.find('/') == layout.path.npos
                                         ? here.contains(layout.path)
                                         : source_.directory->stat(layout.path).ok();
                if (!present) {
                    if (needed.contains(rank)) parts_.addMissing(layout.path, rank, true);
                    continue;
                }
                taken[layout.path] = {item.name, files.size()};
                known.push_back(layout.path);
                files.push_back({{std::move(layout.path), layout.kind, item.name, {rank}}, kNone, {}, {}});
            }
        }
        std::ranges::sort(known);
        for (ItemFile& other : otherItemFiles(source_, known)) {
            if (hasMetadata_ && other.ranked &&
                (listed_.contains(other.item) || other.ranks[0] >= metadata_.world)) {
                // Left from a save by more ranks, or with other paths.
                assembly_.addUnused({other.name, DirectoryEntry::Kind::file, other.size}, other.ranks[0]);
                assembly_.note(rule::fileStale, Severity::warning,
                               fmt::format("metadata.pkl of a save by {} does not name this file",
                                           counted(metadata_.world, "rank")),
                               other.name);
                continue;
            }
            if (!hasMetadata_) parts_.raiseWorld(int64_t{other.ranks[0]} + 1);
            HeldFile file{std::move(other), kNone, {}, {}};
            // A list of its own, where the metadata has an item of this name in other files.
            std::string name = file.item;
            if (listed_.contains(name)) name = file.item = file.name;
            items_[name].push_back(std::move(file));
        }
        return {};
    }

    // Items without a resharder are not in metadata.pkl. All ranks save them, or one does; where several have
    // a file and others have none, those were lost.
    void noteGaps() {
        for (const auto& [item, files] : items_) {
            if (listed_.contains(item) || !std::ranges::all_of(files, &ItemFile::ranked)) continue;
            std::set<uint32_t> present;
            for (const HeldFile& file : files)
                present.insert(file.ranks[0]);
            if (present.size() < 2 || files[0].name != defaultFileName(item, files[0].ranks[0])) continue;
            for (uint32_t rank = 0; rank < parts_.world(); ++rank) {
                if (!present.contains(rank)) parts_.addMissing(defaultFileName(item, rank), rank, false);
            }
        }
    }

    // Nothing says whether all ranks saved an item, nor whether one holds all of it.
    void noteDoubt(const std::string& item, uint32_t rank) {
        assembly_.addMissingRank(defaultFileName(item, rank), rank, Severity::warning,
                                 fmt::format("rank {} has files of other items; without metadata.pkl nothing "
                                             "says whether it held a part of this one",
                                             rank),
                                 Note::Lacks::anything);
    }

    static std::set<const RankList*> rankListsOf(const Item& item) {
        std::set<const RankList*> lists;
        std::set<const void*> seen;
        for (const Leaf& leaf : item.leaves) {
            if (!seen.insert(leaf.groups.get()).second) continue;
            for (const Group& group : *leaf.groups)
                lists.insert(group.ranks.get());
        }
        return lists;
    }

    static bool holdsTensors(const ItemFile& file) {
        return file.kind == Layout::Kind::torch || file.kind == Layout::Kind::safetensors;
    }

    Status readFiles() {
        std::vector<std::pair<std::string, uint32_t>> names;
        std::vector<HeldFile*> held;
        for (auto& [item, files] : items_) {
            for (HeldFile& file : files) {
                if (!holdsTensors(file)) continue;
                names.emplace_back(file.name, file.ranks[0]);
                held.push_back(&file);
            }
        }
        if (held.empty() && metadata_.items.empty())
            return unsupported("holds no files of items, such as model_0.pt").inFile(source_.display);
        SHARDSCOPE_ASSIGN(const std::vector<uint32_t> indices, assembly_.addFiles(names));
        for (size_t f = 0; f < held.size(); ++f)
            held[f]->index = indices[f];
        // A missing rank is seen by what the other items and the tensors say.
        if (hasMetadata_) {
            noteGaps();
            return {};
        }
        for (auto& [item, files] : items_) {
            for (const HeldFile& file : files) {
                if (file.index == kNone) continue;
                for (const torch_save::TensorPlacement& placement : contents(file).placements)
                    parts_.raiseWorld(placement.dtensor ? placement.dtensor->world : placement.world);
            }
        }
        for (auto& [item, files] : items_) {
            if (!std::ranges::any_of(files, &ItemFile::ranked)) continue;
            std::set<uint32_t> present;
            bool distributed = false, tensors = false;
            for (const HeldFile& file : files) {
                present.insert(file.ranks[0]);
                distributed = distributed || (file.index != kNone && !contents(file).placements.empty());
                tensors = tensors || (file.index != kNone && !contents(file).tensors.empty());
            }
            for (uint32_t rank = 0; rank < parts_.world(); ++rank) {
                if (present.contains(rank)) continue;
                if (distributed)
                    parts_.addMissing(defaultFileName(item, rank), rank, true);
                else if (tensors)
                    noteDoubt(item, rank);
            }
        }
        return {};
    }

    void findRoles() {
        for (auto& [item, files] : items_) {
            for (HeldFile& file : files) {
                if (file.index == kNone) continue;
                const TensorFile& saved = contents(file);
                for (const StoredTensor& tensor : saved.tensors)
                    roles_.add(pathName(itemPath(item, tensor.path)));
                for (const StoredObject& object : saved.objects)
                    roles_.add(pathName(itemPath(item, object.path)));
            }
        }
    }

    Role roleOf(const Path& path) const { return roles_.role(pathName(path)); }

    // ------------------------------------------------------------------ tensors

    // What a stored tensor is in its file: DTensors and other wrappers hold one or more.
    const Path& leafPath(const TensorFile& saved, uint32_t t) {
        const StoredTensor& stored = saved.tensors[t];
        return stored.special == kNone ? stored.path : saved.specials[stored.special].path;
    }

    void findLeaves(HeldFile& file) {
        const TensorFile& saved = contents(file);
        file.covered.assign(saved.tensors.size(), false);
        for (uint32_t t = 0; t < saved.tensors.size(); ++t) {
            const Path& path = leafPath(saved, t);
            file.leaves.try_emplace(
                saved.kind == TensorFile::Kind::safetensors ? pathName(path) : leafKey(path), t);
        }
    }

    void addItem(const Item& item) {
        HeldFiles& files = items_[item.name];
        for (HeldFile& file : files) {
            if (file.index != kNone) findLeaves(file);
        }
        for (const Leaf& leaf : item.leaves)
            addLeaf(item, leaf, files);
        // What no entry covers: the framework leaves out tensors that the first rank does not have.
        for (HeldFile& file : files) {
            if (file.index == kNone) continue;
            for (uint32_t t = 0; t < file.covered.size(); ++t) {
                if (!file.covered[t]) addUnlisted(item, file, t);
            }
            file.leaves.clear();
        }
    }

    void fail(const HeldFile& file, const Path& path, std::string message,
              Note::Lacks lacks = Note::Lacks::nothing, Severity severity = Severity::error) {
        assembly_.note(rule::metaInconsistent, severity, std::move(message), file.name, pathName(path),
                       lacks);
    }

    void addLeaf(const Item& item, const Leaf& leaf, HeldFiles& files) {
        const std::string key = leafKey(leaf.path), joined = pathName(leaf.path);
        const auto find = [&](const HeldFile& file) {
            if (file.index == kNone) return kNone;
            const bool flat = contents(file).kind == TensorFile::Kind::safetensors;
            const auto it = file.leaves.find(flat ? joined : key);
            return it == file.leaves.end() ? kNone : it->second;
        };
        // The files of torch.save know integer keys from list indices.
        Path path = itemPath(item.name, leaf.path);
        for (const HeldFile& file : files) {
            const uint32_t t = find(file);
            if (t == kNone || contents(file).kind == TensorFile::Kind::safetensors) continue;
            path = itemPath(item.name, leafPath(contents(file), t));
            break;
        }
        const auto first =
            std::ranges::find_if(*leaf.groups, [](const Group& g) { return g.problem.empty(); });
        if (first != leaf.groups->end()) assembly_.addTensor(path, first->dtype, first->shape, roleOf(path));
        for (HeldFile& file : files) {
            const uint32_t t = find(file);
            bool expected = false;
            for (const uint32_t rank : file.ranks) {
                const auto group =
                    std::ranges::find_if(*leaf.groups, [&](const Group& g) { return g.holds(rank); });
                if (group == leaf.groups->end()) continue;
                expected = true;
                if (t == kNone) {
                    if (file.index != kNone)
                        fail(file, path,
                             fmt::format("metadata.pkl says that rank {} has a part of it, the file has none",
                                         rank),
                             Note::Lacks::nothing, group->replicated() ? Severity::warning : Severity::error);
                    break;
                }
                file.covered[t] = true;
                addPart(*group, file, t, rank, path);
            }
            if (t == kNone || expected) continue;
            file.covered[t] = true;
            fail(file, path, "the file has a part of it, which metadata.pkl does not know",
                 Note::Lacks::nothing, Severity::warning);
            addByItself(file, t, path);
        }
    }

    // The part of one rank, by the metadata and, where it is a DTensor, by its own pickle.
    void addPart(const Group& group, HeldFile& file, uint32_t t, uint32_t rank, const Path& path) {
        const TensorFile& saved = contents(file);
        const StoredTensor& stored = saved.tensors[t];
        if (group.spec) parts_.noteMesh(*group.spec);
        if (stored.special != kNone && saved.specials[stored.special].kind == "dtensor")
            return addListedDTensor(group, file, t, rank, path);
        if (!group.problem.empty())
            return fail(file, path, "its part cannot be placed: " + group.problem, Note::Lacks::anything);
        auto parts = group.partsOf(rank);
        if (!parts.ok()) return fail(file, path, parts.error().message, Note::Lacks::anything);
        if (stored.dtype != group.dtype || (group.spec && !fits(*parts, stored.shape))) {
            std::string message = fmt::format("the part of rank {} is {} {}, metadata.pkl says {} {}", rank,
                                              dtypeName(stored.dtype), formatDims(stored.shape),
                                              dtypeName(group.dtype), formatDims(partShape(*parts)));
            if (!group.replicated() || rank == group.ranks->front())
                return fail(file, path, std::move(message));
            // Not copies of one, whatever the metadata says: nothing is lost.
            assembly_.note(rule::replicaDiffers, Severity::error, std::move(message), file.name,
                           pathName(path));
            Path own = path;
            own[0] = keyPart(fmt::format("{}@{}", file.item, rank));
            return assembly_.addWhole(file.index, t, own, roleOf(path), rank);
        }
        if (file.ranks.size() > 1 && !group.replicated())
            return fail(file, path,
                        fmt::format("{} wrote this file, and their parts differ: only the last "
                                    "one is left, and which one that is is not stated",
                                    counted(file.ranks.size(), "rank")));
        // One copy in a file that all ranks wrote.
        if (file.ranks.size() > 1 && rank != file.ranks[0]) return;
        for (auto& piece : parts_.piecesOf(file.index, t, rank, std::move(parts->boxes)))
            assembly_.addPiece(path, group.dtype, group.shape, roleOf(path), std::move(piece));
    }

    // A rank outside of the mesh has an empty tensor of any shape.
    static bool fits(const torch_save::LocalParts& parts, const Dims& shape) {
        return parts.boxes.empty() ? elementCount(shape) == 0 : parts.shape == shape;
    }
    static Dims partShape(const torch_save::LocalParts& parts) {
        return parts.boxes.empty() ? Dims{0} : parts.shape.empty() ? parts.boxes[0].lengths : parts.shape;
    }

    void addListedDTensor(const Group& group, HeldFile& file, uint32_t t, uint32_t rank, const Path& path) {
        const TensorFile& saved = contents(file);
        const SpecialTensor& whole = saved.specials[saved.tensors[t].special];
        const auto& spec = saved.placements[saved.tensors[t].special].dtensor;
        // Of a file that several ranks wrote it says whose is left.
        if (file.ranks.size() > 1 && spec && spec->rank && *spec->rank != rank) {
            if (!group.replicated() && rank == file.ranks[0])
                fail(file, path,
                     fmt::format("{} wrote this file, and only the part of rank {} is left",
                                 counted(file.ranks.size(), "rank"), *spec->rank));
            return;
        }
        auto pieces = parts_.partsOf(file.index, t, rank, path);
        if (pieces.empty()) return;
        if (group.problem.empty()) {
            const auto parts = group.partsOf(rank);
            // The data is in this file, and so is what it says of itself.
            if (saved.tensors[t].dtype != group.dtype || whole.shape != group.shape) {
                return fail(file, path,
                            fmt::format("it is {} {} here, metadata.pkl says {} {}",
                                        dtypeName(saved.tensors[t].dtype), formatDims(whole.shape),
                                        dtypeName(group.dtype), formatDims(group.shape)));
            }
            if (pieces[0].rank == rank && parts.ok()) compareWithListed(file, path, rank, pieces, *parts);
        }
        for (auto& piece : pieces)
            assembly_.addPiece(path, saved.tensors[t].dtype, whole.shape, roleOf(path), std::move(piece));
    }

    void compareWithListed(const HeldFile& file, const Path& path, uint32_t rank,
                           const std::vector<TensorAssembly::Piece>& pieces,
                           const torch_save::LocalParts& listed) {
        for (size_t p = 0; p < std::min(pieces.size(), listed.boxes.size()); ++p) {
            const auto& piece = pieces[p];
            const auto& box = listed.boxes[p];
            if (elementCount(piece.lengths) == 0 ||
                (box.globalOffsets == piece.offsets && box.lengths == piece.lengths))
                continue;
            return fail(file, path,
                        fmt::format("the part of rank {} is at {}, metadata.pkl says {}", rank,
                                    formatBox(piece.offsets, piece.lengths),
                                    formatBox(box.globalOffsets, box.lengths)));
        }
    }

    // A tensor that only the file knows.
    void addByItself(HeldFile& file, uint32_t t, const Path& path) {
        const TensorFile& saved = contents(file);
        const StoredTensor& stored = saved.tensors[t];
        if (stored.special != kNone && saved.specials[stored.special].kind == "dtensor") {
            for (auto& piece : parts_.partsOf(file.index, t, file.ranks[0], path))
                assembly_.addPiece(path, stored.dtype, saved.specials[stored.special].shape, roleOf(path),
                                   std::move(piece));
            return;
        }
        assembly_.addWhole(file.index, t, path, roleOf(path), file.ranks[0]);
    }

    void addUnlisted(const Item& item, HeldFile& file, uint32_t t) {
        const TensorFile& saved = contents(file);
        const Path path = itemPath(item.name, ownPath(saved, t));
        // What the first rank has is always listed, unless it is inside of an object.
        const bool plain = std::ranges::none_of(
            path, [](const PathPart& part) { return part.kind == PathPart::Kind::attribute; });
        if (file.ranks[0] == 0 && plain) {
            fail(file, path, "metadata.pkl does not list it: it is that of another save");
        } else {
            fail(file, path,
                 "metadata.pkl does not list it, so the framework leaves it out when it loads on other ranks",
                 Note::Lacks::nothing, Severity::warning);
        }
        addByItself(file, t, path);
    }

    // The inner parts of tensors that are not one dense array keep their own names.
    static const Path& ownPath(const TensorFile& saved, uint32_t t) {
        const StoredTensor& stored = saved.tensors[t];
        const bool placed = stored.special != kNone && saved.specials[stored.special].kind == "dtensor";
        return placed ? saved.specials[stored.special].path : stored.path;
    }

    // DTensors state where they are; what else there is, each rank has for itself.
    void addWithoutMetadata(const std::string& item, HeldFiles& files) {
        for (HeldFile& file : files) {
            if (file.index == kNone) continue;
            const TensorFile& saved = contents(file);
            for (uint32_t t = 0; t < saved.tensors.size(); ++t) {
                const StoredTensor& stored = saved.tensors[t];
                const bool distributed =
                    stored.special != kNone && saved.specials[stored.special].kind == "dtensor";
                // Files of safetensors do not even say whether they hold parts.
                unplaced_ = unplaced_ || distributed ||
                            (saved.kind == TensorFile::Kind::safetensors && files.size() > 1);
                addByItself(
                    file, t,
                    itemPath(item, ownPath(saved, t),
                             distributed || !file.ranked ? std::nullopt : std::optional(file.ranks[0])));
            }
        }
    }

    // ------------------------------------------------------------------ objects

    void addObjects() {
        std::vector<RankObject> all;
        std::vector<std::unique_ptr<Value>> texts;
        uint64_t textBytes = 0;
        for (auto& [item, files] : items_) {
            const auto when =
                listed_.contains(item) ? RankObject::When::firstIsMain : RankObject::When::differing;
            const auto add = [&, &item = item](const HeldFile& file, const Path& path, const Value& value) {
                const uint32_t rank = file.ranks[0];
                all.push_back(
                    {itemPath(item, path), itemPath(item, path, rank), file.index, rank, &value, when});
            };
            for (const HeldFile& file : files) {
                if (file.index != kNone) {
                    const TensorFile& saved = contents(file);
                    for (const StoredObject& object : saved.objects)
                        add(file, object.path, object.value);
                    // An item that is an empty dict has no entries.
                    if (saved.kind == TensorFile::Kind::torch && saved.tensors.empty() &&
                        saved.objects.empty() && saved.specials.empty()) {
                        texts.push_back(std::make_unique<Value>(makeDictOf({})));
                        add(file, {}, *texts.back());
                    }
                } else if (!holdsTensors(file)) {
                    addTextFile(file, textBytes, [&](const Path& path, Value value) {
                        texts.push_back(std::make_unique<Value>(std::move(value)));
                        add(file, path, *texts.back());
                    });
                }
            }
        }
        addRankObjects(assembly_, all);
    }

    template <class Add>
    void addTextFile(const HeldFile& file, uint64_t& total, Add&& add) {
        assembly_.addText(file.name);
        auto text = textOf(file.name, std::min(kMostText, kMostTexts - total));
        if (!text.ok()) {
            assembly_.note(rule::fileUnreferenced, Severity::warning,
                           "its value is left out: " + text.error().message, file.name);
            return;
        }
        total += text->size();
        if (file.kind == Layout::Kind::raw)
            return add(
                {}, makeValueBy([&](ValueGraph& graph) { return graph.addText(ValueKind::bytes, *text); }));
        const Value json = jsonValue(*text);
        const auto entries = ValueView(json).pairs();
        if (!json) assembly_.wrong("it is not valid JSON", file.name);
        for (const auto& [key, value] : entries)
            add({keyPart(key.textOr({}))}, {json.graph, value.node()});
        if (json && entries.empty()) add({}, json);
    }

    // ------------------------------------------------------------------ the whole

    void noteNoMetadata() {
        if (hasMetadata_ || source_.hasFile(kMetadataFile)) return;
        assembly_.note(
            rule::fileMissing, unplaced_ ? Severity::warning : Severity::info,
            "metadata.pkl is not here: it was lost, or no item was saved to be loaded on other ranks; "
            "tensors are placed by what the files of the ranks state",
            kMetadataFile);
    }

    void noteUnfinished() {
        if (!lastNameOf(source_.directory->path()).starts_with("tmp_")) return;
        assembly_.note(
            rule::fileStale, Severity::warning,
            "the name of the directory begins with 'tmp_': the save was not finished, and files may be "
            "missing or truncated");
    }

    const OpenOptions& options_;
    const Source& source_;
    TensorAssembly assembly_;
    RankParts parts_{assembly_};
    Metadata metadata_;
    bool hasMetadata_ = false, unplaced_ = false;
    std::map<std::string, HeldFiles> items_;
    std::set<std::string> listed_;  // items of the metadata
    RoleFinder roles_;
};

Probe probe(const Source& source) {
    if (!source.entry.empty() && source.entry != kMetadataFile) return {};
    if (source.hasFile(kMetadataFile) && isMetadataStart(startOf(*source.directory, kMetadataFile)))
        return {Probe::Match::certain, "has metadata.pkl"};
    if (source.entry.empty() && holdsItemFiles(source))
        return {Probe::Match::certain, "has files of items and ranks, such as model_0.pt"};
    return {};
}

Result<std::unique_ptr<Reader>> open(const Source& source, const OpenOptions& options) {
    if (source.entry != kMetadataFile) SHARDSCOPE_TRY(requireDirectory(source));
    return ItemsOpener(source, options).open();
}
}  // namespace

}  // namespace shardscope::torch_checkpointing

namespace shardscope {

const Format& torchCheckpointingFormat() {
    static const Format format{
        .about = {.name = "torch-checkpointing",
                  .title = "torch_checkpointing (a file for each item and rank)",
                  .synonyms = {"torch_checkpointing", "tckpt"},
                  .before = {{"torch-ranks", "its files are those of ranks"},
                             {"safetensors", "its files may be safetensors"}},
                  .reads = true,
                  .writes = true,
                  .generations = {"torch_checkpointing 0.1 (metadata.pkl versions 1.0 and 2.0)"},
                  .variants = {"cuda", "cpu"},
                  .shards = true,
                  .replicas = true,
                  .objects = true,
                  .aliases = true,
                  .nesting = true},
        .probe = torch_checkpointing::probe,
        .open = torch_checkpointing::open,
        .pathsFor = torch_checkpointing::pathsFor,
        .cannotHold = torch_checkpointing::cannotHold,
        .layout = torch_checkpointing::layOut};
    return format;
}

}  // namespace shardscope
