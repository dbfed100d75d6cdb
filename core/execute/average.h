// Reading the average of several checkpoints, tile by tile. Private to this room.
#pragma once

#include <memory>
#include <vector>

#include "execute/tensor_reader.h"

namespace shardscope {

// The same tensor of several sources. An element is ((w0 * x0 + w1 * x1) + w2 * x2) ... in the order of the
// inputs, each operation rounded to the reader's dtype. So the result does not depend on tiles, threads or
// the machine. Every NaN is the same quiet one.
class AverageReader final : public ElementReader {
  public:
    // `sums`: float32 or float64. Inputs of float16, bfloat16, float32, and of float64 where that is `sums`.
    AverageReader(DType sums, std::vector<std::unique_ptr<ElementReader>> inputs,
                  std::vector<double> weights);

    uint64_t goodTileBytes(uint64_t preferred, uint64_t largest) const override;
    size_t readBufferBytes(int64_t a, int64_t b) const override;
    size_t preferredAlignment(int64_t, int64_t) const override { return 0; }
    Status readTile(int64_t a, int64_t b, std::span<std::byte> tile,
                    std::span<std::byte> buffer) const override;

  private:
    const std::vector<std::unique_ptr<ElementReader>> inputs_;
    const std::vector<double> weights_;
};

// A tensor that all sources must have alike. Errors of readTile: impossible, with the first element that
// differs.
class SameReader final : public ElementReader {
  public:
    explicit SameReader(std::vector<std::unique_ptr<ElementReader>> inputs);  // of one dtype

    uint64_t goodTileBytes(uint64_t preferred, uint64_t largest) const override;
    size_t readBufferBytes(int64_t a, int64_t b) const override;
    size_t preferredAlignment(int64_t a, int64_t b) const override;
    Status readTile(int64_t a, int64_t b, std::span<std::byte> tile,
                    std::span<std::byte> buffer) const override;

  private:
    const std::vector<std::unique_ptr<ElementReader>> inputs_;
};

}  // namespace shardscope
