// What two stretches of elements differ by. Private to this room, but for the figures.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "model/dtype.h"

namespace shardscope {

// Of the same elements of two tensors of one dtype, or of many such pairs. Values are doubles: exact for all
// types but integers above 2^53. Complex elements count by their real and imaginary parts; types without a
// numeric meaning (bits8, packed quantized) by their bit patterns.
struct ValueFigures {
    uint64_t elements = 0;
    uint64_t different = 0;  // not the same bits
    // Infinity where one of both is NaN or they are infinities of different sign; two NaN are 0 apart.
    double maxAbs = 0;
    double maxRelative = 0;  // |a - b| / max(|a|, |b|)
    uint64_t maxUlp = 0;     // representable values between them; of float and complex types
    // Sums over finite values, and of (a - b)^2 over all: infinite where maxAbs is.
    double product = 0, squareA = 0, squareB = 0, squareDifference = 0;
    bool nonFinite = false;  // some value is NaN or infinite, the same in both or not

    void add(const ValueFigures& other);
    double l2() const;          // ||a - b||
    double relativeL2() const;  // ||a - b|| / ||a||; infinity where only A is all zeros
    // Of the angle between both; NaN where it means nothing: a side is all zeros, or nonFinite.
    double cosine() const;
};

// Adds elements to the figures: `a` and `b` are equally long, at any address. The sums are those of blocks in
// their order, so they are the same on every machine.
void addFigures(DType dtype, std::span<const std::byte> a, std::span<const std::byte> b, ValueFigures& sum);

}  // namespace shardscope
