// Sums of the values of a tensor: what its norm and its mean are made of.
#pragma once

#include <cstddef>
#include <span>

#include "execute/executor.h"
#include "model/dtype.h"

namespace shardscope {

// Of the finite values of a floating-point type with whole bytes; of other types nothing is added (`counted`
// stays 0). Blocks of 4 KiB are summed in float32 in 64 lanes, whatever the machine, and added up in float64:
// six digits hold.
struct ValueSums {
    uint64_t counted = 0;  // values that were added
    double sum = 0, squares = 0;
    double largest = 0;  // magnitude

    void add(const ValueSums& other) {
        counted += other.counted;
        sum += other.sum;
        squares += other.squares;
        largest = largest < other.largest ? other.largest : largest;
    }
    bool operator==(const ValueSums&) const = default;
};

// Adds the values in `bytes`, which begin with a whole element. Thread-safe for distinct sums.
void addSums(DType dtype, std::span<const std::byte> bytes, ValueSums& sums);

}  // namespace shardscope
