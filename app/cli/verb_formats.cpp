#include <fmt/format.h>
#include <fmt/ranges.h>

#include "answers/documents.h"
#include "cli/application.h"
#include "cli/text.h"

namespace shardscope::cli {
namespace {

Result<int> formats(const Context& context) {
    if (context.json) {
        printJson(formatsJson());
        return 0;
    }
    const Style style{context.colored()};
    for (const Format* format : builtinFormats()) {
        const FormatInfo& info = format->info();
        fmt::print("{}  {}\n", style.bold(info.name), info.title);
        fmt::print("  {}\n", info.reads && info.writes ? "read and written"
                             : info.reads              ? "read"
                                                       : "written");
        for (const std::string& generation : info.generations)
            fmt::print("  reads: {}\n", generation);
        if (!info.variants.empty()) fmt::print("  --variant: {}\n", fmt::join(info.variants, ", "));
        for (const FormatOption& option : format->options())
            fmt::print("  {} {}\n", option.name, option.value);
        std::string holds;
        const auto add = [&](bool yes, const char* what) {
            if (yes) holds += fmt::format("{}{}", holds.empty() ? "" : ", ", what);
        };
        add(info.shards, "shards");
        add(info.objects, "non-tensor objects");
        add(info.aliases, "tied tensors");
        add(info.nesting, "nested paths");
        fmt::print("  holds: {}\n", holds.empty() ? "plain tensors" : "tensors, " + holds);
    }
    return 0;
}

}  // namespace

void addFormats(CLI::App& app, Context& context) {
    CLI::App* verb =
        app.add_subcommand("formats", "Every format: reads, writes, generations, what it can hold");
    verb->footer("Example:\n  shardscope formats --json");
    verb->add_flag("--json", context.json, "One JSON document on stdout");
    verb->callback([&context] { context.verb = [&context] { return formats(context); }; });
}

}  // namespace shardscope::cli
