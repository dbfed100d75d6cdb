#include "formats/safetensors/safetensors.h"

#include <fmt/format.h>

#include "base/units.h"
#include "formats/safetensors/layouts.h"
#include "formats/tensor_files.h"

namespace shardscope {

namespace {

Probe probeFile(const Source& source) {
    if (safetensors::isIndexFile(source.entry)) return {Probe::Match::certain, "is a safetensors index"};
    // Files in a cache have no telling name: a length that fits, then a JSON object.
    const auto file = source.directory->openFile(source.entry);
    if (file.ok() && isSafetensorsStart(**file))
        return {Probe::Match::certain, "starts with a safetensors header"};
    if (safetensors::isTensorFile(source.entry)) return {Probe::Match::possible, "is named .safetensors"};
    return {};
}

Probe probe(const Source& source) {
    if (!source.entry.empty()) return probeFile(source);
    size_t tensorFiles = 0;
    bool dcp = false;
    bool sharded = false;
    for (const DirectoryEntry& entry : source.entries) {
        if (entry.kind == DirectoryEntry::Kind::directory) sharded |= entry.name == "sharded";
        if (entry.kind != DirectoryEntry::Kind::file) continue;
        dcp |= entry.name == ".metadata";
        if (safetensors::isIndexFile(entry.name))
            return {dcp ? Probe::Match::possible : Probe::Match::certain, "has " + entry.name};
        tensorFiles += safetensors::isTensorFile(entry.name);
    }
    if (tensorFiles > 0) {
        return {dcp ? Probe::Match::possible : Probe::Match::certain,
                fmt::format("has {}", counted(tensorFiles, ".safetensors file"))};
    }
    if (sharded && !dcp) {
        if (const auto inside = source.directory->list("sharded"); inside.ok()) {
            for (const DirectoryEntry& entry : *inside) {
                if (safetensors::isTensorFile(entry.name))
                    return {Probe::Match::possible, "has sharded/" + entry.name};
            }
        }
    }
    return {};
}

}  // namespace

const Format& safetensorsFormat() {
    static const Format format{
        .about = {.name = "safetensors",
                  .title = "safetensors (Hugging Face)",
                  .synonyms = {"hf", "huggingface"},
                  .suffixes = {"safetensors"},
                  .options = {{.name = std::string(safetensors::kWeightMap),
                               .value = "HOW",
                               .help =
                                   "What *.index.json says of which file holds a tensor: use (default), or "
                                   "ignore (read what the files themselves hold)",
                               .title = "Index of files",
                               .unset = "use",
                               .choices = {{"use", "the index says which file holds a tensor"},
                                           {"ignore", "the files say what they hold"}}}},
                  .reads = true,
                  .writes = true,
                  .generations = {"one file", "several files with *.safetensors.index.json",
                                  "several files without an index",
                                  "torch HuggingFaceStorageWriter, sharded over ranks (DCP_SHARDING_INFO)"},
                  .variants = {"single", "sharded", "dcp-sharded"},
                  .models = {{"hf", "", "hf"}, {"huggingface", "", "hf"}},
                  .shards = true,
                  .wholeByDefault = true,
                  .assets = ".",
                  .fileVariant = "single"},
        .probe = probe,
        .open = safetensors::openCheckpoint,
        .cannotHold = safetensors::cannotHold,
        .layout = safetensors::makeLayout};
    return format;
}

}  // namespace shardscope
