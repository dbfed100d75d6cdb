#include <fmt/format.h>

#include "answers/extraction.h"
#include "cli/application.h"
#include "cli/output_file.h"
#include "cli/text.h"

namespace shardscope::cli {
namespace {

struct ExtractOptions {
    std::string path;
    ExtractRequest what;
};

Result<int> extract(const Context& context, const ExtractOptions& options) {
    const ExtractRequest& what = options.what;
    SHARDSCOPE_TRY(checkOutputFile(what.file, options.path, what.overwrite ? Replace::yes : Replace::no));
    SHARDSCOPE_ASSIGN(const Checkpoint checkpoint, context.open(options.path));
    const Catalog& catalog = checkpoint.catalog();
    SHARDSCOPE_ASSIGN(const Extracted done, extractTensor(context, checkpoint, what));
    if (context.json) {
        printJson(extractJson(catalog, what, done));
        return 0;
    }
    fmt::print("{}: {} {}, {}\n", printable(what.file), dtypeName(catalog.dtype(done.tensor)),
               formatDims(catalog.shape(done.tensor)), bytesText(catalog.bytes(done.tensor)));
    if (!done.note.empty()) fmt::print(stderr, "note: {}\n", done.note);
    return 0;
}

}  // namespace

void addExtract(CLI::App& app, Context& context) {
    CLI::App* verb = app.add_subcommand(
        "extract", "One tensor into a .npy, .safetensors or raw file (by the file's ending)");
    verb->footer("Example:\n  shardscope extract /checkpoints/step-1000 model.embed.weight embed.npy");
    auto options = std::make_shared<ExtractOptions>();
    verb->add_option("path", options->path, "Checkpoint: a directory or a file")
        ->required()
        ->type_name("PATH");
    verb->add_option("tensor", options->what.tensor, "Full name of the tensor")
        ->required()
        ->type_name("TENSOR");
    verb->add_option("file", options->what.file,
                     "Destination: .npy, .safetensors, or anything else for raw little-endian bytes")
        ->required()
        ->type_name("FILE");
    verb->add_flag("--overwrite", options->what.overwrite, "Replace an existing file");
    addCommon(*verb, context, true);
    verb->callback(
        [&context, options] { context.verb = [&context, options] { return extract(context, *options); }; });
}

}  // namespace shardscope::cli
