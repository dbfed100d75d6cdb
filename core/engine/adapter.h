// A checkpoint that PEFT loads as an adapter. Private to this room.
#pragma once

#include <vector>

#include "engine/added_files.h"
#include "plan/plan.h"

namespace shardscope {

// Calls the layout's file as PEFT does and makes the adapter_config.json beside it. Errors: usage (no alpha,
// several files), impossible (what no configuration of PEFT says).
Result<std::vector<AddedFile>> adapterFiles(const Catalog& target, const TargetRequest::Adapter& adapter,
                                            TargetLayout& layout);

}  // namespace shardscope
