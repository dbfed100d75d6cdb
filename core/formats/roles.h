// What a tensor is for, found from the structure of all names together.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <unordered_set>

#include "model/catalog.h"

namespace shardscope {

// First every entry's name (tensors and objects, in any order) goes to add(), then role() answers for each
// tensor.
//
// An optimizer state dict is a mapping with the entries `state` and `param_groups`, at any depth or at the
// root; what is under its `state` is optimizer state. Names rather than paths are looked at, so the
// flattened form, whose keys are "state.<parameter>.<name>" and "param_groups.<parameter>.<field>", is found
// by the same rule.
class RoleFinder {
  public:
    void add(std::string_view name);
    Role role(std::string_view name) const;

  private:
    struct Hash {
        using is_transparent = void;
        size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
    };
    std::unordered_set<std::string, Hash, std::equal_to<>> withGroups_;  // what stands before "param_groups"
};

}  // namespace shardscope
