// Arithmetic on sizes and offsets that come from files: every step says whether it overflowed.
#pragma once

#include <concepts>
#include <cstdint>
#include <span>

namespace shardscope {

template <std::integral T>
[[nodiscard]] constexpr bool checkedAdd(T a, T b, T& out) {
    return !__builtin_add_overflow(a, b, &out);
}

template <std::integral T>
[[nodiscard]] constexpr bool checkedMul(T a, T b, T& out) {
    return !__builtin_mul_overflow(a, b, &out);
}

// Smallest multiple of `alignment` that is not below `value`; false when it does not fit.
[[nodiscard]] constexpr bool checkedAlignUp(uint64_t value, uint64_t alignment, uint64_t& out) {
    uint64_t sum = 0;
    if (!checkedAdd(value, alignment - 1, sum)) return false;
    out = sum / alignment * alignment;
    return true;
}

// For values of our own that are known to fit.
constexpr uint64_t alignUp(uint64_t value, uint64_t alignment) {
    return (value + alignment - 1) / alignment * alignment;
}

// Whether [offset, offset + length) is inside [0, size).
[[nodiscard]] constexpr bool rangeFits(uint64_t offset, uint64_t length, uint64_t size) {
    return offset <= size && length <= size - offset;
}

// Product of a shape. The result does not depend on the order of its dimensions. A 0 anywhere gives 0 only
// when the product of the others fits as well. False for negative dimensions or overflow.
[[nodiscard]] constexpr bool checkedProduct(std::span<const int64_t> dims, int64_t& out) {
    int64_t product = 1;
    bool hasZero = false;
    for (int64_t d : dims) {
        if (d < 0) return false;
        if (d == 0) {
            hasZero = true;
            continue;
        }
        if (!checkedMul(product, d, product)) return false;
    }
    out = hasZero ? 0 : product;
    return true;
}

}  // namespace shardscope
