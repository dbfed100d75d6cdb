// What the values of a checkpoint are like, by module, layer or tensor, and how that changes over the steps
// of a run. It finds norms that jump, modules that come to hold NaN, experts that are dead.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "validate/validate.h"

namespace shardscope {

enum class ValuesBy : uint8_t { module, layer, tensor };
// A moment is a state of the optimizer with many elements; its master weights are weights. Buffers, counters
// and the state of trainers are other.
enum class ValuesKind : uint8_t { weight, moment, other };
constexpr ValuesBy kValuesBy[] = {ValuesBy::module, ValuesBy::layer, ValuesBy::tensor};
std::string_view valuesByName(ValuesBy by);
// Errors: usage.
Result<ValuesBy> valuesByNamed(std::string_view name);
std::string_view valuesKindName(ValuesKind kind);

// Tensors that are shown as one. A module is a name with "*" for its layer and, of weights, without its last
// part: "model.layers.*.mlp.experts.3.w1". Experts that have a name each stay apart. A layer is a name up to
// its number, with the last part of the names of moments: "model.layers.5", "state.layers.5.*.exp_avg". What
// is in no layer goes by module.
struct ValueGroup {
    std::string name;
    ValuesKind kind = ValuesKind::other;
    uint64_t tensors = 0;
    ValueCounts counts;
    ValueSums sums;

    // nullopt where no value is a finite floating-point number.
    std::optional<double> norm() const;  // square root of the sum of squares
    std::optional<double> rms() const;
    std::optional<double> mean() const;
    double zeroShare() const;  // 0..1
};

// A norm that is this many times that of the step before, or the other way round, is marked.
constexpr double kWeightJump = 2, kMomentJump = 10;

struct ValueMark {
    enum class What : uint8_t { jump, nonFinite, deadExperts };
    What what = What::jump;
    std::string step, group;
    std::string text;  // a sentence
};
std::string_view valueMarkName(ValueMark::What what);  // "jump", "non-finite", "dead-experts"

class ValueHistory {
  public:
    struct Step {
        std::string name;
        std::vector<ValueGroup> groups;  // in the order of tensors
    };

    explicit ValueHistory(ValuesBy by = ValuesBy::module) : by_(by) {}
    // Older steps first. An expert is dead when all elements of its tensors of one kind are zero and those of
    // another expert beside it are not. It is marked at the first such step.
    void add(std::string step, std::span<const TensorValues> tensors);

    const std::vector<Step>& steps() const { return steps_; }
    const std::vector<ValueMark>& marks() const { return marks_; }

  private:
    struct Before {  // of a group, at the last step that had it
        double norm = 0;
        bool finite = true;
        std::string step;
    };
    using Key = std::pair<std::string, ValuesKind>;  // name
    void markGroup(const ValueGroup& group, const std::string& step);
    void markExperts(std::span<const TensorValues> tensors, const std::string& step);

    const ValuesBy by_;
    std::vector<Step> steps_;
    std::vector<ValueMark> marks_;
    std::map<Key, Before> before_;
    std::map<Key, std::set<int64_t>> dead_;  // experts, by what stands before their numbers
};

}  // namespace shardscope
