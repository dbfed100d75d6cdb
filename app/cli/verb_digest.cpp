#include <algorithm>

#include <fmt/format.h>

#include "cli/application.h"
#include "cli/part_option.h"
#include "cli/text.h"
#include "execute/part_reading.h"

namespace shardscope::cli {
namespace {

struct DigestOptions {
    std::string path;
    std::string pattern = "*";
    std::string algorithm = "tile";
    PartRequest parts;
};

DigestKind kindOf(const std::string& algorithm) {
    if (algorithm == "sha256") return DigestKind::sha256;
    return algorithm == "crc32" ? DigestKind::crc32 : DigestKind::tile;
}

void printDigests(const Context& context, const Catalog& catalog, const std::string& algorithm,
                  DigestTexts& digests) {
    std::sort(digests.begin(), digests.end());
    if (context.json) {
        Json json{{"schema", "shardscope.digest/1"}, {"algorithm", algorithm}, {"tensors", Json::object()}};
        for (const auto& [t, hex] : digests)
            json["tensors"][std::string(catalog.name(t))] = hex;
        printJson(json);
        return;
    }
    for (const auto& [t, hex] : digests)
        fmt::print("{}  {}\n", hex, printable(catalog.name(t)));
}

Result<int> digest(const Context& context, const DigestOptions& options) {
    SHARDSCOPE_TRY(checkRecords(context, options.parts, options.path));
    std::optional<Parts> parts;
    if (options.parts.given()) {
        SHARDSCOPE_ASSIGN(parts, partsOf(options.parts));
    }
    SHARDSCOPE_ASSIGN(const Checkpoint checkpoint, context.open(options.path));
    const Catalog& catalog = checkpoint.catalog();
    SHARDSCOPE_ASSIGN(const NamePattern pattern, NamePattern::parse(options.pattern));
    // Of chosen tensors those that can be read have a digest; that of all is one of the whole checkpoint.
    if (options.pattern == "*") SHARDSCOPE_TRY(checkComplete(catalog, checkpoint.path, true));
    std::vector<TensorId> ids;
    for (TensorId t = 0; t < catalog.tensorCount(); ++t) {
        if (pattern.matches(catalog.name(t))) ids.push_back(t);
    }
    const DigestKind kind = kindOf(options.algorithm);
    ReadInParts done;
    DigestTexts digests;
    {
        Work work(context, catalog.memoryBytes());
        SHARDSCOPE_TRY(work.start());
        if (!parts) {
            SHARDSCOPE_ASSIGN(digests, digestTexts(*checkpoint.reader, ids, kind, work.resources()));
        } else {
            PartReading reading = digestReading(*checkpoint.reader, ids, kind);
            reading.records = options.parts.records;
            reading.words = fmt::format("digest\n{}\n{}", options.pattern, options.algorithm);
            SHARDSCOPE_ASSIGN(done, readInParts(reading, *parts, work.resources()));
            if (done.found) {
                SHARDSCOPE_ASSIGN(digests, finishDigests(*checkpoint.reader, ids, kind, *done.found));
            }
        }
    }
    if (parts && !done.found) {
        sayPart(context, *done.part, parts->finish, "says the digests");
        return 0;
    }
    printDigests(context, catalog, options.algorithm, digests);
    if (done.found) SHARDSCOPE_TRY(removeRecords(*done.found));
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
        "cells) is the fastest, and the only one for which parts cut large tensors.");
    auto options = std::make_shared<DigestOptions>();
    verb->add_option("path", options->path, "Checkpoint: a directory, a file, or ssh://host/path")
        ->required()
        ->type_name("PATH");
    verb->add_option("glob", options->pattern, "Only names that match")->type_name("GLOB");
    verb->add_option("--algorithm", options->algorithm, "tile (default), sha256 or crc32")
        ->check(CLI::IsMember({"tile", "sha256", "crc32"}).description(""))
        ->type_name("NAME");
    addReadingWords(*verb, options->parts, "Say the digests of what all parts have read");
    addCommon(*verb, context, true);
    verb->callback(
        [&context, options] { context.verb = [&context, options] { return digest(context, *options); }; });
}

}  // namespace shardscope::cli
