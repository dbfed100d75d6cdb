// One wanted tensor on its way: read, cast, scan, digest, and write to its destination chunks. Private to
// this room.
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

// Tiles of which parts come from or go to other processes (group.cpp).
class TileExchange {
  public:
    virtual ~TileExchange() = default;
    // Runs `read`, more than once when bytes must come first.
    virtual Status read(const std::function<Status()>& read) = 0;
    virtual Status write(FileId file, uint64_t offset, std::span<const std::byte> bytes) = 0;
    virtual Status finished(JournalTile tile) = 0;
};

// What all tensors of one conversion share.
struct ConvertState {
    const ConvertJob& job;
    const Resources& resources;
    Staging* staging = nullptr;  // null: nothing is written, only digests are taken
    TileSizes tiles;
    std::vector<uint32_t> chunkCrcs;  // by ChunkId of the wanted catalog
    std::map<TensorId, std::vector<JournalTile>> reusable;
    std::atomic<uint64_t> bytesWritten{0};
    std::atomic<uint64_t> bytesReused{0};

    std::mutex mutex;                               // below
    std::vector<std::optional<Digest128>> digests;  // by wanted tensor
    std::map<TensorId, ValueCounts> counts;         // those with NaN or infinity

    bool joined = false;               // into another's job: what is no tensor data is the other's to write
    bool gathered = false;             // the tiles in `reusable` are counted already
    TileExchange* exchange = nullptr;  // instead of the staging directory; may be null
    TileCompute* compute = nullptr;    // null: the processor

    const Catalog& wanted() const { return job.wish->wanted; }
    // A sink for the bytes that are no tensor data.
    LiteralSink literals();
};

// What a wanted tensor is made of. Errors: those of TensorReader.
Result<std::unique_ptr<ElementReader>> elementReader(SourceContext& context, const TensorSource& source,
                                                     DType dtype, WorkerMemory& kept);

// Of what a wanted tensor is made; its own where that is nothing.
DType sourceDType(const ConvertJob& job, TensorId wanted);
// The tiles of a wanted tensor where all have `tileBytes`: what processes agree on without a look at the
// data.
TileGrid sharedGrid(const ConvertJob& job, TensorId wanted, uint64_t tileBytes);

class DestinationWork final : public TensorWork {
  public:
    // Checks that the source tensor can become the wanted one.
    static Result<std::unique_ptr<TensorWork>> prepare(ConvertState& state, SourceContext& context,
                                                       TensorId wanted, WorkerMemory& kept);

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

    DestinationWork(ConvertState& state, std::unique_ptr<ElementReader> source, TensorId wanted);
    std::vector<TargetPiece> piecesIn(int64_t a, int64_t b) const;
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
