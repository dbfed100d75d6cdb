#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "cli/application.h"
#include "cli/json.h"
#include "cli/text.h"

namespace shardscope::cli {
namespace {

struct Module {
    std::string name;
    uint64_t tensors = 0, bytes = 0;
};

// Bytes by the first components of the names: as deep as it takes to get beyond a single common prefix.
std::vector<Module> biggestModules(const Catalog& catalog) {
    for (int depth = 1; depth <= 4; ++depth) {
        std::map<std::string, Module, std::less<>> modules;
        for (TensorId t = 0; t < catalog.tensorCount(); ++t) {
            std::string_view name = catalog.name(t);
            size_t end = 0;
            for (int i = 0; i < depth && end != std::string_view::npos; ++i)
                end = name.find('.', end + (i ? 1 : 0));
            const std::string_view prefix = name.substr(0, end);
            auto it = modules.find(prefix);
            if (it == modules.end())
                it = modules.emplace(std::string(prefix), Module{std::string(prefix), 0, 0}).first;
            ++it->second.tensors;
            if (catalog.aliasOf(t) == kNone) it->second.bytes += catalog.bytes(t);
        }
        if (modules.size() > 4 || depth == 4 || modules.size() == catalog.tensorCount()) {
            std::vector<Module> list;
            for (auto& [name, module] : modules)
                list.push_back(std::move(module));
            std::stable_sort(list.begin(), list.end(),
                             [](const Module& a, const Module& b) { return a.bytes > b.bytes; });
            if (list.size() > 8) list.resize(8);
            return list;
        }
    }
    return {};
}

Result<int> info(const Context& context, const std::string& path) {
    SHARDSCOPE_ASSIGN(const Checkpoint checkpoint, context.open(path));
    const Catalog& catalog = checkpoint.catalog();
    const std::string elsewhere = checkpoint.reader->dataElsewhere();
    const std::optional<Mesh> mesh = meshOf(catalog);

    struct Share {
        uint64_t tensors = 0, bytes = 0;
    };
    std::map<std::string, Share> dtypes;
    uint64_t optimizerBytes = 0;
    for (TensorId t = 0; t < catalog.tensorCount(); ++t) {
        Share& share = dtypes[std::string(dtypeName(catalog.dtype(t)))];
        ++share.tensors;
        if (catalog.aliasOf(t) != kNone) continue;
        share.bytes += catalog.bytes(t);
        if (catalog.role(t) == Role::optimizer) optimizerBytes += catalog.bytes(t);
    }
    const std::vector<Module> modules = biggestModules(catalog);
    uint64_t fileBytes = 0;
    for (const FileInfo& file : catalog.files())
        fileBytes += file.size;

    if (context.json) {
        Json json;
        json["schema"] = "shardscope.info/1";
        json["path"] = context.shown(path);
        json["format"] = catalog.format();
        json["variant"] = catalog.variant();
        json["writer"] = catalog.writer();
        if (!elsewhere.empty()) json["data_elsewhere"] = elsewhere;
        json["totals"] = {{"tensors", catalog.tensorCount()},    {"parameters", catalog.totalParameters()},
                          {"bytes", catalog.totalBytes()},       {"chunks", catalog.chunkCount()},
                          {"objects", catalog.objects().size()}, {"files", catalog.files().size()},
                          {"ranks", catalog.rankCount()}};
        json["dtypes"] = Json::object();
        for (const auto& [name, share] : dtypes)
            json["dtypes"][name] = {{"tensors", share.tensors}, {"bytes", share.bytes}};
        json["mesh"] = meshJson(mesh);
        json["modules"] = Json::array();
        for (const Module& module : modules)
            json["modules"].push_back(
                {{"name", module.name}, {"tensors", module.tensors}, {"bytes", module.bytes}});
        json["specials"] = Json::array();
        for (const SpecialTensor& special : catalog.specials()) {
            json["specials"].push_back({{"name", special.name},
                                        {"kind", special.kind},
                                        {"dtype", special.dtype},
                                        {"shape", dimsJson(special.shape)}});
        }
        json["notes"] = Json::array();
        for (const Note& note : catalog.notes()) {
            json["notes"].push_back(
                {{"rule", note.rule}, {"severity", severityName(note.severity)}, {"message", note.message}});
        }
        printJson(json);
        return 0;
    }

    const Style style{context.colored()};
    fmt::print("{}\n", style.bold(printable(context.shown(path))));
    std::string format = checkpoint.format->info().title;
    if (!catalog.variant().empty()) format += ", " + catalog.variant();
    fmt::print("  format      {}\n", format);
    if (!elsewhere.empty()) fmt::print("  read from   {}; the data is not here\n", printable(elsewhere));
    if (!catalog.writer().empty()) fmt::print("  written by  {}\n", printable(catalog.writer()));
    fmt::print("  tensors     {} in {} chunks, {} objects\n", countText(catalog.tensorCount()),
               countText(catalog.chunkCount()), countText(catalog.objects().size()));
    fmt::print("  elements    {}\n", countText(catalog.totalParameters()));
    fmt::print("  data        {}{}\n", bytesText(catalog.totalBytes()),
               optimizerBytes ? fmt::format(" ({} of it optimizer state)", bytesText(optimizerBytes)) : "");
    fmt::print("  files       {} of {} ranks, {}\n", countText(catalog.files().size()),
               countText(catalog.rankCount()), bytesText(fileBytes));
    for (const auto& [name, share] : dtypes) {
        fmt::print("  {:<11} {} in {} tensors\n", name, bytesText(share.bytes), countText(share.tensors));
    }
    if (mesh) {
        fmt::print("\n{} {} ({})\n", style.bold("mesh"), formatMesh(*mesh),
                   mesh->source == Mesh::Source::declared ? "declared" : "inferred");
        for (const std::string& line : mesh->evidence)
            fmt::print("  {}\n", printable(line));
    }
    if (!modules.empty()) {
        fmt::print("\n{}\n", style.bold("biggest modules"));
        Table table({{"module", Table::Align::left},
                     {"tensors", Table::Align::right},
                     {"bytes", Table::Align::right}});
        for (const Module& module : modules)
            table.add({printable(module.name), countText(module.tensors), bytesText(module.bytes)});
        table.print(stdout, style);
    }
    if (!catalog.specials().empty()) {
        fmt::print("\n{}\n", style.bold("tensors that are not plain arrays"));
        for (const SpecialTensor& special : catalog.specials()) {
            fmt::print("  {}: {} {} {}\n", printable(special.name), special.kind, special.dtype,
                       formatDims(special.shape));
        }
    }
    if (!catalog.notes().empty()) {
        fmt::print("\n{}\n", style.bold("notes"));
        size_t shown = 0;
        for (const Note& note : catalog.notes()) {
            if (++shown > 20) {
                fmt::print("  ... and {} more (all of them with --json)\n", catalog.notes().size() - 20);
                break;
            }
            const std::string severity(severityName(note.severity));
            const std::string word = note.severity == Severity::error     ? style.red(severity)
                                     : note.severity == Severity::warning ? style.yellow(severity)
                                                                          : severity;
            fmt::print("  {} {}: {}\n", word, note.rule, printable(note.message));
        }
    }
    return 0;
}

}  // namespace

void addInfo(CLI::App& app, Context& context) {
    CLI::App* verb =
        app.add_subcommand("info", "What a checkpoint is and holds: format, totals, dtypes, mesh, modules");
    verb->footer("Example:\n  shardscope info /checkpoints/step-1000");
    auto path = std::make_shared<std::string>();
    verb->add_option("path", *path, "Checkpoint: a directory, a file, or ssh://host/path")
        ->required()
        ->type_name("PATH");
    addCommon(*verb, context, false);
    verb->callback([&context, path] { context.verb = [&context, path] { return info(context, *path); }; });
}

}  // namespace shardscope::cli
