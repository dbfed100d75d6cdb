// What a tensor is for, found from the structure of all names together.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "model/catalog.h"

namespace shardscope {

// First every entry's name (tensors and objects, in any order) goes to add(), then role() answers for each
// tensor.
//
// Optimizer state is known by its place:
// - what is under `state` beside `param_groups` (an optimizer's state dict), at any depth or at the root;
// - what is below a key such as `optimizer` or `optim` at the root, or deeper where a state follows;
// - the state of a parameter beside it: `<parameter>.exp_avg`, `exp_avg.<parameter>`, `state.0.exp_avg`.
// State of the trainer (random generators, schedulers, scalers, loops, `extra_state`) has the role `other`;
// of words that a model may use as well only where the entries are those of the trainer's object. Names
// rather than paths are looked at, so that the flattened form, whose keys are "state.<parameter>.<name>" and
// "param_groups.<parameter>.<field>", is found by the same rule.
class RoleFinder {
  public:
    void add(std::string_view name);
    Role role(std::string_view name) const;

  private:
    using Components = std::vector<std::string_view>;
    struct Hash {
        using is_transparent = void;
        size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
    };
    using Names = std::unordered_set<std::string, Hash, std::equal_to<>>;

    bool isOptimizer(std::string_view name, const Components& parts) const;
    bool isStateBeside(const Components& parts) const;
    bool isTrainer(const Components& parts) const;
    bool namesTensor(std::string_view text) const;

    Names withGroups_;  // what stands before "param_groups"
    Names trainers_;    // what stands before the entries of a scheduler's or scaler's state dict
    bool lightning_ = false;
    // Hashes of the ends of all names that are not below an optimizer's key: "a.b.c", "b.c".
    std::unordered_set<size_t> ends_;
};

}  // namespace shardscope
