#include "asked.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "engine/request.h"
#include "plan/request_text.h"

namespace shardscope::python {
namespace {

constexpr std::array<std::string_view, 3> kLimits{"threads", "memory", "io"};

bool isOpening(std::string_view name, const std::string& value, bool converts) {
    // Of a target a variant is a name; of a source KEY=VALUE. Of a conversion --master-weights is more.
    if (name == "--variant") return !converts || value.find('=') != std::string::npos;
    return (name == "--format" || std::ranges::count(formatOptions(), name, &FormatOption::name) > 0) &&
           !(converts && std::ranges::count(convertFields(), name.substr(2), &ConvertField::option));
}

bool isSharedReading(std::string_view verb) {
    return verb == "validate" || verb == "digest";
}

// Whether `diff` has the option.
Result<bool> takeDifference(DiffOptions& options, std::string_view name, const std::string& value) {
    if (name == "--values") return options.values = true;
    if (name == "--rename") {
        SHARDSCOPE_ASSIGN(RenameRule rule, parseRenameRule(value));
        options.rename.push_back(std::move(rule));
        return true;
    }
    if (name == "--map") return options.map = value, true;
    if (name == "--set") return options.set.push_back(value), true;
    return false;
}

Result<bool> takeConversion(Asked& asked, ConvertVerbs verb, std::string_view name,
                            const std::string& value) {
    if (name == "--dry-run") return asked.dryRun = true;
    if (name == "--part") return asked.parts.part = value, true;
    if (name == "--finish") return asked.parts.finish = value.empty() ? "yes" : value, true;
    if (name == "--keys" && verb != kReshard) {
        SHARDSCOPE_TRY(takeKeys(asked.request, value));
        return true;
    }
    return takeConvertOption(asked.request, verb, name.substr(2), value);
}

}  // namespace

std::vector<std::string> openingOptions() {
    std::vector<std::string> names{"format", "variant"};
    for (const FormatOption& option : formatOptions())
        names.push_back(keywordOption(std::string_view(option.name).substr(2), {}));
    return names;
}

std::string keywordOption(std::string_view name, std::string_view value) {
    std::string text(name);
    std::ranges::replace(text, '-', '_');
    const auto field = std::ranges::find(convertFields(), name, &ConvertField::option);
    const bool flag = field != convertFields().end() && std::get_if<ConvertField::Of<bool>>(&field->member);
    if (flag) return text + "=True";
    if (value.empty()) return text;
    return text + (value.starts_with('\'') ? fmt::format("={}", value) : fmt::format("=\"{}\"", value));
}

Result<std::shared_ptr<Asked>> askedBy(std::string_view verb, const std::vector<std::string>& options,
                                       const std::string& program) {
    auto asked = std::make_shared<Asked>();
    asked->program = {SHARDSCOPE_VERSION, program, {}};
    const ConvertVerbs converts = convertVerb(verb);
    asked->dryRun = converts == kPlan;
    std::vector<std::string> opening;
    for (const std::string& word : options) {
        const size_t equals = std::min(word.find('='), word.size());
        const std::string_view name = std::string_view(word).substr(0, equals);
        const std::string value = word.substr(std::min(equals + 1, word.size()));
        bool known = true;
        if (isOpening(name, value, converts)) {
            opening.push_back(word);
        } else if (name == "--remote-program") {
            asked->program.remoteProgram = value;
        } else if (std::ranges::count(kLimits, name.substr(2))) {
            SHARDSCOPE_ASSIGN(known, takeConvertOption(asked->request, kAllVerbs, name.substr(2), value));
        } else if (isSharedReading(verb) && name == "--on") {
            asked->parts.on = value;
        } else if (isSharedReading(verb) && name == "--records") {
            asked->parts.records = recordsPath(value);
        } else if (verb == "diff") {
            SHARDSCOPE_ASSIGN(known, takeDifference(asked->difference, name, value));
        } else {
            known = converts != 0;
            if (converts) {
                SHARDSCOPE_ASSIGN(known, takeConversion(*asked, converts, name, value));
            }
        }
        if (!known)
            return makeError(ErrorCode::usage, "The following argument was not expected: " + word)
                .withHint(fmt::format("see 'shardscope {} --help'", verb));
    }
    SHARDSCOPE_ASSIGN(asked->request.opening, openingOf(opening));
    static_cast<Opening&>(asked->access) = asked->request.opening;
    static_cast<WorkLimits&>(asked->access) = asked->request;
    return asked;
}

}  // namespace shardscope::python
