#include "man/manual.h"

#include <algorithm>
#include <map>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/application.h"

namespace shardscope::manual {
namespace {

// A footer, cut where its lines are empty: what stands under "Example(s):" and what else there is to say.
struct Footer {
    std::vector<std::string> examples;  // command lines
    std::vector<std::string> notes;     // paragraphs
};

Footer parseFooter(const std::string& text) {
    Footer footer;
    bool example = false, open = false;  // open: the last note continues
    for (size_t begin = 0; begin <= text.size();) {
        const size_t end = std::min(text.find('\n', begin), text.size());
        std::string line = text.substr(begin, end - begin);
        begin = end + 1;
        if (line == "Example:" || line == "Examples:") {
            example = true;
        } else if (line.empty()) {
            example = open = false;
        } else if (example) {
            footer.examples.push_back(line.substr(line.find_first_not_of(' ')));
        } else if (open) {
            footer.notes.back() += ' ' + line;
        } else {
            footer.notes.push_back(std::move(line));
            open = true;
        }
    }
    return footer;
}

std::string bold(const std::string& text) {
    return "\\fB" + roffText(text) + "\\fR";
}

std::string italic(const std::string& text) {
    return "\\fI" + roffText(text) + "\\fR";
}

std::string heading(const std::string& name, const Edition& edition) {
    std::string upper = name;
    std::transform(upper.begin(), upper.end(), upper.begin(),
                   [](unsigned char c) { return std::toupper(c); });
    return fmt::format(".TH {} 1 {} \"shardscope {}\" \"User Commands\"\n.nh\n", roffText(upper),
                       edition.date, edition.version);
}

bool isHelp(const CLI::App& app, const CLI::Option* option) {
    return option == app.get_help_ptr() || option == app.get_help_all_ptr() ||
           option == app.get_version_ptr();
}

std::vector<const CLI::App*> subcommands(const CLI::App& app) {
    return app.get_subcommands([](const CLI::App*) { return true; });
}

std::vector<const CLI::Option*> positionals(const CLI::App& app) {
    return app.get_options([](const CLI::Option* o) { return o->get_positional(); });
}

std::vector<const CLI::Option*> namedOptions(const CLI::App& app) {
    return app.get_options([&](const CLI::Option* o) { return o->nonpositional() && !isHelp(app, o); });
}

std::string argumentName(const CLI::Option* option) {
    return option->get_type_name().empty() ? option->get_name(true, false) : option->get_type_name();
}

std::string positionalUsage(const CLI::Option* option) {
    std::string text = italic(argumentName(option));
    if (option->get_expected_max() > 1) text += "...";
    return option->get_required() ? text : "[" + text + "]";
}

// -o, --output FILE
std::string optionUsage(const CLI::Option* option) {
    std::string names;
    for (const std::string& name : option->get_snames())
        names += (names.empty() ? "" : ", ") + bold("-" + name);
    for (const std::string& name : option->get_lnames())
        names += (names.empty() ? "" : ", ") + bold("--" + name);
    if (option->get_type_size() != 0 && !option->get_type_name().empty())
        names += " " + italic(option->get_type_name());
    return names;
}

std::string paragraph(const std::string& term, const std::string& text) {
    return ".TP\n" + term + "\n" + roffText(text) + "\n";
}

std::string optionText(const CLI::Option* option) {
    std::string text = option->get_description();
    if (!option->get_default_str().empty()) text += " (default: " + option->get_default_str() + ")";
    return text;
}

std::string optionParagraph(const CLI::Option* option) {
    return paragraph(optionUsage(option), optionText(option));
}

// Positionals first, then the groups as --help has them, help and version last in theirs.
std::string options(const CLI::App& app) {
    std::string out;
    for (const CLI::Option* option : positionals(app))
        out += paragraph(italic(argumentName(option)), option->get_description());
    const std::vector<std::string> groups = app.get_groups();
    for (const std::string& group : groups) {
        std::string rows, last;
        for (const CLI::Option* option : app.get_options(
                 [&](const CLI::Option* o) { return o->get_group() == group && o->nonpositional(); }))
            (isHelp(app, option) ? last : rows) += optionParagraph(option);
        if ((rows + last).empty()) continue;
        // A lone group needs no title, and "Options" is what the section is called.
        if (group != "Options" || !out.empty()) out += ".SS " + roffText(group) + "\n";
        out += rows + last;
    }
    for (const CLI::App* nested : subcommands(app)) {
        if (app.get_parent() == nullptr) break;  // verbs have pages of their own
        out += ".SS " + roffText(nested->get_name()) + "\n" + roffText(nested->get_description()) + ".\n";
        for (const CLI::Option* option : positionals(*nested))
            out += paragraph(italic(argumentName(option)), option->get_description());
        for (const CLI::Option* option : namedOptions(*nested))
            out += optionParagraph(option);
    }
    return out;
}

std::string examples(const Footer& footer) {
    if (footer.examples.empty()) return {};
    std::string out = ".SH EXAMPLES\n.nf\n";
    for (const std::string& line : footer.examples)
        out += roffText(line) + "\n";
    return out + ".fi\n";
}

std::string notes(const Footer& footer) {
    std::string out;
    for (const std::string& note : footer.notes)
        out += ".PP\n" + roffText(note) + "\n";
    return out;
}

std::string exitStatus() {
    std::string out = ".SH EXIT STATUS\n";
    for (const cli::ExitStatus& status : cli::exitStatuses())
        out += paragraph(bold(std::to_string(status.code)), status.meaning);
    return out;
}

std::string seeAlso(const std::vector<std::string>& names) {
    std::string out = ".SH SEE ALSO\n";
    for (size_t i = 0; i < names.size(); ++i)
        out += ".BR " + roffText(names[i]) + (i + 1 < names.size() ? " (1),\n" : " (1)\n");
    return out;
}

Page verbPage(const CLI::App& verb, const Edition& edition) {
    const std::string name = "shardscope-" + verb.get_name();
    const Footer footer = parseFooter(verb.get_footer());
    std::string out = heading(name, edition);
    out += fmt::format(".SH NAME\n{} \\- {}\n", roffText(name), roffText(verb.get_description()));
    out += ".SH SYNOPSIS\n.B " + roffText("shardscope " + verb.get_name()) + "\n";
    out += "[" + italic("OPTION") + "]...";
    for (const CLI::Option* option : positionals(verb))
        out += " " + positionalUsage(option);
    out += "\n.SH DESCRIPTION\n" + roffText(verb.get_description()) + ".\n" + notes(footer);
    out += ".SH OPTIONS\n" + options(verb);
    out += examples(footer) + exitStatus() + seeAlso({"shardscope", "shardscope-gui"});
    return {name, out};
}

Page mainPage(const CLI::App& app, const Edition& edition) {
    // The footer's own words on exit codes stand under EXIT STATUS.
    Footer footer = parseFooter(app.get_footer());
    footer.notes.clear();
    std::string out = heading("shardscope", edition);
    out += ".SH NAME\nshardscope \\- inspect, validate, convert and reshard distributed checkpoints\n";
    out += ".SH SYNOPSIS\n.B shardscope\n" + italic("VERB") + " [" + italic("OPTION") + "]... [" +
           italic("ARGUMENT") + "]...\n";
    out += ".SH DESCRIPTION\n" + roffText(app.get_description()) + "\n";
    out += ".SH VERBS\n";
    std::vector<std::string> names;
    for (const CLI::App* verb : subcommands(app)) {
        out += paragraph(bold(verb->get_name()), verb->get_description());
        names.push_back("shardscope-" + verb->get_name());
    }
    names.push_back("shardscope-gui");
    out += ".SH OPTIONS\n" + options(app);
    out += examples(footer) + exitStatus() + seeAlso(names);
    return {"shardscope", out};
}

// `-o`, `--output FILE`
std::string markdownUsage(const CLI::Option* option) {
    std::string names;
    for (const std::string& name : option->get_snames())
        names += (names.empty() ? "-" : ", -") + name;
    for (const std::string& name : option->get_lnames())
        names += (names.empty() ? "--" : ", --") + name;
    if (option->get_type_size() != 0 && !option->get_type_name().empty())
        names += " " + option->get_type_name();
    return "`" + names + "`";
}

// Inside a cell of a table: a bar would end it, and a name in angle brackets would be taken for HTML.
std::string markdownText(const std::string& text) {
    std::string out;
    for (const char c : text) {
        if (c == '|' || c == '*' || c == '_' || c == '<') out += '\\';
        out += c;
    }
    return out;
}

std::string row(const std::string& term, const std::string& text) {
    return "| " + term + " | " + markdownText(text) + " |\n";
}

// What makes two options of different verbs the same one for a reader.
std::string optionRow(const CLI::Option* option) {
    return row(markdownUsage(option), optionText(option));
}

constexpr const char* kTableHead = "| option | does |\n|---|---|\n";

}  // namespace

std::string optionReference(const CLI::App& app) {
    std::map<std::string, size_t> verbsWith;  // by row
    for (const CLI::App* verb : subcommands(app))
        for (const CLI::Option* option : namedOptions(*verb))
            ++verbsWith[optionRow(option)];
    // Options that a third of the verbs have are described once.
    const size_t enough = subcommands(app).size() / 3;
    const auto isCommon = [&](const CLI::Option* option) { return verbsWith[optionRow(option)] > enough; };
    std::string out =
        "# Every option of every verb\n\n"
        "This page is made from the option table of the program, as the manual pages, the completions and "
        "`--help` are; a test\nkeeps it up to date. What the verbs promise to scripts: [cli.md](cli.md).\n";
    std::string common;
    const auto describe = [&](const CLI::App& verb, const std::string& title, const auto& self) -> void {
        const Footer footer = parseFooter(verb.get_footer());
        std::string rows, also, usage = "shardscope " + title;
        for (const CLI::Option* option : positionals(verb)) {
            const std::string name = argumentName(option) + (option->get_expected_max() > 1 ? "..." : "");
            usage += option->get_required() ? " " + name : " [" + name + "]";
            rows += row("`" + argumentName(option) + "`", option->get_description());
        }
        out += fmt::format("\n## `{}`\n{}.\n", usage, markdownText(verb.get_description()));
        for (const std::string& note : footer.notes)
            out += "\n" + markdownText(note) + "\n";
        if (!footer.examples.empty()) out += fmt::format("\n    {}\n", fmt::join(footer.examples, "\n    "));
        for (const CLI::Option* option : namedOptions(verb)) {
            if (!isCommon(option)) {
                rows += optionRow(option);
                continue;
            }
            also += (also.empty() ? "`--" : ", `--") + option->get_lnames().front() + "`";
            if (common.find(optionRow(option)) == std::string::npos) common += optionRow(option);
        }
        if (!rows.empty()) out += std::string("\n") + kTableHead + rows;
        if (!also.empty()) out += "\nAlso: " + also + " ([options of most verbs](#options-of-most-verbs)).\n";
        for (const CLI::App* nested : subcommands(verb))
            self(*nested, title + " " + nested->get_name(), self);
    };
    for (const CLI::App* verb : subcommands(app))
        describe(*verb, verb->get_name(), describe);
    return out + "\n## Options of most verbs\n\n" + kTableHead + common;
}

std::string roffText(const std::string& text) {
    std::string out;
    bool lineStart = true;
    for (const char c : text) {
        // A leading dot or apostrophe would be a request.
        if (lineStart && (c == '.' || c == '\'')) out += "\\&";
        lineStart = c == '\n';
        switch (c) {
            case '\\':
                out += "\\e";
                break;
            case '-':
                out += "\\-";
                break;
            case '\'':
                out += "\\(aq";
                break;
            case '`':
                out += "\\(ga";
                break;
            case '^':
                out += "\\(ha";
                break;
            case '~':
                out += "\\(ti";
                break;
            case '"':
                out += "\\(dq";
                break;
            default:
                out += c;
        }
    }
    return out;
}

std::vector<Page> pages(const CLI::App& app, const Edition& edition) {
    std::vector<Page> made{mainPage(app, edition)};
    for (const CLI::App* verb : subcommands(app))
        made.push_back(verbPage(*verb, edition));
    return made;
}

}  // namespace shardscope::manual
