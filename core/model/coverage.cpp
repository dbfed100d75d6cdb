#include "model/coverage.h"

#include <algorithm>
#include <bit>
#include <random>
#include <set>

#include "base/checked.h"

namespace shardscope {

namespace {

// ------------------------------------------------------------------ is a region covered exactly once?
//
// Let f(x) be the number of boxes that hold x. f is 1 on a whole region exactly when the signed corners of
// the boxes add up to the corners of the region (the mixed difference of f). With a random value H_k(c) for
// each coordinate c of each dimension k, that is one equation: the sum over the boxes of prod_k (H_k(end) -
// H_k(begin)) equals the same product for the region. It is checked modulo the prime 2^61 - 1, where two
// different multilinear forms agree with a probability below rank / 2^61 (Schwartz-Zippel). The values depend
// on a seed drawn by each process, so no file can aim at it.

using uint128 = unsigned __int128;
constexpr uint64_t kPrime = (uint64_t{1} << 61) - 1;

uint64_t reduce(uint64_t x) {
    x = (x & kPrime) + (x >> 61);
    return x >= kPrime ? x - kPrime : x;
}

uint64_t mulMod(uint64_t a, uint64_t b) {
    const uint128 product = uint128{a} * b;
    return reduce((static_cast<uint64_t>(product) & kPrime) + static_cast<uint64_t>(product >> 61));
}

uint64_t mix(uint64_t x) {
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9ULL;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebULL;
    return x ^ (x >> 31);
}

uint64_t processSeed() {
    static const uint64_t seed = [] {
        std::random_device device;
        return (uint64_t{device()} << 32) ^ device();
    }();
    return seed;
}

uint64_t coordinateValue(size_t dimension, int64_t coordinate, uint64_t seed) {
    return reduce(
        mix(mix(static_cast<uint64_t>(coordinate) + seed) + 0x9e3779b97f4a7c15ULL * (dimension + 1)));
}

// Adds up the products of boxes. Neighboring chunks share coordinates, so the last values of each dimension
// are kept.
class CornerSum {
  public:
    explicit CornerSum(size_t dims) : seed_(processSeed()), last_(dims) {}

    void add(const int64_t* begin, const int64_t* end) { sum_ = reduce(sum_ + product(begin, end)); }
    bool equals(const int64_t* begin, const int64_t* end) { return sum_ == product(begin, end); }

    // The same in steps: one factor for each dimension.
    uint64_t factor(size_t k, int64_t begin, int64_t end) {
        Last& last = last_[k];
        if (begin != last.begin) {
            last.beginValue = begin == last.end ? last.endValue : coordinateValue(k, begin, seed_);
            last.begin = begin;
        }
        if (end != last.end) {
            last.endValue = coordinateValue(k, end, seed_);
            last.end = end;
        }
        return reduce(last.endValue + kPrime - last.beginValue);
    }
    void addProduct(uint64_t product) { sum_ = reduce(sum_ + product); }

