#include "engine/several.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "base/units.h"
#include "engine/parts_of_step.h"
#include "engine/run_directory.h"
#include "engine/surroundings.h"

namespace shardscope {

namespace {

constexpr size_t kMostLookedInto = 1000;

std::optional<OneOfSeveral> oneIn(const Source& source, const std::string& name) {
    const auto path = checkpointIn(source, name);
    const auto below = sourceFor(joinPath(source.display, path.value_or(name)));
    if (!below.ok()) return std::nullopt;
    if (path) {
        OneOfSeveral found{*path, std::string(detectFormat(*below)->info().title)};
        for (const DirectoryEntry& entry : below->entries)
            found.bytes += entry.size;
        return found;
    }
    const auto run = findRun(*below);
    if (!run) return std::nullopt;
    const size_t steps = run->steps.size();
    return OneOfSeveral{name, fmt::format("run, {}", counted(steps, "step"))};
}

}  // namespace

std::vector<OneOfSeveral> severalIn(const std::string& directory) {
    std::vector<OneOfSeveral> found;
    const auto source = sourceFor(directory);
    if (!source.ok() || !source->entry.empty()) return found;
    size_t looks = 0;
    for (const DirectoryEntry& entry : source->entries) {
        if (entry.kind != DirectoryEntry::Kind::directory || entry.name.starts_with('.')) continue;
        if (++looks > kMostLookedInto) break;
        if (auto one = oneIn(*source, entry.name)) found.push_back(*std::move(one));
    }
    std::ranges::sort(found, {}, &OneOfSeveral::path);
    return found;
}

}  // namespace shardscope
