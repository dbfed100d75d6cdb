// For decoders of very large pickles: a window of the file that moves forward, and the operands of opcodes in
// it.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/result.h"
#include "base/stop.h"
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

// Pickles are little-endian, and so are the machines that this runs on.
template <class T>
T load(const uint8_t* p) {
    static_assert(std::endian::native == std::endian::little);
    T value;
    std::memcpy(&value, p, sizeof value);
    return value;
}
inline uint16_t load16(const uint8_t* p) {
    return load<uint16_t>(p);
}
inline uint32_t load32(const uint8_t* p) {
    return load<uint32_t>(p);
}
inline uint64_t load64(const uint8_t* p) {
    return load<uint64_t>(p);
}

// An integer of BININT, BININT1, BININT2 or LONG1; then `p` stands behind it. False: none of these, or one of
// more than 8 bytes. Reads 10 bytes.
inline bool takeInteger(const uint8_t*& p, int64_t& out) {
    constexpr uint32_t kK = 'K', kM = 'M', kJ = 'J', kLong1 = 0x8a;
    const uint32_t opcode = *p;
    if (opcode == kLong1) {
        const unsigned size = p[1];
        if (size == 0 || size > 8) return false;
        const unsigned shift = 64 - 8 * size;
        out = static_cast<int64_t>(load64(p + 2) << shift) >> shift;
        p += 2 + size;
        return true;
    }
    // Which of the three comes next is a matter of chance, so that no branch asks.
    const unsigned size = (opcode == kK) + 2U * (opcode == kM) + 4U * (opcode == kJ);
    if (size == 0) return false;
    const unsigned shift = 64 - 8 * size;
    const uint64_t high = load64(p + 1) << shift;
    const uint64_t sign = opcode == kJ ? high >> 63 : 0;
    out = static_cast<int64_t>(high >> shift | (0 - sign) << 32);
    p += 1 + size;
    return true;
}

}  // namespace pickle_bytes

}  // namespace shardscope
