#include "formats/megatron/store.h"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/checked.h"
#include "base/rule.h"
#include "base/text.h"
#include "base/units.h"
#include "formats/catalog_reader.h"
#include "formats/megatron/target_names.h"
#include "formats/torch_save/torch_save.h"

namespace shardscope::megatron {

namespace {

constexpr int64_t kMostOfAGrid = 1 << 20;
constexpr int64_t kMostMissing = 100;  // that are named

}  // namespace

Role StoreOpener::roleOf(std::string_view name) {
    if (withoutChain(name).starts_with("optimizer.")) return Role::optimizer;
    const std::string_view last = name.substr(name.rfind('.') == name.npos ? 0 : name.rfind('.') + 1);
    // What the layers keep besides their parameters: Transformer Engine's state, and the router's statistics.
    if (last == "_extra_state") return Role::other;
    for (const std::string_view buffer :
         {"expert_bias", "local_tokens_per_expert", "inv_freq", "running_mean", "running_var"}) {
        if (last == buffer) return Role::buffer;
    }
    return Role::parameter;
}

Status StoreOpener::readCommon() {
    if (!source_.hasFile(kCommon)) {
        if (!place_.commonFile) return {};
        addMissing(
            kCommon, kNone, Severity::error,
            "'common.pt' is missing: it holds what is not sharded, such as the arguments, the iteration "
            "and the settings of the optimizer");
        return {};
    }
    Source one = source_;
    one.entry = kCommon;
    auto opened = torchSaveFormat().open(one, options_);
    if (!opened.ok()) {
        Error error = std::move(opened).error();
        if (error.code == ErrorCode::cancelled) return error;
        builder_.addFile({.path = kCommon, .state = FileInfo::State::unreadable});
        noteError(error, kCommon, {}, Note::Lacks::nothing, "'common.pt' cannot be read: ");
        return {};
    }
    common_ = std::move(opened).value();
    const std::span<const ObjectInfo> objects = common_->catalog().objects();
    for (ObjectId id = 0; id < objects.size(); ++id) {
        if (objects[id].name != "args") continue;
        SHARDSCOPE_ASSIGN(Value value, common_->objectValue(id));
        args_ = Arguments(std::move(value));
    }
    sizes_ = sizesOf(args_, kCommon);
    return {};
}

void StoreOpener::notePadding(std::string_view name, DimSpan shape) {
    const auto rows = args_.integer("vocab_size");
    if (!rows || shape.size() != 2 || *rows <= 0 || *rows >= shape[0] || roleOf(name) != Role::parameter ||
        !(name.ends_with("word_embeddings.weight") || name.ends_with("output_layer.weight")))
        return;
    note(rule::metaInconsistent, Severity::info,
         fmt::format("the vocabulary is the first {} of its {}, the rest is padding", countText(*rows),
                     counted(shape[0], "row")),
         {}, name);
}

void StoreOpener::addCommitMark() {
    const auto entry = source_.directory->stat(kMetadataJson);
    if (!entry.ok()) {
        addMissing(
            kMetadataJson, kNone, Severity::error,
            "'metadata.json' is missing: Megatron writes it last, so the save did not end, or the file was "
            "not copied; use an earlier checkpoint");
        return;
    }
    builder_.addFile({.path = kMetadataJson, .size = entry->size, .metadata = true});
    if (!place_.committed)
        wrong(
            "'metadata.json' is damaged and names no sharded_backend: Megatron writes it last, so the save "
            "did not end well",
            kMetadataJson);
}

void StoreOpener::noteMissingObjects(const std::vector<std::string>& names, std::string_view ending) {
    struct Grid {
        Dims shape;
        std::set<std::string_view> found;  // names
        bool known = true;
    };
    std::map<std::string_view, Grid> grids;
    for (const std::string& name : names) {
        const auto sharded = parseShardedName(name);
        if (!sharded) continue;
        Grid& grid = grids[sharded->key];
        if (grid.found.empty()) grid.shape = sharded->grid;
        grid.known = grid.known && grid.shape == sharded->grid;
        grid.found.insert(name);
    }
    for (const auto& [key, grid] : grids) {
        int64_t all = 0;
        const auto found = static_cast<int64_t>(grid.found.size());
        if (!grid.known || !checkedProduct(grid.shape, all) || all > kMostOfAGrid || found >= all) continue;
        if (ending.empty() || all - found > kMostMissing) {
            note(rule::metaInconsistent, Severity::warning,
                 fmt::format("'{}' has {} of the {} of its grid {}", printable(key, kNameInMessage),
                             countText(found), counted(all, "object"), formatDims(grid.shape)));
            continue;
        }
        Dims place(grid.shape.size(), 0);
        for (int64_t i = 0; i < all; ++i) {
            const std::string name =
                fmt::format("{}/shard_{}_{}", key, fmt::join(place, "."), fmt::join(grid.shape, "."));
            if (!grid.found.contains(name))
                addMissing(name + std::string(ending), kNone, Severity::warning,
                           "an object of its grid is missing");
            for (size_t d = place.size(); d-- > 0 && ++place[d] == grid.shape[d];)
                place[d] = 0;
        }
    }
}

void StoreOpener::findSizes(const std::vector<std::string>& objects, uint32_t highest) {
    const uint32_t seen = highest == kNone ? 0 : highest + 1;
    for (size_t o = 0; o < objects.size() && !sizes_; ++o) {
        const auto sharded = parseShardedName(objects[o]);
        if (!sharded || sharded->key != "rng_state" || sharded->grid.size() != 2) continue;
        if (sharded->grid[0] > UINT16_MAX || sharded->grid[1] > UINT16_MAX) continue;
        ParallelSizes sizes;
        sizes.pp = static_cast<uint32_t>(sharded->grid[0]);
        sizes.tp = static_cast<uint32_t>(sharded->grid[1]);
        const uint32_t model = sizes.pp * sizes.tp;
        if (model == 0) continue;
        sizes.dp = std::max<uint32_t>(1, (seen + model - 1) / model);
        sizes.evidence = fmt::format("the places of the random states, such as '{}'", printable(objects[o]));
        sizes_ = std::move(sizes);
    }
}

void StoreOpener::addMesh(uint32_t highest) {
    uint32_t seen = highest == kNone ? 0 : highest + 1;
    if (sizes_ && sizes_->ranks() < seen) {
        note(rule::metaInconsistent, Severity::warning,
             fmt::format("the mesh has {} by {}, but rank {} wrote a file", counted(sizes_->ranks(), "rank"),
                         sizes_->evidence, highest));
        sizes_.reset();
    }
    if (sizes_) {
        builder_.setMesh(sizes_->mesh());
        seen = sizes_->ranks();
    }
    if (seen > 0) builder_.setRankCount(seen);
}

Result<std::unique_ptr<Reader>> StoreOpener::withCommon(std::unique_ptr<Reader> store) {
    if (!common_) return store;
    std::vector<JoinedPart> common;
    common.push_back({std::move(common_), std::string(kCommonPrefix), {}, Role::other});
    return joinReaders(std::move(store), std::move(common));
}

}  // namespace shardscope::megatron
