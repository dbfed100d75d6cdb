#include "execute/merge_adapter.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <mutex>

#include <fmt/format.h>

#include "execute/computed.h"
#include "model/region.h"

namespace shardscope {
namespace {

constexpr uint64_t kMostHeld = uint64_t{256} << 20;  // bytes of both matrices as float32
constexpr int64_t kColumns = 64;                     // that are summed up at once

// Rows of a weight, to which the product is added.
struct RowBlock {
    float* values;  // the first element; rows are `stride` elements apart
    int64_t rows, stride, width;
    const float* left;   // of the first row, [rows, rank]
    const float* right;  // of the first column, [rank, columns]
    int64_t rank, columns;
    float scaling;
};

template <int64_t kFixed>
__attribute__((always_inline)) inline void addColumns(const RowBlock& block, int64_t column, int64_t width) {
    const int64_t n = kFixed ? kFixed : width;
    for (int64_t row = 0; row < block.rows; ++row) {
        float sums[kColumns];
        for (int64_t j = 0; j < n; ++j)
            sums[j] = 0;
        const float* right = block.right + column;
        for (int64_t k = 0; k < block.rank; ++k, right += block.columns) {
            const float factor = block.left[row * block.rank + k];
            for (int64_t j = 0; j < n; ++j)
                sums[j] = __builtin_fmaf(factor, right[j], sums[j]);
        }
        float* const values = block.values + row * block.stride + column;
        for (int64_t j = 0; j < n; ++j)
            values[j] += sums[j] * block.scaling;
    }
}

__attribute__((always_inline)) inline void addProductPlain(const RowBlock& block) {
    int64_t column = 0;
    for (; column + kColumns <= block.width; column += kColumns)
        addColumns<kColumns>(block, column, kColumns);
    if (column < block.width) addColumns<0>(block, column, block.width - column);
}

#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) void addProductAvx2(const RowBlock& block) {
    addProductPlain(block);
}
#endif

void addProduct(const RowBlock& block) {
#if defined(__x86_64__)
    static const bool fast = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (fast) return addProductAvx2(block);
#endif
    addProductPlain(block);
}

// The matrices of an adapter for a weight: L, of all experts one below the other, and for each of them R.
struct LowRank {
    std::vector<float> left;   // [experts * rows, rank]
    std::vector<float> right;  // [experts, rank, columns]
    int64_t rank = 1, rows = 1, columns = 1;

    static Result<std::shared_ptr<const LowRank>> read(PartsContext& adapter, const MergedTensor& tensor);
};

// [blocks, rows, columns] with each block transposed.
std::vector<float> turned(const std::vector<float>& from, int64_t blocks, int64_t rows, int64_t columns) {
    std::vector<float> to(from.size());
    for (int64_t block = 0; block < blocks; ++block) {
        const float* const read = from.data() + block * rows * columns;
        float* const write = to.data() + block * rows * columns;
        for (int64_t i = 0; i < rows; ++i) {
            for (int64_t j = 0; j < columns; ++j)
                write[j * rows + i] = read[i * columns + j];
        }
    }
    return to;
}

Result<std::shared_ptr<const LowRank>> LowRank::read(PartsContext& adapter, const MergedTensor& tensor) {
    const Catalog& catalog = adapter.source->catalog();
    const auto floatBytes = [&](TensorId t) {
        return static_cast<uint64_t>(catalog.elements(t)) * sizeof(float);
    };
    for (const TensorId t : {tensor.down, tensor.up}) {
        if (floatBytes(t) > kMostHeld || floatBytes(tensor.down) + floatBytes(tensor.up) > kMostHeld)
            return makeError(ErrorCode::limit,
                             fmt::format("the matrices of an adapter are held in memory, at "
                                         "most {} MiB for one weight",
                                         kMostHeld >> 20))
                .ofTensor(std::string(catalog.name(t)));
    }
    SHARDSCOPE_ASSIGN(const PartReader down, PartReader::open(adapter.context, tensor.down));
    SHARDSCOPE_ASSIGN(const PartReader up, PartReader::open(adapter.context, tensor.up));
    SHARDSCOPE_ASSIGN(std::vector<float> a, down.floats());  // [experts, rank, in]
    SHARDSCOPE_ASSIGN(std::vector<float> b, up.floats());    // [out, rank, experts]
    const int64_t experts = tensor.experts, rank = tensor.rank;
    const int64_t in = static_cast<int64_t>(a.size()) / (experts * rank),
                  out = static_cast<int64_t>(b.size()) / (experts * rank);
    const auto made = std::make_shared<LowRank>();
    made->rank = rank;
    made->rows = tensor.transposed ? in : out;
    made->columns = tensor.transposed ? out : in;
    if (experts > 1) b = turned(b, 1, out * rank, experts);  // [experts, out, rank]
    if (tensor.transposed) {
        made->left = turned(a, experts, rank, in);
        made->right = turned(b, experts, out, rank);
    } else {
        made->left = std::move(b);
        made->right = std::move(a);
    }
    return std::shared_ptr<const LowRank>(made);
}

// One weight of the source, with what changes it. Thread-safe.
class MergedValues {
  public:
    // `factors` is null where nothing is added.
    static Result<std::shared_ptr<const MergedValues>> open(PartsContext& base, PartsContext& adapter,
                                                            const MergedTensor& tensor,
                                                            std::shared_ptr<const LowRank> factors) {
        const auto values =
            std::make_shared<MergedValues>(base.source->catalog(), tensor, std::move(factors));
        if (tensor.replacement != kNone) {
            SHARDSCOPE_ASSIGN(values->replacement_, PartReader::open(adapter.context, tensor.replacement));
        } else {
            SHARDSCOPE_ASSIGN(values->base_, PartReader::open(base.context, tensor.base));
        }
        if (tensor.magnitude != kNone) {
            SHARDSCOPE_ASSIGN(const PartReader magnitude,
                              PartReader::open(adapter.context, tensor.magnitude));
            SHARDSCOPE_ASSIGN(values->magnitudes_, magnitude.floats());
        }
        return std::shared_ptr<const MergedValues>(values);
    }

