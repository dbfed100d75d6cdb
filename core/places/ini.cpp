#include "places/ini.h"

#include <algorithm>

#include "places/http.h"

namespace shardscope {
Ini parseIni(std::string_view text) {
    Ini ini;
    IniSection* section = nullptr;
    std::string parent;  // of an indented block
    while (!text.empty()) {
        const size_t end = std::min(text.find('\n'), text.size());
        const std::string_view line = text.substr(0, end), content = trimmedText(line);
        text.remove_prefix(std::min(end + 1, text.size()));
        if (content.empty() || content.front() == '#' || content.front() == ';') continue;
        if (content.front() == '[') {
            section = &ini[std::string(trimmedText(content.substr(1, content.find(']') - 1)))];
            parent.clear();
            continue;
        }
        const size_t equals = content.find('=');
        if (!section || equals == std::string_view::npos) continue;
        const std::string name(trimmedText(content.substr(0, equals)));
        const std::string_view value = trimmedText(content.substr(equals + 1));
        const bool nested = (line.front() == ' ' || line.front() == '\t') && !parent.empty();
        if (!nested) parent = value.empty() ? name : "";
        (*section)[nested ? parent + "." + name : name] = value;
    }
    return ini;
}

}  // namespace shardscope
