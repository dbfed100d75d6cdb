#include "formats/orbax/levanter.h"

#include <algorithm>
#include <set>

#include "base/rule.h"
#include "encoding/json_value.h"
#include "encoding/zarr_array.h"
#include "formats/catalog_opener.h"
#include "model/value_view.h"
#include "storage/files_below.h"
#include "storage/open_files.h"

namespace shardscope::orbax {

namespace {

constexpr uint64_t kMostMark = 64 << 10;
constexpr int kMostLevels = 64;
constexpr int kMostSteps = 32;  // directories on the way to the first array

// "0.1", "c/0/1": the key of a chunk.
bool isChunkName(std::string_view name) {
    return !name.empty() && name.find_first_not_of("0123456789.") == name.npos && name.front() != '.';
}

}  // namespace

std::optional<bool> isTemporaryCheckpoint(std::string_view mark) {
    const Value document = jsonValue(mark);
    const ValueView all = document, temporary = all["is_temporary"];
    if (!all["step"] || !all["timestamp"] || !temporary) return std::nullopt;
    return temporary.isTrue();
}

Probe probeLevanter(const Source& source) {
    if (!source.entry.empty() && source.entry != kLevanterMark) return {};
    if (source.hasFile(kLevanterMark)) {
        if (!isTemporaryCheckpoint(smallFile(*source.directory, kLevanterMark, kMostMark))) return {};
        return {Probe::Match::certain, "has metadata.json of Levanter"};
    }
    // Without the mark: a save that died.
    if (source.hasFile("manifest.ocdbt")) return {};
    const bool state = holdsDirectory(source, "opt_state") || holdsDirectory(source, "training_key");
    const auto isArray = [](const DirectoryEntry& entry) {
        return entry.name == kZarrayName || entry.name == kZarrJsonName;
    };
    if (!state || !holdsDirectory(source, "model") ||
        !leadsTo(*source.directory, "model", kMostSteps, isArray))
        return {};
    return {Probe::Match::certain, "has nested zarr arrays of a model and its state, as Levanter does"};
}

Result<NestedArrays> findNestedArrays(const Directory& directory) {
    SHARDSCOPE_ASSIGN(const auto files, filesBelow(directory, "", kMostLevels));
    NestedArrays found;
    std::set<std::string_view> described;
    for (const DirectoryEntry& file : files) {
        const std::string_view place = directoryOf(file.name);
        const std::string_view name = lastNameOf(file.name);
        if (!place.empty() && (name == kZarrayName || name == kZarrJsonName) &&
            described.insert(place).second)
            found.described.emplace_back(place);
    }
    std::set<std::string_view> seen;
    for (const DirectoryEntry& file : files) {
        const std::string_view place = directoryOf(file.name);
        if (place.empty() || !isChunkName(lastNameOf(file.name)) || !seen.insert(place).second) continue;
        // Chunks may be in directories of their array's.
        bool known = false;
        for (std::string_view at = place; !known && !at.empty(); at = directoryOf(at))
            known = described.contains(at);
        if (!known) found.undescribed.emplace_back(place);
    }
    return found;
}

Result<std::vector<ListedArray>> parseManifest(std::string_view text) {
    const auto wrong = [] {
        return damaged("it does not list the arrays of the checkpoint").byRule(rule::metaInconsistent);
    };
    const Value document = jsonValue(text);
    const ValueView listed = ValueView(document)["arrays"];
    if (!listed.isList()) return wrong();
    std::vector<ListedArray> arrays;
    for (const ValueView array : listed.items()) {
        const auto path = array["path"].text();
        if (!path || !array["shape"].isList()) return wrong();
        ListedArray& one = arrays.emplace_back(ListedArray{std::string(*path), {}});
        for (const ValueView size : array["shape"].items()) {
            if (size.integer().value_or(-1) < 0) return wrong();
            one.shape.push_back(*size.integer());
        }
    }
    return arrays;
}

std::string dotted(std::string path) {
    std::ranges::replace(path, '/', '.');
    return path;
}

}  // namespace shardscope::orbax
