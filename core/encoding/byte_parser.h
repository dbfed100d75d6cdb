// Numbers and bytes out of untrusted memory, one after the other. The first that does not fit makes all later
// ones fail, so that a sequence of reads is checked once, at its end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace shardscope {

class ByteParser {
  public:
    explicit ByteParser(std::span<const std::byte> bytes) : bytes_(bytes) {}

    bool ok() const { return ok_; }
    bool atEnd() const { return at_ == bytes_.size(); }
    size_t position() const { return at_; }
    size_t left() const { return bytes_.size() - at_; }

    std::span<const std::byte> bytes(uint64_t count) {
        if (!ok_ || count > left()) {
            ok_ = false;
            return {};
        }
        at_ += static_cast<size_t>(count);
        return bytes_.subspan(at_ - static_cast<size_t>(count), static_cast<size_t>(count));
    }
    std::string_view text(uint64_t count) {
        const auto found = bytes(count);
        return {reinterpret_cast<const char*>(found.data()), found.size()};
    }
    template <int kBytes>
    uint64_t littleEndian() {
        uint64_t value = 0;
        const auto found = bytes(kBytes);
        for (size_t i = found.size(); i-- > 0;)
            value = value << 8 | static_cast<uint64_t>(found[i]);
        return value;
    }
    template <int kBytes>
    uint64_t bigEndian() {
        uint64_t value = 0;
        for (const std::byte byte : bytes(kBytes))
            value = value << 8 | static_cast<uint64_t>(byte);
        return value;
    }
    uint8_t byte() { return static_cast<uint8_t>(littleEndian<1>()); }
    // Unsigned LEB128 of at most 64 bits.
    uint64_t varint() {
        uint64_t value = 0;
        for (int shift = 0; shift < 64; shift += 7) {
            const uint64_t next = byte();
            if (!ok_ || (shift == 63 && next > 1)) break;
            value |= (next & 0x7f) << shift;
            if (next < 0x80) return value;
        }
        ok_ = false;
        return 0;
    }

  private:
    std::span<const std::byte> bytes_;
    size_t at_ = 0;
    bool ok_ = true;
};

}  // namespace shardscope
