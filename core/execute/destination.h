// One wanted tensor on its way from a source of tiles to a sink of the bytes of its destination chunks. In
// between is a transform (tile_compute.h: cast, scan, digest). Private to this room.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <mutex>
#include <vector>

#include "execute/executor.h"
#include "execute/scan.h"
#include "execute/staging.h"
#include "execute/tensor_reader.h"
#include "execute/tile_compute.h"

namespace shardscope {

struct ConvertState;
class ReadBehind;

// Where the elements of tiles come from: here, the checkpoint.
class TileSource {
  public:
    virtual ~TileSource() = default;
    // What a wanted tensor is made of. Errors: those of TensorReader.
    virtual Result<std::unique_ptr<ElementReader>> open(const ConvertState& state, SourceContext& context,
                                                        TensorId target, WorkerMemory& kept);
};

// Where tiles go. Called from many threads.
class TileSink {
  public:
    virtual ~TileSink() = default;
    // Whether bytes are wanted; else only what was found in them.
    virtual bool writes() const = 0;
    // Whether all tiles of a chunk come here, so that its literal bytes are written once they have.
    virtual bool completesChunks() const { return false; }
    virtual Status write(FileId file, uint64_t offset, std::span<const std::byte> bytes) = 0;
    // Called once for each finished tile.
    virtual Status finished(JournalTile tile, uint64_t bytes) = 0;
};

// The staging directory. `whole`: no other process writes into it.
class StagingSink final : public TileSink {
  public:
    StagingSink(Staging& staging, bool whole) : staging_(staging), whole_(whole) {}
    bool writes() const override { return true; }
    bool completesChunks() const override { return whole_; }
    Status write(FileId file, uint64_t offset, std::span<const std::byte> bytes) override {
        return staging_.write(file, offset, bytes, true);
    }
    Status finished(JournalTile tile, uint64_t bytes) override {
        return staging_.finished(std::move(tile), bytes);
    }

  private:
    Staging& staging_;
    const bool whole_;
};

// Resources that always have a memory budget: the given one, or a standard one of their own.
class BoundedResources : public Resources {
  public:
    explicit BoundedResources(const Resources& given) : Resources(given) {
        if (!memory) memory = &own_;
    }
    BoundedResources(const BoundedResources&) = delete;
    BoundedResources& operator=(const BoundedResources&) = delete;

  private:
    MemoryBudget own_{kStandardMemory};
};

// What all tensors of one conversion share.
struct ConvertState {
    const ConvertJob& job;
    const Resources& resources;
    TileSizes tiles;
    TileSource* source;
    TileCompute* compute = &processorCompute();
    TileSink* sink;
    Staging* staging = nullptr;  // for the bytes that are not tensor data; null = another process writes them
    ReadBehind* readBehind = nullptr;  // reads back what is written; may be null
    // Tiles that need not be done again, and whether they are counted already.
    std::map<TensorId, std::vector<JournalTile>> reusable{};
    bool reuseCounted = false;

    std::vector<uint32_t> chunkCrcs = std::vector<uint32_t>(job.spec->target.chunkCount());  // by ChunkId
    std::atomic<uint64_t> bytesWritten{0};
    std::atomic<uint64_t> bytesReused{0};

    std::mutex mutex{};  // guards what follows
    std::vector<std::optional<Digest128>> digests =
        std::vector<std::optional<Digest128>>(job.spec->target.tensorCount());
    std::map<TensorId, ValueCounts> counts{};  // those with NaN or infinity

    const Catalog& target() const { return job.spec->target; }
    // A sink for the bytes that are not tensor data.
    LiteralSink literals();
};

// The elements that a wanted tensor is made of; `empty` is the dtype of a view of no tensor. Errors: those of
// TensorReader.
Result<std::unique_ptr<ElementReader>> openElements(SourceContext& context, const TensorSource& from,
                                                    DType empty, WorkerMemory& kept,
                                                    TensorReader::Strided strided);

// What the readers of the job's source share, and those of the other inputs of an average.
std::unique_ptr<SourceContext> sourceContext(const ConvertJob& job, const Resources& resources);

// The dtype that a wanted tensor is made from; its own where it is made from none.
DType sourceDType(const ConvertJob& job, TensorId target);
// The tiles of a wanted tensor where all have `tileBytes`: what processes agree on without a look at the
// data.
TileGrid sharedGrid(const ConvertJob& job, TensorId target, uint64_t tileBytes);

class DestinationWork final : public TensorTask {
  public:
    // Checks that the source tensor can become the wanted one.
    static Result<std::unique_ptr<TensorTask>> prepare(ConvertState& state, SourceContext& context,
                                                       TensorId target, WorkerMemory& kept);

    int64_t tileCount() const override { return grid_.tiles(); }
    Status runTile(int64_t tile, WorkerMemory& memory) override;
    Status finish() override;

  private:
    struct CrcPiece {
        int64_t lo;
        uint64_t bytes;
        uint32_t crc;
    };
    struct Target {
        ChunkId id = kNone;
        ChunkShape shape;
        std::atomic<int64_t> remaining{0};  // elements
        std::vector<CrcPiece> crcs;
    };
    struct TargetPiece {
        Target* target;
        size_t index;  // of the target
        ChunkShape::Piece piece;
    };

    struct TilePlan {
        TileBuffers room{};
        TileTask task{};
        std::span<std::byte> read{};
        bool cuts() const { return !task.cut.strips.empty(); }
        std::span<const std::byte> ready() const { return task.cast.empty() ? read : task.cast; }
    };

    DestinationWork(ConvertState& state, std::unique_ptr<ElementReader> source, TensorId target);
    Result<TilePlan> planTile(int64_t a, int64_t b, const std::vector<TargetPiece>& pieces,
                              WorkerMemory& memory);
    std::vector<TargetPiece> piecesIn(int64_t a, int64_t b);
    void findStrips();
    uint64_t fileOffset(const TargetPiece& piece) const;
    std::span<const std::byte> pieceOf(const TargetPiece& piece, int64_t tileBegin,
                                       std::span<const std::byte> tile, AlignedBuffer& buffer) const;
    Status writePiece(const TargetPiece& piece, std::span<const std::byte> out, std::vector<uint32_t>& crcs);
    Status pieceDone(const TargetPiece& piece, const std::vector<uint32_t>& crcs, size_t index);
    Status chunkDone(Target& target);
    bool reuse(const JournalTile& done);

    ConvertState& state_;
    const std::unique_ptr<ElementReader> source_;
    const TensorId wanted_;
    const DimSpan shape_;
    const DType dtype_;
    const TileGrid grid_;
    const bool needsCrc_;
    std::deque<Target> targets_;  // by first position
    ChunkIndex index_;
    int64_t columns_ = 0, strip_ = 0;  // elements, where all targets are strips of columns
    std::mutex mutex_;                 // cells, counts, crcs
    std::vector<Digest128> cells_;
    ValueCounts counts_;
    std::map<int64_t, const JournalTile*> reusable_;
};

}  // namespace shardscope
