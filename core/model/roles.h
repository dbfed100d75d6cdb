// Finds the role of each tensor (parameter, buffer, optimizer, other) from the names of all entries together.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "model/catalog.h"

namespace shardscope {

// Pass every entry's name (tensors and objects, in any order) to add(), then ask role() for each tensor.
//
// A name is optimizer state if it is:
// - below `state` beside `param_groups` (an optimizer's state dict), at any depth;
// - below a key such as `optimizer` or `optim` at the root, or deeper where a state follows;
// - the state of a parameter beside it: `<parameter>.exp_avg`, `exp_avg.<parameter>`, `state.0.exp_avg`.
//
// Trainer state (random generators, schedulers, scalers, loops, `extra_state`) has the role `other`. A word
// that models use, too, counts only beside the other entries of the trainer's object. Names are compared, not
// paths. So the rules also find the flattened form: "state.<parameter>.<name>",
// "param_groups.<parameter>.<field>".
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

    Names withGroups_;  // prefixes before "param_groups"
    Names trainers_;    // prefixes of the state dicts of schedulers and scalers
    bool lightning_ = false;
    // Hashes of the suffixes of all names that are not below an optimizer's key: "a.b.c", "b.c".
    std::unordered_set<size_t> ends_;
};

}  // namespace shardscope
