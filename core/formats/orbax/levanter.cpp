#include "formats/orbax/levanter.h"

#include <algorithm>
#include <set>

#include <nlohmann/json.hpp>

#include "base/rule.h"
#include "encoding/zarr_array.h"
#include "formats/files_below.h"
#include "formats/open_files.h"

namespace shardscope::orbax {

namespace {

using nlohmann::json;

constexpr uint64_t kMostMark = 64 << 10;
constexpr int kMostLevels = 64;
constexpr int kMostSteps = 32;  // directories on the way to the first array

bool hasDirectory(const Source& source, std::string_view name) {
    return std::ranges::any_of(source.entries, [&](const DirectoryEntry& entry) {
        return entry.kind == DirectoryEntry::Kind::directory && entry.name == name;
    });
}

// Whether the first directories below this one lead to an array.
bool leadsToArray(const Directory& directory, std::string below) {
    for (int step = 0; step < kMostSteps; ++step) {
        const auto listed = directory.list(below);
        if (!listed.ok()) return false;
        const DirectoryEntry* next = nullptr;
        for (const DirectoryEntry& entry : *listed) {
            if (entry.name == kZarrayName || entry.name == kZarrJsonName) return true;
            if (entry.kind == DirectoryEntry::Kind::directory && (!next || entry.name < next->name))
                next = &entry;
        }
        if (!next) return false;
        below = joinPath(below, next->name);
    }
    return false;
}

// "0.1", "c/0/1": the key of a chunk.
bool isChunkName(std::string_view name) {
    return !name.empty() && name.find_first_not_of("0123456789.") == name.npos && name.front() != '.';
}

std::string_view directoryOf(std::string_view path) {
    return path.substr(0, std::min(path.rfind('/'), path.size()));
}

}  // namespace

std::optional<bool> isTemporaryCheckpoint(std::string_view mark) {
    const json all = json::parse(mark, nullptr, false);
    if (!all.is_object() || !all.contains("step") || !all.contains("timestamp") ||
        !all.contains("is_temporary"))
        return std::nullopt;
    return all["is_temporary"] == true;
}

Probe probeLevanter(const Source& source) {
    if (!source.entry.empty() && source.entry != kLevanterMark) return {};
    if (source.hasFile(kLevanterMark)) {
        if (!isTemporaryCheckpoint(smallFile(*source.directory, kLevanterMark, kMostMark))) return {};
        return {Probe::Match::certain, "has metadata.json of Levanter"};
    }
    // Without the mark: a save that died.
    if (source.hasFile("manifest.ocdbt")) return {};
    const bool state = hasDirectory(source, "opt_state") || hasDirectory(source, "training_key");
    if (!state || !hasDirectory(source, "model") || !leadsToArray(*source.directory, "model")) return {};
    return {Probe::Match::certain, "has nested zarr arrays of a model and its state, as Levanter does"};
}

Result<NestedArrays> findNestedArrays(const Directory& directory) {
    SHARDSCOPE_ASSIGN(const auto files, filesBelow(directory, "", kMostLevels));
    NestedArrays found;
    std::set<std::string_view> described;
    for (const DirectoryEntry& file : files) {
        const std::string_view place = directoryOf(file.name);
        const std::string_view name = std::string_view(file.name).substr(file.name.rfind('/') + 1);
        if (place.size() < file.name.size() && (name == kZarrayName || name == kZarrJsonName) &&
            described.insert(place).second)
            found.described.emplace_back(place);
    }
    std::set<std::string_view> seen;
    for (const DirectoryEntry& file : files) {
        const std::string_view place = directoryOf(file.name);
        const bool chunk = file.name.size() > place.size() &&
                           isChunkName(std::string_view(file.name).substr(place.size() + 1));
        if (!chunk || !seen.insert(place).second) continue;
        // Chunks may be in directories of their array's.
        bool known = false;
        for (std::string_view at = place; !known && !at.empty(); at = at.substr(0, at.rfind('/'))) {
            known = described.contains(at);
            if (at.find('/') == at.npos) break;
        }
        if (!known) found.undescribed.emplace_back(place);
    }
    return found;
}

Result<std::vector<ListedArray>> parseManifest(std::string_view text) {
    const auto wrong = [] {
        return damaged("it does not list the arrays of the checkpoint").byRule(rule::metaInconsistent);
    };
    const json all = json::parse(text, nullptr, false);
    if (!all.is_object() || !all.contains("arrays") || !all["arrays"].is_array()) return wrong();
    std::vector<ListedArray> arrays;
    for (const json& array : all["arrays"]) {
        if (!array.is_object() || !array.contains("path") || !array["path"].is_string() ||
            !array.contains("shape") || !array["shape"].is_array())
            return wrong();
        ListedArray& listed = arrays.emplace_back(ListedArray{array["path"].get<std::string>(), {}});
        for (const json& size : array["shape"]) {
            if (!size.is_number_unsigned()) return wrong();
            listed.shape.push_back(size.get<int64_t>());
        }
    }
    return arrays;
}

std::string dotted(std::string path) {
    std::ranges::replace(path, '/', '.');
    return path;
}

}  // namespace shardscope::orbax
