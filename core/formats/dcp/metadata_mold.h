// What repeats from one object of a `.metadata` to the next: its opcodes are the same bytes but for a few
// operands. A mold is taken of one object and laid over the following ones.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "formats/dcp/metadata.h"
#include "formats/dcp/pickle_window.h"

namespace shardscope::dcp {

// Opcodes that are repeated byte for byte; only the indices of their PUTs count on.
struct MoldStretch {
    static constexpr size_t kWords = 6;
    static constexpr size_t kMostPuts = 8;
    static constexpr uint8_t kNoSize = 0xff;

    std::array<uint64_t, kWords> bytes{}, mask{};
    std::array<uint8_t, kMostPuts> putAt{};  // where the operands of its LONG_BINPUTs stand
    uint8_t puts = 0;
    uint8_t memos = 0;  // memo entries that it makes
    uint8_t length = 0;
    uint8_t words = 0;
    uint8_t size = kNoSize;  // which of its memo entries is a finished torch.Size,
    uint8_t sizeSlot = 0;    // and which one

    // Takes over the bytes; false when it is too long.
    bool set(const uint8_t* from, const uint8_t* end);
    // Whether `p` goes on like this where `memo` is the next free index. Reads up to 48 bytes.
    bool matches(const uint8_t* p, uint64_t memo) const {
        uint64_t differs = 0;
        for (unsigned i = 0; i < words; ++i)
            differs |= (load64(p + 8 * i) ^ bytes[i]) & mask[i];
        for (unsigned i = 0; i < puts; ++i)
            differs |= load32(p + putAt[i]) ^ (memo + i);
        return differs == 0;
    }
};

// The attributes of an object, as its opcodes give them.
struct TakenObject {
    static constexpr uint8_t kMostDims = 8;
    enum Has : uint8_t { kText = 1, kNumber = 2, kSize = 8 };  // two slots of numbers and of sizes
    struct Size {
        std::array<int64_t, kMostDims> values;
        uint32_t at;  // in the dims column, for one that the memo handed out
        uint8_t rank;
        bool made;     // here, so that `values` holds it
        bool fetched;  // its memo entry is handed out later
        uint64_t memo;
    };

    uint8_t has = 0;
    bool textFetched = false;
    TextId text = kNone;
    uint64_t textMemo = 0;
    std::array<int64_t, 2> numbers;
    std::array<Size, 2> sizes;
};

struct Mold {
    static constexpr size_t kMostParts = 4;
    enum class Operand : uint8_t { text, number, size, fetchedSize };
    struct Part {
        MoldStretch before;
        Operand operand = Operand::number;
        uint8_t slot = 0;
        uint8_t rank = 0;
        // The text that was fetched last, which is likely to be the next one.
        mutable uint32_t lastIndex = UINT32_MAX;
        mutable TextId lastText = 0;
    };
    std::array<Part, kMostParts> parts;
    MoldStretch after;
    uint8_t count = 0;
    uint8_t has = 0;
    uint16_t memos = 0;  // of all stretches
};

// The molds of one class; several, because the tensors of a checkpoint differ in their number of dimensions.
struct MoldSet {
    std::array<Mold, 4> molds;
    uint8_t count = 0;
    uint8_t last = 0;  // that fitted
    uint8_t next = 0;  // to be replaced
};

}  // namespace shardscope::dcp
