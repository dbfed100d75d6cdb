#include <algorithm>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "base/checked.h"
#include "base/rule.h"
#include "base/text.h"
#include "base/units.h"
#include "encoding/json_value.h"
#include "formats/catalog_opener.h"
#include "formats/orbax/flax.h"
#include "formats/orbax/items.h"
#include "formats/orbax/levanter.h"
#include "formats/orbax/metadata.h"
#include "formats/orbax/placement.h"
#include "formats/orbax/store.h"
#include "model/paths.h"
#include "model/value_make.h"
#include "storage/files_below.h"
#include "storage/open_files.h"

namespace shardscope::orbax {

namespace {

constexpr uint64_t kMostStepMetadata = 16 << 20;
constexpr size_t kMostItems = 256;
constexpr int64_t kMostMissing = 1 << 20;  // chunks that are looked for, in all arrays
constexpr size_t kMostHolders = 4096;      // entries of one tensor
constexpr size_t kMostShown = 1 << 20;     // entries in all that are copies of others for more ranks

// One pytree: its directory, and what its names begin with.
struct Item {
    std::string prefix;      // of paths
    std::string name;        // empty for the only one
    std::string namePrefix;  // of names
    std::vector<DirectoryEntry> entries;
    std::optional<Placement> placement;
};

class OrbaxOpener : private CatalogOpener {
  public:
    OrbaxOpener(const Source& source, const OpenOptions& options, const char* format = "orbax",
                const char* writer = "Orbax")
        : CatalogOpener(format, "", writer), source_(source), options_(options), files_(source, builder_) {}

    Result<std::unique_ptr<Reader>> open() {
        SHARDSCOPE_TRY(findItems());
        SHARDSCOPE_TRY(readPlacements());
        for (Item& item : items_)
            SHARDSCOPE_TRY(addItem(item));
        return finishArrays();
    }

    Result<std::unique_ptr<Reader>> openLevanter() {
        Item item{{}, "metadata", {}, source_.entries, {}};
        addLevanterMark(item);
        NestedArrays nested;
        if (!has(item.entries, kOcdbtManifest)) {
            SHARDSCOPE_ASSIGN(nested, findNestedArrays(*source_.directory));
        }
        Tree tree;
        for (const std::string& name : nested.described)
            tree.leaves.push_back({name, {}, Leaf::Kind::array});
        for (const std::string& name : nested.undescribed)
            note(rule::fileMissing, Severity::error,
                 "the description of the zarr array is missing, so that its chunks say nothing",
                 name + '/' + std::string(kZarrayName), dotted(name), Note::Lacks::anything);
        Store store;
        SHARDSCOPE_TRY(fillStore(item, tree, store));
        builder_.setVariant(store.ocdbt ? "ocdbt" : "zarr");
        for (Note& one : store.notes) {
            one.tensor = dotted(one.tensor);
            builder_.addNote(std::move(one));
        }
        item.name.clear();
        reserveFor(item, store);
        SHARDSCOPE_TRY(compareWithManifest(store));
        for (auto& [name, stored] : store.arrays) {
            Path path;
            for (std::string_view rest = name; !rest.empty();) {
                const std::string_view key = rest.substr(0, rest.find('/'));
                path.push_back(keyPart(key));
                rest.remove_prefix(std::min(key.size() + 1, rest.size()));
            }
            stored.name = dotted(name);
            SHARDSCOPE_TRY(addArray(item, stored, path, false));
        }
        return finishArrays();
    }

    Result<std::unique_ptr<Reader>> openFile() {
        const bool stream = isStreamStart(startOf(*source_.directory, source_.entry));
        builder_.setVariant(stream ? "stream" : "msgpack");
        builder_.setWriter(stream ? "EasyLM" : "Flax");
        const FileId id = files_.add(source_.entry, false);
        SHARDSCOPE_ASSIGN(const auto file, source_.directory->openFile(source_.entry));
        auto tree = stream ? readFlaxStream(*file, options_.stop) : readFlax(*file, options_.stop);
        if (!tree.ok()) return std::move(tree).error().inFile(source_.entry);
        for (FlaxLeaf& leaf : tree->leaves) {
            if (leaf.elsewhere) {
                addMissingArray(leaf.name, *leaf.elsewhere);
            } else {
                SHARDSCOPE_TRY(addFlaxLeaf(leaf, id, {}, {}));
            }
        }
        addFlaxNotes(*tree, source_.entry, {});
        return finish();
    }

