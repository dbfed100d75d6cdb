// The steps of a recipe that make other tensors out of those of the source. They run one after the other,
// each on the names and shapes that those before it left. They run only on paper: what they make are views
// (plan/view.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/catalog.h"
#include "plan/view.h"

namespace shardscope {

// A number of a recipe; one that depends on a parameter without a value is only missed when a step needs it.
struct StepNumber {
    int64_t value = 0;
    std::string missing;  // a sentence; empty = `value` is known
    std::string lacks{};  // the parameter that has no value, where that is why
};

struct RecipeStep {
    enum class Kind : uint8_t {
        rename,
        copy,
        transpose,
        reshape,
        split,
        concatenate,
        unstack,
        stack,
        select,
        slice,
        pad,
        rope,
        fusedQkv,
        compute
    };
    // How q, k and v are arranged in a fused projection:
    //   grouped  for each key-value head its query heads, its key head and its value head (Megatron)
    //   blocks   all query heads, all key heads, all value heads (GPT-2's c_attn)
    //   ranks    blocks, but of each tensor-parallel rank by itself: [q1 k1 v1 | q2 k2 v2]
    enum class Layout : uint8_t { grouped, blocks, ranks };

    Kind kind = Kind::rename;
    size_t number = 0;   // counted from 1, for messages
    std::string recipe;  // the included recipe in which it has this number; empty = the one that was given
    // Regular expressions (RE2) for whole names; names that match those of one step with the same groups
    // belong together. A rename replaces wherever its one expression matches.
    std::vector<std::string> from;
    std::vector<std::string>
        to;  // names with $1, $2, ...; empty = the name stays. {i} is the index of unstack
    // Of rename; may be empty. Renames only where this matches the whole of another name, with groups equal
    // to the first groups of `from`; `from` then matches whole names, too.
    // Of copy: each name that it matches gets a copy of the tensor whose groups are the first of its own.
    std::string beside;
    // Optimizer state "<name>.<state>" or "state.<state>.<name>" of a tensor goes through the same step;
    // single numbers (steps, powers) are kept as they are.
    bool withState = true;
    bool optional = false;  // fine when nothing matches
    // It changes how names and tensors are arranged, whatever model they are of: what it matches is not
    // known by that.
    bool arranges = false;
    int dim = 0;                    // negative = counted from the end
    std::vector<int> order;         // of transpose; empty = all dimensions reversed
    std::vector<StepNumber> sizes;  // of reshape (the shape; -1 = what is left), split and layout `ranks`
    size_t indexGroup = 0;  // of stack: the group that is the index; those of one name belong together
    std::optional<StepNumber> start;   // first index of unstack and stack (0), first element of slice (0)
    std::optional<StepNumber> stride;  // from one index of unstack and stack to the next (1)
    std::optional<StepNumber> length;  // of slice and pad: what the dimension is to have; of stack: how many
    std::optional<StepNumber> index;   // of select
    std::optional<StepNumber> row;     // of pad: the element along `dim` that is repeated, instead of `fill`
    double fill = 0;                   // of pad
    bool ifKnown = false;  // of slice and pad: without a value for a number nothing is done, with a note
    bool toHalf = false;   // of rope: from interleaved pairs to halves; else back
    Layout layout = Layout::grouped;
    std::optional<StepNumber> heads, kvHeads, headDim, ranks;
    // Of compute: the operand is a number, its square root, or 1 through it, rounded to `rounded`.
    ValueChange::Kind change = ValueChange::Kind::multiply;
    std::optional<StepNumber> operand;
    bool root = false, inverse = false;
    DType rounded = DType::float32;
};
std::string_view stepName(RecipeStep::Kind kind);
// "step 3 (split)", "step 3 of megatron-layers (split)".
std::string stepTitle(const RecipeStep& step);

// What the steps work on, and what they leave.
struct StepTensor {
    std::string name;
    TensorId origin = kNone;                 // the (first) source tensor that it is made of
    std::shared_ptr<const TensorView> view;  // null: `origin` as it is
    std::string made;                        // what was done, e.g. "rope (step 2)"; empty = nothing
    bool copy = false;   // `origin` goes to another name too, and this is not an alias of that
    bool known = false;  // a step that does not only arrange has matched it
};
struct StepObject {
    std::string name;
    ObjectId origin = kNone;
};
struct StepState {
    std::vector<StepTensor> tensors;
    std::vector<StepObject> objects;
    std::vector<std::pair<std::string, std::string>> dropped;  // name and why
    std::vector<std::pair<std::string, std::string>> notes;    // name, and what a step left as it is and why
    std::set<TensorId> reordered;  // fused tensors of the source whose order a step has put right
};

// Errors: usage, with the step, the tensor and its shape.
Status applySteps(const Catalog& source, const std::vector<RecipeStep>& steps, StepState& state);
// The same of one step; `matched` says whether anything fits it.
Status applyStep(const Catalog& source, const RecipeStep& step, StepState& state, bool& matched);

}  // namespace shardscope
