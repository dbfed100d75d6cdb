#include "execute/dequantize.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>

#include <fmt/format.h>

#include "base/rule.h"
#include "execute/computed.h"
#include "execute/unaligned.h"
#include "storage/aligned_buffer.h"

namespace shardscope {
namespace {

constexpr int64_t kBand = int64_t{16} << 20;       // bytes of a chunk that is stored transposed
constexpr float kOver127 = 7.874015718698502e-3F;  // as bitsandbytes writes it

constexpr std::array<float, 16> kFloat4 = {0,     0.5F,  1,  1.5F,  2,  3,  4,  6,
                                           -0.0F, -0.5F, -1, -1.5F, -2, -3, -4, -6};

int64_t dividedUp(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

// Memory of one reading.
struct Buffers {
    std::vector<std::byte> payload, scale, zeros, order, nested;
    std::vector<float> values, scales, zeroPoints, more;
    AlignedBuffer io;
};

void toFloats(DType dtype, std::span<const std::byte> bytes, std::vector<float>& numbers) {
    const size_t count = bytes.size() / dtypeBytes(dtype);
    numbers.resize(count);
    if (dtype == DType::int8) {
        for (size_t i = 0; i < count; ++i)
            numbers[i] = static_cast<float>(static_cast<int8_t>(bytes[i]));
    } else if (dtype == DType::uint8) {  // powers of two
        for (size_t i = 0; i < count; ++i)
            numbers[i] = static_cast<float>(std::ldexp(1.0, static_cast<int>(bytes[i]) - 127));
    } else {
        castElements(dtype, bytes.data(), DType::float32, reinterpret_cast<std::byte*>(numbers.data()),
                     count);
    }
}

void roundTo(DType dtype, std::vector<float>& numbers, std::vector<std::byte>& scratch) {
    if (dtype == DType::float32) return;
    auto* const bytes = reinterpret_cast<std::byte*>(numbers.data());
    scratch.resize(bytesOfElements(dtype, static_cast<int64_t>(numbers.size())));
    castElements(DType::float32, bytes, dtype, scratch.data(), numbers.size());
    castElements(dtype, scratch.data(), DType::float32, bytes, numbers.size());
}

// The dtype in which the library multiplies.
DType computedIn(const Catalog& catalog, const QuantizedWeight& weight, DType wanted) {
    const DType scale = catalog.dtype(weight.part(kScale));
    const bool half = scale == DType::bfloat16 || scale == DType::float16;
    switch (weight.scheme->kind) {
        case QuantKind::scaled:
            if (weight.targetDtype) return wanted;
            return half && weight.scheme->parts[1].suffix == "_scale" ? scale : DType::float32;
        case QuantKind::packed:
        case QuantKind::columns:
            return half ? scale : DType::float32;
        default:
            return DType::float32;
    }
}

// Elements of a weight in the order in which its payload holds them. Thread-safe.
class WeightValues final : public ComputedElements {
  public:
    static Result<std::shared_ptr<const WeightValues>> open(PartsContext& parts,
                                                            const QuantizedWeight& weight, DType dtype) {
        const Catalog& catalog = parts.source->catalog();
        const auto values = std::make_shared<WeightValues>(weight, dtype, computedIn(catalog, weight, dtype));
        uint64_t stored = 0;
        for (size_t p = 0; p < kQuantParts; ++p) {
            if (weight.parts[p] == kNone) continue;
            SHARDSCOPE_ASSIGN(values->parts_[p], PartReader::open(parts.context, weight.parts[p]));
            stored += catalog.bytes(weight.parts[p]);
        }
        values->share_.emplace(bytesOfElements(dtype, elementCount(weight.shape)), stored);
        SHARDSCOPE_TRY(values->readHeld());
        return std::shared_ptr<const WeightValues>(values);
    }

    WeightValues(const QuantizedWeight& weight, DType dtype, DType computed)
        : weight_(weight),
          dtype_(dtype),
          computed_(computed),
          scaleRows_(weight.blockRows == 0 ? 1 : dividedUp(weight.rows, weight.blockRows)),
          scaleColumns_(weight.blockColumns == 0 ? 1 : dividedUp(weight.columns, weight.blockColumns)) {}

    uint64_t countStored(uint64_t bytes) const override { return share_->count(bytes); }

    Status read(int64_t first, int64_t count, std::byte* to) const override {
        Buffers buffers;
        for (int64_t at = 0; at < count; at += kComputedAtOnce) {
            SHARDSCOPE_TRY(readBlock(first + at, std::min(kComputedAtOnce, count - at),
                                     to + static_cast<size_t>(at) * dtypeBytes(dtype_), buffers));
        }
        return {};
    }

  private:
    Status readBlock(int64_t first, int64_t count, std::byte* to, Buffers& b) const {
        SHARDSCOPE_TRY(readValues(first, count, b));
        SHARDSCOPE_TRY(readScales(first, count, b));
        const BusyTime busy(Progress::Work::compute);
        roundTo(computed_, b.values, b.payload);
        SHARDSCOPE_TRY(multiply(first, count, b));
        roundTo(computed_, b.values, b.payload);
        castElements(DType::float32, reinterpret_cast<const std::byte*>(b.values.data()), dtype_, to,
                     static_cast<size_t>(count));
        return {};
    }

    const PartReader& part(QuantPart which) const { return *parts_[which]; }
    bool has(QuantPart which) const { return parts_[which].has_value(); }
    int64_t values() const { return 32 / weight_.bits; }  // in a word

    // What each block needs, and is small.
    Status readHeld() {
        AlignedBuffer io;
        if (has(kTable)) {
            SHARDSCOPE_ASSIGN(table_, part(kTable).floats());
        } else {
            table_.assign(kFloat4.begin(), kFloat4.end());
            // Model Optimizer's table has no negative zero.
            if (weight_.scheme->kind == QuantKind::nvfp4 && weight_.scheme->parts[0].suffix.empty())
                table_[8] = 0;
        }
        if (has(kNestedTable)) {
            SHARDSCOPE_ASSIGN(nestedTable_, part(kNestedTable).floats());
        }
        const bool nested = nestedTable_.size() == 256 && has(kNestedScale) && weight_.nestedBlock > 0;
        if (table_.size() != 16 ||
            (weight_.scheme->kind == QuantKind::table && part(kScale).dtype() == DType::uint8 && !nested))
            return wrong("its table of values, or that of its scales, is not whole");
        if (nested && part(kNestedScale).elements() < dividedUp(part(kScale).elements(), weight_.nestedBlock))
            return wrong("it lacks scales of its scales");
        if (has(kSecond) && weight_.scheme->kind == QuantKind::nvfp4) {
            SHARDSCOPE_ASSIGN(second_, part(kSecond).floats());
        }
        if (has(kOrder)) {
            std::vector<std::byte> bytes;
            SHARDSCOPE_TRY(part(kOrder).read(0, part(kOrder).elements(), bytes, io));
            order_.resize(bytes.size() / sizeof(int32_t));
            const bool columns = weight_.scheme->kind == QuantKind::columns;
            // compressed-tensors: -1 stands for the usual order.
            for (size_t i = 0; i < order_.size(); ++i)
                order_[i] = loadAt<int32_t>(bytes.data(), i);
            if (!columns && std::ranges::count(order_, -1) > 0) order_.clear();
            const int64_t groups = columns ? scaleRows() : scaleColumns_;
            for (const int32_t group : order_)
                if (group < 0 || group >= groups) return wrong("its g_idx names a group that has no scale");
        }
        if (weight_.scheme->kind != QuantKind::columns) return {};
        // In each block rows of any group may be needed.
        SHARDSCOPE_ASSIGN(heldScales_, part(kScale).floats());
        return part(kZeros).read(0, part(kZeros).elements(), heldZeros_, io);
    }

    int64_t scaleRows() const {
        return weight_.scheme->kind == QuantKind::columns ? part(kScale).elements() / weight_.columns
                                                          : scaleRows_;
    }

    Error wrong(std::string_view why) const {
        return damaged(fmt::format("the quantized weight '{}' cannot be computed: {}", weight_.name, why))
            .byRule(rule::quantPart);
    }

    // ---------------------------------------------------------------- values

    Status readValues(int64_t first, int64_t count, Buffers& b) const {
        const PartReader& payload = part(kPayload);
        switch (weight_.scheme->kind) {
            case QuantKind::scaled:
            case QuantKind::rows:
                SHARDSCOPE_TRY(payload.read(first, count, b.payload, b.io));
                toFloats(payload.dtype(), b.payload, b.values);
                return {};
            case QuantKind::packed:
                return readPacked(first, count, b);
            case QuantKind::columns:
                return readColumns(first, count, b);
            default:
                break;
        }
        // Two in a byte.
        const auto size = static_cast<int64_t>(dtypeBytes(payload.dtype()));
        const int64_t begin = first / 2 / size, end = dividedUp(dividedUp(first + count, 2), size);
        SHARDSCOPE_TRY(payload.read(begin, end - begin, b.payload, b.io));
        b.values.resize(static_cast<size_t>(count));
        const bool highFirst = weight_.scheme->kind == QuantKind::table;
        for (int64_t i = 0; i < count; ++i) {
            const int64_t at = first + i;
            const auto byte = static_cast<unsigned>(b.payload[static_cast<size_t>(at / 2 - begin * size)]);
            const bool high = (at % 2 == 0) == highFirst;
            b.values[static_cast<size_t>(i)] = table_[high ? byte >> 4 : byte & 15];
        }
        return {};
    }

    Status readPacked(int64_t first, int64_t count, Buffers& b) const {
        const int64_t bits = weight_.bits, words = dividedUp(weight_.columns * bits, 32);
        const int64_t begin = first / weight_.columns, end = (first + count - 1) / weight_.columns + 1;
        SHARDSCOPE_TRY(part(kPayload).read(begin * words, (end - begin) * words, b.payload, b.io));
        b.values.resize(static_cast<size_t>(count));
        const uint32_t mask = (1U << bits) - 1;
        // Stored without a sign. A zero point has the same shift, so of both it does not matter.
        const float shift = has(kZeros) ? 0 : static_cast<float>(1U << (bits - 1));
        for (int64_t i = 0; i < count; ++i) {
            const int64_t row = (first + i) / weight_.columns - begin,
                          at = (first + i) % weight_.columns * bits;
            const auto word = loadAt<uint32_t>(b.payload.data(), static_cast<size_t>(row * words + at / 32));
            b.values[static_cast<size_t>(i)] = static_cast<float>(word >> (at % 32) & mask) - shift;
        }
        return {};
    }

    Status readColumns(int64_t first, int64_t count, Buffers& b) const {
        const int64_t columns = weight_.columns, per = values();
        const int64_t begin = first / columns, end = (first + count - 1) / columns + 1;
        b.values.resize(static_cast<size_t>(count));
        const uint32_t mask = (1U << weight_.bits) - 1;
        const int64_t width = weight_.interleaved ? columns / per : columns;
        const int64_t from = weight_.interleaved ? begin : begin / per;
        const int64_t to = weight_.interleaved ? end : dividedUp(end, per);
        SHARDSCOPE_TRY(part(kPayload).read(from * width, (to - from) * width, b.payload, b.io));
        for (int64_t i = 0; i < count; ++i) {
            const int64_t row = (first + i) / columns, c = (first + i) % columns;
            const int64_t word =
                weight_.interleaved ? (row - from) * width + c / per : (row / per - from) * width + c;
            const unsigned shift =
                weight_.interleaved ? interleavedShift(c) : static_cast<unsigned>(row % per) * weight_.bits;
            b.values[static_cast<size_t>(i)] = static_cast<float>(
                loadAt<uint32_t>(b.payload.data(), static_cast<size_t>(word)) >> shift & mask);
        }
        return {};
    }

    static unsigned interleavedShift(int64_t column) {
        constexpr unsigned kPlaces[] = {0, 4, 1, 5, 2, 6, 3, 7};
        return kPlaces[column % 8] * 4;
    }

    // ---------------------------------------------------------------- scales

    // The row of scales of a row of the payload, counted through all matrices.
    int64_t scaleRowOf(int64_t row) const {
        const int64_t within = row % weight_.rows;
        return row / weight_.rows * scaleRows_ + (weight_.blockRows == 0 ? 0 : within / weight_.blockRows);
    }
    int64_t scaleColumnOf(int64_t column) const {
        return weight_.blockColumns == 0 ? 0 : column / weight_.blockColumns;
    }

    struct ScaleRange {
        int64_t first = 0, count = 1;
    };
    ScaleRange scaleRange(int64_t first, int64_t count) const {
        if (weight_.oneScale) return {};
        const int64_t last = first + count - 1, columns = weight_.columns;
        const int64_t top = scaleRowOf(first / columns), bottom = scaleRowOf(last / columns);
        if (first / columns != last / columns || !order_.empty())
            return {top * scaleColumns_, (bottom - top + 1) * scaleColumns_};
        const int64_t left = scaleColumnOf(first % columns);
        return {top * scaleColumns_ + left, scaleColumnOf(last % columns) - left + 1};
    }

    Status readScales(int64_t first, int64_t count, Buffers& b) const {
        if (weight_.scheme->kind == QuantKind::columns) return {};
        const ScaleRange range = scaleRange(first, count);
        SHARDSCOPE_TRY(part(kScale).read(range.first, range.count, b.scale, b.io));
        if (weight_.scheme->kind == QuantKind::table && part(kScale).dtype() == DType::uint8) {
            SHARDSCOPE_TRY(readNested(range, b));
        } else {
            toFloats(part(kScale).dtype(), b.scale, b.scales);
        }
        if (!second_.empty()) {
            const bool divides = weight_.scheme->parts[2].suffix == "_global_scale";
            const int64_t ofMatrix = scaleRows_ * scaleColumns_;
            for (size_t i = 0; i < b.scales.size(); ++i) {
                const int64_t matrix = (range.first + static_cast<int64_t>(i)) / ofMatrix;
                const float second = second_[second_.size() == 1 ? 0 : static_cast<size_t>(matrix)];
                b.scales[i] = divides ? b.scales[i] / second : b.scales[i] * second;
            }
        }
        roundTo(computed_, b.scales, b.scale);
        if (!has(kZeros)) return {};
        if (weight_.scheme->kind == QuantKind::packed) return readPackedZeros(range, b);
        SHARDSCOPE_TRY(part(kZeros).read(range.first, range.count, b.zeros, b.io));
        toFloats(part(kZeros).dtype(), b.zeros, b.zeroPoints);
        return {};
    }

    Status readNested(const ScaleRange& range, Buffers& b) const {
        const int64_t block = weight_.nestedBlock, begin = range.first / block;
        const int64_t end = (range.first + range.count - 1) / block + 1;
        SHARDSCOPE_TRY(part(kNestedScale).read(begin, end - begin, b.nested, b.io));
        toFloats(part(kNestedScale).dtype(), b.nested, b.more);
        b.scales.resize(static_cast<size_t>(range.count));
        for (size_t i = 0; i < b.scales.size(); ++i) {
            const int64_t at = (range.first + static_cast<int64_t>(i)) / block - begin;
            b.scales[i] = nestedTable_[static_cast<size_t>(b.scale[i])] * b.more[static_cast<size_t>(at)];
        }
        for (float& scale : b.scales)
            scale += weight_.nestedOffset;
        return {};
    }

    // Packed along the rows.
    Status readPackedZeros(const ScaleRange& range, Buffers& b) const {
        const int64_t bits = weight_.bits;
        const int64_t top = range.first / scaleColumns_;
        const int64_t bottom = (range.first + range.count - 1) / scaleColumns_;
        const int64_t from = top * bits / 32, to = bottom * bits / 32 + 1;
        SHARDSCOPE_TRY(part(kZeros).read(from * scaleColumns_, (to - from) * scaleColumns_, b.zeros, b.io));
        b.zeroPoints.resize(static_cast<size_t>(range.count));
        for (size_t i = 0; i < b.zeroPoints.size(); ++i) {
            const int64_t at = range.first + static_cast<int64_t>(i), bit = at / scaleColumns_ * bits;
            const auto word = loadAt<uint32_t>(
                b.zeros.data(), static_cast<size_t>((bit / 32 - from) * scaleColumns_ + at % scaleColumns_));
            b.zeroPoints[i] = static_cast<float>(word >> (bit % 32) & ((1U << bits) - 1));
        }
        return {};
    }

    // ---------------------------------------------------------------- values times scales

    Status multiply(int64_t first, int64_t count, Buffers& b) const {
        const ScaleRange range = scaleRange(first, count);
        for (int64_t at = first; at < first + count;) {
            const int64_t row = at / weight_.columns, column = at % weight_.columns;
            const int64_t length = std::min(weight_.columns - column, first + count - at);
            float* const values = b.values.data() + (at - first);
            if (weight_.scheme->kind == QuantKind::columns)
                multiplyColumns(row, column, length, values);
            else
                multiplyRow(row, column, length, range.first, values, b);
            at += length;
        }
        return {};
    }

    // Elements [column, column + length) of a row.
    void multiplyRow(int64_t row, int64_t column, int64_t length, int64_t firstScale, float* values,
                     const Buffers& b) const {
        const int64_t base = weight_.oneScale ? 0 : scaleRowOf(row) * scaleColumns_ - firstScale;
        const bool zeros = !b.zeroPoints.empty() && has(kZeros);
        const auto scaleAt = [&](int64_t c) { return weight_.oneScale ? 0 : static_cast<size_t>(base + c); };
        if (!order_.empty()) {
            for (int64_t i = 0; i < length; ++i) {
                const size_t s = scaleAt(order_[static_cast<size_t>(column + i)]);
                values[i] = (zeros ? values[i] - b.zeroPoints[s] : values[i]) * b.scales[s];
            }
            return;
        }
        const bool blocks =
            weight_.scheme->kind == QuantKind::mxfp4 && weight_.scheme->parts[0].suffix == "_blocks";
        const float last = weight_.scheme->kind == QuantKind::rows ? kOver127 : 1;
        for (int64_t i = 0; i < length;) {
            const int64_t c = scaleColumnOf(column + i);
            const int64_t end = weight_.blockColumns == 0
                                    ? length
                                    : std::min(length, (c + 1) * weight_.blockColumns - column);
            const float scale = b.scales[scaleAt(c)], zero = zeros ? b.zeroPoints[scaleAt(c)] : 0;
            // 2^128 is not a float, and half of it is: transformers scales as ldexp() does.
            if (blocks && std::isinf(scale)) {
                for (; i < end; ++i)
                    values[i] = values[i] * 2 * 0x1p127F;
            }
            for (; i < end; ++i)
                values[i] = (values[i] - zero) * scale * last;
        }
    }

    void multiplyColumns(int64_t row, int64_t column, int64_t length, float* values) const {
        const int64_t group = order_.empty() ? row / weight_.blockRows : order_[static_cast<size_t>(row)];
        const int64_t per = this->values(), width = weight_.columns / per;
        const uint32_t mask = (1U << weight_.bits) - 1;
        // One for each value of a word; they are added as in the library, which lets a full one overflow.
        const uint32_t ones = weight_.zerosLessOne ? UINT32_MAX / mask : 0;
        const float* const scales = heldScales_.data() + group * weight_.columns;
        for (int64_t i = 0; i < length; ++i) {
            const int64_t c = column + i;
            const uint32_t word =
                loadAt<uint32_t>(heldZeros_.data(), static_cast<size_t>(group * width + c / per)) + ones;
            const unsigned shift =
                weight_.interleaved ? interleavedShift(c) : static_cast<unsigned>(c % per) * weight_.bits;
            values[i] = (values[i] - static_cast<float>(word >> shift & mask)) * scales[c];
        }
    }

    const QuantizedWeight weight_;
    const DType dtype_, computed_;
    const int64_t scaleRows_, scaleColumns_;
    std::array<std::optional<PartReader>, kQuantParts> parts_;
    std::optional<StoredShare> share_;
    std::vector<float> table_, nestedTable_, second_, heldScales_;
    std::vector<std::byte> heldZeros_;
    std::vector<int32_t> order_;
};

class DequantizedReader final : public ComputedReader {
  public:
    DequantizedReader(Catalog catalog, std::string directory, std::shared_ptr<const Reader> source,
                      std::vector<QuantizedWeight> weights, std::vector<DType> dtypes,
                      std::vector<ComputedPlace> places, const StopToken& stop)
        : ComputedReader(std::move(catalog), std::move(directory), source, std::move(places)),
          weights_(std::move(weights)),
          dtypes_(std::move(dtypes)),
          parts_(std::move(source), stop),
          opened_(weights_.size()) {}

  private:
    Result<Extent> computedExtent(const ChunkInfo& chunk, const ComputedPlace& place) const override {
        const QuantizedWeight& weight = weights_[place.tensor];
        const DType dtype = dtypes_[place.tensor];
        SHARDSCOPE_ASSIGN(auto values, opened_.get(place.tensor, [&] {
            return WeightValues::open(parts_, weight, dtype);
        }));
        SHARDSCOPE_ASSIGN(auto origin, source()->openFile(chunk.file));
        Extent extent;
        extent.file = computedFile(std::move(origin), std::move(values), elementCount(weight.shape), dtype);
        extent.offset = bytesOfElements(dtype, place.first);
        extent.length = bytesOfElements(dtype, chunk.elements());
        if (weight.transposed) {
            extent.strides.assign(weight.shape.size(), 0);
            extent.strides[weight.shape.size() - 2] = 1;
            extent.strides.back() = weight.columns;
        }
        return extent;
    }

    const std::vector<QuantizedWeight> weights_;
    const std::vector<DType> dtypes_;
    mutable PartsContext parts_;
    const OpenedOnce<WeightValues> opened_;
};

// The path of a weight, from that of its payload.
Path pathOf(const Catalog& source, const QuantizedWeight& weight) {
    Path path = source.path(weight.part(kPayload));
    if (path.empty()) return path;
    const std::string_view suffix = weight.scheme->parts[0].suffix;
    std::string& last = path.back().text;
    if (!last.ends_with(suffix)) return {keyPart(weight.name)};
    last.resize(last.size() - suffix.size());
    last += weight.scheme->weight;
    return path;
}

Status addWeight(ComputedCatalog& made, const Catalog& source, const QuantizedWeight& weight, uint32_t index,
                 DType dtype) {
    const TensorId payload = weight.part(kPayload);
    SHARDSCOPE_TRY(
        made.addComputed(payload, weight.name, pathOf(source, weight), dtype, weight.shape, Role::parameter));
    if (source.firstChunk(payload) == source.endChunk(payload)) return {};
    const ChunkInfo stored = source.chunk(payload, source.firstChunk(payload));
    const auto add = [&](const Box& box, int64_t first) {
        return made.addChunk(
            {stored.rank, stored.file, stored.offset, stored.length, box.offsets, box.lengths, std::nullopt},
            {kNone, index, first});
    };
    const size_t rank = weight.shape.size();
    Box box{Dims(rank, 0), weight.shape};
    if (!weight.transposed) return add(box, 0);
    // In bands of the payload's rows, which are few enough to be put in order in memory.
    const int64_t rowBytes = weight.columns * static_cast<int64_t>(dtypeBytes(dtype));
    const int64_t band = std::max<int64_t>(1, kBand / std::max<int64_t>(rowBytes, 1));
    for (int64_t matrix = 0; matrix < weight.matrices; ++matrix) {
        if (rank > 2) {
            box.offsets[0] = matrix;
            box.lengths[0] = 1;
        }
        for (int64_t row = 0; row < weight.rows; row += band) {
            box.offsets.back() = row;
            box.lengths.back() = std::min(band, weight.rows - row);
            SHARDSCOPE_TRY(add(box, (matrix * weight.rows + row) * weight.columns));
        }
    }
    return {};
}

}  // namespace

Result<std::unique_ptr<Reader>> dequantizedReader(std::shared_ptr<const Reader> source, std::string directory,
                                                  std::vector<QuantizedWeight> weights,
                                                  std::vector<DType> dtypes, const StopToken& stop) {
    const Catalog& catalog = source->catalog();
    ComputedCatalog made(catalog);
    const std::vector<uint32_t> of = quantizedByTensor(catalog, weights);
    for (TensorId t = 0; t < catalog.tensorCount(); ++t) {
        if (of[t] == kNone) {
            SHARDSCOPE_TRY(made.addSame(t));
        } else if (weights[of[t]].part(kPayload) == t) {
            SHARDSCOPE_TRY(addWeight(made, catalog, weights[of[t]], of[t], dtypes[of[t]]));
        }
    }
    std::vector<ComputedPlace> places = made.takePlaces();
    return std::unique_ptr<Reader>(
        std::make_unique<DequantizedReader>(std::move(made).finish(), std::move(directory), std::move(source),
                                            std::move(weights), std::move(dtypes), std::move(places), stop));
}

}  // namespace shardscope
