// What repeats from one object of a pickle to the next: its opcodes are the same bytes but for a few
// operands. A mold is taken of one object and laid over the following ones; it is made of such stretches and
// of operands between them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "encoding/pickle_window.h"

namespace shardscope {

// Opcodes that are repeated byte for byte; only the indices of their PUTs count on.
struct MoldStretch {
    static constexpr size_t kWords = 6;
    static constexpr size_t kMostPuts = 8;

    std::array<uint64_t, kWords> bytes{}, mask{};
    std::array<uint8_t, kMostPuts> putAt{};  // where the operands of its LONG_BINPUTs stand
    uint8_t puts = 0;
    uint8_t memos = 0;  // memo entries that it makes
    uint8_t length = 0;
    uint8_t words = 0;

    // Takes over the bytes; false when it is too long.
    bool set(const uint8_t* from, const uint8_t* end);
    // Whether `p` goes on like this where `memo` is the next free index. Reads up to 48 bytes.
    bool matches(const uint8_t* p, uint64_t memo) const {
        uint64_t differs = 0;
        // Words behind the end have no bits in their mask: no branch asks how many there are.
        for (unsigned i = 0; i < kWords; ++i)
            differs |= (pickle_bytes::load64(p + 8 * i) ^ bytes[i]) & mask[i];
        for (unsigned i = 0; i < puts; ++i)
            differs |= pickle_bytes::load32(p + putAt[i]) ^ (memo + i);
        return differs == 0;
    }
};

}  // namespace shardscope
