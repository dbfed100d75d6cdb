// zarr: a directory for each tensor, which is a zarr v2 array with the ranks' shards as its chunks, and one
// for each key of ShardedObjects, with a torch.save file for each of them.
//
// Source: megatron/core/dist_checkpointing/strategies/zarr.py and mapping.py of megatron-core 0.8 (gone since
// 0.16).
#include <algorithm>

#include <fmt/format.h>

#include "base/checked.h"
#include "base/rule.h"
#include "base/text.h"
#include "base/units.h"
#include "encoding/torch_file.h"
#include "encoding/zarr_array.h"
#include "formats/catalog_reader.h"
#include "formats/megatron/store.h"
#include "storage/open_files.h"

namespace shardscope::megatron {

namespace {

constexpr uint64_t kMostZarray = 1 << 20;
constexpr std::string_view kObjectEnding = ".pt";
constexpr size_t kMostNamedChunks = 100;
constexpr int64_t kMostChunks = 1 << 22;  // that are looked for, in all arrays

class ZarrStoreReader final : public CatalogReader {
  public:
    ZarrStoreReader(const Source& source, const OpenOptions& options, Catalog catalog,
                    std::vector<ZarrArray> arrays)
        : CatalogReader(std::move(catalog), source.directory->path()),
          options_(options),
          arrays_(std::move(arrays)),
          files_(source.directory) {}

  private:
    Result<Extent> extentOf(const ChunkInfo& chunk) const override {
        SHARDSCOPE_TRY(checkState(catalog().files()[chunk.file]));
        const ZarrArray& array = arrays_[chunk.tensor];
        Extent extent;
        SHARDSCOPE_ASSIGN(extent.file, files_.open(catalog().files()[chunk.file].path));
        const uint64_t bytes = array.chunkBytes();
        if (extent.file->size() < bytes) {
            return damaged(fmt::format("the chunk has {}, its array's chunks have {}",
                                       counted(extent.file->size(), "byte"), countText(bytes)),
                           extent.file->size())
                .byRule(rule::fileTruncated);
        }
        if (extent.file->size() > bytes) {
            return damaged(fmt::format("the chunk has {}, more than the {} of its array's chunks",
                                       counted(extent.file->size(), "byte"), countText(bytes)),
                           bytes)
                .byRule(rule::metaInconsistent);
        }
        // At the edge of the array a part of the chunk is in it.
        const ZarrArray::Cut cut = array.cut(chunk.lengths);
        extent.length = cut.bytes;
        extent.strides = cut.strides;
        extent.swapBytes = array.bigEndian && dtypeSwapUnit(array.dtype) > 1;
        return extent;
    }

    Result<Value> valueOf(ObjectId id) const override {
        const ObjectInfo& object = catalog().objects()[id];
        SHARDSCOPE_TRY(checkState(catalog().files()[object.file]));
        const std::string& path = catalog().files()[object.file].path;
        const auto read = [&]() -> Result<Value> {
            SHARDSCOPE_ASSIGN(auto file, files_.open(path));
            if (file->size() > options_.limits.objectBytes)
                return makeError(
                    ErrorCode::limit,
                    fmt::format("the object has {}, more than the {} that are read",
                                counted(file->size(), "byte"), countText(options_.limits.objectBytes)));
            const torch_save::FileLimits limits{options_.limits.pickleText, options_.limits.pickleBytes,
                                                options_.limits.valueMemory, options_.stop};
            SHARDSCOPE_ASSIGN(auto opened, torch_save::openTorchFile(std::move(file), limits));
            const NodeId root = opened.pickle.root;
            return makeValue(std::move(opened.pickle.graph), root);
        };
        auto value = read();
        if (value.ok()) return value;
        return std::move(value).error().inFile(path).ofTensor(object.name);
    }

    Result<std::shared_ptr<const ReadFile>> openPresent(const FileInfo& file) const override {
        return files_.open(file.path);
    }

    const OpenOptions options_;
    const std::vector<ZarrArray> arrays_;  // by tensor
    const OpenFiles files_;
};

class ZarrStoreOpener : private StoreOpener {
  public:
    ZarrStoreOpener(const Source& source, const OpenOptions& options, const Place& place)
        : StoreOpener(source, options, place, "zarr") {}

    Result<std::unique_ptr<Reader>> open() {
        SHARDSCOPE_TRY(readCommon());
        addCommitMark();
        for (const DirectoryEntry& entry : source_.entries) {
            SHARDSCOPE_TRY(StopToken(options_.stop).poll());
            if (entry.kind == DirectoryEntry::Kind::file) {
                if (entry.name != kCommon && entry.name != kMetadataJson) addUnreferenced(entry);
            } else if (entry.kind == DirectoryEntry::Kind::directory) {
                SHARDSCOPE_TRY(addDirectory(entry.name));
            }
        }
        noteMissingObjects(objects_, kObjectEnding);
        noteTotals({}, {{missingChunks_, "files of chunks are missing"}});
        findSizes(objects_, kNone);
        addMesh(kNone);
        builder_.setWriter("megatron-core 0.5 to 0.15, zarr");
        auto reader = std::make_unique<ZarrStoreReader>(source_, options_, std::move(builder_).finish(),
                                                        std::move(arrays_));
        return withCommon(std::move(reader));
    }

