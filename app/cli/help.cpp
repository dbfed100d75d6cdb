#include "cli/help.h"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>

#include "base/similar.h"
#include "cli/application.h"
#include "cli/one_of.h"
#include "cli/text.h"

namespace shardscope::cli {
namespace {

constexpr size_t kLeft = 34;  // columns of the names of options

size_t helpWidth() {
    return std::clamp<size_t>(terminalWidth(), 80, 120);
}

// One line of text, at its spaces.
std::string wrappedLine(std::string_view line, size_t width, size_t indent) {
    std::string out;
    size_t used = indent;
    while (!line.empty()) {
        const size_t end = std::min(line.find(' '), line.size());
        const std::string_view word = line.substr(0, end);
        const size_t columns = displayWidth(word);
        if (used > indent && used + 1 + columns > width) {
            out += "\n" + std::string(indent, ' ');
            used = indent;
        } else if (used > indent) {
            out += ' ';
            ++used;
        }
        out += word;
        used += columns;
        line.remove_prefix(std::min(end + 1, line.size()));
    }
    return out;
}

// As wide as the help. Lines that begin with a space are left as they are.
std::string wrapped(std::string_view text) {
    std::string out;
    while (!text.empty()) {
        const std::string_view line = text.substr(0, text.find('\n'));
        out += line.starts_with(' ') ? std::string(line) : wrappedLine(line, helpWidth(), 0);
        text.remove_prefix(line.size());
        if (text.empty()) break;
        out += '\n';
        text.remove_prefix(1);
    }
    return out;
}

// Options that --help-all alone shows: few need them.
constexpr std::string_view kRare[] = {
    "--color",  "--memory",    "--threads", "--io",    "--remote-program", "--variant", "--max-file-size",
    "--keys",   "--expect",    "--set",     "--stage", "--split",          "--objects", "--master-weights",
    "--strict", "--unguarded", "--finish",  "--part",  "--report",         "--records", "--fill-gaps"};

bool isRare(const CLI::Option& option) {
    return std::ranges::any_of(option.get_lnames(), [](const std::string& name) {
        return std::ranges::count(kRare, "--" + name) > 0;
    });
}

// What a text says first: up to a semicolon or the end of a sentence, without what stands in parentheses.
std::string inShort(std::string_view text) {
    std::string out;
    int depth = 0;
    for (size_t at = 0; at < text.size(); ++at) {
        const std::string_view rest = text.substr(at);
        if (depth == 0 && rest.starts_with(" (")) {
            ++depth;
            ++at;
        } else if (depth > 0)
            depth += (text[at] == '(') - (text[at] == ')');
        else if (rest.starts_with("; ") || (rest.starts_with(". ") && rest.size() > 2 &&
                                            std::isupper(static_cast<unsigned char>(rest[2]))))
            break;
        else
            out += text[at];
    }
    return out;
}

class HelpFormatter final : public CLI::Formatter {
  public:
    HelpFormatter() { column_width(kLeft); }

    std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override {
        if (mode == CLI::AppFormatMode::Sub) return make_expanded(app);
        std::string out = wrapped(make_description(app)) + make_usage(app, name);
        out += make_positionals(app);
        const bool all = mode == CLI::AppFormatMode::All;
        std::string more, rare;
        // What a verb is about comes first, what all verbs have last.
        std::vector<std::string> groups = app->get_groups();
        std::stable_partition(groups.begin(), groups.end(),
                              [](const std::string& group) { return group != "Options"; });
        for (const std::string& group : groups) {
            const auto options = app->get_options(
                [&](const CLI::Option* o) { return o->get_group() == group && o->nonpositional(); });
            if (options.empty() || group.empty()) continue;
            if (!all && (group == kOtherFormats || group == kForRanks)) {
                more += fmt::format("; f{}", inShort(group).substr(1));
                continue;
            }
            std::string rows;
            for (const CLI::Option* option : options) {
                const std::string text = make_option_desc(option);
                if (all || !isRare(*option))
                    rows += row(make_option_name(option, false) + make_option_opts(option),
                                all ? text : inShort(text));
                else
                    rare += (rare.empty() ? "" : ", ") + option->get_name();
            }
            if (!rows.empty()) out += fmt::format("\n{}:\n{}", group, rows);
        }
        if (!rare.empty() || !more.empty())
            out += "\n" + wrapped("More with --help-all: " + (rare.empty() ? more.substr(2) : rare + more)) +
                   "\n";
        return out + make_subcommands(app, mode) + "\n" + wrapped(make_footer(app));
    }

    std::string make_option(const CLI::Option* option, bool positional) const override {
        return row(make_option_name(option, positional) + make_option_opts(option), make_option_desc(option));
    }
    std::string make_subcommand(const CLI::App* verb) const override {
        return row(verb->get_name(), verb->get_description());
    }

