#include "formats/colossalai/colossalai.h"

#include <algorithm>

#include "formats/colossalai/layouts.h"
#include "formats/colossalai/names.h"

namespace shardscope {

namespace {

using namespace colossalai;

Probe probeFile(const Source& source) {
    if (metaFileId(source.entry)) return {Probe::Match::certain, "is the metadata of one rank"};
    if (indexKind(source.entry) == IndexKind::optimizer)
        return {Probe::Match::certain, "is the index of an optimizer"};
    const auto numbered = [](const DirectoryEntry& entry) { return isNumberedShard(entry.name); };
    if (indexKind(source.entry) == IndexKind::model && source.entry.starts_with("pytorch_model") &&
        std::ranges::any_of(source.entries, numbered))
        return {Probe::Match::certain, "is the index of files numbered without a total"};
    if (source.entry.starts_with("optimizer.") && isWholeOptimizer(source.entry))
        return {Probe::Match::certain, "is named as an optimizer of the asynchronous writer"};
    return {};
}

Probe probe(const Source& source) {
    if (!source.entry.empty()) return probeFile(source);
    const Probe* found = nullptr;
    const Probe kIndex{Probe::Match::certain, "has an index and files numbered without a total"};
    const Probe kOptimizer{Probe::Match::certain, "has an index of an optimizer"};
    const Probe kWhole{Probe::Match::certain, "has an optimizer in one file"};
    const Probe kShards{Probe::Match::certain, "has numbered files of ColossalAI, and no index"};
    bool numbered = false, modelIndex = false;
    for (const DirectoryEntry& entry : source.entries) {
        if (entry.kind != DirectoryEntry::Kind::file) continue;
        if (metaFileId(entry.name)) return {Probe::Match::certain, "has " + entry.name};
        numbered = numbered || isNumberedShard(entry.name);
        const IndexKind kind = indexKind(entry.name);
        modelIndex = modelIndex || kind == IndexKind::model;
        if (kind == IndexKind::optimizer) found = &kOptimizer;
        if (!found && kind == IndexKind::none && isWholeOptimizer(entry.name)) found = &kWhole;
    }
    if (!found && modelIndex && numbered) found = &kIndex;
    const auto listed = [](const DirectoryEntry& entry) {
        return entry.kind == DirectoryEntry::Kind::file && indexOfShard(entry.name) != IndexKind::none;
    };
    if (!found && std::ranges::any_of(source.entries, listed)) found = &kShards;
    return found ? *found : Probe{};
}

Result<std::unique_ptr<Reader>> open(const Source& source, const OpenOptions& options) {
    if (source.entry.empty()) {
        for (const DirectoryEntry& entry : source.entries) {
            if (entry.kind == DirectoryEntry::Kind::file && metaFileId(entry.name))
                return openDistributed(source, options);
        }
    } else if (metaFileId(source.entry)) {
        return openDistributed(source, options);
    }
    return openGathered(source, options);
}

}  // namespace

const Format& colossalaiFormat() {
    static const Format format{
        .about = {.name = "colossalai",
                  .title = "ColossalAI",
                  .suffixes = {"bin", "safetensors"},
                  .before = {{"safetensors", "its files are safetensors"},
                             {"torch", "its files are those of torch.save"}},
                  .reads = true,
                  .writes = true,
                  .generations =
                      {"distributed (pull request 6181), .bin and .safetensors, sharded or one file per rank",
                       "gathered: numbered files with an index, model and optimizer",
                       "gathered: one optimizer file, also of the asynchronous writer"},
                  .variants = {"distributed", "distributed-bin", "gathered", "gathered-bin"},
                  .wholeVariants = {"gathered", "gathered-bin"},
                  .shards = true,
                  .objects = true,
                  .nesting = true},
        .probe = probe,
        .open = open,
        .cannotHold = colossalai::cannotHold,
        .layout = colossalai::layOut};
    return format;
}

}  // namespace shardscope
