#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>

#include <fmt/format.h>

#include "answers/documents.h"
#include "base/units.h"
#include "cli/application.h"
#include "cli/text.h"
#include "model/coverage.h"
#include "model/infer_mesh.h"

namespace shardscope::cli {
namespace {

struct ShowOptions {
    std::string path, tensor;
    bool values = false;
};

void printStatistics(const TensorStatistics& s, const Style& style) {
    fmt::print("\n{}\n", style.bold("values"));
    if (s.finite == 0) {
        fmt::print("  no finite values\n");
    } else {
        fmt::print("  min {:g}  max {:g}  mean {:g}  std {:g}\n", s.min, s.max, s.mean, s.deviation);
    }
    fmt::print("  NaN {}  Inf {}  zero {} of {}\n", countText(s.nan), countText(s.inf), countText(s.zero),
               countText(s.elements));
    const uint64_t most = s.histogram.empty() ? 0 : *std::max_element(s.histogram.begin(), s.histogram.end());
    if (most == 0) return;
    constexpr const char* levels[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    std::string bars;
    for (uint64_t count : s.histogram)
        bars +=
            levels[count == 0
                       ? 0
                       : 1 + static_cast<int>(7.0 * static_cast<double>(count) / static_cast<double>(most))];
    fmt::print("  {:g} |{}| {:g}\n", s.min, bars, s.max);
}

Result<int> show(const Context& context, const ShowOptions& options) {
    SHARDSCOPE_ASSIGN(const Checkpoint checkpoint, context.open(options.path));
    const Catalog& catalog = checkpoint.catalog();
    SHARDSCOPE_ASSIGN(const TensorId t, findTensor(catalog, options.tensor, options.path));
    const std::optional<Mesh> mesh = meshOf(catalog);
    const CoverageResult coverage = checkCoverage(catalog, t);
    const TensorCut cut = tensorCut(catalog, t);
    std::optional<TensorStatistics> statistics;
    if (options.values) {
        Work work(context, catalog.memoryBytes());
        SHARDSCOPE_TRY(work.start());
        SHARDSCOPE_ASSIGN(statistics, tensorStatistics(*checkpoint.reader, t, 64, work.resources()));
    }
    if (context.json) {
        Json json = showJson(catalog, t, {}, statistics ? &*statistics : nullptr);
        QuantizedParts(checkpoint).describe(json["tensor"], t);
        printJson(json);
        return 0;
    }
    const Style style{context.colored()};
    fmt::print("{}\n  {} {}, {}, {}\n", style.bold(printable(catalog.name(t))), dtypeName(catalog.dtype(t)),
               formatDims(catalog.shape(t)), bytesText(catalog.bytes(t)), roleName(catalog.role(t)));
    if (catalog.aliasOf(t) != kNone)
        fmt::print("  the same storage as {}\n", printable(catalog.name(catalog.aliasOf(t))));
    if (const std::string part = QuantizedParts(checkpoint).text(t); !part.empty())
        fmt::print("  {}\n", part);
    std::string pieces;
    for (size_t d = 0; d < cut.parts.size(); ++d) {
        if (cut.parts[d] > 1)
            pieces += fmt::format("{}{} along dim {}", pieces.empty() ? "" : ", ", cut.parts[d], d);
    }
    fmt::print("  placement: {}{}\n", pieces.empty() ? "whole" : "sharded in " + pieces,
               mesh ? fmt::format(" over mesh {}", formatMesh(*mesh)) : "");
    if (!coverage.whole()) {
        for (const Box& gap : coverage.gaps)
            fmt::print("  {} {}\n", style.red("missing"), formatBox(gap.offsets, gap.lengths));
        if (coverage.overlapCount)
            fmt::print("  {} {} of chunks with shared elements\n", style.red("overlap"),
                       counted(coverage.overlapCount, "pair"));
    }
    fmt::print("\n");
    using A = Table::Align;
    Table table(
        {{"rank", A::right}, {"place", A::left}, {"box", A::left}, {"file", A::left}, {"bytes", A::left}});
    for (ChunkId c = catalog.firstChunk(t); c < catalog.endChunk(t); ++c) {
        const ChunkInfo chunk = catalog.chunk(t, c);
        std::string place;
        if (mesh && chunk.rank != kNone && chunk.rank < mesh->ranks()) {
            const auto coordinates = mesh->coordinates(chunk.rank);
            for (size_t i = 0; i < coordinates.size(); ++i)
                place += fmt::format("{}{}={}", i ? " " : "", mesh->axes[i].name, coordinates[i]);
        }
        std::string box = formatBox(chunk.offsets, chunk.lengths);
        if (chunk.flat) box += fmt::format(" elements {}..{}", chunk.flat->start, chunk.flat->stop);
        for (const auto& [first, again] : coverage.replicas) {
            if (again == c) box += " (replica)";
        }
        table.add({chunk.rank == kNone ? "" : std::to_string(chunk.rank), place, box,
                   chunk.file == kNone ? "" : printable(catalog.files()[chunk.file].path),
                   fmt::format("{}..{}", chunk.offset, chunk.offset + chunk.length)});
    }
    table.print(stdout, style);
    if (statistics) printStatistics(*statistics, style);
    return 0;
}

}  // namespace

void addShow(CLI::App& app, Context& context) {
    CLI::App* verb = app.add_subcommand(
        "show", "One tensor: its placement over the mesh, every chunk, and with --values its statistics");
    verb->footer(
        "Examples:\n  shardscope show /checkpoints/step-1000 model.embed.weight --values\n"
        "  shardscope show model-fp8/ model.layers.0.mlp.up_proj.weight --values --dequantize bf16");
    auto options = std::make_shared<ShowOptions>();
    verb->add_option("path", options->path, "Checkpoint: a directory, a file, or ssh://host/path")
        ->required()
        ->type_name("PATH");
    verb->add_option("tensor", options->tensor, "Full name of the tensor")->required()->type_name("TENSOR");
    verb->add_flag("--values", options->values,
                   "Read it: min, max, mean, std, NaN, Inf and zero counts, histogram");
    addDequantize(*verb, context);
    addCommon(*verb, context, true);
    verb->callback(
        [&context, options] { context.verb = [&context, options] { return show(context, *options); }; });
}

}  // namespace shardscope::cli
