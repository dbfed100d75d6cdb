#include "formats/olmo/text.h"

#include <algorithm>
#include <charconv>

namespace shardscope::olmo {

namespace {

constexpr std::string_view kWrapper = "_fsdp_wrapped_module";

}  // namespace

std::optional<int64_t> yamlInteger(std::string_view text, std::string_view key) {
    while (!text.empty()) {
        const size_t end = std::min(text.find('\n'), text.size());
        std::string_view line = text.substr(0, end);
        text.remove_prefix(std::min(text.size(), end + 1));
        if (!line.starts_with(key) || line.size() <= key.size() || line[key.size()] != ':') continue;
        line.remove_prefix(key.size() + 1);
        while (!line.empty() && (line.front() == ' ' || line.front() == '\t'))
            line.remove_prefix(1);
        int64_t value = 0;
        const auto [stop, error] = std::from_chars(line.data(), line.data() + line.size(), value);
        if (error == std::errc{}) return value;
    }
    return std::nullopt;
}

std::string withoutWrapper(std::string_view name) {
    std::string out;
    while (!name.empty()) {
        const size_t dot = std::min(name.find('.'), name.size());
        const std::string_view part = name.substr(0, dot);
        name.remove_prefix(std::min(name.size(), dot + 1));
        if (part == kWrapper) continue;
        if (!out.empty()) out += '.';
        out += part;
    }
    return out;
}

}  // namespace shardscope::olmo
