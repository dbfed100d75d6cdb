#include "engine/format_names.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/similar.h"

namespace shardscope {

std::vector<std::string> formatNames(bool FormatInfo::*able) {
    std::vector<std::string> names;
    for (const Format* format : builtinFormats()) {
        const FormatInfo& info = format->info();
        if (!(info.*able)) continue;
        names.push_back(info.name);
        names.insert(names.end(), info.synonyms.begin(), info.synonyms.end());
    }
    std::ranges::sort(names);
    return names;
}

std::string formatsHint() {
    std::string list;
    for (const Format* format : builtinFormats())
        list += (list.empty() ? "formats: " : ", ") + format->info().name;
    return list;
}

Error notAFormat(const std::string& name) {
    const std::string meant = didYouMean(name, formatNames(&FormatInfo::reads));
    return makeError(ErrorCode::usage, fmt::format("'{}' is not a format", name))
        .withHint(meant.empty() ? formatsHint() : meant + " " + formatsHint());
}

}  // namespace shardscope