    MergedValues(const Catalog& catalog, const MergedTensor& tensor, std::shared_ptr<const LowRank> factors)
        : tensor_(tensor), shape_(catalog.shape(tensor.base)), lowRank_(std::move(factors)) {}

    DType dtype() const { return tensor_.dtype; }

    // Elements [lo, hi) of a chunk's order.
    Status read(const ChunkShape& chunk, int64_t lo, int64_t hi, std::byte* to) const {
        std::vector<std::byte> bytes;
        std::vector<float> values;
        AlignedBuffer io;
        if (tensor_.magnitude != kNone) SHARDSCOPE_TRY(findFactors());
        for (int64_t at = lo; at < hi; at += kComputedAtOnce) {
            const int64_t end = std::min(hi, at + kComputedAtOnce);
            SHARDSCOPE_TRY(readStored(chunk, at, end, bytes, values, io));
            const BusyTime busy(Progress::Work::compute);
            if (lowRank_) {
                forEachRun(at, end, shape_, chunk.offsets, chunk.lengths,
                           [&](int64_t first, int64_t position, int64_t count) {
                               addTo(values.data() + (first - at), position, count);
                               if (tensor_.magnitude != kNone)
                                   magnify(values.data() + (first - at), position, count);
                           });
            }
            castElements(DType::float32, reinterpret_cast<const std::byte*>(values.data()), tensor_.dtype, to,
                         values.size());
            to += bytesOfElements(tensor_.dtype, end - at);
        }
        return {};
    }

  private:
    Status readStored(const ChunkShape& chunk, int64_t lo, int64_t hi, std::vector<std::byte>& bytes,
                      std::vector<float>& values, AlignedBuffer& io) const {
        values.resize(static_cast<size_t>(hi - lo));
        auto* const floats = reinterpret_cast<std::byte*>(values.data());
        if (!replacement_) {
            SHARDSCOPE_ASSIGN(const size_t index, chunkOf(chunk));
            const DType stored = base_->dtype();
            bytes.resize(bytesOfElements(stored, hi - lo));
            SHARDSCOPE_TRY(base_->tensor().readChunk(index, lo, hi, bytes));
            castElements(stored, bytes.data(), DType::float32, floats, values.size());
            return {};
        }
        Status status;
        forEachRun(lo, hi, shape_, chunk.offsets, chunk.lengths,
                   [&](int64_t first, int64_t position, int64_t count) {
                       if (!status.ok()) return;
                       status = replacement_->read(position, count, bytes, io);
                       if (status.ok())
                           castElements(replacement_->dtype(), bytes.data(), DType::float32,
                                        floats + static_cast<size_t>(first - lo) * sizeof(float),
                                        static_cast<size_t>(count));
                   });
        return status;
    }

