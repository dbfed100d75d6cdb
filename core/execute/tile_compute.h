// What is done with a tile between reading and writing: cast, counted, hashed. By the processor, or by
// something that another room brings (core/accelerator/gpu).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "execute/executor.h"

namespace shardscope {

// A tile of a matrix that is cut along its columns into strips, each of which is to be in memory of its own.
// In elements.
struct TileCut {
    int64_t columns = 0;                       // of the matrix
    int64_t strip = 0;                         // of each strip but the last, which has what is left
    int64_t begin = 0;                         // column of the tile's first element
    std::vector<std::span<std::byte>> strips;  // empty = the tile is not cut

    int64_t width(int64_t s) const {
        return s + 1 == static_cast<int64_t>(strips.size()) ? columns - s * strip : strip;
    }
    // Elements of a strip among the first `elements` of the tile.
    int64_t elementsOf(int64_t s, int64_t elements) const {
        const auto before = [&](int64_t at) {
            return at / columns * width(s) + std::clamp<int64_t>(at % columns - s * strip, 0, width(s));
        };
        return before(begin + elements) - before(begin);
    }
};

struct TileTask {
    DType from{}, to{};
    int64_t elements = 0;  // from the first of a digest cell on
    bool scan = true;      // values are counted
    std::span<const std::byte> read;
    // Memory for the elements as `to`. Empty when `to` is `from`, and when the tile is cut.
    std::span<std::byte> cast;
    TileCut cut;  // for implementations that cut
};

struct TileFacts {
    ValueCounts counts;
    std::vector<Digest128> cells;
};

// Memory for a tile as it is read, and as it is cast.
struct TileBuffers {
    std::span<std::byte> read, cast;
    std::shared_ptr<void> held;  // null: no such memory; the caller takes its own
};

// All of it may be called by several threads at a time.
class TileCompute {
  public:
    virtual ~TileCompute() = default;
    virtual std::string_view name() const = 0;  // "cpu", "gpu"
    // Memory with faster transfers, such as pinned memory; begins at a multiple of kIoAlignment.
    virtual Result<TileBuffers> room(size_t readBytes, size_t castBytes) = 0;
    // Whether run() cuts this tile as well; its strips need not have their memory yet.
    virtual bool cuts(const TileTask& task) const = 0;
    // All implementations give the same bits, counts and digests.
    virtual Status run(const TileTask& task, TileFacts& facts) = 0;
};

TileCompute& processorCompute();

}  // namespace shardscope
