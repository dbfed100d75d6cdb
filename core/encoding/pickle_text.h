// The text forms inside pickles: escapes of the old protocols, UTF-8 with surrogates, integers of any length.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "base/text.h"

namespace shardscope::pickle_text {

// UTF-8 in shortest form up to U+10FFFF, lone surrogates included (Python's "surrogatepass").
inline bool isUtf8(std::string_view bytes) {
    return shardscope::isUtf8(bytes, Surrogates::accept);
}

// Text whose characters are all below 256, as bytes; false otherwise.
bool toLatin1(std::string_view utf8, std::string& bytes);
std::string fromLatin1(std::string_view bytes);

// The operand of UNICODE: Latin-1 with \uXXXX and \UXXXXXXXX, as UTF-8.
bool decodeRawUnicodeEscape(std::string_view line, std::string& utf8);

// The operand of STRING: a quoted Python string literal, as bytes.
bool decodeQuoted(std::string_view line, std::string& bytes);

// Two's complement, little-endian. Without bytes that only repeat the sign:
std::string_view trimInteger(std::string_view bytes);
// of at most 8 bytes:
int64_t smallInteger(std::string_view bytes);
// of a decimal number of any length; false when it is not one:
bool parseDecimal(std::string_view digits, std::string& bytes);

// Names of Python 2 as Python 3's unpickler maps them (CPython's _compat_pickle, those that data is made of).
std::pair<std::string_view, std::string_view> python3Name(std::string_view module, std::string_view name);
// What stands for both names of a global that are put together while unpickling: nobody can say what it is.
inline constexpr std::string_view kDynamicName = "<dynamic>";

}  // namespace shardscope::pickle_text
