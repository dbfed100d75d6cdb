#include "encoding/pickle_mold.h"

#include <cstring>

namespace shardscope {

bool MoldStretch::set(const uint8_t* from, const uint8_t* end) {
    const auto count = static_cast<size_t>(end - from);
    if (count > kWords * 8) return false;
    std::array<uint8_t, kWords * 8> held{}, wanted{};
    std::memcpy(held.data(), from, count);
    std::memset(wanted.data(), 0xff, count);
    for (unsigned i = 0; i < puts; ++i)
        std::memset(wanted.data() + putAt[i], 0, 4);
    for (size_t i = 0; i < kWords; ++i) {
        mask[i] = pickle_bytes::load64(wanted.data() + 8 * i);
        bytes[i] = pickle_bytes::load64(held.data() + 8 * i) & mask[i];
    }
    length = static_cast<uint8_t>(count);
    words = static_cast<uint8_t>((count + 7) / 8);
    return true;
}

}  // namespace shardscope