  private:
    std::string pathIn(const Item& item, std::string_view name) const {
        return item.prefix + std::string(name);
    }

    // What `parse` makes of a metadata file, which is listed. Nullopt, with a note, where it cannot be read.
    // Errors: cancelled.
    template <class Parse>
    auto readMetadata(const std::string& path, uint64_t most, const Parse& parse, Note::Lacks lacks,
                      Severity severity = Severity::error)
        -> Result<std::optional<typename std::invoke_result_t<Parse, std::string_view>::value_type>> {
        using Parsed = std::invoke_result_t<Parse, std::string_view>;
        files_.add(path, true);
        const auto text = wholeFile(*source_.directory, path, most);
        Parsed parsed = text.ok() ? parse(*text) : Parsed(text.error());
        if (parsed.ok()) return std::optional(std::move(parsed).value());
        if (parsed.error().code == ErrorCode::cancelled) return parsed.error();
        noteError(parsed.error(), path, {}, lacks, severity);
        return std::optional<typename Parsed::value_type>();
    }

    Result<std::unique_ptr<Reader>> finishArrays() {
        noteTotals({}, {{missingChunks_, "chunks are missing"},
                        {unlisted_, "arrays are not listed"},
                        {missingArrays_, "arrays are missing"},
                        {unplaced_, "arrays have chunks without a rank"}});
        return finish();
    }

    Result<std::unique_ptr<Reader>> finish() {
        return makeReader(source_, options_, std::move(builder_).finish(), std::move(contents_));
    }

    // ------------------------------------------------------------------ Levanter

    void addLevanterMark(const Item& item) {
        const std::string mark(kLevanterMark);
        if (!has(item.entries, kLevanterMark)) {
            files_.add(mark, true);
            note(rule::fileMissing, Severity::error,
                 fmt::format("'{}' is missing; Levanter writes it last, so the save did not end", mark),
                 mark);
            return;
        }
        addJsonItem(item, mark);
        const auto text = wholeFile(*source_.directory, mark, kMostStepMetadata);
        if (text.ok() && isTemporaryCheckpoint(*text) == true)
            note(rule::fileStale, Severity::warning,
                 "it says that the checkpoint is temporary: Levanter deletes it once there is another one",
                 mark);
    }

    // Arrays that the manifest lists are there, and as it says.
    Status compareWithManifest(const Store& store) {
        const std::string path(kLevanterManifest);
        if (!source_.hasFile(path)) return {};
        SHARDSCOPE_ASSIGN(const auto listed, readMetadata(path, options_.limits.indexJson, parseManifest,
                                                          Note::Lacks::anything));
        if (!listed) return {};
        for (const ListedArray& array : *listed) {
            const auto at = store.arrays.find(array.path);
            if (at == store.arrays.end()) {
                addMissingArray(dotted(array.path), {});
            } else if (at->second.array.shape != array.shape) {
                wrong(fmt::format("its shape is {}, the manifest says {}", formatDims(at->second.array.shape),
                                  formatDims(array.shape)),
                      path, dotted(array.path));
            }
        }
        return {};
    }

    // ------------------------------------------------------------------ what there is

