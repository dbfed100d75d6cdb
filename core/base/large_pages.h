// Columns of many megabytes are filled faster on large pages: one fault for 2 MiB instead of 512.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <sys/mman.h>

namespace shardscope {

// Asks for large pages under what the vector has reserved; a hint that the kernel may ignore. Reserved memory
// stays unused until it is written to, as before.
template <class T>
void preferLargePages(const std::vector<T>& column) {
#ifdef MADV_HUGEPAGE
    constexpr uintptr_t kLarge = uintptr_t{2} << 20;
    const auto begin = reinterpret_cast<uintptr_t>(column.data());
    const uintptr_t first = (begin + kLarge - 1) & ~(kLarge - 1);
    const uintptr_t last = (begin + column.capacity() * sizeof(T)) & ~(kLarge - 1);
    if (column.data() && last > first)
        (void)madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
#else
    (void)column;
#endif
}

}  // namespace shardscope
