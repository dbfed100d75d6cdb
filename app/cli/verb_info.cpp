#include <algorithm>
#include <map>
#include <tuple>

#include <fmt/format.h>

#include "answers/documents.h"
#include "cli/application.h"
#include "cli/runs.h"
#include "cli/text.h"

namespace shardscope::cli {
namespace {

struct InfoOptions {
    std::string path;
    ValidateRequest how{.level = ValidateLevel::metadata};  // of the steps of a run
    bool judge = false;                                     // --level was given
};

Result<int> info(const Context& context, const InfoOptions& options) {
    const std::string& path = options.path;
    SHARDSCOPE_ASSIGN(const auto opened, context.openAny(path));
    if (const Run* run = std::get_if<Run>(&opened)) return showRun(context, *run, options.how, options.judge);
    if (options.judge || options.how.noAccepted || options.how.accepted)
        return makeError(ErrorCode::usage,
                         "--level, --accepted and --no-accepted are for the directory of a run")
            .withHint(fmt::format("of a checkpoint: shardscope validate {}", printable(path)));
    const Checkpoint& checkpoint = std::get<Checkpoint>(opened);
    const Catalog& catalog = checkpoint.catalog();
    const std::string elsewhere = checkpoint.reader->dataElsewhere();
    const std::optional<Mesh> mesh = meshOf(catalog);

    const Summary summary = summaryOf(checkpoint);
    if (context.json) {
        printJson(infoJson(checkpoint, context.shown(path), summary));
        return 0;
    }

    const Style style{context.colored()};
    fmt::print("{}\n", style.bold(printable(context.shown(path))));
    std::string format = checkpoint.format->info().title;
    if (!catalog.variant().empty()) format += ", " + catalog.variant();
    fmt::print("  format      {}\n", printable(format));
    if (!elsewhere.empty()) fmt::print("  read from   {}; the data is not here\n", printable(elsewhere));
    if (!catalog.writer().empty()) fmt::print("  written by  {}\n", printable(catalog.writer()));
    fmt::print("  tensors     {} in {} chunks, {} objects\n", countText(catalog.tensorCount()),
               countText(catalog.chunkCount()), countText(catalog.objects().size()));
    const uint64_t optimizerElements = catalog.elementsOf(Role::optimizer);
    fmt::print("  parameters  {}{}\n", countText(catalog.elementsOf(Role::parameter)),
               optimizerElements
                   ? fmt::format("; optimizer state has {} elements more", countText(optimizerElements))
                   : "");
    fmt::print("  data        {}{}\n", bytesText(catalog.totalBytes()),
               summary.optimizerBytes
                   ? fmt::format(" ({} of it optimizer state)", bytesText(summary.optimizerBytes))
                   : "");
    fmt::print("  files       {} of {} ranks, {}\n", countText(catalog.files().size()),
               countText(catalog.rankCount()), bytesText(summary.fileBytes));
    for (const auto& [name, share] : summary.dtypes) {
        fmt::print("  {:<11} {} in {} tensors\n", name, bytesText(share.bytes), countText(share.tensors));
    }
    for (const QuantizedShare& share : summary.quantized) {
        fmt::print("  quantized   {} weights, {} in {} tensors: {}\n", countText(share.weights),
                   bytesText(share.bytes), countText(share.tensors), printable(share.title));
    }
    if (mesh) {
        fmt::print("\n{} {} ({})\n", style.bold("mesh"), formatMesh(*mesh),
                   mesh->source == Mesh::Source::declared ? "declared" : "inferred");
        for (const std::string& line : mesh->evidence)
            fmt::print("  {}\n", printable(line));
    }
    if (!summary.modules.empty()) {
        fmt::print("\n{}\n", style.bold("biggest modules"));
        Table table({{"module", Table::Align::left},
                     {"tensors", Table::Align::right},
                     {"bytes", Table::Align::right}});
        for (const Summary::Module& module : summary.modules)
            table.add({printable(module.name), countText(module.tensors), bytesText(module.bytes)});
        table.print(stdout, style);
    }
    if (!catalog.specials().empty()) {
        fmt::print("\n{}\n", style.bold("tensors that are not plain arrays"));
        for (const SpecialTensor& special : catalog.specials()) {
            fmt::print("  {}: {} {} {}\n", printable(special.name), printable(special.kind),
                       printable(special.dtype), formatDims(special.shape));
        }
    }
    if (const std::vector<Note> notes = checkpoint.allNotes(); !notes.empty()) {
        fmt::print("\n{}\n", style.bold("notes"));
        // What is said of many tensors of a file is said once.
        std::map<std::tuple<std::string, std::string, std::string>, size_t> alike;
        for (const Note& note : notes)
            ++alike[{note.rule, note.file, note.message}];
        size_t shown = 0;
        for (const Note& note : notes) {
            size_t& count = alike[{note.rule, note.file, note.message}];
            if (count == 0) continue;
            if (++shown > 20) {
                fmt::print("  ... and more (all of them with --json)\n");
                break;
            }
            const std::string severity(severityName(note.severity));
            const std::string word = note.severity == Severity::error     ? style.red(severity)
                                     : note.severity == Severity::warning ? style.yellow(severity)
                                                                          : severity;
            std::string about;
            if (count > 1 && !note.file.empty()) about += fmt::format("{}: ", printable(note.file));
            about += printable(note.message);
            if (count > 1) about += fmt::format(" ({} times)", countText(count));
            count = 0;
            fmt::print("  {} {}: {}\n", word, printable(note.rule), about);
        }
    }
    return 0;
}

}  // namespace

void addInfo(CLI::App& app, Context& context) {
    CLI::App* verb = app.add_subcommand(
        "info",
        "What a checkpoint is and holds: format, totals, dtypes, mesh, modules; or the steps of a run");
    verb->footer(
        "Examples:\n  shardscope info /checkpoints/step-1000\n  shardscope info /checkpoints --level files");
    auto options = std::make_shared<InfoOptions>();
    verb->add_option("path", options->path,
                     "Checkpoint: a directory, a file, or ssh://host/path; or the directory of a run")
        ->required()
        ->type_name("PATH");
    addJudging(*verb, options->how,
               "Judge each step of a run: metadata, files or values (default: show what is known already)");
    addCommon(*verb, context, true);
    verb->callback([&context, options, verb] {
        options->judge = verb->count("--level") > 0;
        context.verb = [&context, options] { return info(context, *options); };
    });
}

}  // namespace shardscope::cli
