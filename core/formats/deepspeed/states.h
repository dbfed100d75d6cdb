// Parses and checks the dicts in DeepSpeed's model and optimizer files. Private to this format.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "formats/tensor_files.h"
#include "model/named_values.h"

namespace shardscope::deepspeed {

struct NamedShape {
    std::string name;
    Dims shape;
    int64_t elements = 0;
};

// An integer, or the integer of an enum value such as ZeroStageEnum(2).
std::optional<int64_t> integerOf(ValueView value);
std::vector<std::string> textsIn(ValueView list);

class Entries : public NamedValues {
  public:
    using NamedValues::NamedValues;
    explicit Entries(const TensorFile& file) : NamedValues(file.objects) {}
    std::optional<int64_t> integer(const std::string& name) const { return integerOf((*this)[name]); }
    std::vector<int64_t> integers(const std::string& name) const;  // of a list, or of one integer
};

// *_model_states.pt. runtime/engine.py save_checkpoint.
struct ModelStates {
    bool hasGroups = false;                       // `param_shapes` is not None
    std::vector<std::vector<NamedShape>> groups;  // `param_shapes`, in the order of the groups
    std::vector<NamedShape> frozen;
    std::set<std::string> buffers;
    std::vector<std::pair<std::string, std::string>> shared;  // alias, holder
    std::optional<int64_t> dpWorld, mpWorld, tpDegree, steps;
    std::vector<int64_t> experts;  // of each layer of experts
    std::string version;
};
// Errors: damaged.
Result<ModelStates> readModelStates(const TensorFile& file);

// The states of one flat group, or of one parameter.
struct GroupStates {
    std::vector<std::pair<std::string, uint32_t>> tensors;  // (state, index in the file)
    std::vector<std::pair<std::string, const Value*>> objects;
};
struct Slice {
    std::string name;
    int64_t start = 0, elements = 0;
};

// *_optim_states.pt of ZeRO and of BF16_Optimizer.
struct OptimizerStates {
    std::optional<int64_t> stage;     // nullopt for BF16_Optimizer
    std::vector<int64_t> partitions;  // partition count of each group; stage 3 has one number
    std::vector<std::vector<int64_t>> alignment;
    std::vector<std::vector<Slice>> slices;
    bool hasSlices = false;
    std::map<int64_t, GroupStates> groups;
    std::set<int64_t> muon;          // groups that Muon trains
    int64_t partitionCount() const;  // the largest of `partitions`
};
Result<OptimizerStates> readOptimizerStates(const TensorFile& file);

// The state dict of an optimizer without ZeRO. Parameters are numbered group after group.
struct PlainStates {
    struct Group {
        std::vector<int64_t> ids;
        bool experts = false;
    };
    std::vector<Group> groups;
    std::map<int64_t, GroupStates> states;
    std::vector<std::vector<uint32_t>> masters;  // by group and parameter: index in the file
    std::map<int64_t, uint32_t> flatMasters;     // FP16_Optimizer: by group, index in the file

    uint32_t masterOf(size_t group, size_t index) const {
        return group < masters.size() && index < masters[group].size() ? masters[group][index] : kNone;
    }
};
PlainStates readPlainStates(const TensorFile& file);

}  // namespace shardscope::deepspeed
