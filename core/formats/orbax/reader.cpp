#include <algorithm>
#include <mutex>

#include <fmt/format.h>

#include "base/checked.h"
#include "base/rule.h"
#include "base/units.h"
#include "formats/catalog_reader.h"
#include "formats/open_files.h"
#include "formats/orbax/store.h"
#include "storage/materialized.h"
#include "storage/stored_bytes.h"

namespace shardscope::orbax {

namespace {

// The elements of a chunk that is not stored, each the fill value.
class FilledFile final : public ReadFile, public StoredBytes {
  public:
    FilledFile(std::shared_ptr<const ReadFile> origin, uint64_t size, std::vector<std::byte> element)
        : origin_(std::move(origin)), size_(size), element_(std::move(element)) {}
    const std::string& path() const override { return origin_->path(); }
    uint64_t size() const override { return size_; }
    Status readAt(uint64_t offset, std::span<std::byte> buffer) const override {
        if (!rangeFits(offset, buffer.size(), size_))
            return damaged(fmt::format("the chunk ends at byte {}", countText(size_)), offset).inFile(path());
        for (size_t i = 0; i < buffer.size(); ++i)
            buffer[i] = element_[(offset + i) % element_.size()];
        return {};
    }
    uint64_t countStored(uint64_t) const override { return 0; }
    Result<Fingerprint> fingerprint() const override { return origin_->fingerprint(); }

  private:
    const std::shared_ptr<const ReadFile> origin_;
    const uint64_t size_;
    const std::vector<std::byte> element_;
};

// The elements of a chunk that is stored in another form: unpacked when they are first read, and given up
// when as many bytes were read as there are.
class UnpackedFile final : public ReadFile, public StoredBytes {
  public:
    using Unpack = std::function<Result<std::shared_ptr<const ReadFile>>()>;
    UnpackedFile(std::shared_ptr<const ReadFile> origin, uint64_t size, uint64_t stored, Unpack unpack)
        : origin_(std::move(origin)), size_(size), share_(size, stored), unpack_(std::move(unpack)) {}
    const std::string& path() const override { return origin_->path(); }
    uint64_t size() const override { return size_; }
    Status readAt(uint64_t offset, std::span<std::byte> buffer) const override {
        std::shared_ptr<const ReadFile> plain;
        {
            std::lock_guard lock(mutex_);
            plain = plain_;
        }
        if (!plain) {
            SHARDSCOPE_ASSIGN(plain, unpack_());
            std::lock_guard lock(mutex_);
            plain_ = plain;
        }
        SHARDSCOPE_TRY(plain->readAt(offset, buffer));
        std::lock_guard lock(mutex_);
        read_ += buffer.size();
        if (read_ >= size_) {
            plain_.reset();
            read_ = 0;
        }
        return {};
    }
    uint64_t countStored(uint64_t bytes) const override { return share_.count(bytes); }
    Result<Fingerprint> fingerprint() const override { return origin_->fingerprint(); }

  private:
    const std::shared_ptr<const ReadFile> origin_;
    const uint64_t size_;
    const StoredShare share_;
    const Unpack unpack_;
    mutable std::mutex mutex_;
    mutable std::shared_ptr<const ReadFile> plain_;
    mutable uint64_t read_ = 0;
};

class OrbaxReader final : public CatalogReader {
  public:
    OrbaxReader(const Source& source, const OpenOptions& options, Catalog catalog, Contents contents)
        : CatalogReader(std::move(catalog), source.directory->path()),
          contents_(std::move(contents)),
          files_(source.directory),
          stop_(options.stop),
          unpacked_(std::make_shared<Materialized>(source.fileSystem, options.scratchDirectory)) {}

  private:
    Result<Extent> extentOf(const ChunkInfo& chunk) const override {
        SHARDSCOPE_TRY(checkState(catalog().files()[chunk.file]));
        std::shared_ptr<const ReadFile> file;
        SHARDSCOPE_ASSIGN(file, files_.open(catalog().files()[chunk.file].path));
        uint64_t offset = chunk.offset;
        const uint64_t inTree = contents_.inTree[chunk.id];
        if (inTree != kInFile && inTree != kFilled) {
            const auto begin = contents_.values.begin() + static_cast<ptrdiff_t>(inTree);
            file = fileInMemory(file, {begin, begin + static_cast<ptrdiff_t>(chunk.length)});
            offset = 0;
        }
        Extent extent;
        if (!contents_.arrays[chunk.tensor]) {
            if (!rangeFits(offset, chunk.length, file->size()))
                return damaged(fmt::format("it has {} and ends at byte {}, the file at byte {}",
                                           counted(chunk.length, "byte"), countText(offset + chunk.length),
                                           countText(file->size())),
                               offset)
                    .byRule(rule::fileTruncated);
            extent.file = std::move(file);
            extent.offset = offset;
            extent.length = chunk.length;
            return extent;
        }
        const ZarrArray& array = *contents_.arrays[chunk.tensor];
        if (inTree == kFilled) {
            extent.file = std::make_shared<FilledFile>(std::move(file), array.chunkBytes(), *array.fill);
        } else {
            SHARDSCOPE_ASSIGN(const auto plainAt, checkZarrChunk(array, {*file, offset, chunk.length}));
            if (plainAt) {
                extent.file = std::move(file);
                extent.offset = *plainAt;
            } else {
                extent.file = unpackedFile(chunk, array, std::move(file), offset);
            }
        }
        const ZarrArray::Cut cut = array.cut(chunk.lengths);
        extent.length = cut.bytes;
        extent.strides = cut.strides;
        extent.swapBytes = array.bigEndian && dtypeSwapUnit(array.dtype) > 1;
        return extent;
    }

    // It may outlive the reader's locks, but not the reader: `array` is one of this reader's.
    std::shared_ptr<const ReadFile> unpackedFile(const ChunkInfo& chunk, const ZarrArray& array,
                                                 std::shared_ptr<const ReadFile> file,
                                                 uint64_t offset) const {
        const uint64_t bytes = array.chunkBytes(), length = chunk.length;
        // One stored chunk may be several in the catalog, one for each rank that holds it.
        std::string key = fmt::format("{} {} {}", chunk.file, chunk.offset, contents_.inTree[chunk.id]);
        return std::make_shared<UnpackedFile>(
            file, bytes, length,
            [cache = unpacked_, stop = stop_, key = std::move(key), file, bytes, length, offset, &array,
             path = catalog().files()[chunk.file].path] {
                // Of a chunk that claims to unpack to very much more than it has, nothing is set aside before
                // it does.
                const bool exact = bytes / 1024 <= length;
                auto plain = cache->get({key, file, bytes, exact}, [&](const Materialized::Sink& sink) {
                    return unpackZarrChunk(array, {*file, offset, length}, stop, sink);
                });
                if (plain.ok()) return plain;
                return Result<std::shared_ptr<const ReadFile>>(std::move(plain).error().inFile(path));
            });
    }

    Result<std::shared_ptr<const ReadFile>> openPresent(const FileInfo& file) const override {
        return files_.open(file.path);
    }

    const Contents contents_;
    const OpenFiles files_;
    const StopToken stop_;
    const std::shared_ptr<Materialized> unpacked_;
};

}  // namespace

std::unique_ptr<Reader> makeReader(const Source& source, const OpenOptions& options, Catalog catalog,
                                   Contents contents) {
    return std::make_unique<OrbaxReader>(source, options, std::move(catalog), std::move(contents));
}

}  // namespace shardscope::orbax
