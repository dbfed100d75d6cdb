// Memory for bulk reads and writes, aligned for direct I/O.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <new>
#include <span>
#include <utility>

namespace shardscope {

constexpr size_t kIoAlignment = 4096;

class AlignedBuffer {
  public:
    AlignedBuffer() = default;
    explicit AlignedBuffer(size_t size) { reset(size); }
    AlignedBuffer(AlignedBuffer&& other) noexcept { swap(other); }
    AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
        swap(other);
        return *this;
    }
    ~AlignedBuffer() { std::free(data_); }

    // Contents are lost; memory is kept when it is large enough.
    void reset(size_t size) {
        if (size > capacity_) {
            std::free(data_);
            capacity_ = (size + kIoAlignment - 1) / kIoAlignment * kIoAlignment;
            data_ = static_cast<std::byte*>(std::aligned_alloc(kIoAlignment, capacity_));
            if (!data_) throw std::bad_alloc();
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
