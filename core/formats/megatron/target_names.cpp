#include "formats/megatron/target_names.h"

#include <algorithm>
#include <array>
#include <memory>
#include <set>

#include <fmt/format.h>

#include "base/names.h"
#include "formats/megatron/fsdp_dtensor.h"
#include "formats/megatron/run_state.h"
#include "model/paths.h"

namespace shardscope::megatron {

namespace {

constexpr std::string_view kStates = "optimizer.state.";
constexpr std::array<std::string_view, 4> kStateKinds{"param", "fp32_param", "exp_avg", "exp_avg_sq"};

// optimizer.state.<parameter>.<kind>, as directories of ranks are read.
bool isStateOfRanks(const Path& path) {
    return path.size() == 4 && isKey(path, 0, "optimizer") && isKey(path, 1, "state") &&
           path[2].kind == PathPart::Kind::key && path[3].kind == PathPart::Kind::key;
}

// What the names of a checkpoint of mp_rank_* directories are in the whole model.
class RankNames {
  public:
    explicit RankNames(const Catalog& source) {
        bool norms = false, fused = false, attention = false;
        for (TensorId t = 0; t < source.tensorCount(); ++t) {
            const std::string_view name = source.name(t);
            const Path path = source.path(t);
            if (commonStep_.empty() && isStateOfRanks(path) && path[3].text == "step") commonStep_ = name;
            norms = norms || name.ends_with(".input_layernorm.weight");
            fused = fused || name.ends_with(".linear_qkv.layer_norm_weight");
            attention = attention || name.ends_with(".linear_qkv.weight");
        }
        // Layers without Transformer Engine have norms of their own, which are saved under the names that it
        // gives them (sharded_state_dict_keys_map).
        ownNorms_ = norms && attention && !fused;
    }

    std::optional<Path> operator()(const Path& path) const {
        if (path.empty() || path[0].kind != PathPart::Kind::key || path[0].text.starts_with(kRankPrefix))
            return std::nullopt;
        if (path.size() == 2 && isKey(path, 0, "model") && path[1].kind == PathPart::Kind::key) {
            std::string key = keyOf(path[1].text);
            if (key.ends_with(kExtraState)) key += "/shard_0_1";
            return Path{keyPart(key)};
        }
        if (isStateOfRanks(path)) {
            if (std::ranges::find(kStateKinds, path[3].text) != kStateKinds.end())
                return Path{keyPart(fmt::format("{}{}.{}", kStates, path[3].text, keyOf(path[2].text)))};
            if (pathName(path) != commonStep_) return std::nullopt;
            return joined({"common.optimizer", "optimizer", "state", "common_step"}, {});
        }
        Path common = path;
        common[0].text = std::string(kCommonPrefix) + common[0].text;
        return common;
    }

  private:
    std::string keyOf(std::string name) const {
        if (!ownNorms_) return name;
        for (const auto& [own, fused] : {std::pair<std::string_view, std::string_view>{
                                             ".input_layernorm.", ".self_attention.linear_qkv.layer_norm_"},
                                         {".pre_mlp_layernorm.", ".mlp.linear_fc1.layer_norm_"}}) {
            if (const size_t at = name.find(own); at != name.npos && name.find("layers.") < at)
                name.replace(at, own.size(), fused);
        }
        return name;
    }

    std::string commonStep_;
    bool ownNorms_ = false;
};

bool isFlatModelSpace(const Catalog& source, const std::function<Result<Value>(ObjectId)>& read) {
    const std::span<const ObjectInfo> objects = source.objects();
    for (ObjectId o = 0; o < objects.size(); ++o) {
        if (!objects[o].name.starts_with("common.optimizer") ||
            !objects[o].name.ends_with(".param_state_sharding_type"))
            continue;
        const auto value = read(o);
        if (value.ok() && value->graph->isText(value->node, "fully_sharded_model_space")) return true;
    }
    return false;
}

}  // namespace

Path commonPath(Path path) {
    if (path.empty() || path[0].kind != PathPart::Kind::key) return path;
    if (path[0].text == "common" && path.size() > 1) {
        path.erase(path.begin());
    } else if (path[0].text.starts_with(kCommonPrefix)) {
        path[0].text.erase(0, kCommonPrefix.size());
    }
    return path;
}

std::string_view withoutChain(std::string_view name) {
    constexpr std::string_view kChained = "chained_";
    if (!name.starts_with(kChained)) return name;
    const size_t dot = name.find('.');
    const std::string_view number =
        name.substr(kChained.size(), dot == name.npos ? dot : dot - kChained.size());
    return dot != name.npos && isDigits(number) ? name.substr(dot + 1) : name;
}

std::optional<std::string_view> weightOfState(std::string_view name) {
    name = withoutChain(name);
    if (!name.starts_with(kStates)) return std::nullopt;
    name.remove_prefix(kStates.size());
    const size_t dot = name.find('.');
    if (dot == name.npos) return std::nullopt;
    return name.substr(dot + 1);
}

Format::NewPath pathsFor(const Catalog& source, const Format::ReadValue& read, const WriteOptions& options) {
    const bool own = source.format() == "megatron";
    if (options.variant == kFsdpVariant)
        return [](const Path& path, bool) -> std::optional<Path> {
            if (!pathName(path).starts_with(kCommonPrefix)) return std::nullopt;
            return commonPath(path);
        };
    if (own && source.variant() == "torch")
        return [names = std::make_shared<const RankNames>(source)](const Path& path, bool) {
            return (*names)(path);
        };
    if (own) {
        if (!isFlatModelSpace(source, read)) return {};
        return [](const Path& path, bool) -> std::optional<Path> {
            if (path.size() != 1 || path[0].kind != PathPart::Kind::key) return std::nullopt;
            const std::string& name = path[0].text;
            constexpr std::string_view kMaster = "optimizer.state.fp32_param.";
            const std::string_view rest = withoutChain(name);
            if (!rest.starts_with(kMaster)) return std::nullopt;
            return Path{
                keyPart(fmt::format("{}optimizer.state.param.{}", name.substr(0, name.size() - rest.size()),
                                    rest.substr(kMaster.size())))};
        };
    }
    auto objects = std::make_shared<std::set<std::string>>();
    for (const ObjectInfo& object : source.objects()) {
        if (!parseShardedName(object.name) && !object.name.starts_with(kCommonPrefix))
            objects->insert(encodePath(object.path));
    }
    if (objects->empty()) return {};
    return [objects](const Path& path, bool) -> std::optional<Path> {
        if (path.empty() || !objects->contains(encodePath(path))) return std::nullopt;
        Path common = path;
        if (common[0].kind == PathPart::Kind::key)
            common[0].text = std::string(kCommonPrefix) + common[0].text;
        else
            common.insert(common.begin(), keyPart("common"));
        return common;
    };
}

}  // namespace shardscope::megatron
