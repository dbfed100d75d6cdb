#include "formats/paddle_dist/names.h"

#include <array>

#include "base/names.h"
#include "base/numbers.h"
#include "storage/files_below.h"

namespace shardscope::paddle {

namespace {

constexpr uint32_t kMaxNamedRank = 1 << 24;  // ranks in file names above this are taken for something else

}  // namespace

std::optional<DataName> parseDataName(std::string_view path) {
    path = lastNameOf(path);
    const auto rank = takeNumber<uint32_t>(path, kMaxNamedRank - 1);
    if (!rank || !path.starts_with('_')) return std::nullopt;
    path.remove_prefix(1);
    const auto id = takeNumber<uint64_t>(path);
    if (!id || (path != ".distcp" && path != ".safetensors")) return std::nullopt;
    return DataName{*rank, *id};
}

std::optional<uint64_t> parseMetadataName(std::string_view name) {
    const auto id = takeNumber<uint64_t>(name);
    return name == ".metadata" ? id : std::nullopt;
}

std::map<uint64_t, SaveFiles> savesIn(const Source& source) {
    std::map<uint64_t, SaveFiles> saves;
    for (const DirectoryEntry& entry : source.entries) {
        if (entry.kind != DirectoryEntry::Kind::file) continue;
        constexpr std::string_view kLock = ".lock";
        std::string_view name = entry.name;
        if (const auto id = parseMetadataName(name)) {
            saves[*id].metadata = entry.name;
        } else if (const auto data = parseDataName(name)) {
            saves[data->id].data.push_back(&entry);
        } else if (name.ends_with(kLock)) {
            name.remove_suffix(kLock.size());
            if (const auto locked = parseMetadataName(name)) saves[*locked].lock = entry.name;
        }
    }
    return saves;
}

Role roleOf(std::string_view name) {
    // As pickled by the optimizers: "<param>_moment1_0", "<param>_fp32_master_0_beta1_pow_acc_0"; as named by
    // converters and FlexCheckpoint: "<name>.moment1_0", "<name>.w_0".
    constexpr std::array kStates = std::to_array<std::string_view>(
        {"moment1", "moment2", "moment1_max", "moment2_max", "beta1_pow_acc", "beta2_pow_acc", "velocity",
         "moment", "inf_norm", "mean_square", "mean_grad", "momentum", "squared", "linear", "master_weight",
         "fp32_master", "avg_squared_grad", "avg_squared_update"});
    if (name.find("master_weights.") != std::string_view::npos ||
        name.find("_fp32_master_") != std::string_view::npos)
        return Role::optimizer;
    std::string_view stem = name;
    bool numbered = false;
    if (const size_t under = stem.rfind('_'); under != std::string_view::npos && under + 1 < stem.size()) {
        const std::string_view tail = stem.substr(under + 1);
        numbered = isDigits(tail);
        if (numbered) stem = stem.substr(0, under);
    }
    for (std::string_view state : kStates) {
        if (!stem.ends_with(state) || stem.size() <= state.size()) continue;
        const char before = stem[stem.size() - state.size() - 1];
        if (before == '.' && state != "linear") return Role::optimizer;
        if (before == '_' && numbered) return Role::optimizer;
    }
    return Role::parameter;
}

}  // namespace shardscope::paddle