  private:
    struct Last {
        int64_t begin = -1, end = -1;  // no coordinate is negative
        uint64_t beginValue = 0, endValue = 0;
    };
    uint64_t product(const int64_t* begin, const int64_t* end) {
        uint64_t product = 1;
        for (size_t k = 0; k < last_.size(); ++k)
            product = mulMod(product, factor(k, begin[k], end[k]));
        return product;
    }
    uint64_t seed_;
    uint64_t sum_ = 0;
    std::vector<Last> last_;
};

// Cuts a box to the tensor along one dimension; false when nothing is left.
bool clip(int64_t offset, int64_t length, int64_t size, int64_t& begin, int64_t& end) {
    if (!checkedAdd(offset, length, end)) end = INT64_MAX;
    begin = std::max<int64_t>(offset, 0);
    end = std::min(end, size);
    return begin < end;
}

// Whether plain boxes give each element of the tensor once; without a copy of the chunks. False when unsure.
bool boxesCoverOnce(const Catalog& catalog, TensorId tensor) {
    const DimSpan shape = catalog.shape(tensor);
    CornerSum sum(shape.size());
    for (ChunkId id = catalog.firstChunk(tensor); id < catalog.endChunk(tensor); ++id) {
        const ChunkInfo chunk = catalog.chunk(tensor, id);
        if (chunk.flat) return false;
        uint64_t product = 1;
        for (size_t k = 0; k < shape.size() && product != 0; ++k) {
            int64_t begin = 0;
            int64_t end = 0;
            product = clip(chunk.offsets[k], chunk.lengths[k], shape[k], begin, end)
                          ? mulMod(product, sum.factor(k, begin, end))
                          : 0;
        }
        sum.addProduct(product);
    }
    const Dims zeros(shape.size(), 0);
    return sum.equals(zeros.data(), shape.data());
}

// ------------------------------------------------------------------ pieces

// The chunks of a tensor as boxes, cut to it, over those dimensions along which something is cut.
class Pieces {
  public:
    Pieces(const Catalog& catalog, TensorId tensor, const std::vector<ChunkId>& chunks)
        : shape_(catalog.shape(tensor)) {
        const size_t rank = shape_.size();
        std::vector<int64_t> all;  // begin[rank], end[rank] of each piece
        all.reserve(chunks.size() * rank * 2);
        chunk_.reserve(chunks.size());
        std::vector<bool> cut(rank, false);
        const auto add = [&](ChunkId id, DimSpan offsets, DimSpan lengths) {
            const size_t start = all.size();
            all.resize(start + 2 * rank);
            for (size_t k = 0; k < rank; ++k) {
                int64_t begin = 0;
                int64_t end = 0;
                if (!clip(offsets[k], lengths[k], shape_[k], begin, end)) {
                    all.resize(start);
                    return;
                }
                all[start + k] = begin;
                all[start + rank + k] = end;
                if (begin != 0 || end != shape_[k]) cut[k] = true;
            }
            chunk_.push_back(id);
        };
        for (ChunkId id : chunks) {
            const ChunkInfo chunk = catalog.chunk(tensor, id);
            if (!chunk.flat) {
                add(id, chunk.offsets, chunk.lengths);
                continue;
            }
            flat_ = true;
            // Far outside there is nothing to find, and coordinates that could overflow.
            bool meets = true;
            for (size_t k = 0; k < rank; ++k)
                meets = meets && chunk.offsets[k] < shape_[k];
            if (!meets) continue;
            for (const Box& box : flatRangeBoxes(chunk.offsets, chunk.lengths, *chunk.flat))
                add(id, box.offsets, box.lengths);
        }
        for (size_t k = 0; k < rank; ++k) {
            if (cut[k]) active_.push_back(k);
        }
        if (active_.size() == rank) {
            edges_ = std::move(all);
            return;
        }
        edges_.reserve(chunk_.size() * active_.size() * 2);
        for (size_t i = 0; i < chunk_.size(); ++i) {
            for (size_t k : active_)
                edges_.push_back(all[i * 2 * rank + k]);
            for (size_t k : active_)
                edges_.push_back(all[i * 2 * rank + rank + k]);
        }
    }

    size_t count() const { return chunk_.size(); }
    size_t dims() const { return active_.size(); }
    bool hasFlat() const { return flat_; }
    ChunkId chunk(size_t piece) const { return chunk_[piece]; }
    const int64_t* begin(size_t piece) const { return edges_.data() + piece * 2 * dims(); }
    const int64_t* end(size_t piece) const { return begin(piece) + dims(); }

    Dims wholeBegin() const { return Dims(dims(), 0); }
    Dims wholeEnd() const {
        Dims end;
        for (size_t k : active_)
            end.push_back(shape_[k]);
        return end;
    }
    // A region of the active dimensions as a box of the tensor.
    Box box(const Dims& begin, const Dims& end) const {
        Box out{Dims(shape_.size(), 0), Dims(shape_.begin(), shape_.end())};
        for (size_t i = 0; i < active_.size(); ++i) {
            out.offsets[active_[i]] = begin[i];
            out.lengths[active_[i]] = end[i] - begin[i];
        }
        return out;
    }

    bool coverOnce() const {
        CornerSum sum(dims());
        for (size_t i = 0; i < count(); ++i)
            sum.add(begin(i), end(i));
        return sum.equals(wholeBegin().data(), wholeEnd().data());
    }

