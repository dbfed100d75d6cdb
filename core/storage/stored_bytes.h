// How many bytes a file that is unpacked while it is read takes from storage.
#pragma once

#include <atomic>
#include <cstdint>

namespace shardscope {

// A ReadFile that stores its bytes in fewer implements this, too.
class StoredBytes {
  public:
    virtual ~StoredBytes() = default;
    // The stored bytes that a read of `bytes` took. Called once for each read, by any thread; over all of the
    // file the answers add up to its stored size.
    virtual uint64_t countStored(uint64_t bytes) const = 0;
};

// Counts in proportion: the difference of what all reads took before and after one. Thread-safe.
class StoredShare {
  public:
    StoredShare(uint64_t size, uint64_t stored) : size_(size), stored_(stored) {}
    uint64_t count(uint64_t bytes) const {
        if (size_ == 0) return 0;
        const uint64_t before = counted_.fetch_add(bytes);
        return taken(before + bytes) - taken(before);
    }

  private:
    uint64_t taken(uint64_t read) const {
        const double ratio = static_cast<double>(stored_) / static_cast<double>(size_);
        return read / size_ * stored_ + static_cast<uint64_t>(static_cast<double>(read % size_) * ratio);
    }

    const uint64_t size_, stored_;
    mutable std::atomic<uint64_t> counted_ = 0;
};

}  // namespace shardscope
