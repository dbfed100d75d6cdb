// XXH3 (128 bits) in the instructions of AVX2: twice as fast in the cache, the same hash. The library of the
// system uses them only where it was built for them. Only on processors that have them. Private to this room.
#pragma once

#include <cstddef>
#include <cstdint>

namespace shardscope {

// Any thread.
void xxh3WithAvx2(const void* bytes, size_t size, uint64_t& low, uint64_t& high);

}  // namespace shardscope
