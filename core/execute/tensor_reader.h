// Reading a tensor's tiles from the chunks that cover it. Private to this room.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "base/memory_budget.h"
#include "execute/executor.h"
#include "execute/record_checks.h"
#include "execute/tile_work.h"
#include "execute/values.h"
#include "storage/stored_bytes.h"

namespace shardscope {

// What all tensors of one source share.
struct SourceContext {
    SourceContext(const Reader& readerIn, const Resources& resourcesIn, FillGaps fillIn,
                  std::shared_ptr<FileSystem> scratchSystemIn)
        : reader(readerIn),
          resources(resourcesIn),
          fill(fillIn),
          scratchSystem(std::move(scratchSystemIn)),
          job_(std::make_shared<Job>(std::max<uint64_t>(resourcesIn.memory->limit() / 2, 1))) {}
    // Another source of the same job.
    SourceContext(const Reader& readerIn, const SourceContext& job)
        : reader(readerIn),
          resources(job.resources),
          fill(job.fill),
          scratchSystem(job.scratchSystem),
          checks(job.checks),
          job_(job.job_) {}

    const Reader& reader;
    const Resources& resources;
    const FillGaps fill;
    const std::shared_ptr<FileSystem> scratchSystem;
    std::shared_ptr<RecordChecks> checks;  // of the source's stored checksums; null = they are not checked
    std::vector<std::unique_ptr<SourceContext>> inputs;  // those of an average, this one's among them

  private:
    struct Job {
        explicit Job(uint64_t limit) : spans(limit) {}
        std::atomic<uint64_t> bytesRead{0};
        MemoryBudget spans;
    };
    const std::shared_ptr<Job> job_;

  public:
    std::atomic<uint64_t>& bytesRead = job_->bytesRead;
    // Memory that tensors hold for as long as they are worked on: at most half of the job's budget, so that
    // tiles always find some.
    MemoryBudget& spans = job_->spans;
};

// Tiles of a tensor.
struct TileGrid {
    int64_t elements = 0;      // of the tensor
    int64_t tileElements = 0;  // a whole number of digest cells
    int64_t tiles() const { return elements == 0 ? 0 : (elements - 1) / tileElements + 1; }
    int64_t begin(int64_t tile) const { return tile * tileElements; }
    int64_t end(int64_t tile) const { return std::min(elements, (tile + 1) * tileElements); }
};

// Chunks of one tensor in the order of their first element, for finding those that touch a tile.
class ChunkIndex {
  public:
    void add(int64_t firstPosition, int64_t lastPosition) {
        spans_.push_back({firstPosition, lastPosition, 0});
    }
    void build();  // after the last add(); spans must have been added in the order of firstPosition
    // Indices [first, second) of the spans that may hold positions in [a, b).
    std::pair<size_t, size_t> touching(int64_t a, int64_t b) const;

  private:
    struct Span {
        int64_t first, last, lastSoFar;
    };
    std::vector<Span> spans_;
};

// A box or flat-range chunk, as the tile arithmetic sees it.
struct ChunkShape {
    DimSpan offsets, lengths;     // in the catalog's columns
    int64_t start = 0, stop = 0;  // of the box's order; all of it unless a flat range

    static ChunkShape of(const ChunkInfo& info);
    int64_t elements() const { return stop - start; }
    int64_t firstPosition(DimSpan shape) const { return positionOf(start, shape, offsets, lengths); }
    int64_t lastPosition(DimSpan shape) const { return positionOf(stop - 1, shape, offsets, lengths); }

    // The chunk's elements in tensor range [a, b).
    struct Piece {
        int64_t lo = 0, hi = 0;   // of the box's order
        int64_t position = 0;     // of element `lo`, in the tensor
        bool contiguous = false;  // in the tensor's order too
        bool empty() const { return lo >= hi; }
    };
    Piece pieceIn(int64_t a, int64_t b, DimSpan shape) const;
};

// Copy bytes between chunk order and tile order, for pieces that are not contiguous in the tile.
void gatherPiece(const ChunkShape& chunk, const ChunkShape::Piece& piece, DimSpan shape, int64_t tileBegin,
                 size_t elementBytes, const std::byte* chunkBytes, std::byte* tile);
void scatterPiece(const ChunkShape& chunk, const ChunkShape::Piece& piece, DimSpan shape, int64_t tileBegin,
                  size_t elementBytes, const std::byte* tile, std::byte* chunkBytes);

// Elements in row-major order, tile by tile: of a tensor of the source (TensorReader), or of one that is put
// together from several (ViewReader).
class ElementReader {
  public:
    virtual ~ElementReader() = default;
    DType dtype() const { return dtype_; }
    int64_t elements() const { return elements_; }

