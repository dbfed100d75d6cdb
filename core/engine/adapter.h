// LoRA adapters that conversions write. These are the files that PEFT loads, and PEFT's adapters for
// frameworks that have one rank and one scaling for all modules. Private to this room.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "engine/added_files.h"
#include "engine/engine.h"
#include "plan/plan.h"

namespace shardscope {

// Renames the layout's only file to PEFT's adapter_model.safetensors, and returns the adapter_config.json
// beside it. Ranks that differ by module are its rank_pattern. Errors: usage (no alpha, several files).
Result<std::vector<AddedFile>> adapterFiles(const Catalog& target, const TargetRequest::Adapter& adapter,
                                            TargetLayout& layout);

// PEFT's adapter with one rank and one scaling for all modules. Rows and columns of zeros make ranks equal.
// Each B is divided by how much less its module is scaled than the others.
struct EvenAdapter {
    nlohmann::json steps = nlohmann::json::array();  // of a recipe, for the names of the source
    std::string scaling;  // "16 for rank 8 (adapter_config.json)"; empty where nothing says it
};

// What the framework's adapters are like.
struct AdapterTarget {
    bool fused = false;         // q, k and v of a layer, and gate and up, share one A
    bool fusedExperts = false;  // gate and up of an expert do
    bool dora = false;          // layers whose parts share one A may have magnitudes
};

// Errors: unsupported (DoRA that the framework does not have; a kind of adapter that is not
// W + scaling * B @ A), impossible (a scaling that is not a whole number of times another one; parts that are
// to share an A have different ones), damaged, those of reading.
Result<EvenAdapter> evenAdapter(const Checkpoint& source, const AdapterTarget& target);

}  // namespace shardscope