  private:
    DimSpan shape_;
    std::vector<size_t> active_;
    std::vector<int64_t> edges_;
    std::vector<ChunkId> chunk_;
    bool flat_ = false;
};

// ------------------------------------------------------------------ replicas

bool sameRegion(const ChunkInfo& a, const ChunkInfo& b) {
    return a.flat == b.flat && std::equal(a.offsets.begin(), a.offsets.end(), b.offsets.begin()) &&
           std::equal(a.lengths.begin(), a.lengths.end(), b.lengths.begin());
}

// Calls replica(indexOfFirst, index) for each later one of equal chunks, in order.
template <class Replica>
void forEachReplica(const Catalog& catalog, TensorId tensor, const std::vector<ChunkId>& chunks,
                    Replica&& replica) {
    const size_t slots = std::bit_ceil(chunks.size() * 2 + 1);
    std::vector<uint32_t> table(slots, kNone);
    const uint64_t seed = processSeed();
    for (size_t i = 0; i < chunks.size(); ++i) {
        const ChunkInfo chunk = catalog.chunk(tensor, chunks[i]);
        uint64_t hash = seed;
        for (int64_t v : chunk.offsets)
            hash = mix(hash + static_cast<uint64_t>(v)) * 3;
        for (int64_t v : chunk.lengths)
            hash = mix(hash + static_cast<uint64_t>(v)) * 3;
        if (chunk.flat)
            hash = mix(mix(hash + static_cast<uint64_t>(chunk.flat->start)) +
                       static_cast<uint64_t>(chunk.flat->stop));
        size_t slot = mix(hash) & (slots - 1);
        while (table[slot] != kNone && !sameRegion(catalog.chunk(tensor, chunks[table[slot]]), chunk))
            slot = (slot + 1) & (slots - 1);
        if (table[slot] == kNone) {
            table[slot] = static_cast<uint32_t>(i);
        } else {
            replica(table[slot], i);
        }
    }
}

std::vector<ChunkId> nonEmptyChunks(const Catalog& catalog, TensorId tensor, bool insideOnly) {
    std::vector<ChunkId> chunks;
    const DimSpan shape = catalog.shape(tensor);
    chunks.reserve(catalog.endChunk(tensor) - catalog.firstChunk(tensor));
    for (ChunkId id = catalog.firstChunk(tensor); id < catalog.endChunk(tensor); ++id) {
        const ChunkInfo chunk = catalog.chunk(tensor, id);
        if (boxIsEmpty(chunk.lengths) || (chunk.flat && chunk.flat->start >= chunk.flat->stop)) continue;
        if (insideOnly && !boxInside(chunk.offsets, chunk.lengths, shape)) continue;
        chunks.push_back(id);
    }
    return chunks;
}

// ------------------------------------------------------------------ what is missing, what is double

// Halves regions along edges of the pieces in them; a region that is covered exactly once is done, so the
// work gathers around what is wrong.
class Search {
  public:
    Search(const Pieces& pieces, size_t maxPairs, size_t maxGaps, CoverageResult& result)
        : pieces_(pieces),
          maxPairs_(maxPairs),
          maxGaps_(maxGaps),
          result_(result),
          // Far more than any cut that a framework makes, some seconds for a hostile million of crossing
          // boxes.
          maxWork_(20'000'000 + 400 * uint64_t{pieces.count()}) {}

    void run() {
        Region first{pieces_.wholeBegin(), pieces_.wholeEnd(), {}};
        first.inside.resize(pieces_.count());
        for (size_t i = 0; i < first.inside.size(); ++i)
            first.inside[i] = static_cast<uint32_t>(i);
        stack_.push_back(std::move(first));
        while (!stack_.empty()) {
            if (work_ > maxWork_) {
                result_.complete = false;
                break;
            }
            Region region = std::move(stack_.back());
            stack_.pop_back();
            visit(region);
        }
        mergeGaps();
        std::sort(result_.overlaps.begin(), result_.overlaps.end());
    }

  private:
    struct Region {
        Dims begin, end;
        std::vector<uint32_t> inside;  // pieces that meet it
    };

    int64_t clippedBegin(uint32_t piece, size_t k, const Region& r) const {
        return std::max(pieces_.begin(piece)[k], r.begin[k]);
    }
    int64_t clippedEnd(uint32_t piece, size_t k, const Region& r) const {
        return std::min(pieces_.end(piece)[k], r.end[k]);
    }

    bool coveredOnce(const Region& r) const {
        const size_t dims = pieces_.dims();
        CornerSum sum(dims);
        Dims begin(dims), end(dims);
        for (uint32_t piece : r.inside) {
            for (size_t k = 0; k < dims; ++k) {
                begin[k] = clippedBegin(piece, k, r);
                end[k] = clippedEnd(piece, k, r);
            }
            sum.add(begin.data(), end.data());
        }
        return sum.equals(r.begin.data(), r.end.data());
    }