  private:
    static std::string row(const std::string& name, const std::string& text) {
        std::string out = "  " + name;
        const bool beside = out.size() < kLeft;
        out += beside ? std::string(kLeft - out.size(), ' ') : "\n" + std::string(kLeft, ' ');
        return out + wrappedLine(text, helpWidth(), kLeft) + "\n";
    }
};

std::string meantOr(const std::string& meant, const std::string& see) {
    return meant.empty() ? see : meant + " " + see;
}

std::vector<CLI::App*> verbsOf(CLI::App& app) {
    return app.get_subcommands([](const CLI::App*) { return true; });
}

std::vector<std::string> namesOf(const std::vector<CLI::App*>& verbs) {
    std::vector<std::string> names;
    for (const CLI::App* verb : verbs)
        names.push_back(verb->get_name());
    return names;
}

// "--level" and "-o".
std::vector<std::string> optionNames(const CLI::App& verb) {
    std::vector<std::string> names;
    for (const CLI::Option* option : verb.get_options()) {
        for (const std::string& name : option->get_lnames())
            names.push_back("--" + name);
        for (const std::string& name : option->get_snames())
            names.push_back("-" + name);
    }
    return names;
}

// The verb that the words have come to, nested ones included.
CLI::App& reached(CLI::App& app) {
    CLI::App* at = &app;
    for (auto next = at->get_subcommands(); !next.empty(); next = at->get_subcommands())
        at = next.back();
    return *at;
}

// An option that the verb does not have; empty = none was given.
std::string unknownOption(const CLI::App& verb) {
    if (verb.get_prefix_command()) return {};
    for (const std::string& word : verb.remaining()) {
        if (word.size() > 1 && word.starts_with('-')) return word.substr(0, word.find('='));
    }
    return {};
}

// What was meant by it: an option that is like it, else the verbs that have it.
std::string meantOption(CLI::App& app, const CLI::App& verb, const std::string& name) {
    if (std::string meant = didYouMean(name, optionNames(verb)); !meant.empty()) return meant;
    std::string having;
    for (const CLI::App* other : verbsOf(app)) {
        if (std::ranges::count(optionNames(*other), name))
            having += fmt::format("{}{}", having.empty() ? "" : ", ", other->get_name());
    }
    return having.empty() ? having : fmt::format("it is an option of {};", having);
}

}  // namespace

std::shared_ptr<CLI::FormatterBase> helpFormatter() {
    return std::make_shared<HelpFormatter>();
}

std::vector<std::string> choicesOfOption(CLI::Option& option) {
    std::vector<std::string> words;
    for (int i = 0;; ++i) {
        std::string name;
        try {
            name = option.get_validator(i)->get_name();
        } catch (const CLI::OptionNotFound&) {
            return words;
        }
        if (!name.starts_with(kOneOf)) continue;
        for (size_t at = name.find('\n'); at != std::string::npos;) {
            const size_t end = name.find('\n', at + 1);
            words.push_back(name.substr(at + 1, end == std::string::npos ? end : end - at - 1));
            at = end;
        }
    }
}

Error usageError(CLI::App& app, const std::vector<std::string>& words, const CLI::ParseError& error) {
    const auto wrong = [](std::string message, const std::string& meant, const std::string& see) {
        return makeError(ErrorCode::usage, std::move(message)).withHint(meantOr(meant, see));
    };
    const std::vector<std::string> verbs = namesOf(verbsOf(app));
    if (words.empty() || words[0].starts_with('-')) {
        const std::string see = "see 'shardscope --help'";
        if (const std::string unknown = unknownOption(app); !unknown.empty())
            return wrong(fmt::format("no option {} comes before a verb", unknown),
                         didYouMean(unknown, optionNames(app)), see);
        const bool required = dynamic_cast<const CLI::RequiredError*>(&error) != nullptr;
        return wrong(required && app.get_subcommands().empty() ? "a verb is missing" : error.what(), {}, see);
    }
    if (!std::ranges::count(verbs, words[0]))
        return wrong(fmt::format("'{}' is not a verb", words[0]), didYouMean(words[0], verbs),
                     "see 'shardscope --help'");
    CLI::App& verb = reached(app);
    std::string name = verb.get_name();
    for (const CLI::App* above = verb.get_parent(); above && above->get_parent(); above = above->get_parent())
        name = above->get_name() + " " + name;
    const std::string see = fmt::format("see 'shardscope {} --help'", name);
    if (const std::string unknown = unknownOption(verb); !unknown.empty())
        return wrong(fmt::format("'{}' has no option {}", name, unknown), meantOption(app, verb, unknown),
                     see);
    const std::vector<CLI::App*> nested = verbsOf(verb);
    if (!nested.empty() && !verb.remaining().empty())
        return wrong(fmt::format("'{}' is not a verb of '{}'", verb.remaining()[0], name),
                     didYouMean(verb.remaining()[0], namesOf(nested)), see);
    return wrong(error.what(), {}, see);
}

void addHelp(CLI::App& app, Context& context) {
    CLI::App* help = app.add_subcommand("help", "What a verb does, and its options");
    help->footer("Example:\n  shardscope help convert --all");
    const auto name = std::make_shared<std::string>();
    const auto all = std::make_shared<bool>();
    help->add_option("verb", *name, "The verb (default: all of them in short)")->type_name("VERB");
    help->add_flag("--all", *all, "All options, as --help-all");
    help->callback([&app, &context, name, all] {
        context.verb = [&app, name, all]() -> Result<int> {
            const auto mode = *all ? CLI::AppFormatMode::All : CLI::AppFormatMode::Normal;
            const std::vector<CLI::App*> verbs = verbsOf(app);
            const auto found =
                std::ranges::find(verbs, *name, [](CLI::App* verb) { return verb->get_name(); });
            CLI::App* about = name->empty() ? &app : found == verbs.end() ? nullptr : *found;
            if (!about)
                return makeError(ErrorCode::usage, fmt::format("'{}' is not a verb", *name))
                    .withHint(meantOr(didYouMean(*name, namesOf(verbs)), "see 'shardscope --help'"));
            const std::string full = name->empty() ? app.get_name() : app.get_name() + " " + *name;
            fmt::print("{}", about->get_formatter()->make_help(about, full, mode));
            return 0;
        };
    });
}

}  // namespace shardscope::cli
