#include "cli/validate_words.h"

#include "cli/one_of.h"

namespace shardscope::cli {

void addLevel(CLI::App& verb, ValidateLevel& level, const std::string& description) {
    static const std::map<std::string, ValidateLevel> levels{{"metadata", ValidateLevel::metadata},
                                                             {"files", ValidateLevel::files},
                                                             {"values", ValidateLevel::values}};
    verb.add_option("--level", level, description)->transform(oneOf(levels))->type_name("LEVEL");
}

void addValidateWords(CLI::App& verb, ValidateWords& words) {
    verb.add_option("path", words.path, "Checkpoint: a directory, a file, or ssh://host/path")
        ->required()
        ->type_name("PATH");
    addLevel(
        verb, words.level,
        "metadata (no data file is opened), files (their headers too; the default) or values (every byte)");
    verb.add_option("--expect", words.expect, "Names, shapes and dtypes must be those of this checkpoint")
        ->type_name("OTHER");
    verb.add_option("--examples", words.examples, "Most examples listed for a finding")->type_name("N");
}

Result<Validated> openAndValidate(const Context& context, const ValidateWords& words) {
    SHARDSCOPE_ASSIGN(Checkpoint checkpoint, context.open(words.path));
    std::optional<Checkpoint> expected;
    ValidateOptions how;
    how.level = words.level;
    how.maxExamples = words.examples;
    uint64_t held = checkpoint.catalog().memoryBytes();
    if (!words.expect.empty()) {
        SHARDSCOPE_ASSIGN(expected, openCheckpoint(words.expect, {}));
        how.expect = &expected->catalog();
        held += expected->catalog().memoryBytes();
    }
    Work work(context, held);
    SHARDSCOPE_TRY(work.start());
    SHARDSCOPE_ASSIGN(ValidationReport report, validateCheckpoint(checkpoint, how, work.resources()));
    return Validated{std::move(checkpoint), std::move(report)};
}

}  // namespace shardscope::cli
