#include <algorithm>

#include <fmt/format.h>

#include "base/checked.h"
#include "base/rule.h"
#include "base/units.h"
#include "formats/catalog_reader.h"
#include "formats/orbax/store.h"
#include "storage/made_files.h"
#include "storage/materialized.h"
#include "storage/open_files.h"

namespace shardscope::orbax {

namespace {

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
