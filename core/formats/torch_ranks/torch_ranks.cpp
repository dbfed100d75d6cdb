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

class TorchRanksFormat final : public Format {
  public:
    TorchRanksFormat() {
        info_.name = "torch-ranks";
        info_.title = "torch.save file of each rank";
        info_.synonyms = {"torch_ranks", "verl"};
        info_.reads = true;
        info_.writes = true;
        info_.variants = torch_ranks::writtenVariants();
        info_.replicas = true;
        info_.assets = "huggingface";
        info_.generations = {"verl and SkyRL: model_world_size_W_rank_R.pt",
                             "Accelerate: pytorch_model_fsdp_0_rank0.bin",
                             "DTensors and ShardedTensors of torch 2.0 to 2.15 in rank0.pt, ..."};
        info_.shards = true;
        info_.objects = true;
        info_.aliases = true;
        info_.nesting = true;
    }

    Probe probe(const Source& source) const override {
        if (!source.entry.empty()) return {};
        const std::vector<DirectoryEntry> entries = torch_ranks::entriesOfRanks(source, 1);
        for (const torch_ranks::FileSet& set : torch_ranks::findFileSets(entries)) {
            const std::string& first = set.files.begin()->second->name;
            if (set.known ? mayBeTorchFile(*source.directory, first)
                          : holdsDistributed(*source.directory, first))
                // OLMo's oldest checkpoints have such files beside their configuration.
                return {!set.known && source.hasFile("config.yaml") ? Probe::Match::possible
                                                                    : Probe::Match::certain,
                        "has " + first + ", the part of one rank"};
        }
        return {};
    }

    Result<std::unique_ptr<Reader>> open(const Source& source, const OpenOptions& options) const override {
        if (!source.entry.empty())
            return unsupported("the files of all ranks are one checkpoint, this is one of them")
                .inFile(source.display)
                .withHint("name the directory that holds them");
        return torch_ranks::openRankFiles(source, options);
    }

    std::optional<Path> pathFor(const Path& path, bool optimizer) const override {
        return torch_ranks::pathFor(path, optimizer);
    }
    std::vector<LeftOut> cannotHold(const Catalog& target, const WriteOptions&) const override {
        return torch_ranks::cannotHold(target);
    }
    Result<std::unique_ptr<TargetLayout>> layout(const Catalog& target,
                                                 const WriteOptions& options) const override {
        return torch_ranks::layOut(target, options);
    }
};

}  // namespace

const Format& torchRanksFormat() {
    static const TorchRanksFormat format;
    return format;
}

}  // namespace shardscope
