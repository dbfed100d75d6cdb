// The rows of a table have the same opcodes, with other operands.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <span>

#include "encoding/pickle_opcodes.h"

namespace shardscope {

// Opcodes with operands of fixed sizes, one after the other, as they were seen once. Where they come again, a
// comparison tells all of them at once.
class PickleRun {
  public:
    static constexpr size_t kSlots = 64;  // for runs that begin differently
    static size_t slot(const uint8_t* p) { return (eight(p) << 32) * 0x9e3779b97f4a7c15 >> 58; }

    // Whether the bytes before `pause`, behind which some may still be loaded, begin with this run.
    bool isAt(const uint8_t* p, const uint8_t* pause) const {
        if (size_ == 0 || pause - p <= static_cast<ptrdiff_t>(size_)) return false;
        for (size_t i = 0; i <= size_; i += sizeof(uint64_t)) {
            if ((eight(p + i) ^ eight(opcodes_.data() + i)) & eight(mask_.data() + i)) return false;
        }
        return true;
    }
    // Learns the run at `p`. It ends with the object at the latest, and before an operand of variable length.
    void learn(const uint8_t* p, const uint8_t* pause) {
        if (pause - p < static_cast<ptrdiff_t>(kMost)) return;
        mask_.fill(0);
        size_ = fetched_ = 0;
        for (size_t at = 0; at < kMost;) {
            const Op op = Op(p[at]);
            const size_t length = size_t{1} + kPickleOpcodes[p[at]].operand;
            opcodes_[at] = p[at];  // also of what ends the run
            mask_[at] = 0xff;
            if (length > 9 || at + length > kMost || op == Op::frame || op == Op::newObj || op == Op::stop)
                break;
            if (op == Op::binGet || op == Op::longBinGet) fetches_[fetched_++] = static_cast<uint8_t>(at);
            at = size_ = at + length;
            if (op == Op::build) return;
        }
    }
    size_t size() const { return size_; }
    std::span<const uint8_t> fetches() const {
        return std::span(fetches_).first(fetched_);
    }  // where GETs are

  private:
    using Op = PickleOpcode;
    static constexpr size_t kMost = 120;  // bytes
    static uint64_t eight(const uint8_t* p) {
        uint64_t bytes = 0;
        std::memcpy(&bytes, p, sizeof bytes);
        return bytes;
    }
    std::array<uint8_t, kMost + sizeof(uint64_t)> opcodes_, mask_;
    std::array<uint8_t, kMost> fetches_;
    size_t size_ = 0, fetched_ = 0;
};

}  // namespace shardscope