    Status findItems() {
        noteUnfinished();
        StepMetadata step;
        if (source_.hasFile(kStepMetadata)) {
            SHARDSCOPE_ASSIGN(auto read,
                              readMetadata(
                                  std::string(kStepMetadata), kMostStepMetadata,
                                  [](std::string_view text) { return Result(parseStepMetadata(text)); },
                                  Note::Lacks::nothing));
            if (read) step = *std::move(read);
            if (step.unfinished)
                note(rule::fileStale, Severity::warning,
                     "it has no time of the end of the save: the save was not finished, and files may be "
                     "missing or truncated",
                     kStepMetadata);
        }
        for (const std::string_view mark : {kVersion1Mark, kCommitMark}) {
            if (source_.hasFile(mark)) files_.add(std::string(mark), true);
        }
        if (isArrayItem(*source_.directory, {}, source_.entries)) {
            items_.push_back({{}, {}, {}, source_.entries, {}});
            return {};
        }
        for (const DirectoryEntry& entry : source_.entries) {
            if (entry.kind != DirectoryEntry::Kind::directory || entry.name.starts_with('.')) continue;
            SHARDSCOPE_TRY(options_.stop.poll());
            if (entry.name.find(kUnfinished) != std::string::npos) {
                note(rule::fileStale, Severity::warning,
                     "an item whose save was not finished; it is left out, and can be opened by itself",
                     entry.name);
                continue;
            }
            Item item{entry.name + '/', entry.name, {}, {}, {}};
            SHARDSCOPE_ASSIGN(item.entries, source_.directory->list(entry.name));
            if (isArrayItem(*source_.directory, item.prefix, item.entries)) {
                if (items_.size() == kMostItems)
                    return makeError(ErrorCode::limit, "the step has too many items");
                items_.push_back(std::move(item));
            } else if (const std::string document = jsonOfItem(entry.name, item.entries); !document.empty()) {
                addJsonItem(item, document);
                step.handlers.erase(entry.name);
            }
        }
        for (Item& item : items_) {
            step.handlers.erase(item.name);
            if (items_.size() > 1) item.namePrefix = item.name + '.';
        }
        for (const auto& [name, handler] : step.handlers) {
            if (handler.find("PyTree") == handler.npos && handler.find("Standard") == handler.npos) continue;
            note(rule::fileMissing, Severity::error,
                 fmt::format("the item '{}' is missing", printable(name, kNameInMessage)), name, {},
                 Note::Lacks::anything);
        }
        if (items_.empty() && builder_.objectCount() == 0)
            return makeError(ErrorCode::notFound, "no directory of an item with arrays is here")
                .inFile(source_.display)
                .byRule(rule::fileMissing);
        return {};
    }

    void noteUnfinished() {
        if (lastNameOf(source_.directory->path()).find(kUnfinished) == std::string_view::npos) return;
        note(rule::fileStale, Severity::warning,
             fmt::format(
                 "the name of the directory has '{}' in it: the save was not finished, and files may be "
                 "missing or truncated",
                 kUnfinished));
    }

    void noteError(const Error& error, const std::string& file, const std::string& tensor, Note::Lacks lacks,
                   Severity severity = Severity::error) {
        note(error.location.rule.empty() ? rule::metaInconsistent : error.location.rule.c_str(), severity,
             error.message, file, tensor, lacks, error.location.offset);
    }

    void addJsonItem(const Item& item, const std::string& name) {
        const std::string path = pathIn(item, name);
        const FileId file = files_.add(path, true);
        ObjectInfo object{.name = item.name,
                          .path = {keyPart(item.name)},
                          .file = file,
                          .length = builder_.file(file).size};
        addMarks(item);
        const auto text = wholeFile(*source_.directory, path, options_.limits.objectBytes);
        object.value = text.ok() ? jsonValue(*text) : Value();
        if (!object.value) {
            wrong(text.ok() ? std::string("it is not valid JSON") : text.error().message, path, item.name,
                  Note::Lacks::anything);
            return;
        }
        builder_.addObject(std::move(object));
    }

    void addMarks(const Item& item) {
        if (has(item.entries, kCommitMark)) files_.add(pathIn(item, kCommitMark), true);
    }

    Status readPlacements() {
        for (Item& item : items_) {
            if (!has(item.entries, kSharding)) continue;
            // Restoring goes by what the program wants; where arrays were is only said here.
            SHARDSCOPE_ASSIGN(item.placement,
                              readMetadata(pathIn(item, kSharding), options_.limits.indexJson,
                                           Placement::parse, Note::Lacks::nothing, Severity::warning));
            if (!item.placement) continue;
            const auto& mesh = item.placement->mesh();
            if (mesh && (!mesh_ || mesh->asMesh().ranks() > mesh_->asMesh().ranks())) mesh_ = mesh;
        }
        if (!mesh_) return {};
        if (!mesh_->axes.empty()) builder_.setMesh(mesh_->asMesh());
        builder_.setRankCount(mesh_->asMesh().ranks());
        return {};
    }

