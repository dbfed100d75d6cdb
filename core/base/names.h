// Parts of names, and numbers in them. All functions are pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace shardscope {

bool isAmong(std::string_view text, std::initializer_list<std::string_view> all);
// Whether it has digits, and nothing else.
bool isDigits(std::string_view text);

// Takes the last component off a dotted name: "a.b.c" becomes "a.b" and gives "c".
std::string_view takeLastPart(std::string_view& name);

// A number in a name, such as that of an expert: 3 behind ".experts." in "a.experts.3.w".
struct NumberInName {
    size_t begin = 0, end = 0;  // of its digits
    int64_t number = 0;
    // nullopt where no number of at most `most` stands behind the word.
    static std::optional<NumberInName> behind(std::string_view name, std::string_view word, int64_t most);
    static std::optional<NumberInName> at(std::string_view name, size_t begin, int64_t most);
    std::string_view before(std::string_view name) const { return name.substr(0, begin); }
    // The name with another number in its place.
    std::string with(std::string_view name, int64_t other) const;
};

// A name with '#' for each sequence of digits, and the numbers; one past uint64 wraps. Names that differ only
// in rank, shard or layer have the same text.
struct NumberedName {
    explicit NumberedName(std::string_view name);
    std::string text;
    std::vector<uint64_t> numbers;
};

std::string withoutNumbers(std::string_view name);  // the text of it

}  // namespace shardscope
