#include "storage/named_path.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <vector>

#include <fmt/format.h>
#include <pwd.h>
#include <unistd.h>

#include "storage/url.h"

namespace shardscope {
namespace {

constexpr std::string_view kFile = "file://";

bool isLetter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// "name" of "name://…" (RFC 3986, section 3.1); empty = it is a path.
std::string_view schemeIn(std::string_view path) {
    const size_t end = path.find("://");
    if (end == std::string_view::npos || end == 0 || !isLetter(path[0])) return {};
    const std::string_view name = path.substr(0, end);
    const bool fits = std::ranges::all_of(name, [](char c) {
        return isLetter(c) || (c >= '0' && c <= '9') || c == '+' || c == '-' || c == '.';
    });
    return fits ? name : std::string_view();
}

int digitOf(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    const char lower = static_cast<char>(c | 0x20);
    return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

std::optional<std::string> decoded(std::string_view text) {
    std::string plain;
    for (size_t i = 0; i < text.size(); ++i) {
        if (text[i] != '%') {
            plain += text[i];
            continue;
        }
        if (i + 2 >= text.size()) return std::nullopt;
        const int high = digitOf(text[i + 1]), low = digitOf(text[i + 2]);
        if (high < 0 || low < 0 || high + low == 0) return std::nullopt;  // no path has a zero byte
        plain += static_cast<char>(high * 16 + low);
        i += 2;
    }
    return plain;
}

std::string ownName() {
    char name[256] = {};
    return ::gethostname(name, sizeof name - 1) == 0 ? name : std::string();
}

// The path of a file:// URL of this host (RFC 8089).
std::optional<std::string> pathOfUrl(std::string_view url) {
    const std::string_view rest = url.substr(kFile.size());
    const size_t slash = rest.find('/');
    if (slash == std::string_view::npos) return std::nullopt;
    const std::string_view host = rest.substr(0, slash);
    if (!host.empty() && host != "localhost" && host != ownName()) return std::nullopt;
    return decoded(rest.substr(slash));
}

// Of this user where `user` is empty; empty = unknown.
std::string homeOf(const std::string& user) {
    if (const char* home = std::getenv("HOME"); user.empty() && home && *home) return home;
    std::vector<char> room(16384);
    passwd entry{}, *found = nullptr;
    const int failed = user.empty() ? ::getpwuid_r(::getuid(), &entry, room.data(), room.size(), &found)
                                    : ::getpwnam_r(user.c_str(), &entry, room.data(), room.size(), &found);
    return failed == 0 && found ? found->pw_dir : std::string();
}

}  // namespace

std::string namedPath(std::string_view text) {
    if (text.starts_with(kFile)) return pathOfUrl(text).value_or(std::string(text));
    if (!text.starts_with('~')) return std::string(text);
    const size_t end = std::min(text.find('/'), text.size());
    const std::string home = homeOf(std::string(text.substr(1, end - 1)));
    return home.empty() ? std::string(text) : home + std::string(text.substr(end));
}

Status checkScheme(std::string_view path) {
    const std::string_view scheme = schemeIn(path);
    if (scheme.empty() || !schemeOf(path).empty() || scheme == "ssh") return {};
    if (scheme == "file")
        return makeError(ErrorCode::unsupported, "this file:// URL does not name a file of this host")
            .inFile(path)
            .withHint("write file:///absolute/path, or ssh://host/path for another host");
    return makeError(ErrorCode::unsupported, fmt::format("'{}://' is not supported", scheme))
        .inFile(path)
        .withHint(
            "these are: s3://, gs://, hf://, https://, http://, ssh://, file://; else mount it, and name "
            "the directory");
}

}  // namespace shardscope
