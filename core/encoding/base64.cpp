#include "encoding/base64.h"

#include <algorithm>
#include <cstdint>

namespace shardscope {

namespace {

constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

}  // namespace

std::optional<std::string> fromBase64(std::string_view text) {
    std::string out;
    uint32_t bits = 0;
    int have = 0;
    while (text.ends_with('='))
        text.remove_suffix(1);
    for (const char c : text) {
        const size_t six = kDigits.find(c == '+' ? '-' : c == '/' ? '_' : c);
        if (six == kDigits.npos) return std::nullopt;
        bits = bits << 6 | static_cast<uint32_t>(six);
        have += 6;
        if (have < 8) continue;
        have -= 8;
        out += static_cast<char>(bits >> have & 0xff);
    }
    return out;
}

std::string toBase64(std::string_view bytes) {
    std::string out;
    for (size_t i = 0; i < bytes.size(); i += 3) {
        uint32_t bits = 0;
        const size_t count = std::min<size_t>(3, bytes.size() - i);
        for (size_t k = 0; k < 3; ++k)
            bits = bits << 8 | (k < count ? static_cast<uint8_t>(bytes[i + k]) : 0U);
        for (size_t k = 0; k < 4; ++k)
            out += k <= count ? kDigits[bits >> (18 - 6 * k) & 63] : '=';
    }
    return out;
}

}  // namespace shardscope
