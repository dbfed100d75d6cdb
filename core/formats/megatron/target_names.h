// Maps entry names of other layouts and generations to the names in a torch_dist directory of core 0.16.
// Private to this format.
//
// Source: sharded_state_dict of megatron/core/transformer/{transformer_layer,transformer_block}.py and
// optimizer/{optimizer,distrib_optimizer}.py of megatron-core 0.16.
#pragma once

#include <optional>
#include <string_view>

#include "formats/format.h"

namespace shardscope::megatron {

// Prefixes and names of entries.
inline constexpr std::string_view kCommonPrefix = "common.";
inline constexpr std::string_view kRankPrefix = "mp_rank_";  // of entries that only one rank holds
inline constexpr const char* kCommonStep = "common.optimizer.optimizer.state.common_step";
inline constexpr std::string_view kCommonState = "common_state/";  // since core 0.19, replaces common.pt
inline constexpr std::string_view kExtraState = "._extra_state";

// Implements Format::pathsFor. Entries of mp_rank_* directories get ShardedTensor keys, layer by layer
// (`non_homogeneous_layers`). fp32_param of flat ranges becomes `param`, as in fully_reshardable. Objects of
// other formats go to common.pt.
Format::NewPath pathsFor(const Catalog& source, const Format::ReadValue& read, const WriteOptions& options);

// The path in common.pt of an entry whose name begins with kCommonPrefix.
Path commonPath(Path path);
// "chained_0.optimizer.state" -> "optimizer.state".
std::string_view withoutChain(std::string_view name);
// "optimizer.state.exp_avg.decoder.final_layernorm.weight" -> "decoder.final_layernorm.weight"; nullopt for
// names that are not optimizer state.
std::optional<std::string_view> weightOfState(std::string_view name);

}  // namespace shardscope::megatron
