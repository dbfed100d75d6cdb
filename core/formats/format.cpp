#include "formats/format.h"

#include <algorithm>

namespace shardscope {

bool Source::hasFile(std::string_view name) const {
    const auto it = std::lower_bound(entries.begin(), entries.end(), name,
                                     [](const DirectoryEntry& e, std::string_view n) { return e.name < n; });
    return it != entries.end() && it->name == name && it->kind == DirectoryEntry::Kind::file;
}

std::vector<std::string> OpenOptions::valuesOf(std::string_view option) const {
    std::vector<std::string> values;
    for (const auto& [name, value] : own)
        if (name == option) values.push_back(value);
    return values;
}

std::vector<std::string> FormatOption::values() const {
    std::vector<std::string> all;
    for (const Choice& choice : choices)
        all.push_back(choice.value);
    return all;
}

bool Format::takes(std::string_view option) const {
    return std::ranges::find(options(), option, &FormatOption::name) != options().end();
}

Format::Laid Format::notWritten(const Catalog&, const WriteOptions&) {
    return unsupported("this format is read but not written");
}

}  // namespace shardscope
