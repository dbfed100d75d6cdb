#include <algorithm>

#include <fmt/format.h>

#include "cli/application.h"
#include "cli/one_of.h"
#include "cli/part_option.h"
#include "cli/text.h"

namespace shardscope::cli {
namespace {

struct DigestOptions {
    DigestRequest what;
    PartRequest parts;
};

void printDigests(const Context& context, const Catalog& catalog, const std::string& algorithm,
                  DigestTexts& digests) {
    if (context.json) return printJson(digestJson(catalog, algorithm, digests));
    std::ranges::sort(digests);
    for (const auto& [t, hex] : digests)
        fmt::print("{}  {}\n", hex, printable(catalog.name(t)));
}

Result<int> digest(const Context& context, const DigestOptions& options) {
    SHARDSCOPE_ASSIGN(const Execution by, readersOf(context, options.parts, options.what.path));
    SHARDSCOPE_ASSIGN(const Checkpoint checkpoint, context.open(options.what.path));
    SHARDSCOPE_ASSIGN(Digested done,
                      digestOpen(context, checkpoint, options.what, by, options.parts.records));
    if (done.read.part && !done.read.found) {
        sayPart(context, *done.read.part, std::get<Parts>(by).finish, "says the digests");
        return 0;
    }
    printDigests(context, checkpoint.catalog(), options.what.algorithm, done.digests);
    if (done.read.found) SHARDSCOPE_TRY(removeRecords(*done.read.found));
    return 0;
}

}  // namespace

void addDigest(CLI::App& app, Context& context) {
    CLI::App* verb =
        app.add_subcommand("digest", "A digest of each tensor that depends on neither format nor sharding");
    verb->footer(
        "Examples:\n  shardscope digest /checkpoints/step-1000 > before.txt\n  shardscope digest "
        "model.safetensors '*.weight' --algorithm sha256\n\n"
        "sha256 and crc32 are those of the tensor's row-major little-endian bytes; tile (XXH3-128 over 1 MiB "
        "cells) is the fastest, and the only one of which several parts can share a large tensor.");
    auto options = std::make_shared<DigestOptions>();
    verb->add_option("path", options->what.path, "Checkpoint: a directory, a file, or ssh://host/path")
        ->required()
        ->type_name("PATH");
    verb->add_option("glob", options->what.pattern, "Only names that match")->type_name("GLOB");
    verb->add_option("--algorithm", options->what.algorithm, "tile (default), sha256 or crc32")
        ->check(oneOf({"tile", "sha256", "crc32"}))
        ->type_name("NAME");
    addReadingWords(*verb, context, options->parts, "Say the digests of what all parts have read");
    addDequantize(*verb, context);
    addCommon(*verb, context, true);
    verb->callback(
        [&context, options] { context.verb = [&context, options] { return digest(context, *options); }; });
}

}  // namespace shardscope::cli
