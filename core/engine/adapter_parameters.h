// LoRA of single parameters (PEFT's target_parameters), such as the weights of all experts in one tensor.
// Which parameter a pair of matrices is for, and where that is. Private to this room.
//
// Sources: peft 0.21, tuners/lora/layer.py (ParamWrapper), tuners/tuners_utils.py (_inject_parameters);
// transformers 5.24, conversion_mapping.py (experts by themselves in files, in one tensor in memory).
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "engine/adapter_scaling.h"
#include "model/catalog.h"

namespace shardscope {

// A parameter [rows, columns] or [experts, rows, columns] of the model, and the tensors of the base that make
// it up. The matrices of all experts one below the other are one matrix of experts * rows rows.
struct StackedParameter {
    struct Place {
        TensorId base = kNone;
        int64_t firstRow = 0;  // of that matrix; the tensor holds rows from there on
    };
    Dims shape;
    std::vector<Place> places;
};

// Names of a base. With `stacks` also of the parameters that transformers makes of experts that files keep by
// themselves: "X.experts.0.gate_proj.weight" and the like are in "X.experts.gate_up_proj", gate first.
class BaseNames {
  public:
    BaseNames(const Catalog& base, bool stacks);
    const Catalog& catalog() const { return base_; }
    bool has(const std::string& name) const { return base_.find(name) != kNone || stacks_.contains(name); }
    // Calls visit(name) until it answers false.
    template <class Visit>
    void forEach(Visit&& visit) const {
        for (TensorId t = 0; t < base_.tensorCount(); ++t)
            if (!visit(base_.name(t))) return;
        for (const auto& [name, stack] : stacks_)
            if (!visit(std::string_view(name))) return;
    }
    // Empty where there is no such name.
    StackedParameter parameter(const std::string& name) const;

  private:
    const Catalog& base_;
    std::map<std::string, StackedParameter> stacks_;
};

// The parameters of a module that target_parameters name, as PEFT matches them: "a.down_proj" is for every
// module whose name is "a" or ends in ".a". `has` says whether the last two parts of a name end one of the
// base. In no order.
std::vector<std::string> targetedParameters(const std::vector<std::string>& targets,
                                            const std::string& module,
                                            const std::function<bool(const std::string&)>& has);

// The two matrices of an adapter: A [experts * rank, in], B [out, rank * experts].
struct ParameterPair {
    TensorId down = kNone, up = kNone;
};
struct PairedParameter {
    size_t pair = 0;  // of those that are given
    int64_t rank = 0;
    int64_t experts = 1;
    bool transposed = false;  // the parameter is [experts, in, out]; as MergedTensor::transposed
};

// Finds for each parameter (its full name in the model, and its shape) the pair that is for it. A name of
// the adapter says the module alone: shapes and ranks decide. Errors: impossible (no pairing fits, or more
// than one: both sides of a parameter are of one size, and nothing else of the module tells them apart).
Result<std::vector<PairedParameter>> pairParameters(
    const Catalog& adapter, const AdapterScaling& scaling,
    const std::vector<std::pair<std::string, Dims>>& parameters, const std::vector<ParameterPair>& pairs);

}  // namespace shardscope
