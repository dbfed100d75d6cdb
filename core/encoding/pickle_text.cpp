#include "encoding/pickle_text.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

namespace shardscope::pickle_text {

namespace {

bool takeHex(std::string_view& text, size_t digits, uint32_t& value) {
    if (text.size() < digits) return false;
    value = 0;
    for (size_t i = 0; i < digits; ++i) {
        const char c = text[i];
        const int digit = c >= '0' && c <= '9'   ? c - '0'
                          : c >= 'a' && c <= 'f' ? c - 'a' + 10
                          : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                 : -1;
        if (digit < 0) return false;
        value = value << 4 | static_cast<uint32_t>(digit);
    }
    text.remove_prefix(digits);
    return true;
}

}  // namespace

bool toLatin1(std::string_view text, std::string& bytes) {
    bytes.clear();
    bytes.reserve(text.size());
    while (!text.empty()) {
        const CodePoint next = decodeUtf8(text);
        if (!next.valid || next.value > 0xff) return false;
        bytes += static_cast<char>(next.value);
        text.remove_prefix(next.length);
    }
    return true;
}

std::string fromLatin1(std::string_view bytes) {
    std::string out;
    out.reserve(bytes.size());
    for (char c : bytes)
        appendUtf8(out, static_cast<uint8_t>(c));
    return out;
}

bool decodeRawUnicodeEscape(std::string_view line, std::string& utf8) {
    utf8.clear();
    while (!line.empty()) {
        const char c = line[0];
        line.remove_prefix(1);
        const bool escape = c == '\\' && !line.empty() && (line[0] == 'u' || line[0] == 'U');
        if (!escape) {
            appendUtf8(utf8, static_cast<uint8_t>(c));
            continue;
        }
        const size_t digits = line[0] == 'u' ? 4 : 8;
        line.remove_prefix(1);
        uint32_t codePoint = 0;
        if (!takeHex(line, digits, codePoint) || codePoint > 0x10ffff) return false;
        appendUtf8(utf8, codePoint);
    }
    return true;
}

bool decodeQuoted(std::string_view line, std::string& bytes) {
    bytes.clear();
    if (line.size() < 2 || line.front() != line.back() || (line[0] != '\'' && line[0] != '"')) return false;
    line = line.substr(1, line.size() - 2);
    while (!line.empty()) {
        const char c = line[0];
        line.remove_prefix(1);
        if (c != '\\') {
            bytes += c;
            continue;
        }
        if (line.empty()) return false;
        const char escaped = line[0];
        line.remove_prefix(1);
        constexpr std::string_view kNames = "abfnrtv\\'\"";
        constexpr std::string_view kValues = "\a\b\f\n\r\t\v\\'\"";
        if (const size_t at = kNames.find(escaped); at != kNames.npos) {
            bytes += kValues[at];
        } else if (escaped == 'x') {
            uint32_t value = 0;
            if (!takeHex(line, 2, value)) return false;
            bytes += static_cast<char>(value);
        } else if (escaped >= '0' && escaped <= '7') {
            unsigned value = static_cast<unsigned>(escaped - '0');
            for (int i = 0; i < 2 && !line.empty() && line[0] >= '0' && line[0] <= '7'; ++i) {
                value = value * 8 + static_cast<unsigned>(line[0] - '0');
                line.remove_prefix(1);
            }
            bytes += static_cast<char>(value);
        } else {
            bytes += '\\';
            bytes += escaped;
        }
    }
    return true;
}

std::string_view trimInteger(std::string_view bytes) {
    while (bytes.size() > 1) {
        const auto last = static_cast<uint8_t>(bytes.back());
        const bool signBelow = static_cast<uint8_t>(bytes[bytes.size() - 2]) & 0x80;
        if ((last != 0 || signBelow) && (last != 0xff || !signBelow)) break;
        bytes.remove_suffix(1);
    }
    return bytes;
}

int64_t smallInteger(std::string_view bytes) {
    uint64_t value = !bytes.empty() && (static_cast<uint8_t>(bytes.back()) & 0x80) ? ~uint64_t{0} : 0;
    std::memcpy(&value, bytes.data(), std::min<size_t>(bytes.size(), 8));
    return static_cast<int64_t>(value);
}

bool parseDecimal(std::string_view digits, std::string& bytes) {
    bytes.clear();
    bool negative = false;
    if (!digits.empty() && (digits[0] == '-' || digits[0] == '+')) {
        negative = digits[0] == '-';
        digits.remove_prefix(1);
    }
    if (digits.empty()) return false;
    for (char c : digits) {
        if (c < '0' || c > '9') return false;
        unsigned carry = static_cast<unsigned>(c - '0');
        for (char& byte : bytes) {
            const unsigned next = static_cast<uint8_t>(byte) * 10U + carry;
            byte = static_cast<char>(next & 0xff);
            carry = next >> 8;
        }
        if (carry) bytes += static_cast<char>(carry);
    }
    bytes += '\0';  // room for the sign
    if (negative) {
        unsigned carry = 1;
        for (char& byte : bytes) {
            const unsigned next = static_cast<uint8_t>(~byte) + carry;
            byte = static_cast<char>(next & 0xff);
            carry = next >> 8;
        }
    }
    bytes = std::string(trimInteger(bytes));
    return true;
}

std::pair<std::string_view, std::string_view> python3Name(std::string_view module, std::string_view name) {
    struct Renamed {
        std::string_view module, name, newModule, newName;  // no name: all of the module
    };
    constexpr Renamed kRenamed[] = {
        {"__builtin__", "xrange", "builtins", "range"},
        {"__builtin__", "unicode", "builtins", "str"},
        {"__builtin__", "long", "builtins", "int"},
        {"__builtin__", "unichr", "builtins", "chr"},
        {"__builtin__", "reduce", "functools", "reduce"},
        {"__builtin__", "intern", "sys", "intern"},
        {"__builtin__", "raw_input", "builtins", "input"},
        {"UserDict", "UserDict", "collections", "UserDict"},
        {"UserList", "UserList", "collections", "UserList"},
        {"UserString", "UserString", "collections", "UserString"},
        {"__builtin__", {}, "builtins", {}},
        {"copy_reg", {}, "copyreg", {}},
        {"cPickle", {}, "pickle", {}},
        {"_socket", {}, "socket", {}},
        {"cStringIO", {}, "io", {}},
        {"StringIO", {}, "io", {}},
    };
    for (const Renamed& r : kRenamed) {
        if (r.module == module && (r.name.empty() || r.name == name))
            return {r.newModule, r.newName.empty() ? name : r.newName};
    }
    return {module, name};
}

}  // namespace shardscope::pickle_text
