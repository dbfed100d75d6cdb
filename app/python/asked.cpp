#include "asked.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "base/similar.h"
#include "engine/format_names.h"
#include "engine/request.h"

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

std::string keyword(std::string_view option) {
    std::string text(option);
    std::ranges::replace(text, '-', '_');
    return text;
}

using Takes = KnownOption::Takes;

// One that takes one of these names.
KnownOption choice(std::string_view name, std::vector<std::string> names) {
    return {keyword(name), Takes::name, std::move(names)};
}

template <class T>
KnownOption optionOf(const ConvertField& field, ConvertField::Of<T>) {
    if (field.option == "to") return choice(field.option, formatNames(&FormatInfo::writes));
    if (!field.choices.empty()) return choice(field.option, {field.choices.begin(), field.choices.end()});
    if constexpr (std::is_enum_v<T>) {
        std::vector<std::string> names;
        for (const auto& [name, value] : choicesOf(T()))
            if (!name.empty()) names.emplace_back(name);
        return choice(field.option, std::move(names));
    }
    return {keyword(field.option), std::is_same_v<T, bool>                       ? Takes::yes
                                   : std::is_same_v<T, unsigned>                 ? Takes::number
                                   : std::is_same_v<T, uint64_t>                 ? Takes::size
                                   : std::is_same_v<T, std::vector<std::string>> ? Takes::texts
                                                                                 : Takes::text};
}

KnownOption optionOf(const ConvertField& field) {
    return std::visit([&](auto member) { return optionOf(field, member); }, field.member);
}

std::vector<KnownOption> openingOptions() {
    std::vector<KnownOption> all{choice("format", formatNames(&FormatInfo::reads)), {"variant"}};
    for (const FormatOption& option : formatOptions()) {
        const std::string name = keyword(std::string_view(option.name).substr(2));
        if (const auto values = option.values(); !values.empty())
            all.push_back(choice(name, values));
        else
            all.push_back({name, option.repeats ? Takes::texts : Takes::text});
    }
    return all;
}

// What of a verb is in no table.
std::vector<KnownOption> ownOptions(std::string_view verb) {
    std::vector<KnownOption> own;
    if (verb == "diff") own = {{"values", Takes::yes}};
    if (isSharedReading(verb)) own = {{"on"}, {"records"}};
    if (convertVerb(verb))
        own = {{"dry_run", Takes::yes}, {"part"}, choice("finish", {"yes", "auto", "seal"})};
    if (convertVerb(verb) && verb != "reshard") own.push_back({"keys"});
    return own;
}

// With the option that was meant, where one is like it.
Error unknownOption(std::string_view verb, std::string_view name) {
    Similar similar(name);
    for (const KnownOption& known : optionsOf(verb))
        similar.see(known.name);
    const std::string meant = similar.best().empty() ? "" : fmt::format("did you mean {}=? ", similar.best());
    return makeError(ErrorCode::usage, fmt::format("{} has no option {}", verb, name))
        .withHint(
            fmt::format("{}the options are those of 'shardscope {} --help', with _ for -", meant, verb));
}

}  // namespace

std::vector<KnownOption> optionsOf(std::string_view verb) {
    std::vector<KnownOption> all = ownOptions(verb);
    const auto add = [&](KnownOption option) {
        if (!std::ranges::count(all, option.name, &KnownOption::name)) all.push_back(std::move(option));
    };
    const ConvertVerbs verbs = verbWithFields(verb);
    for (const ConvertField& field : convertFields()) {
        const bool limit = std::ranges::count(kLimits, field.option) > 0;
        if (!field.option.empty() && (limit || (verbs & field.verbs))) add(optionOf(field));
    }
    for (KnownOption& option : openingOptions())
        add(std::move(option));
    add({"dequantize"});
    add({"remote_program"});
    std::ranges::sort(all, {}, &KnownOption::name);
    return all;
}

std::string inKeywords(std::string message) {
    if (!message.starts_with("--")) return message;
    const size_t end = std::min(message.find_first_not_of("abcdefghijklmnopqrstuvwxyz-", 2), message.size());
    return keyword(message.substr(2, end - 2)) + message.substr(end);
}

std::string keywordOption(std::string_view name, std::string_view value) {
    const std::string text = keyword(name);
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
        } else if (name == "--dequantize" && !converts && verb != "diff") {
            asked->access.dequantize = value;
        } else if (name == "--remote-program") {
            asked->program.remoteProgram = value;
        } else if (std::ranges::count(kLimits, name.substr(2))) {
            SHARDSCOPE_ASSIGN(known, takeConvertOption(asked->request, kAllVerbs, name.substr(2), value));
        } else if (isSharedReading(verb) && name == "--on") {
            asked->parts.on = value;
        } else if (isSharedReading(verb) && name == "--records") {
            asked->parts.records = recordsPath(value);
        } else if (verb == "diff") {
            if (name == "--values") {
                asked->values = true;
            } else {
                SHARDSCOPE_ASSIGN(known, takeConvertOption(asked->request, kDiff, name.substr(2), value));
            }
        } else {
            known = converts != 0;
            if (converts) {
                SHARDSCOPE_ASSIGN(known, takeConversion(*asked, converts, name, value));
            }
        }
        if (!known) return unknownOption(verb, keyword(name.substr(2)));
    }
    SHARDSCOPE_ASSIGN(asked->request.opening, openingOf(opening));
    static_cast<Opening&>(asked->access) = asked->request.opening;
    static_cast<WorkLimits&>(asked->access) = asked->request;
    return asked;
}

}  // namespace shardscope::python
