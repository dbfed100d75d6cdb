// For decoders of very large pickles: a window of the file that moves forward, and the operands of opcodes in
// it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/result.h"
#include "base/stop.h"
#include "encoding/pickle_lexer.h"
#include "storage/file_system.h"

namespace shardscope {

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

namespace pickle_bytes {

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

// An integer of BININT, BININT1, BININT2 or LONG1; then `p` stands behind it. False: none of these, or one of
// more than 8 bytes. Reads up to 10 bytes.
inline bool takeInteger(const uint8_t*& p, int64_t& out) {
    switch (PickleOpcode(*p)) {
        case PickleOpcode::binInt1:
            out = p[1];
            p += 2;
            return true;
        case PickleOpcode::binInt2:
            out = load16(p + 1);
            p += 3;
            return true;
        case PickleOpcode::binInt:
            out = static_cast<int32_t>(load32(p + 1));
            p += 5;
            return true;
        case PickleOpcode::long1: {
            const unsigned size = p[1];
            if (size == 0 || size > 8) return false;
            const unsigned shift = 64 - 8 * size;
            out = static_cast<int64_t>(load64(p + 2) << shift) >> shift;
            p += 2 + size;
            return true;
        }
        default:
            return false;
    }
}

}  // namespace pickle_bytes

}  // namespace shardscope
