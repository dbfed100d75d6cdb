// Memory for bulk reads and writes, aligned for direct I/O.
#pragma once

#include <cstddef>
#include <span>
#include <utility>

namespace shardscope {

constexpr size_t kIoAlignment = 4096;

// `size` is a multiple of kIoAlignment; freeAligned() is given the same one. Throws std::bad_alloc.
std::byte* allocateAligned(size_t size);
void freeAligned(std::byte* data, size_t size) noexcept;

class AlignedBuffer {
  public:
    AlignedBuffer() = default;
    explicit AlignedBuffer(size_t size) { reset(size); }
    AlignedBuffer(AlignedBuffer&& other) noexcept { swap(other); }
    AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
        swap(other);
        return *this;
    }
    ~AlignedBuffer() { freeAligned(data_, capacity_); }

    // Contents are lost; memory is kept when it is large enough.
    void reset(size_t size) {
        if (size > capacity_) {
            freeAligned(std::exchange(data_, nullptr), std::exchange(capacity_, 0));
            const size_t capacity = (size + kIoAlignment - 1) / kIoAlignment * kIoAlignment;
            data_ = allocateAligned(capacity);
            capacity_ = capacity;
        }
        size_ = size;
    }

    std::byte* data() { return data_; }
    const std::byte* data() const { return data_; }
    size_t size() const { return size_; }
    size_t capacity() const { return capacity_; }
    std::span<std::byte> span() { return {data_, size_}; }
    std::span<std::byte> span(size_t offset, size_t length) { return {data_ + offset, length}; }

  private:
    void swap(AlignedBuffer& other) {
        std::swap(data_, other.data_);
        std::swap(size_, other.size_);
        std::swap(capacity_, other.capacity_);
    }
    std::byte* data_ = nullptr;
    size_t size_ = 0;
    size_t capacity_ = 0;
};

}  // namespace shardscope
