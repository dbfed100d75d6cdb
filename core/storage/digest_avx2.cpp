// Built with -mavx2, so it includes nothing that has inline functions: the linker could take these for all.
#include "storage/digest_avx2.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace shardscope {

void xxh3WithAvx2(const void* bytes, size_t size, uint64_t& low, uint64_t& high) {
    const XXH128_hash_t hash = XXH3_128bits(bytes, size);
    low = hash.low64;
    high = hash.high64;
}

}  // namespace shardscope
