// The two passes over a `.metadata` pickle share this: a window of the file that moves forward, and the first
// pass, which finds out which memo entries are ever fetched again. A pickle of a million chunks memoizes some
// sixteen million values and fetches back a few thousand of them; knowing which ones lets the second pass
// keep only those.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/result.h"
#include "base/stop.h"
#include "encoding/pickle_lexer.h"
#include "storage/file_system.h"

namespace shardscope::dcp {

// Bytes [base, base + size) of a file, followed by kSlack zero bytes so that an opcode's fixed operand may be
// loaded before its presence is checked.
class PickleWindow {
  public:
    static constexpr size_t kSlack = 16;

    PickleWindow(const ReadFile& file, const StopToken& stop) : file_(file), stop_(stop) {}

    // Makes at least `need` bytes from file offset `from` available, or all that the file still has. begin()
    // is then the byte at `from`. Errors: those of the file, cancelled.
    Status moveTo(uint64_t from, size_t need = kSlack);

    const uint8_t* begin() const { return buffer_.data() + start_; }
    const uint8_t* end() const { return buffer_.data() + filled_; }
    uint64_t offsetOf(const uint8_t* p) const { return base_ + static_cast<uint64_t>(p - buffer_.data()); }
    bool atEnd() const { return base_ + filled_ >= file_.size(); }
    uint64_t fileSize() const { return file_.size(); }

  private:
    const ReadFile& file_;
    const StopToken& stop_;
    std::vector<uint8_t> buffer_;
    uint64_t base_ = 0;  // file offset of buffer_[0]
    size_t start_ = 0;
    size_t filled_ = 0;
};

// Which memo indices a pickle fetches (GET, BINGET, LONG_BINGET), and how much of the rest there is.
class MemoUse {
  public:
    bool fetched(uint64_t index) const {
        return index < bits_.size() * 64 && (bits_[index / 64] >> (index % 64) & 1);
    }
    // Position among the fetched indices; only for a fetched one.
    uint32_t rank(uint64_t index) const {
        const uint64_t below = bits_[index / 64] & ((uint64_t{1} << (index % 64)) - 1);
        return before_[index / 64] + bitCount(below);
    }
    uint32_t count() const { return count_; }
    // Which of the 64 indices from `from` on are fetched, the first in the lowest bit.
    uint64_t flags(uint64_t from) const {
        const uint64_t word = from / 64;
        const unsigned shift = from % 64;
        if (word >= bits_.size()) return 0;
        const uint64_t next = shift != 0 && word + 1 < bits_.size() ? bits_[word + 1] << (64 - shift) : 0;
        return bits_[word] >> shift | next;
    }

    uint64_t length = 0;  // of the pickle, STOP included
    int protocol = 0;
    uint64_t objects = 0;  // opcodes that make an object: a bound for reserving columns
    uint64_t reductions = 0;

  private:
    friend class MemoScan;
    [[gnu::always_inline]] void fetch(uint64_t index) {
        const uint64_t word = index / 64;
        if (word >= bits_.size()) grow(word);
        const uint64_t bit = uint64_t{1} << (index % 64);
        // Mostly set already; and a store would hold up the next look at the same word.
        if (!(bits_[word] & bit)) bits_[word] |= bit;
    }
    void grow(uint64_t word);
    void index();
    // Inline for processors that are not known to count bits themselves, where std::popcount is a call.
    static uint32_t bitCount(uint64_t x) {
        x -= x >> 1 & 0x5555555555555555;
        x = (x & 0x3333333333333333) + (x >> 2 & 0x3333333333333333);
        x = (x + (x >> 4)) & 0x0f0f0f0f0f0f0f0f;
        return static_cast<uint32_t>(x * 0x0101010101010101 >> 56);
    }

    std::vector<uint64_t> bits_;
    std::vector<uint32_t> before_;  // set bits before each word
    uint32_t count_ = 0;
};

// Walks the opcodes up to STOP, large files on several threads. Errors: damaged with the byte offset
// (truncation, unknown opcode, a memo index that no honest pickle of this length has), unsupported (EXT1/2/4,
// NEXT_BUFFER, READONLY_BUFFER, protocol above 5).
Result<MemoUse> scanMemoUse(const ReadFile& file, const StopToken& stop);

// Memo numbering as CPython's unpickler counts it: MEMOIZE takes the number of entries so far, PUT names an
// index.
class MemoCounter {
  public:
    uint64_t memoize() {
        if (explicit_.empty()) return count_++;
        const uint64_t index = count_;
        put(index);
        return index;
    }
    void put(uint64_t index);
    uint64_t count() const { return count_; }
    bool isExplicit() const { return !explicit_.empty(); }
    void advance(uint64_t count) { count_ = count; }  // only while nothing is explicit

  private:
    uint64_t count_ = 0;
    uint64_t implicit_ = 0;           // entries below this were made by MEMOIZE alone
    std::vector<uint64_t> explicit_;  // bits of all others, once a PUT was seen
};

// Reads the decimal operand of GET and PUT and the other line operands: the end of the line that starts at
// `p`, or nullptr.
const uint8_t* lineEnd(const uint8_t* p, const uint8_t* end);
bool parseDecimal(const uint8_t* p, const uint8_t* end, int64_t& out);

inline uint16_t load16(const uint8_t* p) {
    return static_cast<uint16_t>(p[0] | p[1] << 8);
}
inline uint32_t load32(const uint8_t* p) {
    return uint32_t{p[0]} | uint32_t{p[1]} << 8 | uint32_t{p[2]} << 16 | uint32_t{p[3]} << 24;
}
inline uint64_t load64(const uint8_t* p) {
    return uint64_t{load32(p)} | uint64_t{load32(p + 4)} << 32;
}

using Op = PickleOpcode;

}  // namespace shardscope::dcp
