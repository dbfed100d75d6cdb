// How many bytes a file that is unpacked while it is read takes from storage.
#pragma once

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

}  // namespace shardscope
