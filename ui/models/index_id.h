// Ids of model indexes. Qt's hash of indexes piles up small consecutive ids, so they are spread.
#pragma once

#include <QtGlobal>

namespace shardscope::ui {

// Odd, so that the product is a different number for every item and has an inverse.
constexpr quintptr kSpread = sizeof(quintptr) == 8 ? quintptr(0x9E3779B97F4A7C15ULL) : quintptr(0x9E3779B1UL);
constexpr quintptr inverseOf(quintptr odd) {
    quintptr inverse = odd;
    for (int i = 0; i < 6; ++i)
        inverse *= 2 - odd * inverse;
    return inverse;
}
static_assert(kSpread * inverseOf(kSpread) == 1);

constexpr quintptr idOfNumber(quintptr number) {
    return number * kSpread;
}
constexpr quintptr numberOfId(quintptr id) {
    return id * inverseOf(kSpread);
}

}  // namespace shardscope::ui
