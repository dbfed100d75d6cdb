#include "formats/megatron/place.h"

#include <fmt/format.h>

#include "base/numbers.h"
#include "encoding/json_value.h"
#include "encoding/zarr_array.h"
#include "model/value_view.h"
#include "storage/open_files.h"

namespace shardscope::megatron {

namespace {

constexpr uint64_t kMostMetadataJson = 64 << 10;
constexpr size_t kMostLooksForArrays = 64;

bool isArray(const Source& source, const DirectoryEntry& entry) {
    return entry.kind == DirectoryEntry::Kind::directory && !entry.name.starts_with('.') &&
           source.directory->stat(entry.name + '/' + std::string(kZarrayName)).ok();
}

bool holdsArrays(const Source& source) {
    size_t looks = 0;
    for (const DirectoryEntry& entry : source.entries) {
        if (isArray(source, entry)) return true;
        if (entry.kind == DirectoryEntry::Kind::directory && ++looks > kMostLooksForArrays) break;
    }
    return false;
}

// "tp_rank_00_pp_rank_001"
std::optional<RankDirectory> parseNemoDirectory(std::string_view name) {
    constexpr std::string_view kTensor = "tp_rank_", kPipeline = "_pp_rank_";
    const size_t between = name.find(kPipeline);
    if (!name.starts_with(kTensor) || between == name.npos) return std::nullopt;
    const std::string_view tp = name.substr(kTensor.size(), between - kTensor.size()),
                           pp = name.substr(between + kPipeline.size());
    const auto first = parseNumber<uint32_t>(tp), second = parseNumber<uint32_t>(pp);
    if (!first || !second || tp.size() < 2 || pp.size() < 3) return std::nullopt;
    return RankDirectory{std::string(name), *first, {*second}};
}

// What each rank's directory holds; null where none of them holds any of these.
const char* modelFileOf(const Source& source, const std::vector<RankDirectory>& ranks) {
    for (const char* file : {kModelFile, kNemoFile}) {
        for (const RankDirectory& rank : ranks)
            if (source.directory->stat(rank.name + '/' + file).ok()) return file;
    }
    return nullptr;
}

}  // namespace

std::optional<RankDirectory> parseRankDirectory(std::string_view name) {
    constexpr std::string_view kBeginning = "mp_rank_";
    if (!name.starts_with(kBeginning)) return parseNemoDirectory(name);
    RankDirectory out;
    out.name = name;
    std::vector<uint32_t> numbers;
    for (std::string_view rest = name.substr(kBeginning.size());; rest.remove_prefix(1)) {
        const size_t before = rest.size();
        const auto number = takeNumber<uint32_t>(rest);
        // "%02d" and "%03d" have no shorter spelling.
        if (!number || before - rest.size() < (numbers.empty() ? 2 : 3)) return std::nullopt;
        numbers.push_back(*number);
        if (rest.empty()) break;
        if (rest[0] != '_' || numbers.size() == 3) return std::nullopt;
    }
    out.tp = numbers[0];
    out.others.assign(numbers.begin() + 1, numbers.end());
    return out;
}

std::vector<std::string> zarrArrays(const Source& source) {
    std::vector<std::string> arrays;
    for (const DirectoryEntry& entry : source.entries) {
        if (isArray(source, entry)) arrays.push_back(entry.name);
    }
    return arrays;
}

Place findPlace(const Source& source) {
    Place place;
    if (!source.entry.empty() && source.entry != kMetadataJson && source.entry != ".metadata") return place;
    std::string backend;
    if (source.hasFile(kMetadataJson)) {
        const Value document = jsonValue(smallFile(*source.directory, kMetadataJson, kMostMetadataJson));
        const ValueView json = document;
        if (const auto named = json["sharded_backend"].text()) {
            backend = *named;
            place.committed = true;
            place.commonFile = static_cast<bool>(json["common_backend"]);
        } else if (json.isMapping()) {
            return place;  // another program's
        }
    }
    const bool metadata = source.hasFile(".metadata"), common = source.hasFile(kCommon);
    if (backend == "zarr" || (backend.empty() && !metadata && common && holdsArrays(source))) {
        place.kind = Place::Kind::zarr;
        place.why = "has zarr arrays of Megatron-Core";
    } else if (!backend.empty() || (metadata && common)) {
        // Without metadata.json the save died, or the file was not copied.
        place.kind = Place::Kind::torchDist;
        place.why = backend.empty() ? "has .metadata and common.pt of Megatron-Core"
                                    : "has metadata.json of Megatron-Core";
    } else if (source.entry.empty()) {
        for (const DirectoryEntry& entry : source.entries) {
            if (entry.kind != DirectoryEntry::Kind::directory) continue;
            if (auto rank = parseRankDirectory(entry.name)) place.ranks.push_back(*std::move(rank));
        }
        if (const char* file = modelFileOf(source, place.ranks)) {
            place.kind = Place::Kind::legacy;
            place.modelFile = file;
            place.why = fmt::format("has {}, a directory of {}'s ranks", place.ranks[0].name,
                                    place.nemo() ? "NeMo" : "Megatron-LM");
        }
    }
    return place;
}

}  // namespace shardscope::megatron
