#include "formats/xla_fsdp/xla_fsdp.h"

#include <algorithm>

#include "formats/tensor_files.h"
#include "formats/xla_fsdp/opener.h"

namespace shardscope {

namespace {

// Whether one of the first files that can be read says what its parameters were.
bool saysShards(const Source& source, const xla_fsdp::FileSet& set) {
    constexpr int kMostLooks = 4;
    int looks = 0;
    for (const auto& [rank, name] : set.files) {
        TensorFiles files(source, {});
        const auto index = files.add(name);
        if (index.ok())
            return std::ranges::any_of(files[*index].objects, [](const StoredObject& object) {
                return object.path.size() > 1 && object.path[0].text == xla_fsdp::kMetadata;
            });
        if (++looks == kMostLooks) break;
    }
    return false;
}

Probe probe(const Source& source) {
    if (!source.entry.empty()) return {};
    const xla_fsdp::FileSet set = xla_fsdp::findFiles(source);
    if (set.files.empty() || !saysShards(source, set)) return {};
    return {Probe::Match::certain,
            "has " + set.files.begin()->second + ", a rank's part with shard_metadata"};
}

}  // namespace

const Format& xlaFsdpFormat() {
    static const Format format{
        .about = {.name = "xla-fsdp",
                  .title = "torch_xla FSDP",
                  .synonyms = {"xla_fsdp", "torch-xla"},
                  .before = {{"torch-ranks", "its files are those of torch.save, one for each rank"},
                             {"torch", "its files are those of torch.save, one for each rank"}},
                  .reads = true,
                  .generations = {"files with shard_metadata: flat parameters, or cut along dimension 0"},
                  .shards = true,
                  .objects = true},
        .probe = probe,
        .open = xla_fsdp::openRanks};
    return format;
}

}  // namespace shardscope