    void visit(Region& r) {
        const size_t dims = pieces_.dims();
        work_ += 1 + r.inside.size() * (dims + 1);
        if (r.inside.empty()) {
            addGap(r);
            return;
        }
        if (coveredOnce(r)) return;

        // The dimension whose middle edge cuts the fewest pieces.
        size_t best = dims;
        int64_t bestAt = 0;
        size_t bestCost = SIZE_MAX;
        for (size_t k = 0; k < dims; ++k) {
            edges_.clear();
            for (uint32_t piece : r.inside) {
                if (const int64_t b = pieces_.begin(piece)[k]; b > r.begin[k] && b < r.end[k])
                    edges_.push_back(b);
                if (const int64_t e = pieces_.end(piece)[k]; e > r.begin[k] && e < r.end[k])
                    edges_.push_back(e);
            }
            if (edges_.empty()) continue;
            const auto middle = edges_.begin() + static_cast<ptrdiff_t>(edges_.size() / 2);
            std::nth_element(edges_.begin(), middle, edges_.end());
            const int64_t at = *middle;
            size_t left = 0;
            size_t right = 0;
            for (uint32_t piece : r.inside) {
                left += pieces_.begin(piece)[k] < at;
                right += pieces_.end(piece)[k] > at;
            }
            // Pieces on the larger side, and those that are on both.
            const size_t cost = std::max(left, right) + (left + right - r.inside.size());
            if (cost < bestCost) {
                best = k;
                bestAt = at;
                bestCost = cost;
            }
        }
        if (best == dims) {
            // Every piece fills the region, and there is more than one.
            countPairs(r);
            return;
        }
        Region low{r.begin, r.end, {}};
        Region high{r.begin, r.end, {}};
        low.end[best] = bestAt;
        high.begin[best] = bestAt;
        for (uint32_t piece : r.inside) {
            if (pieces_.begin(piece)[best] < bestAt) low.inside.push_back(piece);
            if (pieces_.end(piece)[best] > bestAt) high.inside.push_back(piece);
        }
        stack_.push_back(std::move(high));
        stack_.push_back(std::move(low));
    }

    // A pair is counted in the one region that holds the lowest corner of what the two share.
    void countPairs(const Region& r) {
        const size_t dims = pieces_.dims();
        for (size_t i = 0; i < r.inside.size(); ++i) {
            work_ += r.inside.size() - i;
            if (work_ > maxWork_) return;
            for (size_t j = i + 1; j < r.inside.size(); ++j) {
                const uint32_t a = r.inside[i];
                const uint32_t b = r.inside[j];
                bool here = true;
                for (size_t k = 0; k < dims && here; ++k) {
                    here = std::max(pieces_.begin(a)[k], pieces_.begin(b)[k]) == r.begin[k];
                }
                if (!here || pieces_.chunk(a) == pieces_.chunk(b)) continue;
                const std::pair<ChunkId, ChunkId> pair{std::min(pieces_.chunk(a), pieces_.chunk(b)),
                                                       std::max(pieces_.chunk(a), pieces_.chunk(b))};
                if (pieces_.hasFlat() && !counted_.insert(pair).second) continue;
                ++result_.overlapCount;
                if (result_.overlaps.size() < maxPairs_) result_.overlaps.push_back(pair);
            }
        }
    }

    void addGap(const Region& r) {
        Box box = pieces_.box(r.begin, r.end);
        result_.gapElements += static_cast<uint64_t>(elementCount(box.lengths));
        if (result_.gaps.size() < maxGaps_) result_.gaps.push_back(std::move(box));
    }

    // Joins neighbors that differ in one dimension only.
    void mergeGaps() {
        std::vector<Box>& gaps = result_.gaps;
        bool changed = gaps.size() > 1;
        while (changed) {
            changed = false;
            const size_t rank = gaps.empty() ? 0 : gaps[0].offsets.size();
            for (size_t k = rank; k-- > 0;) {
                std::sort(gaps.begin(), gaps.end(), [&](const Box& a, const Box& b) {
                    for (size_t d = 0; d < rank; ++d) {
                        if (d == k) continue;
                        if (a.offsets[d] != b.offsets[d]) return a.offsets[d] < b.offsets[d];
                        if (a.lengths[d] != b.lengths[d]) return a.lengths[d] < b.lengths[d];
                    }
                    return a.offsets[k] < b.offsets[k];
                });
                size_t kept = 0;
                for (size_t i = 1; i < gaps.size(); ++i) {
                    Box& last = gaps[kept];
                    bool joins = last.offsets[k] + last.lengths[k] == gaps[i].offsets[k];
                    for (size_t d = 0; d < rank && joins; ++d) {
                        joins = d == k || (last.offsets[d] == gaps[i].offsets[d] &&
                                           last.lengths[d] == gaps[i].lengths[d]);
                    }
                    if (joins) {
                        last.lengths[k] += gaps[i].lengths[k];
                        changed = true;
                    } else if (++kept != i) {
                        gaps[kept] = std::move(gaps[i]);
                    }
                }
                if (!gaps.empty()) gaps.resize(kept + 1);
            }
        }
        std::sort(gaps.begin(), gaps.end(), [](const Box& a, const Box& b) { return a.offsets < b.offsets; });
    }