    // ------------------------------------------------------------------ an item

    Status addItem(Item& item) {
        addMarks(item);
        Tree tree;
        bool known = false;
        const bool hasTree = has(item.entries, kTreeMetadata), hasFlax = has(item.entries, kMsgpackTree);
        const std::string treePath = pathIn(item, kTreeMetadata), flaxPath = pathIn(item, kMsgpackTree);
        if (hasTree) {
            SHARDSCOPE_ASSIGN(auto parsed, readMetadata(treePath, options_.limits.indexJson, parseTree,
                                                        Note::Lacks::anything));
            known = parsed.has_value();
            if (parsed) tree = *std::move(parsed);
        }
        if (hasFlax) {
            const FileId id = files_.add(flaxPath, true);
            if (!known) {
                SHARDSCOPE_ASSIGN(known, readFlaxTree(item, id, flaxPath, tree));
            }
        }
        // A database says which arrays there are, and restoring into a given tree needs no more; of files
        // nothing says it.
        const bool listed = has(item.entries, kOcdbtManifest);
        if (!hasTree && !hasFlax)
            note(rule::fileMissing, listed ? Severity::warning : Severity::error,
                 fmt::format("'{}' is missing, so the tree is that of the arrays that are here", treePath),
                 treePath, {}, listed ? Note::Lacks::nothing : Note::Lacks::anything);

        Store store;
        SHARDSCOPE_TRY(fillStore(item, tree, store));
        builder_.setVariant(store.ocdbt ? "ocdbt" : "zarr");
        for (Note& one : store.notes) {
            one.tensor = item.namePrefix + one.tensor;
            builder_.addNote(std::move(one));
        }
        std::set<std::string, std::less<>> unreadable;
        for (const Note& one : store.notes)
            unreadable.insert(one.tensor);
        SHARDSCOPE_TRY(addStrings(item, tree));
        for (const auto& [name, stored] : store.arrays) {
            store.grids[name] = stored.array.chunk;
            if (const ShardHolders* holders = holdersOf(item, stored); holders)
                shown_ += std::min(entriesFor(stored, *holders), kMostHolders);
        }
        reserveFor(item, store);
        std::set<std::string, std::less<>> names;
        for (const Leaf& leaf : tree.leaves) {
            if (!names.insert(leaf.name).second) {
                note(rule::metaDuplicate, Severity::error,
                     "two leaves of the tree have this name, one is shown", treePath,
                     item.namePrefix + leaf.name, Note::Lacks::anything);
                continue;
            }
            if (leaf.kind != Leaf::Kind::array) continue;
            const auto found = store.arrays.find(leaf.name);
            if (found != store.arrays.end()) {
                SHARDSCOPE_TRY(addArray(item, found->second, leaf.path, tree.storesFill));
            } else if (!unreadable.contains(item.namePrefix + leaf.name)) {
                addMissingArray(
                    item.namePrefix + leaf.name,
                    store.ocdbt ? std::string() : pathIn(item, leaf.name + '/' + std::string(kZarrayName)));
            }
        }
        for (auto& [name, stored] : store.arrays) {
            if (names.contains(name)) continue;
            if (known)
                addNote(unlisted_, noteOf(rule::fileUnreferenced, Severity::warning,
                                          "the tree does not list this array, so Orbax does not restore it",
                                          builder_.file(stored.about).path, item.namePrefix + name));
            SHARDSCOPE_TRY(addArray(item, stored, {keyPart(name)}, tree.storesFill));
        }
        const bool arrayMetadatas = has(item.entries, kArrayMetadatas, DirectoryEntry::Kind::directory);
        if ((arrayMetadatas || tree.writeShapes) && !has(item.entries, kCommitMark) &&
            !source_.hasFile(kCommitMark))
            note(rule::fileStale, Severity::warning,
                 fmt::format("'{}' is missing; Orbax since 0.12 writes it when a save is complete",
                             kCommitMark),
                 pathIn(item, kCommitMark));
        if (arrayMetadatas) SHARDSCOPE_TRY(addArrayMetadatas(item, store));
        return {};
    }

