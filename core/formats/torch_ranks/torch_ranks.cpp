#include "formats/torch_ranks/torch_ranks.h"

#include <algorithm>

#include "encoding/torch_file.h"
#include "formats/torch_ranks/file_sets.h"
#include "formats/torch_ranks/layout.h"
#include "formats/torch_ranks/opener.h"

namespace shardscope {

namespace {

// Whether a torch.save file holds tensors that are distributed over ranks.
bool holdsDistributed(const Directory& directory, const std::string& name) {
    auto file = directory.openFile(name);
    if (!file.ok()) return false;
    const auto opened = torch_save::openTorchFile(std::move(file).value(), {});
    if (!opened.ok()) return false;
    const auto& globals = opened->pickle.globals;
    return std::any_of(globals.begin(), globals.end(), [](std::string_view global) {
        return global.starts_with("torch.distributed") &&
               (global.ends_with(".DTensor") || global.ends_with(".ShardedTensor"));
    });
}

// Whether the file is one of torch.save. A damaged one contradicts nothing.
bool mayBeTorchFile(const Directory& directory, const std::string& name) {
    const auto file = directory.openFile(name);
    if (!file.ok()) return true;
    const auto first = torch_save::firstBytesOf(**file);
    return !first.ok() || torch_save::fileKind(*first) != torch_save::FileKind::none || (*file)->size() == 0;
}

Probe probe(const Source& source) {
    if (!source.entry.empty()) return {};
    const std::vector<DirectoryEntry> entries = torch_ranks::entriesOfRanks(source, 1);
    for (const torch_ranks::FileSet& set : torch_ranks::findFileSets(entries)) {
        const std::string& first = set.files.begin()->second->name;
        if (set.known ? mayBeTorchFile(*source.directory, first) : holdsDistributed(*source.directory, first))
            // OLMo's oldest checkpoints have such files beside their configuration.
            return {
                !set.known && source.hasFile("config.yaml") ? Probe::Match::possible : Probe::Match::certain,
                "has " + first + ", the part of one rank"};
    }
    return {};
}

Result<std::unique_ptr<Reader>> open(const Source& source, const OpenOptions& options) {
    if (!source.entry.empty())
        return unsupported("the files of all ranks are one checkpoint, this is one of them")
            .inFile(source.display)
            .withHint("name the directory that holds them");
    return torch_ranks::openRankFiles(source, options);
}

}  // namespace

const Format& torchRanksFormat() {
    static const Format format{
        .about = {.name = "torch-ranks",
                  .title = "torch.save file of each rank",
                  .synonyms = {"torch_ranks", "verl"},
                  .before = {{"olmo", "OLMo's oldest files have names like those of scripts"},
                             {"torch", "its files are those of torch.save"}},
                  .reads = true,
                  .writes = true,
                  .generations = {"verl and SkyRL: model_world_size_W_rank_R.pt",
                                  "Accelerate: pytorch_model_fsdp_0_rank0.bin",
                                  "DTensors and ShardedTensors of torch 2.0 to 2.15 in rank0.pt, ..."},
                  .variants = torch_ranks::writtenVariants(),
                  .shards = true,
                  .replicas = true,
                  .objects = true,
                  .aliases = true,
                  .nesting = true,
                  .assets = "huggingface"},
        .probe = probe,
        .open = open,
        .pathFor = torch_ranks::pathFor,
        .cannotHold = torch_ranks::cannotHold,
        .layout = torch_ranks::layOut};
    return format;
}

}  // namespace shardscope
