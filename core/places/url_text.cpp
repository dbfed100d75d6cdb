#include <algorithm>
#include <array>
#include <ctime>
#include <limits>

#include <fmt/format.h>

#include "base/numbers.h"
#include "places/http.h"

namespace shardscope {
namespace {

bool isUnreserved(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '.' || c == '_' || c == '~';
}

int hexValue(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

constexpr std::array<std::string_view, 12> kMonths = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                                      "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};

}  // namespace

std::string percentEncoded(std::string_view text, bool keepSlashes) {
    constexpr std::string_view digits = "0123456789ABCDEF";
    std::string out;
    out.reserve(text.size());
    for (const char c : text) {
        if (isUnreserved(c) || (keepSlashes && c == '/')) {
            out += c;
            continue;
        }
        const auto byte = static_cast<unsigned char>(c);
        out += {'%', digits[byte >> 4], digits[byte & 15]};
    }
    return out;
}

std::string percentDecoded(std::string_view text, bool plusIsBlank) {
    std::string out;
    out.reserve(text.size());
    for (size_t i = 0; i < text.size(); ++i) {
        const int high = text[i] == '%' && i + 2 < text.size() ? hexValue(text[i + 1]) : -1;
        const int low = high >= 0 ? hexValue(text[i + 2]) : -1;
        if (low >= 0) {
            out += static_cast<char>(high * 16 + low);
            i += 2;
        } else {
            out += plusIsBlank && text[i] == '+' ? ' ' : text[i];
        }
    }
    return out;
}

std::string_view trimmedText(std::string_view text) {
    constexpr std::string_view blanks = " \t\r\n";
    const size_t begin = std::min(text.find_first_not_of(blanks), text.size());
    return text.substr(begin, text.find_last_not_of(blanks) + 1 - begin);
}

std::string UrlParts::host() const {
    std::string_view text = authority;
    if (const size_t user = text.rfind('@'); user != std::string_view::npos) text.remove_prefix(user + 1);
    if (text.starts_with('[')) return std::string(text.substr(0, text.find(']') + 1));
    return std::string(text.substr(0, text.find(':')));
}

std::optional<UrlParts> parseUrl(std::string_view url) {
    UrlParts parts;
    const size_t colon = url.find("://");
    if (colon == std::string_view::npos || colon == 0) return std::nullopt;
    parts.scheme = url.substr(0, colon);
    url.remove_prefix(colon + 3);
    url = url.substr(0, url.find('#'));
    const size_t end = std::min(url.find_first_of("/?"), url.size());
    parts.authority = url.substr(0, end);
    url.remove_prefix(end);
    const size_t mark = std::min(url.find('?'), url.size());
    parts.path = url.substr(0, mark);
    if (mark < url.size()) parts.query = url.substr(mark + 1);
    if (parts.path.empty()) parts.path = "/";
    if (parts.authority.empty()) return std::nullopt;
    return parts;
}

std::string absoluteUrl(std::string_view location, const UrlParts& from) {
    if (location.starts_with("//")) return fmt::format("{}:{}", from.scheme, location);
    if (location.empty() || parseUrl(location)) return std::string(location);
    const std::string_view directory =
        location.starts_with('/') ? "" : std::string_view(from.path).substr(0, from.path.rfind('/') + 1);
    return fmt::format("{}://{}{}{}", from.scheme, from.authority, directory, location);
}

std::string httpTimeOf(int64_t ns) {
    constexpr std::array days = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
    const std::time_t seconds = ns / 1'000'000'000;
    std::tm time{};
    gmtime_r(&seconds, &time);
    return fmt::format("{}, {:02} {} {:04} {:02}:{:02}:{:02} GMT", days.at(static_cast<size_t>(time.tm_wday)),
                       time.tm_mday, kMonths.at(static_cast<size_t>(time.tm_mon)), time.tm_year + 1900,
                       time.tm_hour, time.tm_min, time.tm_sec);
}

int64_t timeOfHttp(std::string_view text) {
    std::tm time{};
    const auto number = [&](size_t at, size_t digits, int& to, int less = 0) {
        const auto value =
            at + digits <= text.size() ? parseNumber<int>(text.substr(at, digits), 0) : std::nullopt;
        to = value.value_or(0) - less;
        return value.has_value();
    };
    bool good = false;
    if (text.size() >= 29 && text[3] == ',') {  // RFC 9110, IMF-fixdate
        for (size_t m = 0; m < kMonths.size(); ++m)
            if (text.substr(8, 3) == kMonths[m]) time.tm_mon = static_cast<int>(m), good = true;
        good = good && number(5, 2, time.tm_mday) && number(12, 4, time.tm_year, 1900) &&
               number(17, 2, time.tm_hour) && number(20, 2, time.tm_min) && number(23, 2, time.tm_sec);
    } else if (text.size() >= 19 && text[10] == 'T') {
        good = number(0, 4, time.tm_year, 1900) && number(5, 2, time.tm_mon, 1) &&
               number(8, 2, time.tm_mday) && number(11, 2, time.tm_hour) && number(14, 2, time.tm_min) &&
               number(17, 2, time.tm_sec);
    }
    // Of a year that nanoseconds do not reach, the last second that they do.
    constexpr int64_t second = 1'000'000'000, most = std::numeric_limits<int64_t>::max() / second;
    return good ? std::clamp<int64_t>(timegm(&time), -most, most) * second : 0;
}

}  // namespace shardscope