    // What each process says of the arrays; all of them say the same.
    Status addArrayMetadatas(const Item& item, const Store& store) {
        const std::string directory = pathIn(item, kArrayMetadatas);
        const auto listed = source_.directory->list(directory);
        if (!listed.ok()) return {};
        bool first = true;
        for (const DirectoryEntry& entry : *listed) {
            if (entry.kind != DirectoryEntry::Kind::file) continue;
            const std::string path = directory + '/' + entry.name;
            files_.addListed(path, entry.size, true);
            if (!std::exchange(first, false)) continue;
            SHARDSCOPE_ASSIGN(const auto chunks, readMetadata(path, options_.limits.indexJson,
                                                              parseArrayMetadatas, Note::Lacks::nothing));
            if (!chunks) continue;
            for (const auto& [name, chunk] : *chunks) {
                const auto stored = store.grids.find(name);
                if (stored != store.grids.end() && stored->second != chunk)
                    wrong(fmt::format("the array has chunks of {}, this file says {}",
                                      formatDims(stored->second), formatDims(chunk)),
                          path, item.namePrefix + name);
            }
        }
        return {};
    }

    // The tree of Orbax up to 0.4, with the leaves that it holds itself. False where it cannot be read.
    Result<bool> readFlaxTree(const Item& item, FileId id, const std::string& path, Tree& tree) {
        const auto file = source_.directory->openFile(path);
        auto flax = file.ok() ? readFlax(**file, options_.stop) : Result<FlaxTree>(file.error());
        if (!flax.ok()) {
            if (flax.error().code == ErrorCode::cancelled) return flax.error();
            noteError(flax.error(), path, {}, Note::Lacks::anything);
            return false;
        }
        addFlaxNotes(*flax, path, item.namePrefix);
        t5x_ = t5x_ || flax->t5x;
        for (FlaxLeaf& leaf : flax->leaves) {
            if (leaf.elsewhere) {
                tree.leaves.push_back({*std::move(leaf.elsewhere), std::move(leaf.path), Leaf::Kind::array});
                continue;
            }
            // The file holds more than metadata then.
            if (leaf.tensor) builder_.file(id).metadata = false;
            SHARDSCOPE_TRY(addFlaxLeaf(leaf, id, item.namePrefix, item.name));
        }
        return true;
    }

    Status fillStore(const Item& item, const Tree& tree, Store& store) {
        const OcdbtLimits limits;
        if (has(item.entries, kOcdbtManifest)) {
            auto index = readOcdbt(*source_.directory, item.prefix, limits, options_.stop);
            if (!index.ok()) return std::move(index).error();
            return addDatabase(source_, *index, files_, contents_.values, store, options_.stop);
        }
        std::vector<std::string> names;
        for (const Leaf& leaf : tree.leaves) {
            if (leaf.kind == Leaf::Kind::array) names.push_back(leaf.name);
        }
        SHARDSCOPE_TRY(addPlainArrays(source_, item.prefix, names, files_, store, options_.stop));
        if (!store.arrays.empty()) return {};
        // The databases of the processes, before or without being merged.
        bool found = false;
        for (const DirectoryEntry& entry : item.entries) {
            if (entry.kind != DirectoryEntry::Kind::directory || !entry.name.starts_with(kProcessDirectory))
                continue;
            const std::string prefix = item.prefix + entry.name + '/';
            if (!source_.directory->stat(prefix + std::string(kOcdbtManifest)).ok()) continue;
            auto index = readOcdbt(*source_.directory, prefix, limits, options_.stop);
            if (!index.ok()) {
                if (index.error().code == ErrorCode::cancelled) return std::move(index).error();
                noteError(index.error(), index.error().location.file, {}, Note::Lacks::anything);
                continue;
            }
            Store one;
            SHARDSCOPE_TRY(addDatabase(source_, *index, files_, contents_.values, one, options_.stop));
            merge(one, store);
            found = true;
        }
        if (!found) return {};
        note(
            rule::fileMissing, Severity::error,
            fmt::format("'{}' is missing, so Orbax finds no arrays; they are taken from the databases of the "
                        "processes, and what was never merged may be incomplete",
                        kOcdbtManifest),
            pathIn(item, kOcdbtManifest));
        return {};
    }

