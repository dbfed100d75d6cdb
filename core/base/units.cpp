#include "base/units.h"

#include <cctype>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

namespace shardscope {

std::optional<uint64_t> parseBytes(std::string_view text) {
    double number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc{} || number < 0) return std::nullopt;
    std::string unit;
    for (const char* c = end; c != text.data() + text.size(); ++c) {
        if (*c != ' ') unit += static_cast<char>(std::tolower(static_cast<unsigned char>(*c)));
    }
    constexpr std::string_view letters = "kmgtp";
    double factor = 1;
    if (!unit.empty() && unit != "b") {
        const size_t power = letters.find(unit[0]);
        if (power == std::string_view::npos) return std::nullopt;
        const std::string_view rest = std::string_view(unit).substr(1);
        if (rest == "b") {
            factor = std::pow(1000.0, static_cast<double>(power + 1));
        } else if (rest.empty() || rest == "ib" || rest == "i") {
            factor = std::pow(1024.0, static_cast<double>(power + 1));
        } else {
            return std::nullopt;
        }
    }
    const double bytes = number * factor;
    if (bytes > 9e18) return std::nullopt;
    return static_cast<uint64_t>(std::llround(bytes));
}

std::string bytesText(uint64_t bytes) {
    constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double value = static_cast<double>(bytes);
    int unit = 0;
    while (value >= 1023.95 && unit < 6) {  // shown as 1024.0 otherwise
        value /= 1024;
        ++unit;
    }
    return unit == 0 ? fmt::format("{} B", bytes)
                     : fmt::format("{:.{}f} {}", value, value < 10 ? 2 : 1, units[unit]);
}

std::string countText(uint64_t count) {
    std::string digits = std::to_string(count);
    for (int at = static_cast<int>(digits.size()) - 3; at > 0; at -= 3)
        digits.insert(static_cast<size_t>(at), ",");
    return digits;
}

std::string counted(uint64_t count, std::string_view noun) {
    if (count == 1) return fmt::format("1 {}", noun);
    const auto ends = [&](std::string_view with) { return noun.ends_with(with); };
    const auto plural = [&](size_t cut, std::string_view ending) {
        return fmt::format("{} {}{}", countText(count), noun.substr(0, noun.size() - cut), ending);
    };
    if (ends("axis")) return plural(2, "es");
    const bool afterVowel =
        noun.size() > 1 && std::string_view("aeiou").find(noun[noun.size() - 2]) != std::string_view::npos;
    if (ends("y") && !afterVowel) return plural(1, "ies");
    if (ends("s") || ends("x") || ends("sh") || ends("ch")) return plural(0, "es");
    return plural(0, "s");
}

std::string durationText(double seconds) {
    if (!std::isfinite(seconds)) return "?";
    // No unit is shown that has reached the next one: "1.0 s", not "1000 ms".
    if (seconds < 0.0009995) return fmt::format("{:.0f} us", seconds * 1e6);
    if (seconds < 0.9995) return fmt::format("{:.0f} ms", seconds * 1e3);
    if (seconds < 59.95) return fmt::format("{:.1f} s", seconds);
    const double whole = std::round(seconds);
    if (whole < 3600) return fmt::format("{:.0f} min {:.0f} s", std::floor(whole / 60), std::fmod(whole, 60));
    return fmt::format("{:.0f} h {:.0f} min", std::floor(whole / 3600),
                       std::floor(std::fmod(whole, 3600) / 60));
}

}  // namespace shardscope