    // The reader's own number of a chunk of the catalog: it keeps one of equal ones.
    Result<size_t> chunkOf(const ChunkShape& chunk) const {
        const TensorReader& reader = base_->tensor();
        for (size_t i = 0; i < reader.chunkCount(); ++i) {
            const ChunkShape& other = reader.chunkShape(i);
            if (other.start == chunk.start && other.stop == chunk.stop &&
                std::ranges::equal(other.offsets, chunk.offsets) &&
                std::ranges::equal(other.lengths, chunk.lengths))
                return i;
        }
        return makeError(ErrorCode::internal, "a chunk that others cover is asked for");
    }

    // Elements [position, position + count) of the tensor's order: the rest of a row, whole rows of one
    // expert, the beginning of one.
    void addTo(float* values, int64_t position, int64_t count) const {
        const LowRank& of = *lowRank_;
        while (count > 0) {
            const int64_t row = tensor_.firstRow + position / of.columns, column = position % of.columns;
            const int64_t expert = row / of.rows, left = (expert + 1) * of.rows - row;
            const bool whole = column == 0 && count >= of.columns;
            const int64_t rows = whole ? std::min(count / of.columns, left) : 1;
            const int64_t width = whole ? of.columns : std::min(of.columns - column, count);
            addProduct({values, rows, of.columns, width, of.left.data() + row * of.rank,
                        of.right.data() + expert * of.rank * of.columns + column, of.rank, of.columns,
                        tensor_.scaling});
            values += rows * width;
            position += rows * width;
            count -= rows * width;
        }
    }

    // Calls visit(values, where, count) for each part of a row in [position, position + count) of the
    // tensor's order, `where` being the place of its first element's magnitude.
    template <class Visit>
    void forRows(float* values, int64_t position, int64_t count, Visit&& visit) const {
        while (count > 0) {
            const int64_t columns = lowRank_->columns;
            const int64_t row = position / columns, column = position % columns;
            const int64_t width = std::min(columns - column, count);
            visit(values, static_cast<size_t>(tensor_.transposed ? column : row), width);
            values += width;
            position += width;
            count -= width;
        }
    }

    void magnify(float* values, int64_t position, int64_t count) const {
        forRows(values, position, count, [&](float* row, size_t where, int64_t width) {
            for (int64_t j = 0; j < width; ++j)
                row[j] *= factors_[where + (tensor_.transposed ? static_cast<size_t>(j) : 0)];
        });
    }

    // The magnitudes divided by the norms of the whole weight's rows, found by who reads first.
    Status findFactors() const {
        const std::lock_guard lock(mutex_);
        if (!factors_.empty()) return {};
        const PartReader& from = replacement_ ? *replacement_ : *base_;
        std::vector<double> squares(magnitudes_.size(), 0);
        std::vector<std::byte> bytes;
        std::vector<float> values;
        AlignedBuffer io;
        for (int64_t at = 0; at < from.elements(); at += kComputedAtOnce) {
            const int64_t count = std::min(kComputedAtOnce, from.elements() - at);
            values.resize(static_cast<size_t>(count));
            SHARDSCOPE_TRY(from.read(at, count, bytes, io));
            castElements(from.dtype(), bytes.data(), DType::float32,
                         reinterpret_cast<std::byte*>(values.data()), values.size());
            addTo(values.data(), at, count);
            forRows(values.data(), at, count, [&](const float* row, size_t where, int64_t width) {
                for (int64_t j = 0; j < width; ++j) {
                    const double value = row[j];
                    squares[where + (tensor_.transposed ? static_cast<size_t>(j) : 0)] += value * value;
                }
            });
        }
        std::vector<float> factors(magnitudes_.size());
        for (size_t i = 0; i < factors.size(); ++i)
            factors[i] = magnitudes_[i] / static_cast<float>(std::sqrt(squares[i]));
        factors_ = std::move(factors);
        return {};
    }

    const MergedTensor tensor_;
    const DimSpan shape_;
    std::optional<PartReader> base_, replacement_;
    const std::shared_ptr<const LowRank> lowRank_;
    std::vector<float> magnitudes_;
    mutable std::mutex mutex_;
    mutable std::vector<float> factors_;  // once it is not empty it stays
};

class MergedChunk final : public ComputedElements {
  public:
    MergedChunk(std::shared_ptr<const MergedValues> values, const ChunkInfo& chunk, uint64_t stored)
        : values_(std::move(values)),
          shape_(ChunkShape::of(chunk)),
          share_(bytesOfElements(values_->dtype(), shape_.elements()), stored) {}

    Status read(int64_t first, int64_t count, std::byte* to) const override {
        return values_->read(shape_, shape_.start + first, shape_.start + first + count, to);
    }
    uint64_t countStored(uint64_t bytes) const override { return share_.count(bytes); }