    // Chunks of one array that several processes wrote.
    static void merge(Store& from, Store& into) {
        into.ocdbt = true;
        std::ranges::move(from.notes, std::back_inserter(into.notes));
        for (auto& [name, stored] : from.arrays) {
            const auto [at, added] = into.arrays.try_emplace(name, std::move(stored));
            if (added) continue;
            StoredArray& known = at->second;
            if (known.array.shape != stored.array.shape || known.array.chunk != stored.array.chunk) continue;
            known.chunks.insert(known.chunks.end(), stored.chunks.begin(), stored.chunks.end());
            std::ranges::stable_sort(known.chunks, {}, &StoredChunk::place);
            // Not std::ranges::unique: clang 14, with which the fuzz targets are built, does not take it.
            const auto same = [](const StoredChunk& a, const StoredChunk& b) { return a.place == b.place; };
            known.chunks.erase(std::unique(known.chunks.begin(), known.chunks.end(), same),
                               known.chunks.end());
        }
    }

    // ------------------------------------------------------------------ leaves

    Status addStrings(const Item& item, const Tree& tree) {
        std::map<std::string, std::string, std::less<>> strings;
        const std::string path = pathIn(item, kStrings);
        FileId id = kNone;
        if (has(item.entries, kStrings)) {
            SHARDSCOPE_ASSIGN(auto read, readMetadata(path, options_.limits.indexJson, parseStrings,
                                                      Note::Lacks::anything));
            if (read) strings = *std::move(read);
            id = files_.add(path, true);
        }
        for (const Leaf& leaf : tree.leaves) {
            if (leaf.kind == Leaf::Kind::array) continue;
            ObjectInfo object{
                .name = item.namePrefix + leaf.name, .path = fullPath(item, leaf.path), .file = id};
            const auto text = leaf.kind == Leaf::Kind::text ? strings.find(leaf.name) : strings.end();
            if (leaf.kind == Leaf::Kind::text && text == strings.end()) {
                note(id == kNone ? rule::fileMissing : rule::metaInconsistent, Severity::error,
                     "it does not hold the text of a leaf", path, object.name, Note::Lacks::anything);
                continue;
            }
            object.value = makeValueBy([&](ValueGraph& graph) {
                switch (leaf.kind) {
                    case Leaf::Kind::text:
                        return graph.addText(ValueKind::text, text->second);
                    case Leaf::Kind::emptyDict:
                        return graph.addContainer(ValueKind::dict);
                    case Leaf::Kind::emptyList:
                        return graph.addContainer(ValueKind::list);
                    case Leaf::Kind::emptyTuple:
                        return graph.addContainer(ValueKind::tuple);
                    default:
                        return graph.addNone();
                }
            });
            builder_.addObject(std::move(object));
        }
        return {};
    }

    static Path fullPath(const Item& item, const Path& path) {
        return item.namePrefix.empty() ? path : joinedPaths({keyPart(item.name)}, path);
    }

    void addMissingArray(const std::string& name, const std::string& path) {
        addNote(missingArrays_,
                noteOf(path.empty() ? rule::metaInconsistent : rule::fileMissing, Severity::error,
                       "the tree lists this array, but it is not stored", path, name, Note::Lacks::anything));
    }

    void addFlaxNotes(FlaxTree& tree, const std::string& path, const std::string& namePrefix) {
        for (Note& one : tree.notes) {
            one.file = path;
            one.tensor = namePrefix + one.tensor;
            builder_.addNote(std::move(one));
        }
    }

