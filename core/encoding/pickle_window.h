// A window that moves over a pickle, in a file or in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/stop.h"
#include "storage/file_system.h"

namespace shardscope {

// Bytes [base, base + size) of the source, then kSlack zero bytes. So an opcode's fixed operand may be loaded
// before its presence is checked. Refers to the source, which must outlive it.
class PickleWindow {
  public:
    static constexpr size_t kSlack = 16;

    PickleWindow(const ReadFile& file, const StopToken& stop)
        : file_(&file), stop_(stop), size_(file.size()) {}
    explicit PickleWindow(std::span<const std::byte> bytes) : bytes_(bytes), size_(bytes.size()) {}

    // Makes at least `need` bytes from offset `from` available, or all that the source still has. begin() is
    // then the byte at `from`. Reads little after a jump and more as the window moves on. Errors: those of
    // the file, cancelled.
    Status moveTo(uint64_t from, size_t need = kSlack);

    const uint8_t* begin() const { return buffer_.data(); }
    const uint8_t* end() const { return buffer_.data() + filled_; }
    uint64_t offsetOf(const uint8_t* p) const { return base_ + static_cast<uint64_t>(p - buffer_.data()); }
    bool atEnd() const { return base_ + filled_ >= size_; }
    uint64_t size() const { return size_; }  // of the source

  private:
    const ReadFile* file_ = nullptr;
    std::span<const std::byte> bytes_;  // of a source in memory
    StopToken stop_;
    uint64_t size_;
    std::vector<uint8_t> buffer_;
    uint64_t base_ = UINT64_MAX;  // offset of buffer_[0]
    size_t filled_ = 0;
    size_t next_ = 0;  // bytes to read at least
};

}  // namespace shardscope
