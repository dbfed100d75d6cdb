#include "storage/aligned_buffer.h"

#include <cstdlib>
#include <new>

#include <sys/mman.h>

namespace shardscope {
namespace {

// Large buffers come from the system and go back to it at once. The allocator would keep them after a while,
// in pieces that the next buffer does not fit into, and the process would grow with the number of tensors.
bool fromSystem(size_t size) {
#if defined(__SANITIZE_ADDRESS__)
    // Only what the allocator gives is watched.
    (void)size;
    return false;
#else
    return size >= size_t{256} << 10;
#endif
}

constexpr size_t kLargePages = size_t{4} << 20;

}  // namespace

std::byte* allocateAligned(size_t size) {
    void* data = nullptr;
    if (fromSystem(size)) {
        data = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (data == MAP_FAILED) data = nullptr;
#ifdef MADV_HUGEPAGE
        // One fault for 2 MiB instead of 512; a hint that the kernel may ignore.
        if (data && size >= kLargePages) (void)::madvise(data, size, MADV_HUGEPAGE);
#endif
    } else {
        data = std::aligned_alloc(kIoAlignment, size);
    }
    if (!data) throw std::bad_alloc();
    return static_cast<std::byte*>(data);
}

void freeAligned(std::byte* data, size_t size) noexcept {
    if (fromSystem(size)) {
        ::munmap(data, size);
    } else {
        std::free(data);
    }
}

}  // namespace shardscope
