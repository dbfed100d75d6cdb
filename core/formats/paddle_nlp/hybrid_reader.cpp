#include "formats/paddle_nlp/hybrid_reader.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/checked.h"
#include "base/rule.h"
#include "formats/tensor_files.h"

namespace shardscope::paddle_nlp {

namespace {

constexpr size_t kPiece = size_t{64} << 10;

class HybridReader final : public Reader {
  public:
    HybridReader(const Source& source, const OpenOptions& options, Catalog catalog,
                 std::vector<ChunkPlace> places, std::vector<PlacedFile> files)
        : directory_(source.directory),
          handles_(source, options),
          arrays_(source.fileSystem, options.scratchDirectory, options.stop),
          catalog_(std::move(catalog)),
          places_(std::move(places)) {
        files_.resize(catalog_.files().size());
        for (PlacedFile& file : files)
            files_[file.id] = std::move(file);
    }

    const Catalog& catalog() const override { return catalog_; }

    Result<Extent> locate(ChunkId id) const override {
        if (id >= places_.size()) return makeError(ErrorCode::internal, "no such chunk");
        auto extent = extentOf(places_[id], catalog_.chunk(id).lengths);
        if (!extent.ok()) return std::move(extent).error().ofTensor(catalog_.name(catalog_.tensorOf(id)));
        return extent;
    }

    Result<Value> objectValue(ObjectId object) const override { return catalog_.objects()[object].value; }

    Result<std::shared_ptr<const ReadFile>> openFile(FileId file) const override {
        if (file >= catalog_.files().size()) return makeError(ErrorCode::internal, "no such file");
        return directory_->openFile(catalog_.files()[file].path);
    }

  private:
    Result<std::shared_ptr<const ReadFile>> handle(FileId id) const {
        const PlacedFile& file = files_[id];
        if (file.why) return Error(*file.why);
        return handles_.handle(file.path, file.size);
    }

    // The array's elements, which must lie inside the file.
    Result<PaddleArrayPlaces::Place> placeOf(FileId id, const PaddleArray& array) const {
        SHARDSCOPE_ASSIGN(const auto file, handle(id));
        auto place = arrays_.place(file, array);
        if (!place.ok()) return std::move(place).error().inFile(file->path());
        if (array.raw == PaddleArray::Raw::plain && !rangeFits(array.offset, array.length, file->size())) {
            return damaged(fmt::format("an array takes bytes {} to {}, the file ends at {}", array.offset,
                                       array.offset + array.length, file->size()),
                           array.offset)
                .inFile(file->path())
                .byRule(rule::fileTruncated);
        }
        return place;
    }

    Result<Extent> extentOf(const ChunkPlace& from, DimSpan lengths) const {
        if (!from.present) {
            if (from.file != kNone && files_[from.file].why) return Error(*files_[from.file].why);
            return makeError(ErrorCode::notFound, "the file that should hold it is missing")
                .byRule(rule::fileMissing);
        }
        const PaddleArray& array = from.array;
        SHARDSCOPE_ASSIGN(const PaddleArrayPlaces::Place place, placeOf(from.file, array));
        const uint64_t width = dtypeBytes(array.dtype);
        Extent extent;
        extent.file = place.file;
        extent.offset = place.offset;
        extent.length = static_cast<uint64_t>(elementCount(array.shape)) * width;
        extent.swapBytes = array.bigEndian && dtypeSwapUnit(array.dtype) > 1;
        extent.storedAs = from.storedAs;
        if (!from.strides.empty()) {
            int64_t last = from.first;
            for (size_t d = 0; d < lengths.size(); ++d)
                last += (lengths[d] - 1) * from.strides[d];
            if (from.first < 0 || last >= elementCount(array.shape))
                return makeError(ErrorCode::internal, "a piece of a fused projection outside of its slice");
            extent.offset += static_cast<uint64_t>(from.first) * width;
            extent.length = static_cast<uint64_t>(last - from.first + 1) * width;
            // What is whole in all but the first dimension lies together.
            if (!std::ranges::equal(rowMajorStrides(lengths), from.strides)) extent.strides = from.strides;
        } else if (from.stretch) {
            extent.offset += static_cast<uint64_t>(from.first) * width;
            extent.length -= static_cast<uint64_t>(from.first) * width;
        } else if (extent.length > 0 && (array.columnMajor || !from.lengths.empty())) {
            takeBox(from, extent, width);
        }
        for (const Padding& padding : from.padding)
            SHARDSCOPE_TRY(checkPadding(padding));
        return extent;
    }

    static void takeBox(const ChunkPlace& from, Extent& extent, uint64_t width) {
        const PaddleArray& array = from.array;
        Dims strides = rowMajorStrides(array.shape);
        if (array.columnMajor) {
            int64_t stride = 1;
            for (size_t d = 0; d < array.shape.size(); ++d) {
                strides[d] = stride;
                stride *= array.shape[d];
            }
        }
        const Dims& lengths = from.lengths.empty() ? array.shape : from.lengths;
        int64_t first = 0, last = 0;
        for (size_t d = 0; d < lengths.size(); ++d) {
            first += (from.lengths.empty() ? 0 : from.offsets[d]) * strides[d];
            last += (lengths[d] - 1) * strides[d];
        }
        extent.offset += static_cast<uint64_t>(first) * width;
        extent.length = static_cast<uint64_t>(last + 1) * width;
        extent.strides = std::move(strides);
    }

    // A buffer is padded with zeros. Anything else there means that the parameter's size is not what it is
    // taken for.
    Status checkPadding(const Padding& padding) const {
        SHARDSCOPE_ASSIGN(const PaddleArrayPlaces::Place place, placeOf(padding.file, padding.array));
        const uint64_t width = dtypeBytes(padding.array.dtype);
        const uint64_t end = static_cast<uint64_t>(elementCount(padding.array.shape)) * width;
        std::string buffer;
        for (uint64_t at = static_cast<uint64_t>(padding.first) * width; at < end;) {
            buffer.resize(static_cast<size_t>(std::min<uint64_t>(kPiece, end - at)));
            SHARDSCOPE_TRY(place.file->readAt(place.offset + at, std::as_writable_bytes(std::span(buffer))));
            const size_t other = buffer.find_first_not_of('\0');
            if (other != buffer.npos) {
                const uint64_t element = (at + other) / width;
                Error error = damaged(
                    fmt::format("element {} of the {} in '{}' is padding behind the parameter's end and "
                                "should be zero, but is not",
                                element, elementCount(padding.array.shape), padding.path));
                if (padding.array.raw == PaddleArray::Raw::plain)
                    error.location.offset = place.offset + element * width;
                return std::move(error)
                    .inFile(place.file->path())
                    .byRule(rule::metaInconsistent)
                    .withHint(
                        "the shape that model_meta.json or the weights give may be that of another save");
            }
            at += buffer.size();
        }
        return {};
    }

    std::shared_ptr<Directory> directory_;
    TensorFiles handles_;
    PaddleArrayPlaces arrays_;
    Catalog catalog_;
    std::vector<ChunkPlace> places_;  // by ChunkId
    std::vector<PlacedFile> files_;   // by FileId
};

}  // namespace

std::unique_ptr<Reader> makeHybridReader(const Source& source, const OpenOptions& options, Catalog catalog,
                                         std::vector<ChunkPlace> places, std::vector<PlacedFile> files) {
    return std::make_unique<HybridReader>(source, options, std::move(catalog), std::move(places),
                                          std::move(files));
}

}  // namespace shardscope::paddle_nlp
