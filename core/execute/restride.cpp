#include "execute/restride.h"

#include <algorithm>
#include <cmath>
#include <new>
#include <vector>

#include "execute/gather.h"
#include "storage/aligned_buffer.h"

namespace shardscope {

bool isRowMajor(DimSpan strides, DimSpan lengths) {
    if (strides.empty()) return true;
    int64_t expected = 1;
    for (size_t i = lengths.size(); i-- > 0;) {
        if (lengths[i] != 1 && strides[i] != expected) return false;
        expected *= lengths[i];
    }
    return true;
}

void restrideRange(int64_t lo, int64_t hi, DimSpan lengths, DimSpan strides, size_t elementBytes,
                   const std::byte* stored, std::byte* out) {
    forEachPart(lo, hi, lengths, [&](int64_t start, DimSpan offsets, DimSpan sizes) {
        int64_t from = 0;
        for (size_t i = 0; i < strides.size(); ++i)
            from += offsets[i] * strides[i];
        copyStrided(out + (start - lo) * static_cast<int64_t>(elementBytes), rowMajorStrides(sizes),
                    stored + from * static_cast<int64_t>(elementBytes), strides, sizes, elementBytes);
    });
}

namespace {

// Extents of a block: grown along the fastest dimensions of both sides in turn until the block is full.
Dims blockExtents(DimSpan lengths, DimSpan strides, const std::vector<size_t>& sourceOrder,
                  int64_t elements) {
    Dims extents(lengths.size(), 1);
    int64_t volume = 1;
    const auto grow = [&](size_t d, int64_t limit) {
        const int64_t room = std::max<int64_t>(1, limit / volume);
        const int64_t now = extents[d];
        const int64_t next = std::min(lengths[d], now * room);
        volume = volume / now * next;
        extents[d] = next;
    };
    const auto half = std::max<int64_t>(1, static_cast<int64_t>(std::sqrt(static_cast<double>(elements))));
    for (size_t i = lengths.size(); i-- > 0 && volume < half;) {
        if (strides[i] != 0) grow(i, half);
    }
    for (size_t d : sourceOrder) {
        if (volume >= elements) break;
        grow(d, elements);
    }
    for (size_t i = lengths.size(); i-- > 0 && volume < elements;) {
        if (strides[i] != 0) grow(i, elements);
    }
    return extents;
}

// Next index of a box of `steps` positions per dimension; false after the last.
bool nextIndex(Dims& index, DimSpan steps) {
    for (size_t d = index.size(); d-- > 0;) {
        if (++index[d] < steps[d]) return true;
        index[d] = 0;
    }
    return false;
}

// Dimensions that move in the source, fastest first. Expanded ones (stride 0) are only repeated on writing.
std::vector<size_t> movingDimensions(DimSpan lengths, DimSpan strides) {
    std::vector<size_t> order;
    for (size_t d = 0; d < lengths.size(); ++d) {
        if (strides[d] != 0 && lengths[d] > 1) order.push_back(d);
    }
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return strides[a] < strides[b]; });
    return order;
}

}  // namespace

Status restrideToFile(const StoredElements& read, DimSpan lengths, DimSpan strides, size_t elementBytes,
                      uint64_t memory, WriteFile& out, const StopToken& stop) {
    const size_t rank = lengths.size();
    const auto size = static_cast<int64_t>(elementBytes);
    const std::vector<size_t> order = movingDimensions(lengths, strides);
    const auto blockElements = static_cast<int64_t>(std::max<uint64_t>(memory / 3 / elementBytes, 1024));
    const Dims extents = blockExtents(lengths, strides, order, blockElements);

    // How many elements apart the stored elements of one read may be before they are read one by one.
    constexpr int64_t kSparse = 64;
    AlignedBuffer stored, straight;
    const auto blockBytes = static_cast<size_t>(elementCount(extents) * size);
    std::vector<std::byte> line;
    try {
        stored.reset(blockBytes);
        straight.reset(blockBytes);
    } catch (const std::bad_alloc&) {
        return makeError(ErrorCode::limit, "no memory to transpose a tensor");
    }
    Dims blocks(rank), repeats(rank, 1);
    for (size_t d = 0; d < rank; ++d) {
        blocks[d] = strides[d] == 0 ? 1 : (lengths[d] + extents[d] - 1) / extents[d];
        if (strides[d] == 0) repeats[d] = lengths[d];
    }
    Dims block(rank, 0);
    do {
        SHARDSCOPE_TRY(stop.poll());
        Dims begin(rank, 0), sizes(rank, 1);
        for (size_t d = 0; d < rank; ++d) {
            begin[d] = block[d] * extents[d];
            sizes[d] = strides[d] == 0 ? 1 : std::min(extents[d], lengths[d] - begin[d]);
        }
        // Read the block in the source's order: `run` leading dimensions are contiguous in the file.
        size_t joined = 0;
        int64_t run = 1;
        while (joined < order.size() && strides[order[joined]] == run) {
            run *= sizes[order[joined++]];
            if (sizes[order[joined - 1]] != lengths[order[joined - 1]]) break;
        }
        const bool gapped = joined == 0 && !order.empty() && strides[order[0]] <= kSparse;
        const int64_t gap = gapped ? strides[order[0]] : 1;
        if (gapped) {
            run = sizes[order[0]];
            joined = 1;
        }
        Dims storedStrides(rank, 0);
        int64_t stride = 1;
        for (size_t d : order) {
            storedStrides[d] = stride;
            stride *= sizes[d];
        }
        Dims index(order.size() - joined, 0), steps;
        for (size_t k = order.size(); k-- > joined;)
            steps.push_back(sizes[order[k]]);
        int64_t at = 0;
        do {
            int64_t from = 0;
            for (size_t d = 0; d < rank; ++d)
                from += begin[d] * strides[d];
            for (size_t k = 0; k < index.size(); ++k)
                from += index[k] * strides[order[order.size() - 1 - k]];
            const auto target = static_cast<size_t>(((run - 1) * gap + 1) * size);
            std::byte* to = stored.data() + at * size;
            if (gap == 1) {
                SHARDSCOPE_TRY(read(from, {to, target}));
            } else {
                line.resize(target);
                SHARDSCOPE_TRY(read(from, line));
                copyRows(to, size, line.data(), gap * size, elementBytes, run);
            }
            at += run;
        } while (nextIndex(index, steps));

        copyStrided(straight.data(), rowMajorStrides(sizes), stored.data(), storedStrides, sizes,
                    elementBytes);

        Dims repeat(rank, 0);
        do {
            Dims where = begin;
            for (size_t d = 0; d < rank; ++d)
                where[d] += repeat[d];
            Status status;
            forEachRows(0, elementCount(sizes), lengths, where, sizes,
                        [&](int64_t first, int64_t position, int64_t count, int64_t rows, int64_t step) {
                            for (int64_t r = 0; r < rows && status.ok(); ++r) {
                                status = out.writeBulk(static_cast<uint64_t>((position + r * step) * size),
                                                       {straight.data() + (first + r * count) * size,
                                                        static_cast<size_t>(count * size)});
                            }
                        });
            SHARDSCOPE_TRY(std::move(status));
        } while (nextIndex(repeat, repeats));
    } while (nextIndex(block, blocks));
    return {};
}

}  // namespace shardscope
