#include <fmt/format.h>

#include "answers/documents.h"
#include "base/units.h"
#include "cli/application.h"
#include "cli/remote.h"
#include "cli/text.h"

namespace shardscope::cli {
namespace {

struct IndexOptions {
    std::string path, output;
    bool overwrite = false;
};

Result<int> index(const Context& context, const IndexOptions& options) {
    SHARDSCOPE_ASSIGN(const Checkpoint checkpoint, context.open(options.path));
    if (context.away()) {
        SHARDSCOPE_ASSIGN(const std::string bytes, indexBytes(checkpoint, context.stop));
        std::fwrite(bytes.data(), 1, bytes.size(), stdout);
        return 0;
    }
    const std::string path = context.shown(options.path);
    const std::string file = options.output.empty() ? indexName(path) : options.output;
    SHARDSCOPE_ASSIGN(const uint64_t bytes, writeIndex(checkpoint, file, options.overwrite, context.stop));
    return printIndexed(context, path, file, bytes, checkpoint.catalog());
}

}  // namespace

int printIndexed(const Context& context, const std::string& path, const std::string& file, uint64_t bytes,
                 const Catalog& catalog) {
    if (context.json) {
        printJson(indexJson(path, file, bytes, catalog));
        return 0;
    }
    fmt::print("{}: {}, {} in {}, {}\n", printable(file), bytesText(bytes),
               counted(catalog.tensorCount(), "tensor"), counted(catalog.chunkCount(), "chunk"),
               counted(catalog.objects().size(), "object"));
    return 0;
}

void addIndex(CLI::App& app, Context& context) {
    CLI::App* verb = app.add_subcommand(
        "index", "Write what the metadata says into one small file that opens like the checkpoint, anywhere");
    verb->footer(
        "Example:\n  shardscope index /checkpoints/step-1000 -o step-1000.ssidx\n"
        "  shardscope info step-1000.ssidx\n\n"
        "An index holds no tensor data: info, ls, show, map, validate --level metadata, diff and plan read "
        "it.");
    auto options = std::make_shared<IndexOptions>();
    verb->add_option("path", options->path, "Checkpoint: a directory, a file, or ssh://host/path")
        ->required()
        ->type_name("PATH");
    verb->add_option("-o,--output", options->output,
                     "File to write (default: the checkpoint's name with .ssidx, in the current directory)")
        ->type_name("FILE");
    verb->add_flag("--overwrite", options->overwrite, "Replace the file when it is already there");
    addCommon(*verb, context, false);
    verb->callback(
        [&context, options] { context.verb = [&context, options] { return index(context, *options); }; });
}

}  // namespace shardscope::cli
