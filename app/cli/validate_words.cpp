#include "cli/validate_words.h"

#include <fmt/format.h>

#include "cli/one_of.h"
#include "engine/expected.h"
#include "validate/value_parts.h"

namespace shardscope::cli {

void addLevel(CLI::App& verb, ValidateLevel& level, const std::string& description) {
    static const std::map<std::string, ValidateLevel> levels = [] {
        std::map<std::string, ValidateLevel> all;
        for (const auto each : {ValidateLevel::metadata, ValidateLevel::files, ValidateLevel::values})
            all.emplace(levelName(each), each);
        return all;
    }();
    verb.add_option("--level", level, description)->transform(oneOf(levels))->type_name("LEVEL");
}

void addJudging(CLI::App& verb, ValidateWords& words, const std::string& level) {
    addLevel(verb, words.level, level);
    verb.add_flag("--no-accepted", words.noAccepted,
                  "Judge as if no finding had been accepted (in the window, the page or with validate "
                  "--accept)");
    verb.add_flag(
        "--accepted", words.accepted,
        "Accepted findings about files, coverage, ranks and metadata do not count either; without it "
        "they do");
}

void addValidateWords(CLI::App& verb, ValidateWords& words) {
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

std::vector<Suppression> acceptedBy(const ValidateWords& words, const std::string& path) {
    return honored(words, SuppressionStore().of(acceptedName(path)));
}

std::vector<Suppression> honored(const ValidateWords& words, std::vector<Suppression> accepted) {
    if (words.noAccepted) return {};
    if (!words.accepted)
        std::erase_if(accepted, [](const Suppression& one) { return isStructural(one.rule); });
    return accepted;
}

Result<Validated> openAndValidate(const Context& context, const ValidateWords& words) {
    SHARDSCOPE_ASSIGN(Checkpoint checkpoint, context.open(words.path));
    SHARDSCOPE_ASSIGN(ValidationReport report, validateOpen(context, checkpoint, words));
    return Validated{std::move(checkpoint), std::move(report)};
}

namespace {

// How a checkpoint is validated; calls `validate` with that.
template <class Answer>
Result<Answer> withWords(
    const Context& context, const Checkpoint& checkpoint, const ValidateWords& words,
    const std::function<Result<Answer>(shardscope::ValidateOptions& how, const Resources&)>& run) {
    std::optional<Checkpoint> expected;
    std::optional<std::vector<Note>> lacking;
    shardscope::ValidateOptions how;
    how.level = words.level;
    how.maxExamples = words.examples;
    uint64_t held = checkpoint.catalog().memoryBytes();
    if (!words.expect.empty()) {
        SHARDSCOPE_ASSIGN(lacking, expectedModelNotes(checkpoint, words.expect));
    }
    if (lacking) {
        how.notes = &*lacking;
    } else if (!words.expect.empty()) {
        SHARDSCOPE_ASSIGN(expected, openCheckpoint(words.expect, {}));
        how.expect = &expected->catalog();
        held += expected->catalog().memoryBytes();
    }
    Work work(context, held);
    SHARDSCOPE_TRY(work.start());
    return run(how, work.resources());
}

}  // namespace

Result<ValidationReport> validateOpen(const Context& context, const Checkpoint& checkpoint,
                                      const ValidateWords& words) {
    return withWords<ValidationReport>(context, checkpoint, words,
                                       [&](shardscope::ValidateOptions& how, const Resources& resources) {
                                           return validateCheckpoint(checkpoint, how, resources);
                                       });
}

Result<ValidatedInParts> validateInParts(const Context& context, const Checkpoint& checkpoint,
                                         const ValidateWords& words, const Parts& parts,
                                         const std::string& records) {
    if (words.level != ValidateLevel::values)
        return makeError(ErrorCode::usage, "parts are for --level values")
            .withHint("the other levels read little: one process is enough");
    SHARDSCOPE_TRY(needData(checkpoint, "validating values"));
    return withWords<ValidatedInParts>(
        context, checkpoint, words,
        [&](shardscope::ValidateOptions& how, const Resources& resources) -> Result<ValidatedInParts> {
            ValidatedInParts done;
            SHARDSCOPE_ASSIGN(const auto values, ValueParts::open(*checkpoint.reader, resources));
            PartReading reading = values->reading();
            reading.records = records;
            reading.words = fmt::format("validate\n{}\n{}", words.expect, words.examples);
            SHARDSCOPE_ASSIGN(done.read, readInParts(reading, parts, resources));
            if (!done.read.found) return done;
            SHARDSCOPE_TRY(values->take(*done.read.found));
            how.parts = values.get();
            SHARDSCOPE_ASSIGN(done.report, validateCheckpoint(checkpoint, how, resources));
            return done;
        });
}

void printFinding(const Finding& finding, const Style& style, size_t indent) {
    const std::string margin(indent, ' ');
    const std::string severity(severityName(finding.severity));
    const std::string word = finding.severity == Severity::error     ? style.red(severity)
                             : finding.severity == Severity::warning ? style.yellow(severity)
                                                                     : style.dim(severity);
    fmt::print("{}{} {}: {}\n", margin, word, style.bold(printable(finding.rule)),
               printable(finding.message));
    if (!finding.cause.empty()) fmt::print("{}    cause: {}\n", margin, printable(finding.cause));
    constexpr size_t kShown = 5;
    for (size_t i = 0; i < finding.examples.size() && i < kShown; ++i) {
        const FindingExample& e = finding.examples[i];
        std::string line = margin + "    ";
        if (!e.tensor.empty()) line += printable(e.tensor) + " ";
        if (e.box) line += formatBox(e.box->offsets, e.box->lengths) + " ";
        if (e.rank != kNone) line += fmt::format("rank {} ", e.rank);
        if (!e.file.empty()) line += fmt::format("in {} ", printable(e.file));
        if (e.offset) line += fmt::format("at byte {} ", *e.offset);
        if (!e.detail.empty()) line += fmt::format("({}) ", printable(e.detail));
        line.pop_back();
        fmt::print("{}\n", line);
    }
    if (finding.count > kShown && finding.examples.size() > kShown)
        fmt::print("{}    ... {} in all (with --json: up to --examples of them)\n", margin, finding.count);
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
