// The files of a checkpoint that PEFT loads as a LoRA adapter. Private to this room.
#pragma once

#include <vector>

#include "engine/added_files.h"
#include "plan/plan.h"

namespace shardscope {

// Renames the layout's only file to PEFT's adapter_model.safetensors, and returns the adapter_config.json
// beside it. Errors: usage (no alpha, several files), impossible (modules of different LoRA ranks).
Result<std::vector<AddedFile>> adapterFiles(const Catalog& target, const TargetRequest::Adapter& adapter,
                                            TargetLayout& layout);

}  // namespace shardscope
