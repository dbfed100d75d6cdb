#include <algorithm>

#include <fmt/format.h>

#include "cli/application.h"
#include "cli/json.h"
#include "cli/text.h"

namespace shardscope::cli {
namespace {

struct DigestOptions {
    std::string path;
    std::string pattern = "*";
    std::string algorithm = "tile";
};

using Digests = std::vector<std::pair<TensorId, std::string>>;

// Digests over the tensor's bytes in order (sha256, crc32): tensors in parallel, tiles of one in order.
Result<Digests> streamDigests(const Checkpoint& checkpoint, const std::vector<TensorId>& ids, bool sha256,
                              const Resources& resources) {
    Digests out;
    std::mutex mutex;
    const Catalog& catalog = checkpoint.catalog();
    std::map<TensorId, std::unique_ptr<StreamDigest>> open;
    ScanOptions options;
    options.ordered = true;
    SHARDSCOPE_TRY(
        scanTensors(*checkpoint.reader, ids, options, resources, [&](const TileView& tile) -> Status {
            StreamDigest* digest = nullptr;
            {
                std::lock_guard lock(mutex);
                auto& slot = open[tile.tensor];
                if (!slot) slot = sha256 ? makeSha256() : makeCrc32();
                digest = slot.get();
            }
            digest->update(tile.bytes);
            if (tile.firstElement + tile.elements == catalog.elements(tile.tensor)) {
                std::lock_guard lock(mutex);
                out.emplace_back(tile.tensor, digest->hex());
                open.erase(tile.tensor);
            }
            return {};
        }));
    // Tensors without elements have no tiles; their digest is that of nothing.
    for (TensorId t : ids) {
        if (catalog.elements(t) == 0) out.emplace_back(t, (sha256 ? makeSha256() : makeCrc32())->hex());
    }
    return out;
}

Result<int> digest(const Context& context, const DigestOptions& options) {
    SHARDSCOPE_ASSIGN(const Checkpoint checkpoint, context.open(options.path));
    const Catalog& catalog = checkpoint.catalog();
    SHARDSCOPE_ASSIGN(const NamePattern pattern, NamePattern::parse(options.pattern));
    // Of chosen tensors those that can be read have a digest; that of all is one of the whole checkpoint.
    if (options.pattern == "*") SHARDSCOPE_TRY(checkComplete(catalog, checkpoint.path, true));
    std::vector<TensorId> ids;
    for (TensorId t = 0; t < catalog.tensorCount(); ++t) {
        if (pattern.matches(catalog.name(t))) ids.push_back(t);
    }
    Digests digests;
    {
        Work work(context, catalog.memoryBytes());
        SHARDSCOPE_TRY(work.start());
        if (options.algorithm == "tile") {
            SHARDSCOPE_ASSIGN(const auto tiles, digestTensors(*checkpoint.reader, ids, {}, work.resources()));
            for (const TensorDigest& d : tiles)
                digests.emplace_back(d.tensor, d.digest.hex());
        } else {
            SHARDSCOPE_ASSIGN(
                digests, streamDigests(checkpoint, ids, options.algorithm == "sha256", work.resources()));
        }
    }
    std::sort(digests.begin(), digests.end());
    if (context.json) {
        Json json{
            {"schema", "shardscope.digest/1"}, {"algorithm", options.algorithm}, {"tensors", Json::object()}};
        for (const auto& [t, hex] : digests)
            json["tensors"][std::string(catalog.name(t))] = hex;
        printJson(json);
        return 0;
    }
    for (const auto& [t, hex] : digests)
        fmt::print("{}  {}\n", hex, printable(catalog.name(t)));
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
        "cells) is the fastest.");
    auto options = std::make_shared<DigestOptions>();
    verb->add_option("path", options->path, "Checkpoint: a directory, a file, or ssh://host/path")
        ->required()
        ->type_name("PATH");
    verb->add_option("glob", options->pattern, "Only names that match")->type_name("GLOB");
    verb->add_option("--algorithm", options->algorithm, "tile (default), sha256 or crc32")
        ->check(CLI::IsMember({"tile", "sha256", "crc32"}).description(""))
        ->type_name("NAME");
    addCommon(*verb, context, true);
    verb->callback(
        [&context, options] { context.verb = [&context, options] { return digest(context, *options); }; });
}

}  // namespace shardscope::cli
