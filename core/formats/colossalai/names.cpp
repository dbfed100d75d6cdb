#include "formats/colossalai/names.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/names.h"
#include "base/numbers.h"

namespace shardscope::colossalai {

namespace {

constexpr std::string_view kDist = "-dist-";
constexpr uint32_t kMaxRankId = 1'000'000;

bool isDataEnding(std::string_view name) {
    return name.ends_with(".bin") || name.ends_with(".safetensors");
}

std::string_view withoutEnding(std::string_view name) {
    for (std::string_view ending : {".bin", ".safetensors"}) {
        if (name.ends_with(ending)) return name.substr(0, name.size() - ending.size());
    }
    return name;
}

}  // namespace

std::optional<uint32_t> metaFileId(std::string_view name) {
    if (!name.starts_with(kMetaPrefix) || !name.ends_with(".json")) return std::nullopt;
    name.remove_prefix(kMetaPrefix.size());
    const auto id = takeNumber<uint32_t>(name, kMaxRankId);
    if (!id || (name != ".json" && name != ".index.json")) return std::nullopt;
    return id;
}

std::optional<uint32_t> weightFileId(std::string_view name) {
    if (!isDataEnding(name)) return std::nullopt;
    const size_t at = name.rfind(kDist);
    if (at == name.npos) return std::nullopt;
    std::string_view rest = name.substr(at + kDist.size());
    const auto id = takeNumber<uint32_t>(rest, kMaxRankId);
    if (!id || (!rest.starts_with("-shard-") && !rest.starts_with("."))) return std::nullopt;
    return id;
}

std::string withId(std::string_view name, uint32_t from, uint32_t to) {
    const std::string was = fmt::format("{}{:05}", kDist, from);
    const size_t at = name.rfind(was);
    if (at == name.npos) return std::string(name);
    return std::string(name.substr(0, at)) + fmt::format("{}{:05}", kDist, to) +
           std::string(name.substr(at + was.size()));
}

IndexKind indexKind(std::string_view name) {
    if (!name.ends_with(".json") || metaFileId(name)) return IndexKind::none;
    // A prefix P of the user stands before the last ending: x.bin.index.P.json.
    if (name.find(".index.") == name.npos) return IndexKind::none;
    if (name.starts_with("pytorch_model.bin.index.") || name.starts_with("model.safetensors.index."))
        return IndexKind::model;
    if (name.starts_with("pytorch_optim.bin.index.") || name.starts_with("optimizer.safetensors.index."))
        return IndexKind::optimizer;
    return IndexKind::none;
}

bool isNumberedShard(std::string_view name) {
    if (!isDataEnding(name) || name.find("-of-") != name.npos) return false;
    std::string_view stem = withoutEnding(name);
    const size_t dash = stem.rfind('-');
    if (dash == stem.npos || stem.size() - dash != 6) return false;
    return isDigits(stem.substr(dash + 1)) &&
           std::ranges::any_of(std::initializer_list<std::string_view>{"model", "pytorch_model",
                                                                       "pytorch_optim", "optimizer"},
                               [&](std::string_view start) { return stem.starts_with(start); });
}

IndexKind indexOfShard(std::string_view name) {
    if (!isNumberedShard(name)) return IndexKind::none;
    if (name.starts_with("pytorch_optim") || name.starts_with("optimizer")) return IndexKind::optimizer;
    return name.find("-stage-") != name.npos ? IndexKind::model : IndexKind::none;
}

bool isWholeOptimizer(std::string_view name) {
    return name == "pytorch_optim.bin" || name == "optimizer.safetensors" ||
           (name.starts_with("pytorch_optim.") && name.ends_with(".bin")) ||
           (name.starts_with("optimizer.") && name.ends_with(".safetensors"));
}

}  // namespace shardscope::colossalai
