// Decimal numbers in text. As std::from_chars reads them: no spaces, no plus sign; what does not fit is not a
// number.
#pragma once

#include <charconv>
#include <limits>
#include <optional>
#include <string_view>

namespace shardscope {

// The number that is all of `text`, from `least` to `most`.
template <class T>
std::optional<T> parseNumber(std::string_view text, T least = std::numeric_limits<T>::lowest(),
                             T most = std::numeric_limits<T>::max()) {
    T value{};
    const char* const last = text.data() + text.size();
    const auto [end, error] = std::from_chars(text.data(), last, value);
    if (error != std::errc() || end != last || value < least || value > most) return std::nullopt;
    return value;
}

// Removes the unsigned number that `text` begins with and returns it. Without a number up to `most`, `text`
// stays as it is.
template <class T>
std::optional<T> takeNumber(std::string_view& text, T most = std::numeric_limits<T>::max()) {
    T value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || text.front() == '-' || value > most) return std::nullopt;
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    return value;
}

}  // namespace shardscope