    Status addFlaxLeaf(FlaxLeaf& leaf, FileId file, const std::string& namePrefix, std::string_view item) {
        Path path = std::move(leaf.path);
        if (!namePrefix.empty()) path.insert(path.begin(), keyPart(item));
        if (!leaf.tensor) {
            builder_.addObject({.name = namePrefix + leaf.name,
                                .path = std::move(path),
                                .file = file,
                                .value = std::move(leaf.object)});
            return {};
        }
        FlaxLeaf::Tensor& tensor = *leaf.tensor;
        const Role role = roleOf(path, item, t5x_);
        const TensorInfo info{.name = namePrefix + leaf.name,
                              .path = std::move(path),
                              .dtype = tensor.dtype,
                              .shape = tensor.shape,
                              .role = role};
        SHARDSCOPE_TRY(builder_.addTensor(info));
        contents_.arrays.emplace_back();
        if (tensor.parts.empty()) {
            contents_.inTree.push_back(contents_.values.size());
            contents_.values.insert(contents_.values.end(), tensor.value.begin(), tensor.value.end());
            return builder_.addWhole(kNone, file, 0, tensor.value.size());
        }
        const Dims zeros(tensor.shape.size(), 0);
        for (const auto& part : tensor.parts) {
            CatalogBuilder::Chunk chunk{.file = file,
                                        .offset = part.offset,
                                        .length = part.length,
                                        .offsets = zeros,
                                        .lengths = tensor.shape};
            if (tensor.parts.size() > 1) chunk.flat = part.elements;
            SHARDSCOPE_TRY(builder_.addChunk(chunk));
            contents_.inTree.push_back(kInFile);
        }
        return {};
    }

    Status addArray(Item& item, StoredArray& stored, const Path& path, bool storesFill) {
        SHARDSCOPE_TRY(options_.stop.poll());
        ZarrArray& array = stored.array;
        if (storesFill) array.fill.reset();
        const TensorInfo info{.name = item.namePrefix + stored.name,
                              .path = fullPath(item, path),
                              .dtype = array.dtype,
                              .shape = array.shape,
                              .role = roleOf(path, item.name, t5x_)};
        if (Status added = builder_.addTensor(info); !added.ok())
            return std::move(added).error().inFile(builder_.file(stored.about).path);
        if (!array.shownAs.empty())
            note(rule::metaAlias, Severity::info,
                 fmt::format("its elements are {}, one byte each, which are shown as {}",
                             printable(array.shownAs), dtypeName(array.dtype)),
                 builder_.file(stored.about).path, info.name);
        const ShardHolders* holders = holdersOf(item, stored);
        const Dims grid = array.grid();
        int64_t all = 0;
        if (!checkedProduct(grid, all)) return makeError(ErrorCode::internal, "a grid was not checked");
        // An array without elements needs no chunk.
        if (all > 0) {
            const bool several = holders && showsAll(stored, *holders);
            bool rankless = false;
            Dims place(grid.size(), 0);
            int64_t next = 0;
            for (const StoredChunk& chunk : stored.chunks) {
                SHARDSCOPE_TRY(addMissing(stored, info.name, grid, next, chunk.place, holders));
                next = chunk.place + 1;
                SHARDSCOPE_TRY(addChunk(stored, chunk, grid, holders, several, rankless));
            }
            SHARDSCOPE_TRY(addMissing(stored, info.name, grid, next, all, holders));
            if (rankless && holders)
                addNote(unplaced_,
                        noteOf(rule::metaInconsistent, Severity::info,
                               "chunks of it are spread over several shards, so no one rank holds them",
                               pathIn(item, kSharding), info.name));
        }
        contents_.arrays.emplace_back(std::move(array));
        return {};
    }

    void reserveFor(Item& item, const Store& store) {
        size_t tensors = contents_.arrays.size() + store.arrays.size(), chunks = contents_.inTree.size(),
               dims = 0;
        for (const auto& [name, stored] : store.arrays) {
            const ShardHolders* holders = holdersOf(item, stored);
            const bool several = holders && showsAll(stored, *holders);
            const size_t entries = several ? entriesFor(stored, *holders) : stored.chunks.size();
            chunks += entries;
            dims += stored.array.shape.size() * (2 * entries + 1);
        }
        builder_.reserve(tensors, chunks, dims);
        contents_.inTree.reserve(chunks);
    }

    const ShardHolders* holdersOf(Item& item, const StoredArray& stored) const {
        if (!item.placement || !mesh_) return nullptr;
        return item.placement->holders(stored.name, stored.array.shape, *mesh_);
    }

    static size_t entriesFor(const StoredArray& stored, const ShardHolders& holders) {
        size_t most = 1;
        for (const auto& ranks : holders.ranks)
            most = std::max(most, ranks.size());
        return most * stored.chunks.size();
    }

    // Whether each chunk of an array is listed for all ranks that hold it; else for one of them, in turn.
    // Where there would be too many entries in all, this holds for every array.
    bool showsAll(const StoredArray& stored, const ShardHolders& holders) const {
        const size_t entries = entriesFor(stored, holders);
        return entries == stored.chunks.size() || (entries <= kMostHolders && shown_ <= kMostShown);
    }