    const Pieces& pieces_;
    const size_t maxPairs_, maxGaps_;
    CoverageResult& result_;
    const uint64_t maxWork_;
    std::vector<Region> stack_;
    std::vector<int64_t> edges_;
    std::set<std::pair<ChunkId, ChunkId>> counted_;  // with flat ranges, whose boxes may meet several times
    uint64_t work_ = 0;
};

}  // namespace

std::vector<Box> flatRangeBoxes(DimSpan offsets, DimSpan lengths, FlatRange range) {
    std::vector<Box> boxes;
    const size_t rank = lengths.size();
    if (range.start >= range.stop || boxIsEmpty(lengths)) return boxes;
    if (rank == 0) return {Box{}};

    // Digits of both ends in the mixed radix of the box.
    Dims first(rank), last(rank);
    int64_t stride = elementCount(lengths);
    int64_t start = range.start;
    int64_t stop = range.stop;
    for (size_t k = 0; k < rank; ++k) {
        stride /= lengths[k];
        first[k] = start / stride;
        start %= stride;
        last[k] = stop / stride;
        stop %= stride;
    }
    size_t split = 0;
    while (first[split] == last[split])
        ++split;  // start < stop: some digit differs

    // A box with the digits of `prefix` before dimension k, [from, to) along k, and all behind it.
    const auto add = [&](const Dims& prefix, size_t k, int64_t from, int64_t to) {
        if (from >= to) return;
        Box box{Dims(offsets.begin(), offsets.end()), Dims(lengths.begin(), lengths.end())};
        for (size_t i = 0; i < k; ++i) {
            box.offsets[i] += prefix[i];
            box.lengths[i] = 1;
        }
        box.offsets[k] += from;
        box.lengths[k] = to - from;
        boxes.push_back(std::move(box));
    };
    // Behind `lowest` all digits of the start are 0: from there on whole slices follow.
    size_t lowest = rank - 1;
    while (lowest > split && first[lowest] == 0)
        --lowest;
    for (size_t k = lowest; k > split; --k)
        add(first, k, first[k] + (k == lowest ? 0 : 1), lengths[k]);
    add(first, split, first[split] + (lowest == split ? 0 : 1), last[split]);
    for (size_t k = split + 1; k < rank; ++k)
        add(last, k, 0, last[k]);
    return boxes;
}

CoverageResult checkCoverage(const Catalog& catalog, TensorId tensor, size_t maxPairs, size_t maxGaps) {
    CoverageResult result;
    if (catalog.elements(tensor) == 0 || boxesCoverOnce(catalog, tensor)) return result;
    std::vector<ChunkId> chunks = nonEmptyChunks(catalog, tensor, false);
    std::vector<bool> later(chunks.size(), false);
    forEachReplica(catalog, tensor, chunks, [&](size_t first, size_t index) {
        result.replicas.emplace_back(chunks[first], chunks[index]);
        later[index] = true;
    });
    size_t kept = 0;
    for (size_t i = 0; i < chunks.size(); ++i) {
        if (!later[i]) chunks[kept++] = chunks[i];
    }
    chunks.resize(kept);
    const Pieces pieces(catalog, tensor, chunks);
    if (pieces.coverOnce()) return result;
    Search(pieces, maxPairs, maxGaps, result).run();
    return result;
}

std::vector<ChunkId> coveringChunks(const Catalog& catalog, TensorId tensor) {
    std::vector<ChunkId> chunks = nonEmptyChunks(catalog, tensor, true);
    // What is covered exactly once has no replicas.
    if (chunks.size() < 2 || boxesCoverOnce(catalog, tensor)) return chunks;
    const auto present = [&](ChunkId id) {
        const FileId file = catalog.chunk(tensor, id).file;
        return file == kNone || catalog.files()[file].state == FileInfo::State::present;
    };
    std::vector<bool> drop(chunks.size(), false);
    std::vector<uint32_t> chosen(chunks.size());
    for (size_t i = 0; i < chunks.size(); ++i)
        chosen[i] = static_cast<uint32_t>(i);
    forEachReplica(catalog, tensor, chunks, [&](size_t first, size_t index) {
        uint32_t& best = chosen[first];
        if (!present(chunks[best]) && present(chunks[index])) {
            drop[best] = true;
            best = static_cast<uint32_t>(index);
        } else {
            drop[index] = true;
        }
    });
    size_t kept = 0;
    for (size_t i = 0; i < chunks.size(); ++i) {
        if (!drop[i]) chunks[kept++] = chunks[i];
    }
    chunks.resize(kept);
    return chunks;
}

}  // namespace shardscope
