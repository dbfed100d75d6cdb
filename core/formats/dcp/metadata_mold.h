// The molds of the objects that repeat in a `.metadata`.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "encoding/pickle_mold.h"
#include "formats/dcp/metadata.h"

namespace shardscope::dcp {

// A stretch of opcodes, at the end of which a torch.Size may be finished.
struct SizeStretch : MoldStretch {
    static constexpr uint8_t kNoSize = 0xff;
    uint8_t size = kNoSize;  // which of its memo entries is a finished torch.Size,
    uint8_t sizeSlot = 0;    // and which one
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
        SizeStretch before;
        Operand operand = Operand::number;
        uint8_t slot = 0;
        uint8_t rank = 0;
        // The text that was fetched last, which is likely to be the next one.
        mutable uint32_t lastIndex = UINT32_MAX;
        mutable TextId lastText = 0;
    };
    std::array<Part, kMostParts> parts;
    SizeStretch after;
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
