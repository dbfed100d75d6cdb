// Checkpoints of Megatron-FSDP (`--ckpt-format fsdp_dtensor`): plain DCPs with names of their own, and with
// the optimizer's settings of each parameter in place of groups. Private to this format.
//
// Source: megatron/training/checkpointing.py (preprocess_fsdp_dtensor_state_dict, _load_base_checkpoint),
// megatron/core/optimizer/distrib_optimizer.py (sharded_param_state_fsdp_dtensor, _param_name) and
// megatron/core/transformer/fsdp_dtensor_checkpoint.py of Megatron-LM d98e8a64.
#pragma once

#include <memory>
#include <vector>

#include "formats/megatron/contents.h"

namespace shardscope::megatron {

inline constexpr const char* kFsdpVariant = "fsdp_dtensor";

// Implements Format::layout for that variant. Errors: impossible for names that are not those of
// Megatron-FSDP; those of layoutDcp().
Result<std::unique_ptr<TargetLayout>> layOutFsdp(const Catalog& target);

// Groups of the optimizer, made of the settings of each parameter: equal settings are one group.
struct ParameterGroups {
    std::vector<Value> dense, experts;  // dicts; experts: those with is_expert_parallel
    size_t parameters = 0;
};
// Removes optimizer.param_to_group_meta.* from the entries of a common.pt.
ParameterGroups takeParameterGroups(std::vector<Contents::Entry>& common);

bool isSettingOfParameter(std::string_view name);  // without "common."
bool isExpertGroup(const Value& group);

}  // namespace shardscope::megatron
