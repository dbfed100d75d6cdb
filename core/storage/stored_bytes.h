// What a file that is unpacked while it is read takes from storage.
#pragma once

#include <cstdint>

namespace shardscope {

// A ReadFile whose bytes are kept in fewer is one of these, too.
class StoredBytes {
  public:
    virtual ~StoredBytes() = default;
    // What reading that many bytes took from storage. Called once for each read, by any thread: over all of
    // the file the answers add up to what is stored of it.
    virtual uint64_t countStored(uint64_t bytes) const = 0;
};

}  // namespace shardscope
