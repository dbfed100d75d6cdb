// Which tensors of a checkpoint are meant, by patterns of names and by role: the one answer for conversions
// and comparisons.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/catalog.h"
#include "model/name_pattern.h"
#include "plan/plan.h"

namespace shardscope {

// A value; any thread may ask it.
class TensorSelection {
  public:
    TensorSelection() = default;  // of all
    // `leavesOptimizer`: without optimizer state, whatever `weightsOnly` says. Errors: usage for malformed
    // patterns.
    static Result<TensorSelection> of(const TensorChoice& choice, bool leavesOptimizer = false);

    bool selected(std::string_view name) const { return select_.empty() || anyMatches(select_, name); }
    bool weightsOnly() const { return weightsOnly_; }
    bool leavesOptimizer() const { return leavesOptimizer_; }
    // Why what has this name is left out; empty = its name is wanted.
    std::string whyNot(std::string_view name) const;
    // The same by name and role.
    std::string whyNot(const Catalog& catalog, TensorId tensor) const;

  private:
    std::vector<NamePattern> select_, exclude_;
    bool weightsOnly_ = false, leavesOptimizer_ = false;
};

Result<std::vector<NamePattern>> parsePatterns(const std::vector<std::string>& texts);  // errors: usage

// Reasons, as plans and comparisons list them.
inline constexpr const char* kOptimizerState = "optimizer state";
inline constexpr const char* kNotAWeight = "neither a parameter nor a buffer";

}  // namespace shardscope
