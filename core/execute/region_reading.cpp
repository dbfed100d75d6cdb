#include "execute/region_reading.h"

#include <algorithm>
#include <memory>
#include <new>

#include <fmt/format.h>

#include "base/checked.h"
#include "base/thread_pool.h"
#include "execute/gather.h"
#include "execute/tensor_reader.h"

namespace shardscope {
namespace {

constexpr size_t kFarTogether = 16;  // large readings from far away

// Of what is read at once.
int64_t unitBytes() {
    return (MostlyWaiting::any() ? int64_t{8} : int64_t{4}) << 20;
}

constexpr int64_t kJoinGapBytes = int64_t{8} << 10;

// What one part of a chunk (a box of it that is contiguous in the chunk's order) holds of a region. A run is
// what is read and copied at once: all of the dimensions from `inner` on, and some elements of the one before
// it.
class RegionPart {
  public:
    // Nothing when they have nothing in common. `first` is the part's first element in the order of the
    // chunk, whose number is `chunk`.
    static std::optional<RegionPart> make(const RegionRead& read, int64_t size, size_t chunk, int64_t first,
                                          DimSpan offsets, DimSpan lengths) {
        RegionPart part;
        const size_t rank = lengths.size();
        part.read_ = &read;
        part.size_ = size;
        part.chunk_ = chunk;
        part.base_ = first;
        part.pitch_.resize(rank);
        part.counts_.resize(rank);
        std::vector<bool> whole(rank);
        int64_t stride = 1;
        for (size_t d = rank; d-- > 0;) {
            const int64_t step = read.steps[d];
            const auto firstAt = [&](int64_t position) {
                return position <= read.starts[d] ? 0 : (position - read.starts[d] + step - 1) / step;
            };
            const int64_t from = firstAt(offsets[d]);
            const int64_t to = std::min(read.counts[d], firstAt(offsets[d] + lengths[d]));
            if (from >= to) return std::nullopt;
            part.counts_[d] = to - from;
            part.pitch_[d] = step * stride;
            whole[d] = to - from == lengths[d] && (step == 1 || lengths[d] == 1);
            part.base_ += (read.starts[d] + from * step - offsets[d]) * stride;
            part.toBase_ += from * read.toStrides[d];
            stride *= lengths[d];
        }
        part.inner_ = rank;
        while (part.inner_ > 0 && whole[part.inner_ - 1] &&
               part.tail_ * part.counts_[part.inner_ - 1] * size <= unitBytes()) {
            part.tail_ *= part.counts_[--part.inner_];
        }
        part.tailStraight_ = part.straight(part.inner_);
        if (part.inner_ > 0) {
            const size_t d = part.inner_ - 1;
            const int64_t pitch = part.pitch_[d];
            const bool close = (pitch - part.tail_) * size <= kJoinGapBytes;
            part.section_ =
                close ? std::clamp(unitBytes() / (pitch * size), int64_t{1}, part.counts_[d]) : int64_t{1};
            part.sections_ = (part.counts_[d] - 1) / part.section_ + 1;
            part.runs_ = part.sections_;
            for (size_t i = 0; i < d; ++i)
                part.runs_ *= part.counts_[i];
        }
        return part;
    }

    int64_t runs() const { return runs_; }
    int64_t runsOfUnit() const {
        const int64_t span = inner_ == 0 ? tail_ : (section_ - 1) * pitch_[inner_ - 1] + tail_;
        return std::max<int64_t>(1, unitBytes() / std::max<int64_t>(1, span * size_));
    }

    // Reads and places runs [first, last).
    Status transfer(const TensorReader& source, int64_t first, int64_t last) const {
        std::vector<Run> joined;
        for (int64_t r = first; r < last; ++r) {
            const Run run = at(r);
            if (!joined.empty() && ((run.from - joined.back().end()) * size_ > kJoinGapBytes ||
                                    (run.end() - joined.front().from) * size_ > unitBytes())) {
                SHARDSCOPE_TRY(flush(source, joined));
                joined.clear();
            }
            joined.push_back(run);
        }
        return flush(source, joined);
    }

  private:
    struct Run {
        int64_t from = 0, span = 0;  // in the chunk's order
        int64_t count = 1;           // elements of the dimension before `inner`
        std::byte* to = nullptr;
        int64_t end() const { return from + span; }
    };

    // Whether the dimensions from `d` on are row-major in the caller's memory.
    bool straight(size_t d) const {
        int64_t stride = 1;
        for (size_t i = counts_.size(); i-- > d;) {
            if (counts_[i] != 1 && read_->toStrides[i] != stride) return false;
            stride *= counts_[i];
        }
        return true;
    }

