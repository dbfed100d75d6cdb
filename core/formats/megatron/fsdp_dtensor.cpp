#include "formats/megatron/fsdp_dtensor.h"

#include <map>
#include <set>

#include <fmt/format.h>

#include "base/option_words.h"
#include "base/units.h"
#include "formats/dcp/dcp_writer.h"
#include "formats/megatron/run_state.h"
#include "model/paths.h"
#include "model/value_make.h"

namespace shardscope::megatron {

namespace {

constexpr std::string_view kSettings = "optimizer.param_to_group_meta.";
constexpr std::string_view kFsdpStates = "optimizer.state.", kFirstMoment = ".exp_avg";
constexpr std::string_view kFsdpModel = "model.module.";

// The parameter of a running model that a stored part belongs to: gate and up, and the parts of a gated delta
// net, are apart in the file alone; layers that predict further tokens have their older name there.
std::string parameterOf(std::string name) {
    if (name.ends_with("_w") || name.ends_with("_v")) {
        if (name.find(".linear_fc1.") != name.npos) name.resize(name.size() - 2);
    }
    for (const std::string_view whole : {".weight.", ".bias."}) {
        if (const size_t at = name.rfind(whole); at != name.npos) name.resize(at + whole.size() - 1);
    }
    constexpr std::string_view kStored = ".transformer_layer.", kLive = ".mtp_model_layer.";
    if (const size_t at = name.find(kStored); at != name.npos && name.find(".mtp.layers.") < at)
        name.replace(at, kStored.size(), kLive);
    return name;
}

// Which group a parameter is in. The checkpoint does not say it; Megatron decides by the name and the number
// of dimensions (get_standard_config_overrides).
class GroupRule {
  public:
    GroupRule(std::vector<Value> groups, const Arguments& args)
        : groups_(std::move(groups)), normsDecay_(args.isTrue("apply_wd_to_qk_layernorm")) {
        std::set<bool> decays;
        for (const Value& group : groups_) {
            experts_ = experts_ || isExpertGroup(group);
            decays.insert(decaysIn(group));
        }
        decay_ = decays.size() > 1;
    }

    // Empty where several groups fit, or none.
    Value groupOf(std::string_view name, size_t dims) const {
        const bool expert = name.find(".mlp.experts.") != name.npos;
        const bool decays = (dims > 1 && !name.ends_with(".bias")) ||
                            (normsDecay_ && (name.find(".q_layernorm.") != name.npos ||
                                             name.find(".k_layernorm.") != name.npos));
        Value found;
        for (const Value& group : groups_) {
            if (experts_ && isExpertGroup(group) != expert) continue;
            if (decay_ && decaysIn(group) != decays) continue;
            if (found && valueToJson(found) != valueToJson(group)) return {};
            found = group;
        }
        return found;
    }

  private:
    static bool decaysIn(const Value& group) { return ValueView(group)["wd_mult"].real() != 0.0; }

    std::vector<Value> groups_;
    const bool normsDecay_;
    bool experts_ = false, decay_ = false;
};

Status checkNames(const Catalog& target) {
    for (TensorId t = 0; t < target.tensorCount(); ++t) {
        if (target.role(t) != Role::parameter || target.name(t).starts_with(kFsdpModel)) continue;
        return makeError(ErrorCode::impossible,
                         fmt::format("weights of Megatron-FSDP have names that begin with '{}'; {} gives "
                                     "the tensors of Megatron-Core such names",
                                     kFsdpModel, option("map", "fsdp-dtensor-names")))
            .ofTensor(target.name(t));
    }
    return {};
}

std::vector<Value> groupsIn(const Catalog& target) {
    std::vector<Value> groups;
    for (const ObjectInfo& object : target.objects()) {
        if (!object.name.starts_with("optimizer.") || !object.name.ends_with("optimizer.param_groups"))
            continue;
        for (const ValueView group : ValueView(object.value).items()) {
            if (group.isMapping()) groups.push_back({object.value.graph, group.node()});
        }
    }
    return groups;
}

Arguments argumentsIn(const Catalog& target) {
    for (const ObjectInfo& object : target.objects()) {
        if (object.name == "args") return Arguments(object.value);
    }
    return {};
}

// The settings of each parameter, which a run asks for, beside the groups of the source.
Catalog withSettings(const Catalog& target, std::vector<LeftOut>& changed) {
    CatalogBuilder builder{Catalog(target)};
    const std::vector<Value> groups = groupsIn(target);
    if (groups.empty()) return std::move(builder).finish();
    const GroupRule rule(groups, argumentsIn(target));
    std::map<std::string, Value> settings;
    for (TensorId t = 0; t < target.tensorCount(); ++t) {
        const std::string_view name = target.name(t);
        if (!name.starts_with(kFsdpStates) || !name.ends_with(kFirstMoment)) continue;
        const std::string parameter = parameterOf(std::string(
            name.substr(kFsdpStates.size(), name.size() - kFsdpStates.size() - kFirstMoment.size())));
        const Value group = rule.groupOf(parameter, target.shape(t).size());
        if (!group) {
            changed.push_back({"optimizer.param_to_group_meta",
                               fmt::format("left out: nothing says which of {} '{}' is in, so a run "
                                           "keeps its own settings and begins to count steps anew",
                                           counted(groups.size(), "group"), parameter)});
            return std::move(builder).finish();
        }
        settings[parameter] = group;
    }
    for (const auto& [parameter, group] : settings) {
        for (const auto& [field, value] : ValueView(group).pairs()) {
            if (!field.text()) continue;
            const Path path = joined({"optimizer", "param_to_group_meta", parameter, *field.text()}, {});
            builder.addObject({.name = pathName(path), .path = path, .value = {group.graph, value.node()}});
        }
    }
    changed.push_back({"optimizer.param_to_group_meta",
                       fmt::format("written for {}, from {}", counted(settings.size(), "parameter"),
                                   counted(groups.size(), "group"))});
    return std::move(builder).finish();
}
}  // namespace

Result<std::unique_ptr<TargetLayout>> layOutFsdp(const Catalog& target) {
    SHARDSCOPE_TRY(checkNames(target));
    std::vector<LeftOut> changed;
    auto stored = std::make_shared<const Catalog>(withSettings(target, changed));
    SHARDSCOPE_ASSIGN(auto layout, dcp::layoutDcp(std::move(stored)));
    layout->changed.insert(layout->changed.begin(), changed.begin(), changed.end());
    return layout;
}

ParameterGroups takeParameterGroups(std::vector<Contents::Entry>& common) {
    // Names are those of parameters and fields, joined with dots; no field has one.
    std::map<std::string, std::map<std::string, Value>> settings;
    for (const Contents::Entry& entry : common) {
        const std::string name = pathName(entry.path);
        if (!isSettingOfParameter(name)) continue;
        const size_t dot = name.rfind('.');
        settings[name.substr(0, dot)][name.substr(dot + 1)] = entry.value;
    }
    std::erase_if(common, [](const Contents::Entry& e) { return isSettingOfParameter(pathName(e.path)); });
    ParameterGroups out;
    out.parameters = settings.size();
    std::set<std::string> seen;
    for (const auto& [parameter, fields] : settings) {
        const Value group = makeDictOf(fields);
        if (seen.insert(valueToJson(group)).second)
            (isExpertGroup(group) ? out.experts : out.dense).push_back(group);
    }
    return out;
}

bool isSettingOfParameter(std::string_view name) {
    return name.starts_with(kSettings);
}

bool isExpertGroup(const Value& group) {
    return ValueView(group)["is_expert_parallel"].isTrue();
}

}  // namespace shardscope::megatron
