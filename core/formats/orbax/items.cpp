#include "formats/orbax/items.h"

#include <algorithm>

#include "base/names.h"
#include "formats/orbax/flax.h"
#include "formats/orbax/metadata.h"
#include "storage/open_files.h"

namespace shardscope::orbax {

bool has(const std::vector<DirectoryEntry>& entries, std::string_view name, DirectoryEntry::Kind kind) {
    return std::ranges::any_of(entries,
                               [&](const DirectoryEntry& e) { return e.kind == kind && e.name == name; });
}

Role roleOf(const Path& path, std::string_view item, bool t5x) {
    const auto optimizer = [&](std::string_view key) {
        return isAmong(key, {"opt_state", "optimizer_state", "optimizer", "opt"});
    };
    if (optimizer(item) || (t5x && !path.empty() && path[0].text == "state")) return Role::optimizer;
    for (const PathPart& part : path) {
        if (optimizer(part.text)) return Role::optimizer;
        if (isAmong(part.text, {"batch_stats", "cache"})) return Role::buffer;
    }
    if (!path.empty() &&
        isAmong(path[0].text, {"step", "rng", "rngs", "rng_key", "key", "training_key", "count"}))
        return Role::other;
    return Role::parameter;
}

bool isArrayItem(const Directory& directory, const std::string& prefix,
                 const std::vector<DirectoryEntry>& entries) {
    if (has(entries, kTreeMetadata))
        return startOf(directory, prefix + std::string(kTreeMetadata)).starts_with('{');
    if (has(entries, kOcdbtManifest) || has(entries, kSharding) ||
        has(entries, kArrayMetadatas, DirectoryEntry::Kind::directory))
        return true;
    return has(entries, kMsgpackTree) && isFlaxStart(startOf(directory, prefix + std::string(kMsgpackTree)));
}

std::string jsonOfItem(const std::string& item, const std::vector<DirectoryEntry>& entries) {
    // "metadata" of JsonCheckpointHandler, "metrics/metrics" of the manager.
    std::string found;
    size_t others = 0;
    for (const DirectoryEntry& entry : entries) {
        if (entry.name == kCommitMark) continue;
        const bool fits = entry.kind == DirectoryEntry::Kind::file &&
                          (entry.name == "metadata" || entry.name == item || entry.name.ends_with(".json"));
        if (fits)
            found = entry.name;
        else
            ++others;
    }
    return others == 0 ? found : std::string();
}

}  // namespace shardscope::orbax
