// Tensors that are computed while they are read, in place of ones that a source stores: what dequantize.h and
// merge_adapter.h have in common. Private to this room.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "execute/tensor_reader.h"
#include "formats/catalog_reader.h"
#include "storage/aligned_buffer.h"

namespace shardscope {

constexpr int64_t kComputedAtOnce = int64_t{1} << 18;  // elements

// What the stored tensors share that computed ones are made of.
struct PartsContext {
    PartsContext(std::shared_ptr<const Reader> reader, const StopToken& stop,
                 FillGaps fill = FillGaps::refuse)
        : source(std::move(reader)), context(*source, resources, fill, systemFileSystem()) {
        resources.stop = stop;
    }
    const std::shared_ptr<const Reader> source;
    MemoryBudget memory{uint64_t{64} << 20};
    Resources resources{nullptr, &memory, nullptr, {}, {}};
    SourceContext context;
};

// A stored tensor, read by ranges of its own order.
class PartReader {
  public:
    // Errors: those of TensorReader::prepare.
    static Result<PartReader> open(SourceContext& context, TensorId part);
    const TensorReader& tensor() const { return *tensor_; }
    DType dtype() const { return tensor_->dtype(); }
    int64_t elements() const { return tensor_->elements(); }

    Status read(int64_t first, int64_t count, std::vector<std::byte>& bytes, AlignedBuffer& io) const;
    Result<std::vector<float>> floats() const;  // all of it

  private:
    std::unique_ptr<TensorReader> tensor_;
};

// The elements of one file of computed ones. Thread-safe.
class ComputedElements {
  public:
    virtual ~ComputedElements() = default;
    virtual Status read(int64_t first, int64_t count, std::byte* to) const = 0;
    // As StoredBytes::countStored.
    virtual uint64_t countStored(uint64_t bytes) const = 0;
};

// They as a file; `origin` gives its path and its fingerprint.
std::shared_ptr<const ReadFile> computedFile(std::shared_ptr<const ReadFile> origin,
                                             std::shared_ptr<const ComputedElements> elements, int64_t count,
                                             DType dtype);

// What is opened once for all who use it at the same time. Thread-safe.
template <class T>
class OpenedOnce {
  public:
    explicit OpenedOnce(size_t count) : opened_(count) {}
    template <class Open>
    Result<std::shared_ptr<const T>> get(size_t index, Open&& open) const {
        const std::lock_guard lock(mutex_);
        std::shared_ptr<const T> one = opened_[index].lock();
        if (!one) {
            SHARDSCOPE_ASSIGN(one, open());
            opened_[index] = one;
        }
        return one;
    }

  private:
    mutable std::mutex mutex_;
    mutable std::vector<std::weak_ptr<const T>> opened_;
};

// Where a chunk of the new catalog is.
struct ComputedPlace {
    ChunkId source = kNone;   // of the source's catalog, where it is as it was
    uint32_t tensor = kNone;  // else of this computed tensor,
    int64_t first = 0;        // from this element on (what that means is the reader's business)
};

// The source's catalog with computed tensors in place of others. Files keep their ids.
class ComputedCatalog {
  public:
    explicit ComputedCatalog(const Catalog& source);

    // In the order of the source. Errors: those of CatalogBuilder.
    Status addSame(TensorId t);
    Status addComputed(TensorId inPlaceOf, std::string name, Path path, DType dtype, Dims shape, Role role);
    Status addChunk(const CatalogBuilder::Chunk& chunk, const ComputedPlace& place);
    // With the source's objects, notes and mesh.
    Catalog finish() &&;
    std::vector<ComputedPlace> takePlaces() { return std::move(places_); }

  private:
    TensorId aliasOf(TensorId t) const;
    uint32_t specialOf(TensorId t);

    const Catalog& source_;
    CatalogBuilder builder_;
    std::vector<ComputedPlace> places_;
    std::vector<TensorId> made_;      // by tensors of the source
    std::vector<uint32_t> specials_;  // by specials of the source; kNone = not taken over
};

class ComputedReader : public CatalogReader {
  public:
    std::string dataElsewhere() const override { return source_->dataElsewhere(); }

  protected:
    ComputedReader(Catalog catalog, std::string directory, std::shared_ptr<const Reader> source,
                   std::vector<ComputedPlace> places)
        : CatalogReader(std::move(catalog), std::move(directory)),
          source_(std::move(source)),
          places_(std::move(places)) {}

    virtual Result<Extent> computedExtent(const ChunkInfo& chunk, const ComputedPlace& place) const = 0;
    const std::shared_ptr<const Reader>& source() const { return source_; }

  private:
    Result<Extent> extentOf(const ChunkInfo& chunk) const final;
    Result<Value> valueOf(ObjectId object) const final { return source_->objectValue(object); }
    Result<std::vector<Note>> ownNotes() const final { return source_->fileNotes(); }
    Result<std::shared_ptr<const ReadFile>> openPresent(const FileInfo& file) const final {
        return source_->openFile(static_cast<FileId>(&file - catalog().files().data()));
    }

    const std::shared_ptr<const Reader> source_;
    const std::vector<ComputedPlace> places_;
};

}  // namespace shardscope
