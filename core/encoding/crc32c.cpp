#include "encoding/crc32c.h"

#include <array>

namespace shardscope {

namespace {

constexpr uint32_t kCastagnoli = 0x82f63b78;  // reflected

// tables[n][b]: what byte b does to the sum when n more bytes follow it, so that eight bytes are taken at
// once.
constexpr std::array<std::array<uint32_t, 256>, 8> kCrc32cTables = [] {
    std::array<std::array<uint32_t, 256>, 8> tables{};
    for (uint32_t b = 0; b < 256; ++b) {
        uint32_t sum = b;
        for (int bit = 0; bit < 8; ++bit)
            sum = sum >> 1 ^ (sum & 1 ? kCastagnoli : 0);
        tables[0][b] = sum;
    }
    for (size_t n = 1; n < 8; ++n) {
        for (uint32_t b = 0; b < 256; ++b)
            tables[n][b] = tables[n - 1][b] >> 8 ^ tables[0][tables[n - 1][b] & 0xff];
    }
    return tables;
}();

}  // namespace

uint32_t crc32cOf(std::span<const std::byte> bytes) {
    const auto& t = kCrc32cTables;
    const auto at = [&](size_t i) { return static_cast<uint32_t>(bytes[i]); };
    uint32_t sum = 0xffffffff;
    for (; bytes.size() >= 8; bytes = bytes.subspan(8)) {
        sum ^= at(0) | at(1) << 8 | at(2) << 16 | at(3) << 24;
        sum = t[7][sum & 0xff] ^ t[6][sum >> 8 & 0xff] ^ t[5][sum >> 16 & 0xff] ^ t[4][sum >> 24] ^
              t[3][at(4)] ^ t[2][at(5)] ^ t[1][at(6)] ^ t[0][at(7)];
    }
    for (size_t i = 0; i < bytes.size(); ++i)
        sum = sum >> 8 ^ t[0][(sum ^ at(i)) & 0xff];
    return ~sum;
}

}  // namespace shardscope
