#include "survey/max_pyramid.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace shardscope {

namespace {
constexpr uint32_t kNarrow = 2048;  // columns that need no halved copies
}

MaxPyramid::MaxPyramid(uint32_t rows, uint32_t columns, size_t budget) : rows_(rows), columns_(columns) {
    const auto halved = [](uint32_t count, int shift) {
        return static_cast<uint32_t>((uint64_t{count} + (uint64_t{1} << shift) - 1) >> shift);
    };
    while (uint64_t{halved(rows, rowShift_)} * halved(columns, columnShift_) > budget)
        ++(halved(rows, rowShift_) > halved(columns, columnShift_) ? rowShift_ : columnShift_);
    Level base{halved(rows, rowShift_), halved(columns, columnShift_), {}};
    base.values.assign(size_t{base.rows} * base.columns, 0);
    levels_.push_back(std::move(base));
}

size_t MaxPyramid::bytes() const {
    size_t sum = 0;
    for (const Level& l : levels_)
        sum += l.values.capacity();
    return sum;
}

void MaxPyramid::raise(uint32_t row, uint32_t column, uint8_t value) {
    Level& base = levels_[0];
    uint8_t& cell = base.values[size_t{row >> rowShift_} * base.columns + (column >> columnShift_)];
    cell = std::max(cell, value);
}

void MaxPyramid::finish() {
    if (levels_.empty()) return;
    downLevels_ = 1;
    for (uint32_t rows = levels_[0].rows; rows > 1; rows = (rows + 1) / 2)
        ++downLevels_;
    acrossLevels_ = 1;
    for (uint32_t columns = levels_[0].columns; columns > kNarrow; columns = (columns + 1) / 2)
        ++acrossLevels_;
    levels_.resize(1);
    levels_.reserve(downLevels_ * acrossLevels_);
    for (size_t across = 0; across < acrossLevels_; ++across) {
        for (size_t down = 0; down < downLevels_; ++down) {
            if (across == 0 && down == 0) continue;
            Level next;
            if (down > 0) {
                const Level& from = levels_.back();
                next = {(from.rows + 1) / 2, from.columns, {}};
                next.values.resize(size_t{next.rows} * next.columns);
                for (uint32_t r = 0; r < next.rows; ++r) {
                    const uint8_t* a = from.values.data() + size_t{2 * r} * from.columns;
                    const uint8_t* b = 2 * r + 1 < from.rows ? a + from.columns : a;
                    uint8_t* out = next.values.data() + size_t{r} * next.columns;
                    for (uint32_t c = 0; c < next.columns; ++c)
                        out[c] = std::max(a[c], b[c]);
                }
            } else {
                const Level& from = level(0, across - 1);
                next = {from.rows, (from.columns + 1) / 2, {}};
                next.values.resize(size_t{next.rows} * next.columns);
                for (uint32_t r = 0; r < next.rows; ++r) {
                    const uint8_t* in = from.values.data() + size_t{r} * from.columns;
                    uint8_t* out = next.values.data() + size_t{r} * next.columns;
                    for (uint32_t c = 0; c < next.columns; ++c)
                        out[c] = std::max(in[2 * c], in[std::min(2 * c + 1, from.columns - 1)]);
                }
            }
            levels_.push_back(std::move(next));
        }
    }
}

uint8_t MaxPyramid::worst(uint32_t rowBegin, uint32_t rowEnd, uint32_t columnBegin,
                          uint32_t columnEnd) const {
    rowEnd = std::min(rowEnd, rows_);
    columnEnd = std::min(columnEnd, columns_);
    if (rowBegin >= rowEnd || columnBegin >= columnEnd) return 0;
    const Level& base = levels_[0];
    uint8_t worst = 0;
    for (uint32_t r = rowBegin >> rowShift_; r <= (rowEnd - 1) >> rowShift_; ++r) {
        const uint8_t* line = base.values.data() + size_t{r} * base.columns;
        worst = std::max(worst, *std::max_element(line + (columnBegin >> columnShift_),
                                                  line + ((columnEnd - 1) >> columnShift_) + 1));
    }
    return worst;
}

