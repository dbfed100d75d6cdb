// The first pass over a `.metadata` pickle, which finds out which memo entries are ever fetched again. A
// pickle of a million chunks memoizes some sixteen million values and fetches back a few thousand of them;
// knowing which ones lets the second pass keep only those.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/result.h"
#include "base/stop.h"
#include "encoding/pickle_lexer.h"
#include "encoding/pickle_window.h"

namespace shardscope::dcp {

using namespace pickle_bytes;
using Op = PickleOpcode;

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

}  // namespace shardscope::dcp