    Run at(int64_t r) const {
        Run run{base_, tail_, 1, nullptr};
        int64_t to = toBase_;
        if (inner_ > 0) {
            const size_t d = inner_ - 1;
            const int64_t begin = r % sections_ * section_;
            r /= sections_;
            run.count = std::min(section_, counts_[d] - begin);
            run.span = (run.count - 1) * pitch_[d] + tail_;
            run.from += begin * pitch_[d];
            to += begin * read_->toStrides[d];
            for (size_t i = d; i-- > 0;) {
                run.from += r % counts_[i] * pitch_[i];
                to += r % counts_[i] * read_->toStrides[i];
                r /= counts_[i];
            }
        }
        run.to = read_->to + to * size_;
        return run;
    }

    // Its elements follow each other in the chunk and in the caller's memory.
    bool direct(const Run& run) const {
        return tailStraight_ &&
               (run.count == 1 || (pitch_[inner_ - 1] == tail_ && read_->toStrides[inner_ - 1] == tail_));
    }

    Status flush(const TensorReader& source, const std::vector<Run>& runs) const {
        if (runs.empty()) return {};
        const int64_t from = runs.front().from, span = runs.back().end() - from;
        const auto bytes = static_cast<size_t>(span * size_);
        if (runs.size() == 1 && direct(runs[0]))
            return source.readChunk(chunk_, from, from + span, {runs[0].to, bytes});
        thread_local AlignedBuffer buffer;
        buffer.reset(bytes);
        SHARDSCOPE_TRY(source.readChunk(chunk_, from, from + span, buffer.span()));
        Dims lengths(counts_.begin() + static_cast<ptrdiff_t>(inner_), counts_.end());
        Dims fromStrides = rowMajorStrides(lengths);
        Dims toStrides(read_->toStrides.begin() + static_cast<ptrdiff_t>(inner_), read_->toStrides.end());
        if (inner_ > 0) {
            lengths.insert(lengths.begin(), 1);
            fromStrides.insert(fromStrides.begin(), pitch_[inner_ - 1]);
            toStrides.insert(toStrides.begin(), read_->toStrides[inner_ - 1]);
        }
        for (const Run& run : runs) {
            const std::byte* at = buffer.data() + (run.from - from) * size_;
            if (direct(run)) {
                std::memcpy(run.to, at, static_cast<size_t>(run.span * size_));
                continue;
            }
            if (inner_ > 0) lengths[0] = run.count;
            copyStrided(run.to, toStrides, at, fromStrides, lengths, static_cast<size_t>(size_));
        }
        return {};
    }

