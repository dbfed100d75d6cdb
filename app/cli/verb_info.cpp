#include <algorithm>
#include <map>
#include <tuple>

#include <fmt/format.h>

#include "answers/documents.h"
#include "answers/rank_shares.h"
#include "base/units.h"
#include "cli/application.h"
#include "cli/runs.h"
#include "cli/text.h"

namespace shardscope::cli {
namespace {

struct InfoOptions {
    std::string path;
    ValidateRequest how{.level = ValidateLevel::metadata};  // of the steps of a run
    bool judge = false;                                     // --level was given
    bool ranks = false, csv = false;
};

std::string filesText(const Catalog& catalog, const std::vector<FileId>& files) {
    if (files.size() == 1) return printable(catalog.files()[files[0]].path);
    return countText(files.size());
}

void printRanks(const Context& context, const Catalog& catalog, bool csv) {
    const RankShares shares = rankShares(catalog);
    using A = Table::Align;
    Table table({{"rank", A::right},
                 {"place", A::left},
                 {"tensors", A::right},
                 {"bytes", A::right},
                 {"parameters", A::right},
                 {"optimizer", A::right},
                 {"rest", A::right},
                 {"files", A::left}});
    const auto addRow = [&](const std::string& rank, const std::string& place, const RankShare& share) {
        const auto bytesIn = [&](uint64_t bytes) { return csv ? std::to_string(bytes) : bytesText(bytes); };
        const auto of = [&](Role role) { return share.bytesOf[static_cast<size_t>(role)]; };
        table.add({rank, place, csv ? std::to_string(share.tensors) : countText(share.tensors),
                   bytesIn(share.bytes), bytesIn(of(Role::parameter)), bytesIn(of(Role::optimizer)),
                   bytesIn(of(Role::buffer) + of(Role::other)),
                   csv ? std::to_string(share.files.size()) : filesText(catalog, share.files)});
    };
    for (uint32_t rank = 0; rank < shares.ranks.size(); ++rank)
        addRow(std::to_string(rank), shares.placeOf(rank), shares.ranks[rank]);
    if (csv) return table.printCsv(stdout);
    addRow("all", "", shares.all);
    table.print(stdout, Style{context.colored()});
    if (shares.all.bytes > catalog.totalBytes())
        fmt::print("\nThe tensors have {}; what several ranks store counts for each of them.\n",
                   bytesText(catalog.totalBytes()));
}

Result<int> info(const Context& context, const InfoOptions& options) {
    const std::string& path = options.path;
    SHARDSCOPE_ASSIGN(const auto opened, context.openAny(path));
    if (std::holds_alternative<Run>(opened) && options.ranks)
        return makeError(ErrorCode::usage, "this is the directory of a run; --ranks is for a checkpoint")
            .inFile(path)
            .withHint("name the directory of a step");
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
        Json json = infoJson(checkpoint, context.shown(path), summary);
        if (options.ranks) json["ranks"] = rankSharesJson(catalog, rankShares(catalog));
        printJson(json);
        return 0;
    }
    if (options.ranks) {
        printRanks(context, catalog, options.csv);
        return 0;
    }

    const Style style{context.colored()};
    fmt::print("{}\n", style.bold(printable(context.shown(path))));
    std::string format = checkpoint.format->info().title;
    if (!catalog.variant().empty()) format += ", " + catalog.variant();
    fmt::print("  format      {}\n", printable(format));
    if (!elsewhere.empty()) fmt::print("  read from   {}; the data is not here\n", printable(elsewhere));
    if (!catalog.writer().empty()) fmt::print("  written by  {}\n", printable(catalog.writer()));
    fmt::print("  tensors     {} in {}, {}\n", countText(catalog.tensorCount()),
               counted(catalog.chunkCount(), "chunk"), counted(catalog.objects().size(), "object"));
    const uint64_t optimizerElements = catalog.elementsOf(Role::optimizer);
    fmt::print(
        "  parameters  {}{}\n", countText(catalog.elementsOf(Role::parameter)),
        optimizerElements ? fmt::format(" (+ {} in the optimizer)", countText(optimizerElements)) : "");
    fmt::print("  data        {}{}\n", bytesText(catalog.totalBytes()),
               summary.optimizerBytes
                   ? fmt::format(" ({} of it optimizer state)", bytesText(summary.optimizerBytes))
                   : "");
    fmt::print("  files       {}, written by {}, {}\n", countText(catalog.files().size()),
               counted(catalog.rankCount(), "rank"), bytesText(summary.fileBytes));
    for (const auto& [name, share] : summary.dtypes) {
        fmt::print("  {:<11} {} in {}\n", name, bytesText(share.bytes), counted(share.tensors, "tensor"));
    }
    for (const QuantizedShare& share : summary.quantized) {
        fmt::print("  quantized   {}, {} in {}: {}\n", counted(share.weights, "weight"),
                   bytesText(share.bytes), counted(share.tensors, "tensor"), printable(share.title));
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
        "Examples:\n  shardscope info /checkpoints/step-1000\n  shardscope info /checkpoints/step-1000 "
        "--ranks\n  shardscope info /checkpoints --level files");
    auto options = std::make_shared<InfoOptions>();
    verb->add_option("path", options->path,
                     "Checkpoint: a directory, a file, or ssh://host/path; or the directory of a run")
        ->required()
        ->type_name("PATH");
    CLI::Option* ranks = verb->add_flag("--ranks", options->ranks,
                                        "What each rank holds: its place on the mesh, tensors, bytes "
                                        "(parameters, optimizer), files; and the sums");
    verb->add_flag("--csv", options->csv, "Comma-separated values, of --ranks")->needs(ranks);
    addJudging(*verb, options->how,
               "Judge each step of a run: metadata, files or values (default: show what is known already)");
    addCommon(*verb, context, true);
    verb->callback([&context, options, verb] {
        options->judge = verb->count("--level") > 0;
        context.verb = [&context, options] { return info(context, *options); };
    });
}

}  // namespace shardscope::cli
