#include "places/ini.h"

namespace shardscope {
namespace {

std::string_view bare(std::string_view text) {
    const size_t begin = text.find_first_not_of(" \t\r");
    if (begin == std::string_view::npos) return {};
    return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

}  // namespace

Ini parseIni(std::string_view text) {
    Ini ini;
    IniSection* section = nullptr;
    std::string parent;  // of an indented block
    while (!text.empty()) {
        const size_t end = std::min(text.find('\n'), text.size());
        const std::string_view line = text.substr(0, end), content = bare(line);
        text.remove_prefix(std::min(end + 1, text.size()));
        if (content.empty() || content.front() == '#' || content.front() == ';') continue;
        if (content.front() == '[') {
            section = &ini[std::string(bare(content.substr(1, content.find(']') - 1)))];
            parent.clear();
            continue;
        }
        const size_t equals = content.find('=');
        if (!section || equals == std::string_view::npos) continue;
        const std::string name(bare(content.substr(0, equals)));
        const std::string_view value = bare(content.substr(equals + 1));
        const bool nested = (line.front() == ' ' || line.front() == '\t') && !parent.empty();
        if (!nested) parent = value.empty() ? name : "";
        (*section)[nested ? parent + "." + name : name] = value;
    }
    return ini;
}

}  // namespace shardscope
