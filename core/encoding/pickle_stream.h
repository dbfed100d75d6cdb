// The bytes of one pickle as opcodes and operands, whose lengths are checked against what remains and against
// the frame they stand in. No stack, no memo: see pickle_machine.h.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "encoding/pickle_opcodes.h"
#include "encoding/pickle_run.h"
#include "encoding/pickle_window.h"

namespace shardscope {

class PickleLiveMemo;

// Errors are kept, not returned, because an opcode takes a few nanoseconds. A function that fails says false.
// takeError() gives the reason, with the offset of the opcode.
class PickleStream {
  public:
    // A pickle that begins at `start` of the window's source. `textLimit`: bytes of one string.
    PickleStream(PickleWindow window, uint64_t start, uint64_t textLimit);

    bool fail(std::string message);  // damaged
    bool failLimit(std::string message, std::string_view hint = {});
    bool failUnsupported(std::string message, std::string_view hint = {});
    bool failed() const { return !error_.message.empty(); }
    Error takeError() { return std::move(error_); }
    bool truncated() const { return truncated_; }  // the error is that the source ends inside the pickle

    std::string_view opcodeName() const { return kPickleOpcodes[*opcode_].name; }
    uint64_t offset() const { return window_.offsetOf(opcode_); }  // of the opcode
    uint64_t start() const { return start_; }
    uint64_t end() const { return window_.offsetOf(p_); }  // behind what was read so far
    uint64_t sourceSize() const { return window_.size(); }
    uint64_t textLimit() const { return textLimit_; }

    // Walks all opcodes up to STOP and notes what they fetch from the memo.
    bool scan(PickleLiveMemo& use);

  protected:
    using Op = PickleOpcode;

    // EMPTY_TUPLE NEWOBJ MEMOIZE EMPTY_DICT MEMOIZE MARK, as the bytes of a number: once per object.
    static constexpr uint64_t kSixBytes = (uint64_t{1} << 48) - 1;
    static constexpr uint64_t kBeginObject = 0x28'94'7d'94'81'29;

    template <class T>
    static T load(const uint8_t* p) {
        static_assert(std::endian::native == std::endian::little);  // as pickles
        T value;
        std::memcpy(&value, p, sizeof value);
        return value;
    }

    // To be called before each opcode. A fixed operand is loaded at once, from the slack behind the window if
    // need be. Whether it was there is found here, before the next opcode.
    bool ready() { return p_ < pause_ || resume(); }
    // The value of a length of `width` bytes behind the opcode, and p_ behind it.
    uint64_t lengthOperand(size_t width);
    // The bytes of an operand of `length` behind p_, and p_ behind them. They stay until the next operand.
    bool bytesOperand(uint64_t length, std::string_view& out) {
        if (p_ > end_ || length > static_cast<size_t>(end_ - p_) || length > textLimit_)
            return distantBytes(length, out);
        out = {reinterpret_cast<const char*>(p_), static_cast<size_t>(length)};
        p_ += length;
        return true;
    }
    // The lines behind the opcode, and p_ behind them.
    bool lineOperands(std::string_view* lines, size_t count, uint64_t limit);
    bool skip(uint64_t length);
    bool openFrame();

    PickleWindow window_;
    const uint8_t* p_ = nullptr;  // what is read next
    const uint8_t* end_ = nullptr;
    const uint8_t* pause_ = nullptr;  // where the window or the frame may be at its end
    const uint8_t* opcode_ = nullptr;

  private:
    bool failIndex(uint64_t index);
    bool resume();
    bool distantBytes(uint64_t length, std::string_view& out);
    bool refill(size_t need);
    bool remains(uint64_t length);
    void setPause();

    uint64_t start_, textLimit_;
    static constexpr uint64_t kNoFrame = UINT64_MAX;
    uint64_t frameEnd_ = kNoFrame;
    bool truncated_ = false;
    Error error_;
};

// Which memo entries a pickle fetches. A pickle of a million rows memoizes some sixteen million values and
// fetches a few thousand of them. A first pass finds these, so that only they are kept.
class PickleLiveMemo {
  public:
    static constexpr uint32_t kNever = UINT32_MAX;
    [[gnu::always_inline]] bool fetched(uint64_t index) const {
        return index / 64 < words_.size() && (words_[index / 64].bits >> (index % 64) & 1);
    }
    // Position among the fetched entries; kNever for one that is not fetched.
    uint32_t find(uint64_t index) const {
        if (!fetched(index)) return kNever;
        const Word& word = words_[index / 64];
        return word.before + bitCount(word.bits & ((uint64_t{1} << (index % 64)) - 1));
    }
    // As find(), for an entry that is fetched now.
    uint32_t rank(uint64_t index) {
        Recent& recent = recent_[slot(index)];
        if (recent.index != index) recent = {index, find(index)};
        return recent.rank;
    }
    // The first fetched entry that is not before `index`; UINT64_MAX without one.
    uint64_t next(uint64_t index) const {
        for (; index / 64 < words_.size(); index = (index / 64 + 1) * 64) {
            const uint64_t bits = words_[index / 64].bits >> (index % 64);
            if (bits) return index + static_cast<unsigned>(std::countr_zero(bits));
        }
        return UINT64_MAX;
    }
    uint32_t count() const { return count_; }
    uint64_t objects() const { return objects_; }  // NEWOBJ opcodes: a bound for reserving rows

  private:
    friend class PickleStream;
    struct Word {
        uint64_t bits = 0;
        uint32_t before = 0;  // set bits of the words before
    };
    // The entries of a table's names are fetched row by row and are far apart: mostly out of the caches.
    struct Recent {
        uint64_t index = UINT64_MAX;
        uint32_t rank = kNever;
    };
    static size_t slot(uint64_t index) { return index * 0x9e3779b97f4a7c15 >> 53; }
    void fetch(uint64_t index) {
        Recent& recent = recent_[slot(index)];
        if (recent.index == index) return;
        recent.index = index;
        if (index / 64 >= words_.size()) words_.resize(std::max<uint64_t>(index / 64 + 1, words_.size() * 2));
        words_[index / 64].bits |= uint64_t{1} << (index % 64);
    }
    void finish();
    // Inline for processors that are not known to count bits themselves, where std::popcount is a call.
    static uint32_t bitCount(uint64_t x) {
        x -= x >> 1 & 0x5555555555555555;
        x = (x & 0x3333333333333333) + (x >> 2 & 0x3333333333333333);
        x = (x + (x >> 4)) & 0x0f0f0f0f0f0f0f0f;
        return static_cast<uint32_t>(x * 0x0101010101010101 >> 56);
    }

    std::vector<Word> words_;
    std::array<Recent, 2048> recent_;
    uint32_t count_ = 0;
    uint64_t objects_ = 0;
};

}  // namespace shardscope
