// The worst of many cells, quickly, at every zoom.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace shardscope {

// A grid of bytes with halved copies of itself (as mipmaps are), for the maximum of any rectangle. Where the
// grid is larger than `budget` bytes, several cells share one from the start.
class MaxPyramid {
  public:
    MaxPyramid() = default;
    MaxPyramid(uint32_t rows, uint32_t columns, size_t budget);

    uint32_t rows() const { return rows_; }
    uint32_t columns() const { return columns_; }
    size_t bytes() const;
    void raise(uint32_t row, uint32_t column, uint8_t value);
    void finish();  // after the last raise()

    uint8_t worst(uint32_t rowBegin, uint32_t rowEnd, uint32_t columnBegin, uint32_t columnEnd) const;
    // A picture of width x height values. Pixel (i, j) is the worst of the cells from (x + i * dx, y + j *
    // dy) up to the next pixel's. It is 0 outside of the grid.
    void sample(double x, double dx, int width, double y, double dy, int height, uint8_t* out) const;

  private:
    struct Level {
        uint32_t rows = 0, columns = 0;
        std::vector<uint8_t> values;
    };
    const Level& level(size_t down, size_t across) const { return levels_[across * downLevels_ + down]; }

    uint32_t rows_ = 0, columns_ = 0;
    int rowShift_ = 0, columnShift_ = 0;  // of the finest level
    size_t downLevels_ = 1, acrossLevels_ = 1;
    std::vector<Level> levels_;  // halved `down` times from top to bottom, `across` times from left to right
};

// Spreads values of at least `least` to the eight neighbors of their pixel, so that a cell smaller than a
// pixel stays visible.
void spreadWorst(std::vector<uint8_t>& pixels, int width, int height, uint8_t least);

}  // namespace shardscope