    Status addChunk(const StoredArray& stored, const StoredChunk& chunk, const Dims& grid,
                    const ShardHolders* holders, bool several, bool& rankless) {
        const ZarrArray& array = stored.array;
        offsets_.resize(grid.size());
        lengths_.resize(grid.size());
        int64_t rest = chunk.place;
        for (size_t d = grid.size(); d-- > 0;) {
            offsets_[d] = rest % grid[d] * array.chunk[d];
            lengths_[d] = std::min(array.chunk[d], array.shape[d] - offsets_[d]);
            rest /= grid[d];
        }
        CatalogBuilder::Chunk made{.file = chunk.file,
                                   .offset = chunk.offset,
                                   .length = chunk.length,
                                   .offsets = offsets_,
                                   .lengths = lengths_};
        const auto add = [&](uint32_t rank) {
            made.rank = rank;
            contents_.inTree.push_back(chunk.inTree);
            return builder_.addChunk(made);
        };
        const std::vector<uint32_t>* ranks = holders ? holders->of(array.shape, offsets_, lengths_) : nullptr;
        if (!ranks) {
            rankless = true;
            return add(kNone);
        }
        if (!several) return add((*ranks)[static_cast<size_t>(chunk.place) % ranks->size()]);
        for (const uint32_t rank : *ranks)
            SHARDSCOPE_TRY(add(rank));
        return {};
    }

    // Chunks [first, end) of the grid, which are not stored.
    Status addMissing(StoredArray& stored, const std::string& name, const Dims& grid, int64_t first,
                      int64_t end, const ShardHolders* holders) {
        for (int64_t place = first; place < end; ++place) {
            if (stored.array.fill) {
                if (++lookedFor_ > kMostMissing)
                    return makeError(ErrorCode::limit, fmt::format("more than {} are not stored",
                                                                   counted(kMostMissing, "chunk")))
                        .ofTensor(name);
                const StoredChunk filled{place, stored.about, stored.offset, 0, kFilled};
                bool ignored = false;
                SHARDSCOPE_TRY(addChunk(stored, filled, grid, holders, false, ignored));
                continue;
            }
            if (++lookedFor_ > kMostMissing) {
                missingChunks_ += static_cast<size_t>(end - place);
                return {};
            }
            Dims index(grid.size(), 0);
            int64_t rest = place;
            for (size_t d = grid.size(); d-- > 0; rest /= grid[d])
                index[d] = rest % grid[d];
            const std::string chunk = stored.array.chunkName(index);
            const std::string& about = builder_.file(stored.about).path;
            const std::string plain = about.substr(0, about.rfind('/') + 1);
            const bool inFiles = about.ends_with(kZarrayName) || about.ends_with(kZarrJsonName);
            addNote(missingChunks_,
                    noteOf(rule::fileMissing, Severity::error,
                           inFiles ? std::string("the file of a chunk is missing")
                                   : fmt::format("the chunk {} is not in the database", chunk),
                           inFiles ? plain + chunk : about, name));
        }
        return {};
    }

    const Source& source_;
    const OpenOptions& options_;
    FileTable files_;
    std::vector<Item> items_;
    std::optional<DeviceMesh> mesh_;
    bool t5x_ = false;
    Contents contents_;
    Dims offsets_, lengths_;  // of the chunk that is added
    size_t missingChunks_ = 0, missingArrays_ = 0, unlisted_ = 0, unplaced_ = 0, shown_ = 0;
    int64_t lookedFor_ = 0;
};

}  // namespace

Result<std::unique_ptr<Reader>> openDirectory(const Source& source, const OpenOptions& options) {
    return OrbaxOpener(source, options).open();
}

Result<std::unique_ptr<Reader>> openLevanter(const Source& source, const OpenOptions& options) {
    return OrbaxOpener(source, options, "levanter", "Levanter").openLevanter();
}

Result<std::unique_ptr<Reader>> openFlaxFile(const Source& source, const OpenOptions& options) {
    return OrbaxOpener(source, options).openFile();
}

}  // namespace shardscope::orbax
