#include "base/text.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace shardscope {

CodePoint decodeUtf8(std::string_view text) {
    const auto byteAt = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
    const uint8_t lead = byteAt(0);
    const uint32_t length = lead < 0x80   ? 1
                            : lead < 0xc2 ? 0
                            : lead < 0xe0 ? 2
                            : lead < 0xf0 ? 3
                            : lead < 0xf5 ? 4
                                          : 0;
    const CodePoint stray{lead, 1, false};
    if (length == 0 || text.size() < length) return stray;
    uint32_t value = length == 1 ? lead : lead & (0x7fU >> length);
    for (uint32_t i = 1; i < length; ++i) {
        if ((byteAt(i) & 0xc0) != 0x80) return stray;
        value = value << 6 | (byteAt(i) & 0x3fU);
    }
    if ((length == 3 && value < 0x800) || (length == 4 && (value < 0x10000 || value > 0x10ffff)))
        return stray;
    return {value, length, true};
}

void appendUtf8(std::string& out, uint32_t c) {
    if (c < 0x80) {
        out += static_cast<char>(c);
    } else if (c < 0x800) {
        out += static_cast<char>(0xc0 | c >> 6);
        out += static_cast<char>(0x80 | (c & 0x3f));
    } else if (c < 0x10000) {
        out += static_cast<char>(0xe0 | c >> 12);
        out += static_cast<char>(0x80 | (c >> 6 & 0x3f));
        out += static_cast<char>(0x80 | (c & 0x3f));
    } else {
        out += static_cast<char>(0xf0 | c >> 18);
        out += static_cast<char>(0x80 | (c >> 12 & 0x3f));
        out += static_cast<char>(0x80 | (c >> 6 & 0x3f));
        out += static_cast<char>(0x80 | (c & 0x3f));
    }
}

bool isUtf8(std::string_view text, Surrogates surrogates) {
    while (!text.empty()) {
        // Most text is ASCII: eight bytes at a time.
        while (text.size() >= 8) {
            uint64_t word = 0;
            std::memcpy(&word, text.data(), sizeof word);
            if (word & 0x8080808080808080U) break;
            text.remove_prefix(8);
        }
        if (text.empty()) break;
        const CodePoint next = decodeUtf8(text);
        if (!next.valid || (surrogates == Surrogates::refuse && isSurrogate(next.value))) return false;
        text.remove_prefix(next.length);
    }
    return true;
}

std::string printable(std::string_view text, size_t most) {
    std::string out;
    while (!text.empty()) {
        if (out.size() >= most) return out + "...";
        const CodePoint next = decodeUtf8(text);
        if (next.value == '\n') {
            out += "\\n";
        } else if (next.value == '\t') {
            out += "\\t";
        } else if (!next.valid || (next.value < 0x80 && isDeceptive(next.value))) {
            out += fmt::format("\\x{:02x}", next.value);
        } else if (isSurrogate(next.value) || isDeceptive(next.value)) {
            out += fmt::format("\\u{:04x}", next.value);
        } else {
            out += text.substr(0, next.length);
        }
        text.remove_prefix(next.length);
    }
    return out;
}

std::string oneLine(std::string_view text, size_t most) {
    std::string out;
    for (const char c : text) {
        if (out.size() >= most) {
            out += "...";
            break;
        }
        const auto byte = static_cast<unsigned char>(c);
        const bool blank = byte <= 0x20 || byte >= 0x7f;
        if (!blank)
            out += c;
        else if (!out.empty() && out.back() != ' ')
            out += ' ';
    }
    while (!out.empty() && out.back() == ' ')
        out.pop_back();
    return out;
}

std::string listed(std::span<const std::string> names, size_t most) {
    std::string text = fmt::format("{}", fmt::join(names.first(std::min(most, names.size())), ", "));
    if (names.size() > most) text += fmt::format(" and {} more", names.size() - most);
    return text;
}

}  // namespace shardscope
