// Elements at any address: tiles and ranges of files begin wherever they begin.
#pragma once

#include <cstddef>
#include <cstring>

namespace shardscope {

template <class T>
inline T loadAt(const std::byte* from, size_t index) {
    T value;
    std::memcpy(&value, from + index * sizeof(T), sizeof(T));
    return value;
}

template <class T>
inline void storeAt(std::byte* to, size_t index, T value) {
    std::memcpy(to + index * sizeof(T), &value, sizeof(T));
}

}  // namespace shardscope
