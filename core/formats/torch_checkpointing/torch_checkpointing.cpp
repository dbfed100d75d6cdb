#include "formats/torch_checkpointing/torch_checkpointing.h"

#include <algorithm>

#include "formats/open_files.h"
#include "formats/torch_checkpointing/item_files.h"
#include "formats/torch_checkpointing/layout.h"
#include "formats/torch_checkpointing/metadata.h"
#include "formats/torch_checkpointing/opener.h"

namespace shardscope {

namespace {

Probe probe(const Source& source) {
    using torch_checkpointing::kMetadataFile;
    if (!source.entry.empty() && source.entry != kMetadataFile) return {};
    if (source.hasFile(kMetadataFile) &&
        torch_checkpointing::isMetadataStart(startOf(*source.directory, kMetadataFile)))
        return {Probe::Match::certain, "has metadata.pkl"};
    if (source.entry.empty() && torch_checkpointing::holdsItemFiles(source))
        return {Probe::Match::certain, "has files of items and ranks, such as model_0.pt"};
    return {};
}

Result<std::unique_ptr<Reader>> open(const Source& source, const OpenOptions& options) {
    if (!source.entry.empty() && source.entry != torch_checkpointing::kMetadataFile)
        return unsupported("the files of all items and ranks are one checkpoint, this is one of them")
            .inFile(source.display)
            .withHint("name the directory that holds them");
    return torch_checkpointing::openItems(source, options);
}

}  // namespace

const Format& torchCheckpointingFormat() {
    static const Format format{
        .about = {.name = "torch-checkpointing",
                  .title = "torch_checkpointing (a file for each item and rank)",
                  .synonyms = {"torch_checkpointing", "tckpt"},
                  .before = {{"torch-ranks", "its files are those of ranks"},
                             {"safetensors", "its files may be safetensors"}},
                  .reads = true,
                  .writes = true,
                  .generations = {"torch_checkpointing 0.1 (metadata.pkl versions 1.0 and 2.0)"},
                  .variants = {"cuda", "cpu"},
                  .shards = true,
                  .replicas = true,
                  .objects = true,
                  .aliases = true,
                  .nesting = true},
        .probe = probe,
        .open = open,
        .pathsFor = torch_checkpointing::pathsFor,
        .cannotHold = torch_checkpointing::cannotHold,
        .layout = torch_checkpointing::layOut};
    return format;
}

}  // namespace shardscope
