// What differs between two checkpoints, whatever their formats and shardings (docs/cli.md, `diff`).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "execute/compare_values.h"

namespace shardscope {

// Patterns are of names of A, as in a conversion. A tensor of B goes with the one of A that it is compared
// with. One that A lacks is judged by its own name and role.
struct DiffOptions : TensorChoice {
    bool values = false;
    std::vector<RenameRule> rename;  // applied to names of A
    // A recipe that A goes through first, as in a conversion, and values of its parameters. Placement is not
    // compared then.
    std::string map;
    std::vector<std::string> set;
    // Quantized weights are compared as the tensors that they stand for, in this dtype, on each side that has
    // them.
    std::optional<DType> dequantize;
};
// What of a conversion's request a comparison takes. Errors: usage, naming the malformed rule.
Result<DiffOptions> diffOptions(const ConversionRequest& request);

struct DiffEntry {
    std::string name;
    std::string a, b;  // what each side has, as text
};
struct ValueDiff : ValueFigures {
    std::string name;
};
// Of all tensors whose values were compared. The norms are those of one vector of all their elements.
struct DiffSummary {
    uint64_t equal = 0, different = 0;  // tensors
    double maxAbs = 0, maxRelative = 0;
    double l2 = 0, relativeL2 = 0;
};
struct DiffReport {
    // What the recipe makes of A, whose tensors the lists name; null without a recipe.
    std::shared_ptr<const Catalog> mapped;
    std::string recipe;  // which one was chosen by the names, a sentence; empty = none was
    std::vector<std::string> onlyA, onlyB;
    std::vector<DiffEntry> shape, dtype, placement;
    std::vector<PlanLeftOut> leftOutA, leftOutB;  // names of the catalogs, and why they are not compared
    size_t compared = 0;                          // tensors with the same name, shape and dtype
    std::vector<ValueDiff> values;                // those that differ, worst first
    std::optional<DiffSummary> summary;           // when values were compared
    // Names, shapes, dtypes and (when compared) values are equal; placement does not count.
    bool equal() const {
        return onlyA.empty() && onlyB.empty() && shape.empty() && dtype.empty() && values.empty();
    }
    bool valuesCompared() const { return summary.has_value(); }
    // "292 tensors of A and 1 of B: optimizer state (291), matched by --exclude (2)"; empty = none.
    std::string leftOutText() const;
};
// Errors: usage (a malformed pattern or rule), impossible (the recipe does not fit; the choice leaves nothing
// to compare), unsupported (no side has quantized weights to compute), those of reading.
Result<DiffReport> diffCheckpoints(const Checkpoint& a, const Checkpoint& b, const DiffOptions& options,
                                   const Resources& resources);

}  // namespace shardscope