  private:
    const std::shared_ptr<const MergedValues> values_;
    const ChunkShape shape_;
    const StoredShare share_;
};

class MergedReader final : public ComputedReader {
  public:
    MergedReader(Catalog catalog, std::string directory, std::shared_ptr<const Reader> source,
                 std::shared_ptr<const Reader> adapter, std::vector<MergedTensor> tensors,
                 std::vector<ComputedPlace> places, const StopToken& stop)
        : ComputedReader(std::move(catalog), std::move(directory), source, std::move(places)),
          tensors_(std::move(tensors)),
          base_(std::move(source), stop, FillGaps::zero),
          adapter_(std::move(adapter), stop),
          opened_(tensors_.size()),
          factors_(adapter_.source->catalog().tensorCount()) {}

  private:
    Result<Extent> computedExtent(const ChunkInfo& chunk, const ComputedPlace& place) const override {
        const MergedTensor& tensor = tensors_[place.tensor];
        std::shared_ptr<const LowRank> factors;
        if (tensor.down != kNone) {
            SHARDSCOPE_ASSIGN(factors,
                              factors_.get(tensor.down, [&] { return LowRank::read(adapter_, tensor); }));
            if (tensor.experts > 1) keep(factors);
        }
        SHARDSCOPE_ASSIGN(auto values, opened_.get(place.tensor, [&] {
            return MergedValues::open(base_, adapter_, tensor, std::move(factors));
        }));
        SHARDSCOPE_ASSIGN(auto origin, source()->openFile(chunk.file));
        const uint64_t stored = bytesOfElements(source()->catalog().dtype(tensor.base), chunk.elements());
        auto elements = std::make_shared<MergedChunk>(std::move(values), chunk, stored);
        Extent extent;
        extent.file = computedFile(std::move(origin), std::move(elements), chunk.elements(), tensor.dtype);
        extent.length = bytesOfElements(tensor.dtype, chunk.elements());
        return extent;
    }

    // The next tensor may be another expert's.
    void keep(const std::shared_ptr<const LowRank>& factors) const {
        const std::lock_guard lock(mutex_);
        if (std::ranges::find(recent_, factors) != recent_.end()) return;
        std::rotate(recent_.begin(), recent_.begin() + 1, recent_.end());
        recent_.back() = factors;
    }

    const std::vector<MergedTensor> tensors_;
    mutable PartsContext base_, adapter_;
    const OpenedOnce<MergedValues> opened_;
    const OpenedOnce<LowRank> factors_;  // by A
    mutable std::mutex mutex_;
    mutable std::array<std::shared_ptr<const LowRank>, 2> recent_;
};

Status addMerged(ComputedCatalog& made, const Catalog& source, const MergedTensor& tensor, uint32_t index) {
    const TensorId t = tensor.base;
    const DimSpan shape = source.shape(t);
    SHARDSCOPE_TRY(made.addComputed(t, std::string(source.name(t)), source.path(t), tensor.dtype,
                                    Dims(shape.begin(), shape.end()), source.role(t)));
    for (ChunkId c = source.firstChunk(t); c < source.endChunk(t); ++c) {
        const ChunkInfo chunk = source.chunk(t, c);
        SHARDSCOPE_TRY(made.addChunk(
            {chunk.rank, chunk.file, chunk.offset, chunk.length, chunk.offsets, chunk.lengths, chunk.flat},
            {kNone, index, 0}));
    }
    return {};
}

}  // namespace

Result<std::unique_ptr<Reader>> mergedReader(std::shared_ptr<const Reader> source, std::string directory,
                                             std::shared_ptr<const Reader> adapter,
                                             std::vector<MergedTensor> tensors, const StopToken& stop) {
    const Catalog& catalog = source->catalog();
    std::vector<uint32_t> of(catalog.tensorCount(), kNone);
    for (size_t i = 0; i < tensors.size(); ++i)
        of[tensors[i].base] = static_cast<uint32_t>(i);
    ComputedCatalog made(catalog);
    for (TensorId t = 0; t < catalog.tensorCount(); ++t) {
        if (of[t] == kNone) {
            SHARDSCOPE_TRY(made.addSame(t));
        } else {
            SHARDSCOPE_TRY(addMerged(made, catalog, tensors[of[t]], of[t]));
        }
    }
    std::vector<ComputedPlace> places = made.takePlaces();
    return std::unique_ptr<Reader>(
        std::make_unique<MergedReader>(std::move(made).finish(), std::move(directory), std::move(source),
                                       std::move(adapter), std::move(tensors), std::move(places), stop));
}

}  // namespace shardscope
