// The parts of a TargetRequest as the command line and recipes write them, and back. Reading reports
// malformed text as a usage error; writing gives text that reads back to the same value.
#pragma once

#include <string>
#include <string_view>

#include "plan/plan.h"
#include "plan/steps.h"

namespace shardscope {

Result<ShardRule> parseShardRule(std::string_view text);    // "GLOB:tp=0,dp=0"
Result<StageRule> parseStageRule(std::string_view text);    // "GLOB:pp=1"
Result<CastRule> parseCastRule(std::string_view text);      // "GLOB=bf16"
Result<RenameRule> parseRenameRule(std::string_view text);  // "FROM=TO"

std::string formatShardRule(const ShardRule& rule);
std::string formatStageRule(const StageRule& rule);
std::string formatCastRule(const CastRule& rule);
std::string formatRenameRule(const RenameRule& rule);

}  // namespace shardscope
