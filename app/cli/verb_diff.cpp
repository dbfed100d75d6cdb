#include <fmt/format.h>

#include "answers/documents.h"
#include "base/units.h"
#include "cli/application.h"
#include "cli/convert.h"
#include "cli/text.h"
#include "survey/placement_change.h"

namespace shardscope::cli {

namespace {

struct DiffCommand {
    std::string a, b;
    ConversionRequest request;  // what it shares with a conversion
    bool values = false, csv = false, moves = false;
    size_t top = 0;  // most rows of values; 0 = all
};

using A = Table::Align;

Table valueTable(const std::vector<ValueDiff>& values) {
    Table table({{"values", A::left},
                 {"differ", A::right},
                 {"max abs", A::right},
                 {"max relative", A::right},
                 {"max ULP", A::right},
                 {"cosine", A::right},
                 {"L2", A::right},
                 {"relative L2", A::right}});
    for (const ValueDiff& v : values)
        table.add({printable(v.name), countText(v.different), fmt::format("{:.4g}", v.maxAbs),
                   fmt::format("{:.4g}", v.maxRelative), countText(v.maxUlp),
                   fmt::format("{:.9g}", v.cosine()), fmt::format("{:.4g}", v.l2()),
                   fmt::format("{:.4g}", v.relativeL2())});
    return table;
}

// All differences as one table; numbers read back to the same values.
Table csvTable(const DiffReport& report) {
    std::vector<std::pair<std::string, A>> columns;
    for (const char* name : {"difference", "name", "a", "b", "different", "max_abs", "max_rel", "max_ulp",
                             "cosine", "l2", "rel_l2"})
        columns.emplace_back(name, A::left);
    Table table(columns);
    const auto add = [&](std::vector<std::string> row) {
        row.resize(columns.size());
        table.add(std::move(row));
    };
    for (const std::string& name : report.onlyA)
        add({"only_a", name});
    for (const std::string& name : report.onlyB)
        add({"only_b", name});
    for (const auto& [kind, list] :
         {std::pair("shape", &report.shape), {"dtype", &report.dtype}, {"placement", &report.placement}})
        for (const DiffEntry& e : *list)
            add({kind, e.name, e.a, e.b});
    for (const ValueDiff& v : report.values)
        add({"values", v.name, "", "", std::to_string(v.different), fmt::format("{}", v.maxAbs),
             fmt::format("{}", v.maxRelative), std::to_string(v.maxUlp), fmt::format("{}", v.cosine()),
             fmt::format("{}", v.l2()), fmt::format("{}", v.relativeL2())});
    return table;
}

void printLists(const DiffReport& report, const Style& style) {
    for (const std::string& name : report.onlyA)
        fmt::print("{} {}\n", style.red("only in A:"), printable(name));
    for (const std::string& name : report.onlyB)
        fmt::print("{} {}\n", style.green("only in B:"), printable(name));
    for (const DiffEntry& e : report.shape)
        fmt::print("{} {}: {} -> {}\n", style.yellow("shape:"), printable(e.name), e.a, e.b);
    for (const DiffEntry& e : report.dtype)
        fmt::print("{} {}: {} -> {}\n", style.yellow("dtype:"), printable(e.name), e.a, e.b);
    for (const DiffEntry& e : report.placement)
        fmt::print("{} {}: {} -> {}\n", style.dim("placement:"), printable(e.name), e.a, e.b);
}

void printSummary(const DiffReport& report, size_t hidden) {
    if (hidden > 0) fmt::print("... and {} more tensors whose values differ less\n", countText(hidden));
    if (const auto& all = report.summary) {
        fmt::print("values: {} compared, {} equal, {} different", counted(report.compared, "tensor"),
                   countText(all->equal), countText(all->different));
        if (all->different > 0)
            fmt::print(
                "; at most {:.4g} absolute, {:.4g} relative; L2 of the difference {:.4g}, {:.4g} of A's",
                all->maxAbs, all->maxRelative, all->l2, all->relativeL2);
        fmt::print("\n");
    }
}

void printMoves(const PlacementChange& change, const Style& style) {
    Table table({{"module", A::left},
                 {"tensors", A::right},
                 {"stays", A::right},
                 {"arrives", A::right},
                 {"leaves", A::right}});
    for (const PlacementChange::Row& row : change.rows())
        table.add({printable(row.name), countText(row.tensors), bytesText(row.sum.stays),
                   bytesText(row.sum.arrives), bytesText(row.sum.leaves)});
    table.print(stdout, style);
    fmt::print("{}\n", change.headline());
}

Result<int> diff(const Context& context, const DiffCommand& command) {
    SHARDSCOPE_ASSIGN(DiffOptions options, diffOptions(command.request));
    options.values = command.values;
    if (command.top > 0 && !options.values)
        return makeError(ErrorCode::usage, "--top is about values, so it needs --values");
    SHARDSCOPE_ASSIGN(const Checkpoint a, context.open(command.a));
    SHARDSCOPE_ASSIGN(const Checkpoint b, context.open(command.b));
    SHARDSCOPE_ASSIGN(DiffReport report, diffOpen(context, a, b, options));
    const bool equal = report.equal();
    std::shared_ptr<const PlacementChange> change;
    if (command.moves) {
        if (!command.request.rename.empty() || command.csv)
            return makeError(ErrorCode::usage, "--moves excludes --rename and --csv");
        SHARDSCOPE_ASSIGN(change, PlacementChange::of(report.mapped ? *report.mapped : a.catalog(),
                                                      b.catalog(), report, context.stop));
    }
    size_t hidden = 0;
    if (command.top > 0 && report.values.size() > command.top) {
        hidden = report.values.size() - command.top;
        report.values.erase(report.values.begin() + static_cast<ptrdiff_t>(command.top), report.values.end());
    }
    if (context.json) {
        Json json = diffJson(report);
        if (change) json["moves"] = movesJson(*change);
        printJson(json);
        return equal ? 0 : 1;
    }
    const Style style{context.colored()};
    // Beside a table for other programs what it does not hold is said apart.
    std::FILE* const beside = command.csv ? stderr : stdout;
    if (!report.recipe.empty()) fmt::print(stderr, "recipe: {}\n", printable(report.recipe));
    if (const std::string left = report.leftOutText(); !left.empty())
        fmt::print(beside, "left out: {}\n", left);
    if (command.csv) {
        csvTable(report).printCsv(stdout);
        return equal ? 0 : 1;
    }
    printLists(report, style);
    if (change) printMoves(*change, style);
    if (!report.values.empty()) valueTable(report.values).print(stdout, style);
    printSummary(report, hidden);
    if (!equal) return 1;
    fmt::print("equal: same names, shapes{} dtypes{}\n", report.valuesCompared() ? "," : " and",
               report.valuesCompared() ? " and values" : " (values not compared; --values does)");
    return 0;
}

}  // namespace

void addDiff(CLI::App& app, Context& context) {
    CLI::App* verb = app.add_subcommand(
        "diff", "What differs between two checkpoints, whatever their formats and shardings");
    verb->footer(
        "Examples:\n  shardscope diff run/step-100 model-hf/ --weights-only --values\n"
        "  shardscope diff before/ after.safetensors --values --rename '^model\\.='\n"
        "  shardscope diff iter_0001000/ model-hf/ --values --map llama-hf-from-megatron\n"
        "  shardscope diff step-1000/ step-2000/ --weights-only --values --top 20\n"
        "  shardscope diff model-fp8/ model-bf16/ --values --dequantize bf16\n\nExit code 1 when they "
        "differ; a different placement alone is not a difference. Patterns, recipe and rename rules are "
        "about "
        "names of A.");
    auto command = std::make_shared<DiffCommand>();
    verb->add_option("a", command->a, "First checkpoint")->required()->type_name("A");
    verb->add_option("b", command->b, "Second checkpoint")->required()->type_name("B");
    verb->add_flag("--values", command->values, "Compare values too; what differs most comes first");
    verb->add_option("--top", command->top, "Only the N tensors whose values differ most")
        ->check(CLI::PositiveNumber.description(""))
        ->type_name("N");
    verb->add_flag("--moves", command->moves, "Also what stays on its rank, arrives and leaves, by module");
    verb->add_flag("--csv", command->csv, "Comma-separated values");
    addFields(*verb, context, command->request, {"What"});
    addCommon(*verb, context, true);
    verb->callback(
        [&context, command] { context.verb = [&context, command] { return diff(context, *command); }; });
}

}  // namespace shardscope::cli