    const RegionRead* read_ = nullptr;
    int64_t size_ = 1;  // of an element, in bytes
    size_t chunk_ = 0;
    int64_t base_ = 0, toBase_ = 0;  // of the first element: in the chunk's order, in the caller's memory
    Dims counts_, pitch_;            // elements in common; between neighbors in the chunk's order
    size_t inner_ = 0;
    int64_t tail_ = 1;                               // elements of the dimensions from `inner` on
    int64_t section_ = 1, sections_ = 1, runs_ = 1;  // of the dimension before
    bool tailStraight_ = false;
};

Status checkRegion(const Catalog& catalog, const RegionRead& read) {
    if (read.tensor >= catalog.tensorCount())
        return makeError(ErrorCode::internal, "a region of a tensor that does not exist");
    const DimSpan shape = catalog.shape(read.tensor);
    const size_t rank = shape.size();
    bool inside = read.starts.size() == rank && read.counts.size() == rank && read.steps.size() == rank &&
                  read.toStrides.size() == rank;
    for (size_t d = 0; inside && d < rank; ++d) {
        inside = read.starts[d] >= 0 && read.counts[d] >= 0 && read.steps[d] >= 1 && read.toStrides[d] >= 0 &&
                 read.starts[d] <= shape[d];
        // The last element, without a product that could overflow.
        if (inside && read.counts[d] > 0)
            inside = read.starts[d] < shape[d] &&
                     read.counts[d] - 1 <= (shape[d] - 1 - read.starts[d]) / read.steps[d];
    }
    if (inside) return {};
    return makeError(ErrorCode::usage, fmt::format("the region {} in steps of {} is not inside the shape {}",
                                                   formatBox(read.starts, read.counts),
                                                   formatDims(read.steps), formatDims(shape)))
        .ofTensor(catalog.name(read.tensor));
}

// One reading and what it is made of.
struct RegionWork {
    std::unique_ptr<TensorReader> source;
    std::vector<RegionPart> parts;
};

Status prepareRegion(SourceContext& context, const RegionRead& read, TensorReader::Strided strided,
                     RegionWork& work) {
    const Catalog& catalog = context.reader.catalog();
    const DType dtype = catalog.dtype(read.tensor);
    Box box{read.starts, read.counts};
    for (size_t d = 0; d < box.lengths.size(); ++d)
        box.lengths[d] = (read.counts[d] - 1) * read.steps[d] + 1;
    SHARDSCOPE_ASSIGN(work.source, TensorReader::prepare(context, read.tensor, nullptr, strided, &box));
    if (!dtypeIsWholeBytes(dtype)) return {};
    const auto size = static_cast<int64_t>(dtypeBytes(dtype));
    for (size_t c = 0; c < work.source->chunkCount(); ++c) {
        const ChunkShape& chunk = work.source->chunkShape(c);
        forEachPart(chunk.start, chunk.stop, chunk.lengths,
                    [&](int64_t first, DimSpan offsets, DimSpan lengths) {
                        Dims inTensor(offsets.begin(), offsets.end());
                        for (size_t d = 0; d < inTensor.size(); ++d)
                            inTensor[d] += chunk.offsets[d];
                        if (auto part = RegionPart::make(read, size, c, first, inTensor, lengths))
                            work.parts.push_back(std::move(*part));
                    });
    }
    return {};
}

struct RegionUnit {
    const TensorReader* source;
    const RegionPart* part;
    int64_t first, last;  // runs
};

void addUnits(const RegionWork& work, std::vector<RegionUnit>& units) {
    for (const RegionPart& part : work.parts) {
        const int64_t step = part.runsOfUnit();
        for (int64_t run = 0; run < part.runs(); run += step)
            units.push_back({work.source.get(), &part, run, std::min(part.runs(), run + step)});
    }
}

// A tensor whose elements share bytes, which is read whole.
Status readPacked(const Catalog& catalog, const RegionRead& read, const TensorReader& source) {
    const DimSpan shape = catalog.shape(read.tensor);
    if (!std::equal(shape.begin(), shape.end(), read.counts.begin()) ||
        read.toStrides != rowMajorStrides(shape))
        return Error(unsupported("a part of a tensor whose elements share bytes"))
            .ofTensor(catalog.name(read.tensor));
    const int64_t elements = source.elements();
    return source.readChunk(0, 0, elements, {read.to, bytesOfElements(source.dtype(), elements)});
}

}  // namespace

Result<uint64_t> readRegions(const Reader& reader, const std::vector<RegionRead>& reads, FillGaps fill,
                             const Resources& resources) {
    const Catalog& catalog = reader.catalog();
    SourceContext context(reader, resources, fill, systemFileSystem());
    // Small readings are spread over the threads as they are. Large ones come one after the other, each
    // spread by itself: what a reading holds of the budget is then never waited for by another one's threads.
    // From far away several come together, which hold nothing, so that nobody waits between two of them.
    std::vector<const RegionRead*> small, large;
    uint64_t total = 0;
    for (const RegionRead& read : reads) {
        SHARDSCOPE_TRY(checkRegion(catalog, read));
        const int64_t elements = elementCount(read.counts);
        if (elements == 0) continue;
        const size_t bytes = bytesOfElements(catalog.dtype(read.tensor), elements);
        total += bytes;
        (static_cast<int64_t>(bytes) < 2 * unitBytes() ? small : large).push_back(&read);
    }
    if (resources.progress) resources.progress->begin(Progress::Phase::read, total);
    const auto done = [&](const RegionRead& read) {
        if (resources.progress)
            resources.progress->add(bytesOfElements(catalog.dtype(read.tensor), elementCount(read.counts)));
    };
    try {
        SHARDSCOPE_TRY(resources.pool->parallelFor(small.size(), resources.stop, [&](size_t i) -> Status {
            RegionWork work;
            SHARDSCOPE_TRY(prepareRegion(context, *small[i], TensorReader::Strided::held, work));
            if (!dtypeIsWholeBytes(work.source->dtype()))
                SHARDSCOPE_TRY(readPacked(catalog, *small[i], *work.source));
            for (const RegionPart& part : work.parts)
                SHARDSCOPE_TRY(part.transfer(*work.source, 0, part.runs()));
            done(*small[i]);
            return {};
        }));
        const size_t together = MostlyWaiting::any() ? kFarTogether : 1;
        const auto strided = together > 1 ? TensorReader::Strided::scratch : TensorReader::Strided::held;
        for (size_t begin = 0; begin < large.size(); begin += together) {
            std::vector<RegionWork> works(std::min(together, large.size() - begin));
            SHARDSCOPE_TRY(resources.pool->parallelFor(works.size(), resources.stop, [&](size_t i) {
                return prepareRegion(context, *large[begin + i], strided, works[i]);
            }));
            std::vector<RegionUnit> units;
            for (size_t i = 0; i < works.size(); ++i) {
                if (!dtypeIsWholeBytes(works[i].source->dtype()))
                    SHARDSCOPE_TRY(readPacked(catalog, *large[begin + i], *works[i].source));
                addUnits(works[i], units);
            }
            SHARDSCOPE_TRY(resources.pool->parallelFor(units.size(), resources.stop, [&](size_t i) {
                return units[i].part->transfer(*units[i].source, units[i].first, units[i].last);
            }));
            for (size_t i = 0; i < works.size(); ++i)
                done(*large[begin + i]);
        }
    } catch (const std::bad_alloc&) {
        return makeError(ErrorCode::limit, "no memory to read a part of a tensor");
    }
    return context.bytesRead.load();
}

namespace {

constexpr int64_t kSlabOfRows = int64_t{32} << 20;  // bytes

Status transferPlanned(const Reader& source, const TargetSpec& spec, const RegionRead& read,
                       const Resources& resources, std::atomic<uint64_t>& bytesRead) {
    const Catalog& target = spec.target;
    const DimSpan shape = target.shape(read.tensor);
    const DType dtype = target.dtype(read.tensor);
    const std::vector<TensorId> sources = spec.sources[read.tensor].tensors();
    const DType stored = sources.empty() ? dtype : source.catalog().dtype(sources[0]);
    if (!dtypeIsWholeBytes(dtype) || !dtypeIsWholeBytes(stored))
        return Error(unsupported("a recipe does not make tensors whose elements share bytes"))
            .ofTensor(target.name(read.tensor));
    const size_t rank = shape.size();
    const Dims strides = rowMajorStrides(shape);
    const int64_t rows = rank == 0 ? 1 : read.counts[0], step = rank == 0 ? 1 : read.steps[0];
    const int64_t rowElements = rank == 0 ? 1 : strides[0];
    const auto size = static_cast<int64_t>(dtypeBytes(dtype));
    const int64_t rowBytes = rowElements * std::max<int64_t>(size, dtypeBytes(stored));
    const int64_t most = std::max<int64_t>(1, kSlabOfRows / rowBytes / step);
    int64_t within = 0;  // of the first element, in its row
    Dims fromStrides(rank), lengths = read.counts;
    for (size_t d = 0; d < rank; ++d) {
        fromStrides[d] = strides[d] * read.steps[d];
        if (d > 0) within += read.starts[d] * strides[d];
    }
    SHARDSCOPE_ASSIGN(const auto planned, openPlanned(source, spec, read.tensor, resources));
    std::vector<std::byte> cast;
    for (int64_t row = 0; row < rows; row += most) {
        SHARDSCOPE_TRY(resources.stop.poll());
        const int64_t count = std::min(most, rows - row);
        const int64_t begin = (rank == 0 ? 0 : read.starts[0] + row * step) * rowElements;
        const int64_t end = begin + ((count - 1) * step + 1) * rowElements;
        SHARDSCOPE_ASSIGN(std::vector<std::byte> bytes, planned->read(begin, end));
        bytesRead += bytes.size();
        if (stored != dtype) {
            cast.resize(bytesOfElements(dtype, end - begin));
            castElements(stored, bytes.data(), dtype, cast.data(), static_cast<size_t>(end - begin));
            bytes.swap(cast);
        }
        if (rank > 0) lengths[0] = count;
        copyStrided(read.to + (rank == 0 ? 0 : row * read.toStrides[0]) * size, read.toStrides,
                    bytes.data() + within * size, fromStrides, lengths, static_cast<size_t>(size));
    }
    return {};
}

}  // namespace

Result<uint64_t> readPlannedRegions(const Reader& source, const TargetSpec& spec,
                                    const std::vector<RegionRead>& reads, const Resources& resources) {
    std::vector<RegionRead> plain;
    std::vector<const RegionRead*> made;
    for (const RegionRead& read : reads) {
        SHARDSCOPE_TRY(checkRegion(spec.target, read));
        const TensorSource& from = spec.sources[read.tensor];
        if (from.source != kNone && source.catalog().dtype(from.source) == spec.target.dtype(read.tensor)) {
            plain.push_back(read);
            plain.back().tensor = from.source;
        } else if (elementCount(read.counts) > 0) {
            made.push_back(&read);
        }
    }
    SHARDSCOPE_ASSIGN(const uint64_t direct, readRegions(source, plain, FillGaps::refuse, resources));
    std::atomic<uint64_t> bytesRead = direct;
    try {
        SHARDSCOPE_TRY(resources.pool->parallelFor(made.size(), resources.stop, [&](size_t i) {
            return transferPlanned(source, spec, *made[i], resources, bytesRead);
        }));
    } catch (const std::bad_alloc&) {
        return makeError(ErrorCode::limit, "no memory to read a part of a tensor");
    }
    return bytesRead.load();
}

}  // namespace shardscope
