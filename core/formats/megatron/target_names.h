// The names that entries of other layouts and generations have in a torch_dist directory of today. Private to
// this format.
//
// Source: sharded_state_dict of megatron/core/transformer/{transformer_layer,transformer_block}.py and
// optimizer/{optimizer,distrib_optimizer}.py of megatron-core 0.16.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "formats/format.h"

namespace shardscope::megatron {

// What stands before the name of an entry of common.pt.
inline constexpr std::string_view kCommonPrefix = "common.";
inline constexpr std::string_view kRankPrefix = "mp_rank_";  // of what only one rank of the model has
inline constexpr const char* kCommonStep = "common.optimizer.optimizer.state.common_step";
inline constexpr std::string_view kCommonState = "common_state/";  // since core 0.19, in place of common.pt
inline constexpr std::string_view kExtraState = "._extra_state";

// As Format::pathsFor: directories of ranks get the keys of ShardedTensors, layer by layer
// (`non_homogeneous_layers`); fp32_param of flat ranges is `param`, as in fully_reshardable; objects of other
// formats belong to common.pt.
Format::NewPath pathsFor(const Catalog& source, const Format::ReadValue& read, const WriteOptions& options);

// Where in common.pt an entry stands whose name begins with kCommonPrefix.
Path commonPath(Path path);
// "chained_0.optimizer.state" to "optimizer.state".
std::string_view withoutChain(std::string_view name);
// "optimizer.state.exp_avg.decoder.final_layernorm.weight" to the name of its weight; nullopt for the name of
// anything else.
std::optional<std::string_view> weightOfState(std::string_view name);

}  // namespace shardscope::megatron
