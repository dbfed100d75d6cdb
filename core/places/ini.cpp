#include "places/ini.h"

#include <algorithm>

#include <fmt/format.h>

#include "places/http.h"

namespace shardscope {
namespace {

// "profile lab" of [profile  "lab"].
std::string sectionName(std::string_view text) {
    const size_t blank = std::min(text.find_first_of(" \t"), text.size());
    const std::string_view kind = text.substr(0, blank);
    std::string_view name = trimmedText(text.substr(blank));
    if (name.size() >= 2 && (name.front() == '"' || name.front() == '\'') && name.front() == name.back())
        name = name.substr(1, name.size() - 2);
    return name.empty() ? std::string(kind) : fmt::format("{} {}", kind, name);
}

}  // namespace

Ini parseIni(std::string_view text) {
    Ini ini;
    IniSection* section = nullptr;
    if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);  // what some editors begin a file with
    std::string parent;                                           // of an indented block
    while (!text.empty()) {
        const size_t end = std::min(text.find('\n'), text.size());
        const std::string_view line = text.substr(0, end), content = trimmedText(line);
        text.remove_prefix(std::min(end + 1, text.size()));
        if (content.empty() || content.front() == '#' || content.front() == ';') continue;
        if (content.front() == '[') {
            section = &ini[sectionName(trimmedText(content.substr(1, content.find(']') - 1)))];
            parent.clear();
            continue;
        }
        const size_t equals = content.find_first_of("=:");
        if (!section || equals == std::string_view::npos) continue;
        std::string name(trimmedText(content.substr(0, equals)));
        std::ranges::transform(name, name.begin(),
                               [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
        const std::string_view value = trimmedText(content.substr(equals + 1));
        const bool nested = (line.front() == ' ' || line.front() == '\t') && !parent.empty();
        if (!nested) parent = value.empty() ? name : "";
        (*section)[nested ? parent + "." + name : name] = value;
    }
    return ini;
}

}  // namespace shardscope
