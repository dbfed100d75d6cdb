// Reading the tiles of a tensor that is put together from parts of others. Private to this room, but for the
// figures of the plan.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "execute/tensor_reader.h"
#include "plan/view.h"

namespace shardscope {

// How the elements of each piece are fetched, decided before anything is read:
//   direct   in each tile by itself: what a tile needs is in long runs of the source
//   held     the part of the source that its pieces need is read once and kept in memory, where that is small
//   scratch  the piece is put into the wanted order once, in blocks, in a file that goes when the tensor is
//   done
//   constant  nothing is fetched: the piece has no source
struct ViewReading {
    enum class Way : uint8_t { direct, held, scratch, constant };
    std::vector<Way> ways;  // one for each piece of the view
    struct Span {
        int64_t first = 0, last = 0;  // elements of the source tensor, both included
    };
    std::map<TensorId, Span> held;
    uint64_t sourceBytes = 0;   // read from the source for all of the tensor
    uint64_t scratchBytes = 0;  // written to and read from scratch files
};
// `memory` is the job's buffer memory.
ViewReading viewReading(const TensorView& view, size_t elementBytes, uint64_t memory);

class ViewReader final : public ElementReader {
  public:
    // `dtype` is that of an empty tensor; else that of the source. `strided`: whether pieces may be held in
    // memory, as in TensorReader. Errors: those of TensorReader.
    static Result<std::unique_ptr<ViewReader>> prepare(
        SourceContext& context, const TensorView& view, DType dtype, WorkerMemory& kept,
        TensorReader::Strided strided = TensorReader::Strided::held);

    uint64_t goodTileBytes(uint64_t preferred, uint64_t largest) const override;
    size_t readBufferBytes(int64_t a, int64_t b) const override;
    size_t preferredAlignment(int64_t a, int64_t b) const override;
    Status readTile(int64_t a, int64_t b, std::span<std::byte> tile,
                    std::span<std::byte> buffer) const override;

  private:
    struct Piece {
        const ViewPiece* view = nullptr;
        ChunkShape shape;  // of the box, in the view's finer dimensions
        ViewReading::Way way = ViewReading::Way::direct;
        const TensorReader* source = nullptr;
        std::shared_ptr<const ReadFile> scratch;
        FillPattern element;  // of a constant piece
    };
    struct Held {
        int64_t first = 0;
        std::vector<std::byte> bytes;
    };

    explicit ViewReader(const TensorView& view) : view_(view) {}
    Status fetchTile(int64_t a, int64_t b, std::span<std::byte> tile, std::span<std::byte> buffer) const;
    template <class Number>
    void changeValues(std::span<std::byte> tile) const;
    Status setConstant(Piece& piece) const;
    Status toScratch(SourceContext& context, Piece& piece, WorkerMemory& kept);
    Status hold(SourceContext& context, const ViewReading& reading, WorkerMemory& kept);
    Status readDirect(const Piece& piece, const ChunkShape::Piece& part, int64_t a, std::span<std::byte> tile,
                      std::span<std::byte> buffer) const;
    Status readScratch(const Piece& piece, const ChunkShape::Piece& part, int64_t a,
                       std::span<std::byte> tile, std::span<std::byte> buffer) const;
    void copyHeld(const Piece& piece, const ChunkShape::Piece& part, int64_t a,
                  std::span<std::byte> tile) const;
    void fillConstant(const Piece& piece, const ChunkShape::Piece& part, int64_t a,
                      std::span<std::byte> tile) const;

    const TensorView& view_;  // of the spec, which outlives the job
    Dims strides_;            // of the view's finer dimensions
    std::map<TensorId, std::unique_ptr<TensorReader>> sources_;
    std::map<TensorId, Held> held_;
    std::vector<Piece> pieces_;  // by first position
    ChunkIndex index_;
    MemoryBudget::Lease spanShare_, lease_;
};

}  // namespace shardscope
