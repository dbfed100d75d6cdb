#include "cli/validate_words.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/units.h"
#include "cli/one_of.h"

namespace shardscope::cli {

void addLevel(CLI::App& verb, ValidateLevel& level, const std::string& description) {
    std::map<std::string, ValidateLevel> levels;
    for (const ValidateLevel each : kLevels)
        levels.emplace(levelName(each), each);
    verb.add_option("--level", level, description)->transform(oneOf(levels))->type_name("LEVEL");
}

void addJudging(CLI::App& verb, ValidateRequest& words, const std::string& level) {
    addLevel(verb, words.level, level);
    verb.add_flag("--no-accepted", words.noAccepted,
                  "Judge as if no finding had been accepted (in the window, the page or with validate "
                  "--accept)");
    verb.add_flag(
        "--accepted", words.accepted,
        "Accepted findings about files, coverage, ranks and metadata do not count either; without it "
        "they do");
}

void addValidateWords(CLI::App& verb, ValidateRequest& words) {
    verb.add_option("path", words.path, "Checkpoint: a directory, a file, or ssh://host/path")
        ->required()
        ->type_name("PATH");
    addJudging(
        verb, words,
        "metadata (no data file is opened), files (their headers too; the default) or values (every byte)");
    verb.add_option("--expect", words.expect,
                    "Names, shapes and dtypes must be those of this checkpoint; of a lone config.json: "
                    "layers, experts and "
                    "vocabulary")
        ->type_name("OTHER");
    verb.add_option("--examples", words.examples, "Most examples listed for a finding")->type_name("N");
}

void addForm(CLI::App& verb, const std::string& name, ReportForm& form, const std::string& description,
             std::map<std::string, ReportForm> more) {
    for (const auto& [word, each] : ciForms())
        more.emplace(word, each);
    verb.add_option(name, form, description)->transform(oneOf(more))->type_name("FORM");
}

std::string formOf(ReportForm form, const std::vector<JudgedPath>& judged) {
    const std::string text = validationForm(form, judged);
    if (form == ReportForm::gitlab || form == ReportForm::sarif) return harmlessJson(text);
    if (form != ReportForm::github) return text;
    std::string lines;
    for (size_t begin = 0; begin < text.size();) {
        const size_t end = text.find('\n', begin);
        lines += printable(std::string_view(text).substr(begin, end - begin)) + "\n";
        begin = end + 1;
    }
    return lines;
}

// What an example says beyond the finding's message. Where they differ only behind a ';', it is what follows.
std::string_view detailBeyond(std::string_view message, std::string_view detail) {
    if (detail == message) return {};
    const auto [end, other] = std::ranges::mismatch(message, detail);
    const size_t shared = message.substr(0, static_cast<size_t>(end - message.begin())).rfind("; ");
    return shared == message.npos ? detail : detail.substr(shared + 2);
}

// Whether message or example name the cause: a tensor, a file, or "FILE is missing".
bool saysCause(const Finding& finding) {
    std::string_view cause = finding.cause;
    for (const std::string_view what : {" is missing", " is truncated"})
        if (cause.ends_with(what)) cause.remove_suffix(what.size());
    return finding.message.find(cause) != finding.message.npos ||
           (!finding.examples.empty() &&
            (finding.examples.front().file == cause || finding.examples.front().tensor == cause));
}

void printFinding(const Finding& finding, const Style& style, size_t indent) {
    const std::string margin(indent, ' ');
    const std::string severity(severityName(finding.severity));
    const std::string word = finding.severity == Severity::error     ? style.red(severity)
                             : finding.severity == Severity::warning ? style.yellow(severity)
                                                                     : style.dim(severity);
    fmt::print("{}{} {}: {}\n", margin, word, style.bold(printable(finding.rule)),
               printable(finding.message));
    if (!saysCause(finding)) fmt::print("{}    cause: {}\n", margin, printable(finding.cause));
    constexpr size_t kShown = 5;
    for (size_t i = 0; i < finding.examples.size() && i < kShown; ++i) {
        const FindingExample& e = finding.examples[i];
        const std::string_view detail = detailBeyond(finding.message, e.detail);
        const bool fileOnly = e.tensor.empty() && !e.box && e.rank == kNone && !e.offset && detail.empty();
        if (fileOnly && finding.message.find(e.file) != finding.message.npos) continue;
        std::string line = margin + "    ";
        if (!e.tensor.empty()) line += printable(e.tensor) + " ";
        if (e.box) line += formatBox(e.box->offsets, e.box->lengths) + " ";
        if (e.rank != kNone) line += fmt::format("rank {} ", e.rank);
        if (!e.file.empty()) line += fmt::format("in {} ", printable(e.file));
        if (e.offset) line += fmt::format("at byte {} ", countText(*e.offset));
        if (!detail.empty()) line += fmt::format("({}) ", printable(detail));
        line.pop_back();
        fmt::print("{}\n", line);
    }
    if (finding.count > kShown && finding.examples.size() > kShown)
        fmt::print("{}    ... {} in all (with --json: up to --examples of them)\n", margin,
                   countText(finding.count));
}

void printFindings(const ValidationReport& report, const std::vector<Suppression>& accepted,
                   const Style& style, size_t indent, Severity least) {
    for (const Finding& finding : report.findings) {
        if (finding.severity >= least && !suppressionOf(finding, accepted))
            printFinding(finding, style, indent);
    }
    const std::string margin(indent, ' ');
    for (const Finding& finding : report.findings) {
        const Suppression* why = suppressionOf(finding, accepted);
        if (!why) continue;
        fmt::print("{}{} {}: {}\n", margin, style.green("accepted"), style.bold(printable(finding.rule)),
                   printable(finding.message));
        if (!finding.cause.empty()) fmt::print("{}    cause: {}\n", margin, printable(finding.cause));
        std::string by = why->by.empty() ? std::string() : " by " + why->by;
        if (!why->at.empty()) by += " at " + why->at;
        fmt::print("{}    accepted{}: {}\n", margin, printable(by), printable(why->reason));
    }
}

std::string coloredVerdict(Verdict verdict, const Style& style) {
    const std::string_view name = verdictName(verdict);
    return verdict == Verdict::safe   ? style.green(name)
           : verdict == Verdict::care ? style.yellow(name)
                                      : style.red(name);
}

}  // namespace shardscope::cli
