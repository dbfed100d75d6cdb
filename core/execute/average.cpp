#include "execute/average.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>

#include <fmt/format.h>

#include "base/option_words.h"
#include "execute/executor.h"
#include "execute/unaligned.h"

namespace shardscope {
namespace {

using Readers = std::vector<std::unique_ptr<ElementReader>>;

constexpr size_t kAtOnce = 4096;  // elements; their values as float stay in the first cache

uint64_t goodTileOf(const Readers& inputs, uint64_t preferred, uint64_t largest) {
    uint64_t good = preferred;
    for (const auto& input : inputs)
        good = std::max(good, input->goodTileBytes(preferred, largest));
    return good;
}

// Bytes of one input, placed as it wants them, then what it takes to read them.
size_t inputBufferBytes(const Readers& inputs, int64_t a, int64_t b) {
    size_t most = 0;
    for (const auto& input : inputs) {
        const size_t bytes = input->preferredAlignment(a, b) + bytesOfElements(input->dtype(), b - a);
        most = std::max(most, (bytes + kIoAlignment - 1) / kIoAlignment * kIoAlignment +
                                  input->readBufferBytes(a, b) + kIoAlignment);
    }
    return most;
}

Result<std::span<const std::byte>> readInput(const ElementReader& input, int64_t a, int64_t b,
                                             std::span<std::byte> buffer) {
    const size_t phase = input.preferredAlignment(a, b), bytes = bytesOfElements(input.dtype(), b - a);
    const size_t behind = (phase + bytes + kIoAlignment - 1) / kIoAlignment * kIoAlignment;
    SHARDSCOPE_TRY(input.readTile(a, b, buffer.subspan(phase, bytes), buffer.subspan(behind)));
    return std::span<const std::byte>(buffer.subspan(phase, bytes));
}

// The first input sets the sums, so that a negative zero of all stays one.
template <class Sum, class Load>
__attribute__((always_inline)) inline void addEach(std::byte* sums, Sum weight, bool first, size_t count,
                                                   const Load& load) {
    if (first) {
        for (size_t i = 0; i < count; ++i)
            storeAt<Sum>(sums, i, weight * static_cast<Sum>(load(i)));
    } else {
        for (size_t i = 0; i < count; ++i)
            storeAt<Sum>(sums, i, loadAt<Sum>(sums, i) + weight * static_cast<Sum>(load(i)));
    }
}

// Values of `Stored` at any address, bfloat16 as its 16 bits.
template <class Sum, class Stored>
__attribute__((always_inline)) inline void addPlain(std::byte* sums, const std::byte* from, Sum weight,
                                                    bool first, size_t count) {
    addEach<Sum>(sums, weight, first, count, [from](size_t i) {
        const auto value = loadAt<Stored>(from, i);
        if constexpr (std::is_same_v<Stored, uint16_t>)
            return std::bit_cast<float>(uint32_t{value} << 16);
        else
            return value;
    });
}

#if defined(__x86_64__)
template <class Sum, class Stored>
__attribute__((target("avx2"))) void addAvx2(std::byte* sums, const std::byte* from, Sum weight, bool first,
                                             size_t count) {
    addPlain<Sum, Stored>(sums, from, weight, first, count);
}
#endif

template <class Sum, class Stored>
void add(std::byte* sums, const std::byte* from, Sum weight, bool first, size_t count) {
#if defined(__x86_64__)
    static const bool avx2 = __builtin_cpu_supports("avx2");
    if (avx2) return addAvx2<Sum, Stored>(sums, from, weight, first, count);
#endif
    addPlain<Sum, Stored>(sums, from, weight, first, count);
}

template <class Sum>
void addValues(std::byte* sums, DType dtype, std::span<const std::byte> bytes, Sum weight, bool first) {
    const size_t size = dtypeBytes(dtype), count = bytes.size() / size;
    if (dtype == DType::bfloat16) return add<Sum, uint16_t>(sums, bytes.data(), weight, first, count);
    if (dtype == DType::float32) return add<Sum, float>(sums, bytes.data(), weight, first, count);
    if (dtype == DType::float64) return add<Sum, double>(sums, bytes.data(), weight, first, count);
    std::array<std::byte, kAtOnce * sizeof(float)> values;
    for (size_t at = 0; at < count; at += kAtOnce) {
        const size_t n = std::min(kAtOnce, count - at);
        castElements(dtype, bytes.data() + at * size, DType::float32, values.data(), n);
        add<Sum, float>(sums + at * sizeof(Sum), values.data(), weight, first, n);
    }
}

// What a NaN says besides depends on which instructions the sums were made with.
template <class Sum>
void settleNan(std::span<std::byte> tile) {
    for (size_t i = 0; i < tile.size() / sizeof(Sum); ++i) {
        const auto sum = loadAt<Sum>(tile.data(), i);
        storeAt<Sum>(tile.data(), i, std::isnan(sum) ? std::numeric_limits<Sum>::quiet_NaN() : sum);
    }
}

}  // namespace

AverageReader::AverageReader(DType sums, Readers inputs, std::vector<double> weights)
    : inputs_(std::move(inputs)), weights_(std::move(weights)) {
    dtype_ = sums;
    elements_ = inputs_.front()->elements();
}

uint64_t AverageReader::goodTileBytes(uint64_t preferred, uint64_t largest) const {
    return goodTileOf(inputs_, preferred, largest);
}

size_t AverageReader::readBufferBytes(int64_t a, int64_t b) const {
    return inputBufferBytes(inputs_, a, b);
}

Status AverageReader::readTile(int64_t a, int64_t b, std::span<std::byte> tile,
                               std::span<std::byte> buffer) const {
    for (size_t i = 0; i < inputs_.size(); ++i) {
        const DType dtype = inputs_[i]->dtype();
        SHARDSCOPE_ASSIGN(const std::span<const std::byte> bytes, readInput(*inputs_[i], a, b, buffer));
        const BusyTime busy(Progress::Work::compute);
        if (dtype_ == DType::float32)
            addValues<float>(tile.data(), dtype, bytes, static_cast<float>(weights_[i]), i == 0);
        else
            addValues<double>(tile.data(), dtype, bytes, weights_[i], i == 0);
    }
    const BusyTime busy(Progress::Work::compute);
    if (dtype_ == DType::float32)
        settleNan<float>(tile);
    else
        settleNan<double>(tile);
    return {};
}

SameReader::SameReader(Readers inputs) : inputs_(std::move(inputs)) {
    dtype_ = inputs_.back()->dtype();
    elements_ = inputs_.back()->elements();
}

uint64_t SameReader::goodTileBytes(uint64_t preferred, uint64_t largest) const {
    return goodTileOf(inputs_, preferred, largest);
}

size_t SameReader::readBufferBytes(int64_t a, int64_t b) const {
    return inputBufferBytes(inputs_, a, b);
}

size_t SameReader::preferredAlignment(int64_t a, int64_t b) const {
    return inputs_.back()->preferredAlignment(a, b);
}

Status SameReader::readTile(int64_t a, int64_t b, std::span<std::byte> tile,
                            std::span<std::byte> buffer) const {
    SHARDSCOPE_TRY(inputs_.back()->readTile(a, b, tile, buffer));
    for (size_t i = 0; i + 1 < inputs_.size(); ++i) {
        SHARDSCOPE_ASSIGN(const std::span<const std::byte> bytes, readInput(*inputs_[i], a, b, buffer));
        const auto differs = std::ranges::mismatch(bytes, tile);
        if (differs.in1 == bytes.end()) continue;
        const auto at = static_cast<int64_t>(differs.in1 - bytes.begin());
        return makeError(
                   ErrorCode::impossible,
                   fmt::format("input {} differs from the last one in element {}, and this tensor is not "
                               "averaged",
                               i + 1, a + at * 8 / dtypeBits(dtype_)))
            .withHint(option("others", "last") + " takes the values of the last input");
    }
    return {};
}

}  // namespace shardscope