  private:
    Status addDirectory(const std::string& name) {
        auto listed = source_.directory->list(name);
        if (!listed.ok()) return std::move(listed).error();
        std::ranges::sort(*listed, {}, &DirectoryEntry::name);
        if (isLocks(name)) {
            for (const DirectoryEntry& entry : *listed) {
                builder_.addFile({.path = name + '/' + entry.name, .size = entry.size, .metadata = true});
            }
            return {};
        }
        const bool array = std::ranges::any_of(
            *listed, [](const DirectoryEntry& entry) { return entry.name == kZarrayName; });
        if (array) return addArray(name, *listed);
        // Chunks that nothing describes.
        const bool chunks = std::ranges::any_of(*listed, [](const DirectoryEntry& entry) {
            return entry.kind == DirectoryEntry::Kind::file && !entry.name.empty() &&
                   entry.name.find_first_not_of("0123456789.") == std::string::npos;
        });
        if (chunks)
            addMissing(name + '/' + std::string(kZarrayName), kNone, Severity::error,
                       "the description of the zarr array is missing, so that its chunks say nothing",
                       Note::Lacks::anything, name);
        for (const DirectoryEntry& entry : *listed) {
            const std::string path = name + '/' + entry.name;
            if (entry.kind != DirectoryEntry::Kind::file || !entry.name.ends_with(kObjectEnding)) continue;
            const std::string object = path.substr(0, path.size() - kObjectEnding.size());
            if (!parseShardedName(object)) continue;
            objects_.push_back(object);
            builder_.addObject({.name = object,
                                .path = {keyPart(object)},
                                .file = builder_.addFile({.path = path, .size = entry.size}),
                                .length = entry.size});
        }
        return {};
    }

    // "<key>.sync" beside "<key>": empty lock files of the ranks that wrote parts of one chunk
    // (zarr.ProcessSynchronizer), under the names of what they lock.
    bool isLocks(std::string_view name) const {
        constexpr std::string_view kLocks = ".sync";
        if (!name.ends_with(kLocks)) return false;
        name.remove_suffix(kLocks.size());
        return std::ranges::binary_search(source_.entries, name, {},
                                          [](const DirectoryEntry& e) { return std::string_view(e.name); });
    }

    Status addArray(const std::string& name, const std::vector<DirectoryEntry>& listed) {
        FileInfo about;
        about.path = name + '/' + std::string(kZarrayName);
        about.metadata = true;
        auto parsed = parse(about);
        if (!parsed.ok()) {
            Error error = std::move(parsed).error();
            if (error.code == ErrorCode::cancelled || error.code == ErrorCode::limit) return error;
            about.state = FileInfo::State::unreadable;
            noteError(error, about.path, name, Note::Lacks::anything);
            builder_.addFile(std::move(about));
            return {};
        }
        builder_.addFile(std::move(about));
        const ZarrArray& array = *parsed;
        notePadding(name, array.shape);
        SHARDSCOPE_TRY(builder_.addTensor(
            {name, {keyPart(name)}, array.dtype, array.shape, roleOf(name), kNone, kNone}));
        for (const DirectoryEntry& entry : listed) {
            const auto place =
                entry.kind == DirectoryEntry::Kind::file ? array.chunkPlace(entry.name) : std::nullopt;
            if (!place) continue;
            Dims offsets, lengths;
            for (size_t d = 0; d < place->size(); ++d) {
                offsets.push_back((*place)[d] * array.chunk[d]);
                lengths.push_back(std::min(array.chunk[d], array.shape[d] - offsets[d]));
            }
            const FileId file = builder_.addFile({.path = name + '/' + entry.name, .size = entry.size});
            SHARDSCOPE_TRY(builder_.addChunk({kNone, file, 0, entry.size, offsets, lengths, std::nullopt}));
        }
        noteMissingChunks(name, array, listed);
        arrays_.push_back(std::move(parsed).value());
        return {};
    }

    // Megatron writes every chunk, so one that is not there was lost.
    void noteMissingChunks(const std::string& name, const ZarrArray& array,
                           const std::vector<DirectoryEntry>& listed) {
        const Dims grid = array.grid();
        int64_t all = 0;
        if (!checkedProduct(grid, all) || all > kMostChunks - lookedFor_) return;
        lookedFor_ += all;
        Dims place(grid.size(), 0);
        for (int64_t i = 0; i < all; ++i) {
            const std::string chunk = array.chunkName(place);
            if (!std::ranges::binary_search(listed, chunk, {}, &DirectoryEntry::name)) {
                const std::string path = name + '/' + chunk;
                addNote(missingChunks_, {rule::fileMissing, Severity::error, "the file of a chunk is missing",
                                         path, name, std::nullopt});
                if (missingChunks_ <= kMostNamedChunks)
                    builder_.addFile({.path = path, .state = FileInfo::State::missing});
            }
            for (size_t d = place.size(); d-- > 0 && ++place[d] == grid[d];)
                place[d] = 0;
        }
    }

    Result<ZarrArray> parse(FileInfo& about) {
        SHARDSCOPE_ASSIGN(const auto file, source_.directory->openFile(about.path));
        about.size = file->size();
        SHARDSCOPE_ASSIGN(const std::string text, wholeText(*file, kMostZarray));
        SHARDSCOPE_ASSIGN(ZarrArray array, parseZarray(text));
        if (!array.raw())
            return unsupported("the chunks of the zarr array are compressed, which is not read")
                .withHint("Megatron-Core writes its arrays without a compressor");
        if (array.separator != '.')
            return unsupported(
                "the chunks of the zarr array are in directories of their own, which is not read");
        return array;
    }

    std::vector<std::string> objects_;
    std::vector<ZarrArray> arrays_;  // by tensor
    size_t missingChunks_ = 0;
    int64_t lookedFor_ = 0;  // chunks
};

}  // namespace

Result<std::unique_ptr<Reader>> openZarrStore(const Source& source, const OpenOptions& options,
                                              const Place& place) {
    return ZarrStoreOpener(source, options, place).open();
}

}  // namespace shardscope::megatron