    // Bytes that a tile should have so that reads are not tiny, between `preferred` and `largest`.
    virtual uint64_t goodTileBytes(uint64_t preferred, uint64_t largest) const = 0;
    // Bytes of buffer that reading [a, b) takes besides the tile.
    virtual size_t readBufferBytes(int64_t a, int64_t b) const = 0;
    // Offset modulo kIoAlignment that suits a direct read of [a, b) into one buffer.
    virtual size_t preferredAlignment(int64_t a, int64_t b) const = 0;
    // Fills `tile` with elements [a, b): row-major, little-endian, true values. `buffer` begins at a multiple
    // of kIoAlignment and holds readBufferBytes plus kIoAlignment.
    virtual Status readTile(int64_t a, int64_t b, std::span<std::byte> tile,
                            std::span<std::byte> buffer) const = 0;

  protected:
    DType dtype_ = DType::float32;
    int64_t elements_ = 0;
};

class TensorReader final : public ElementReader {
  public:
    // What becomes of chunks with unusual strides: held in memory where they fit, or always a scratch file.
    // The latter is for a caller that prepares several tensors at once, and so must not wait for memory while
    // it holds some.
    enum class Strided : uint8_t { held, scratch };
    // Finds the covering chunks and where their elements are, and makes chunks with unusual strides readable
    // in order. `kept` is the only lease that the calling thread may hold. It is dropped when others are
    // needed. With `only`, chunks that have no element in that box are left out, and nothing outside of it
    // may be read. Errors: damaged (rule coverage.gap), unsupported, and those of locate().
    static Result<std::unique_ptr<TensorReader>> prepare(SourceContext& context, TensorId tensor,
                                                         WorkerMemory* kept, Strided strided = Strided::held,
                                                         const Box* only = nullptr);

    TensorId tensor() const { return tensor_; }
    DimSpan shape() const { return shape_; }

    uint64_t goodTileBytes(uint64_t preferred, uint64_t largest) const override;
    // The largest piece of a chunk in [a, b) that is not contiguous in the tile.
    size_t readBufferBytes(int64_t a, int64_t b) const override;
    size_t preferredAlignment(int64_t a, int64_t b) const override;
    Status readTile(int64_t a, int64_t b, std::span<std::byte> tile,
                    std::span<std::byte> buffer) const override;

    // Elements [lo, hi) of one chunk's order, for small reads.
    size_t chunkCount() const { return chunks_.size(); }
    const ChunkShape& chunkShape(size_t chunk) const { return chunks_[chunk].shape; }
    Status readChunk(size_t chunk, int64_t lo, int64_t hi, std::span<std::byte> bytes) const;

  private:
    struct Chunk {
        ChunkShape shape;
        Extent extent;
        const StoredBytes* packed = nullptr;  // the file, where it is kept in fewer bytes
        DType stored = DType::float32;        // of the elements in the file
        std::shared_ptr<std::vector<std::byte>>
            span;  // the stored bytes, when they are re-strided from memory
    };

    explicit TensorReader(SourceContext& context) : context_(context) {}
    Status open(const Box* only, WorkerMemory* kept);
    Status checkGaps();
    Status locate(ChunkId id, Chunk& chunk) const;
    Status holdSpans(WorkerMemory* kept);
    Status checkExtent(const Chunk& chunk) const;
    Status straighten(Chunk& chunk, uint64_t& heldBytes, WorkerMemory* kept);
    Status holdSpan(Chunk& chunk, uint64_t spanBytes);
    void count(const Chunk& chunk, uint64_t bytes) const;
    Status checkPages(const Chunk& chunk, int64_t lo, int64_t hi, std::span<const std::byte> bytes) const;
    Status check(const Chunk& chunk, uint64_t offset, std::span<const std::byte> bytes) const;
    Status toScratch(Chunk& chunk, WorkerMemory* kept);
    uint64_t spanBytes(const Chunk& chunk) const;
    Status readStored(const Chunk& chunk, int64_t lo, int64_t hi, std::span<std::byte> bytes) const;
    Status readCast(const Chunk& chunk, int64_t lo, int64_t hi, std::span<std::byte> bytes) const;
    Error named(Error error) const;

    SourceContext& context_;
    TensorId tensor_ = kNone;
    Strided strided_ = Strided::held;
    DimSpan shape_;
    bool gaps_ = false;
    std::vector<Chunk> chunks_;  // by first position
    ChunkIndex index_;
    MemoryBudget::Lease spanShare_, lease_;
};

}  // namespace shardscope
