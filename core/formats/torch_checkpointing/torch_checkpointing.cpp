#include "formats/torch_checkpointing/torch_checkpointing.h"

#include <algorithm>

#include "formats/open_files.h"
#include "formats/torch_checkpointing/item_files.h"
#include "formats/torch_checkpointing/layout.h"
#include "formats/torch_checkpointing/metadata.h"
#include "formats/torch_checkpointing/opener.h"

namespace shardscope {

namespace {

class TorchCheckpointingFormat final : public Format {
  public:
    TorchCheckpointingFormat() {
        info_.name = "torch-checkpointing";
        info_.title = "torch_checkpointing (a file for each item and rank)";
        info_.synonyms = {"torch_checkpointing", "tckpt"};
        info_.reads = true;
        info_.writes = true;
        info_.variants = {"cuda", "cpu"};
        info_.replicas = true;
        info_.generations = {"torch_checkpointing 0.1 (metadata.pkl versions 1.0 and 2.0)"};
        info_.shards = true;
        info_.objects = true;
        info_.aliases = true;
        info_.nesting = true;
    }

    Probe probe(const Source& source) const override {
        using torch_checkpointing::kMetadataFile;
        if (!source.entry.empty() && source.entry != kMetadataFile) return {};
        if (source.hasFile(kMetadataFile) &&
            torch_checkpointing::isMetadataStart(startOf(*source.directory, kMetadataFile)))
            return {Probe::Match::certain, "has metadata.pkl"};
        if (source.entry.empty() && torch_checkpointing::holdsItemFiles(source))
            return {Probe::Match::certain, "has files of items and ranks, such as model_0.pt"};
        return {};
    }

    Result<std::unique_ptr<Reader>> open(const Source& source, const OpenOptions& options) const override {
        if (!source.entry.empty() && source.entry != torch_checkpointing::kMetadataFile)
            return unsupported("the files of all items and ranks are one checkpoint, this is one of them")
                .inFile(source.display)
                .withHint("name the directory that holds them");
        return torch_checkpointing::openItems(source, options);
    }

    NewPath pathsFor(const Catalog& source, const std::function<Result<Value>(ObjectId)>&,
                     const WriteOptions&) const override {
        return torch_checkpointing::pathsFor(source);
    }
    std::vector<LeftOut> cannotHold(const Catalog& target, const WriteOptions&) const override {
        return torch_checkpointing::cannotHold(target);
    }
    Result<std::unique_ptr<TargetLayout>> layout(const Catalog& target,
                                                 const WriteOptions& options) const override {
        return torch_checkpointing::layOut(target, options);
    }
};

}  // namespace

const Format& torchCheckpointingFormat() {
    static const TorchCheckpointingFormat format;
    return format;
}

}  // namespace shardscope
