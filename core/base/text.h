// Text from files: UTF-8, and how it is shown. Names and messages of a checkpoint are untrusted. They go
// through printable() or oneLine() before they reach a terminal, a window, a log or a report. All functions
// are pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace shardscope {

struct CodePoint {
    uint32_t value = 0;   // where `valid` is false: the first byte
    uint32_t length = 1;  // in bytes
    bool valid = false;   // well-formed UTF-8 (RFC 3629). Surrogates are decoded and count as valid, because
                          // Python's pickles encode them; see isSurrogate()
};

// The code point that `text`, which is not empty, begins with. A byte that begins none stands alone.
CodePoint decodeUtf8(std::string_view text);

// Appends a code point, surrogates included.
void appendUtf8(std::string& out, uint32_t codePoint);

constexpr bool isSurrogate(uint32_t codePoint) {
    return codePoint >= 0xd800 && codePoint < 0xe000;
}
// Control characters, and the invisible and bidirectional ones that make a listing show something else than
// what is there.
constexpr bool isDeceptive(uint32_t codePoint) {
    return codePoint < 0x20 || (codePoint >= 0x7f && codePoint < 0xa0) ||
           (codePoint >= 0x200b && codePoint <= 0x200f) || (codePoint >= 0x2028 && codePoint <= 0x202e) ||
           (codePoint >= 0x2060 && codePoint <= 0x206f) || codePoint == 0xfeff;
}

enum class Surrogates : uint8_t { refuse, accept };
bool isUtf8(std::string_view text, Surrogates surrogates = Surrogates::refuse);

// `text` as valid UTF-8 without anything that drives a terminal or misleads a reader. Deceptive characters,
// surrogates and bytes that are not UTF-8 become \n, \t, \xHH or \uHHHH. At most about `most` bytes, then
// "...".
std::string printable(std::string_view text, size_t most = std::string_view::npos);

// The usual limit for a name in a message, in bytes.
constexpr size_t kNameInMessage = 120;

// "a, b and 3 more": the first `most` of them.
std::string listed(std::span<const std::string> names, size_t most);

// Compact JSON of a value of nlohmann's. Bytes that are not UTF-8 become U+FFFD, where dump() alone throws.
template <class Json>
std::string dumpJson(const Json& value) {
    return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// What another program printed, for a message: ASCII in one line, runs of anything else as one space, at most
// `most` bytes.
std::string oneLine(std::string_view text, size_t most = 400);

}  // namespace shardscope