void MaxPyramid::sample(double x, double dx, int width, double y, double dy, int height, uint8_t* out) const {
    std::fill_n(out, static_cast<size_t>(width) * static_cast<size_t>(height), uint8_t{0});
    if (levels_.empty() || rows_ == 0 || columns_ == 0) return;
    // Levels whose cells are at most half a pixel, so that a pixel takes little from its neighbors.
    const auto fitting = [](double step, int shift, size_t levels) {
        size_t found = 0;
        while (found + 1 < levels && std::ldexp(1.0, shift + static_cast<int>(found) + 1) <= step / 2)
            ++found;
        return found;
    };
    const size_t down = fitting(dy, rowShift_, downLevels_),
                 across = fitting(dx, columnShift_, acrossLevels_);
    const Level& from = level(down, across);
    const int rowShift = rowShift_ + static_cast<int>(down),
              columnShift = columnShift_ + static_cast<int>(across);

    // The cells of each pixel: [begin, end), in cells of the level. Pixels outside have none.
    const auto cellsOf = [](double start, double step, int count, uint32_t cells, int shift) {
        std::vector<std::pair<uint32_t, uint32_t>> spans(static_cast<size_t>(count));
        for (int i = 0; i < count; ++i) {
            const double a = std::floor(start + i * step);
            const double b = std::max(a + 1, std::floor(start + (i + 1) * step));
            if (b <= 0 || a >= cells) continue;
            const auto begin = static_cast<uint32_t>(std::max(0.0, a));
            const auto end = static_cast<uint32_t>(std::min<double>(b, cells));
            spans[static_cast<size_t>(i)] = {begin >> shift, ((end - 1) >> shift) + 1};
        }
        return spans;
    };
    const auto columns = cellsOf(x, dx, width, columns_, columnShift);
    const auto rows = cellsOf(y, dy, height, rows_, rowShift);
    uint32_t first = UINT32_MAX, last = 0;
    for (const auto& [begin, end] : columns) {
        if (begin == end) continue;
        first = std::min(first, begin);
        last = std::max(last, end);
    }
    if (first >= last) return;
    std::vector<uint8_t> line(from.columns);
    std::pair<uint32_t, uint32_t> before{0, 0};
    for (int j = 0; j < height; ++j) {
        const auto [begin, end] = rows[static_cast<size_t>(j)];
        if (begin == end) continue;
        uint8_t* pixels = out + static_cast<size_t>(j) * static_cast<size_t>(width);
        if (j > 0 && before == std::pair(begin, end)) {
            std::copy_n(pixels - width, width, pixels);
            continue;
        }
        before = {begin, end};
        const uint8_t* source = from.values.data() + size_t{begin} * from.columns;
        if (end - begin > 1) {
            std::copy(source + first, source + last, line.begin() + first);
            for (uint32_t r = begin + 1; r < end; ++r) {
                const uint8_t* more = from.values.data() + size_t{r} * from.columns;
                for (uint32_t c = first; c < last; ++c)
                    line[c] = std::max(line[c], more[c]);
            }
            source = line.data();
        }
        for (int i = 0; i < width; ++i) {
            const auto [from_, to] = columns[static_cast<size_t>(i)];
            uint8_t worst = 0;
            for (uint32_t c = from_; c < to; ++c)
                worst = std::max(worst, source[c]);
            pixels[i] = worst;
        }
    }
}

void spreadWorst(std::vector<uint8_t>& pixels, int width, int height, uint8_t least) {
    std::vector<std::pair<int, int>> found;  // (column, row)
    const size_t most = pixels.size() / 16;  // beyond that they cannot be missed
    for (int y = 0; y < height && found.size() < most; ++y) {
        const uint8_t* line = pixels.data() + static_cast<size_t>(y) * static_cast<size_t>(width);
        uint8_t worst = 0;
        for (int x = 0; x < width; ++x)
            worst = std::max(worst, line[x]);
        for (int x = 0; worst >= least && x < width; ++x) {
            if (line[x] >= least) found.emplace_back(x, y);
        }
    }
    // Taken before the first is spread: what was spread does not spread again.
    std::vector<uint8_t> values;
    values.reserve(found.size());
    for (const auto& [x, y] : found)
        values.push_back(
            pixels[static_cast<size_t>(y) * static_cast<size_t>(width) + static_cast<size_t>(x)]);
    for (size_t n = 0; n < found.size(); ++n) {
        const auto [x, y] = found[n];
        for (int j = std::max(0, y - 1); j <= std::min(height - 1, y + 1); ++j) {
            for (int i = std::max(0, x - 1); i <= std::min(width - 1, x + 1); ++i) {
                uint8_t& pixel =
                    pixels[static_cast<size_t>(j) * static_cast<size_t>(width) + static_cast<size_t>(i)];
                pixel = std::max(pixel, values[n]);
            }
        }
    }
}

}  // namespace shardscope
