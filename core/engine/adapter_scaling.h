// What the configuration of a LoRA adapter says: its ranks, how it is scaled, what kind it is. Private to
// this room.
//
// Sources: peft 0.21, tuners/lora/config.py (LoraConfig), utils/other.py (get_pattern_key); the section
// `peft` of Megatron-Bridge's run_config.yaml.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/regular_expression.h"
#include "engine/engine.h"

namespace shardscope {

struct AdapterScaling {
    std::string file;             // that says it
    std::optional<int64_t> rank;  // Megatron's configuration may leave it to the shapes
    double alpha = 0;
    bool rootOfRank = false, fanInFanOut = false, dora = false;
    bool saysDora = true;        // false: the tensors alone say it
    int64_t tensorParallel = 1;  // ranks of Megatron that trained it
    std::vector<std::pair<RegularExpression, int64_t>> ranks;
    std::vector<std::pair<RegularExpression, double>> alphas;
    std::vector<std::string> parameters;  // target_parameters: ends of names, "mlp.experts.down_proj"

    // Of a module, or of a parameter that is targeted by its own name.
    int64_t rankOf(std::string_view name, int64_t stored) const;
    // By which the product is multiplied.
    float scalingOf(std::string_view name, int64_t rank) const;
};

// From adapter_config.json, beside the tensors or one directory above, else run_config.yaml or args.json.
// Errors: usage (nothing says it), unsupported (kinds that are not W + scaling * B @ A, by name), damaged.
Result<AdapterScaling> adapterScaling(const Checkpoint& adapter);

}  // namespace shardscope
