// Collects what the ranks of a hybrid-parallel checkpoint hold, by structured name.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "formats/paddle_nlp/parameter_names.h"
#include "formats/paddle_nlp/rank_files.h"

namespace shardscope::paddle_nlp {

// One stored entry of a parameter's weight or of one of its optimizer states.
struct StoredShard {
    const RankFile* file = nullptr;
    const StoredTensor* entry = nullptr;
    uint32_t tp = 0, pp = 0, shard = 0, moe = 0;
    bool sliced = false;  // the name marks a slice of sharding stage 3
};

struct State {
    std::string name;  // "moment1", ...; empty = the weight
    std::vector<StoredShard> held;
};

struct Parameter {
    std::string name;
    std::string tiedTo;  // the tensor that this alias names, which has the states
    std::vector<State> states;
    // Shape of the shard, by tensor-parallel rank. A rank is absent if its shape is unknown.
    std::map<uint32_t, Dims> local;
    std::optional<Dims> whole;   // shape of a weight that was consolidated before saving
    std::optional<DType> dtype;  // of the weight
    std::optional<bool> distributed;
    // Static name, by the (pp, moe) that hold the parameter.
    std::map<std::pair<uint32_t, uint32_t>, std::string> stages;

    State* find(std::string_view state);
    State& get(std::string_view state);
};

struct Parameters {
    std::vector<Parameter> list;  // in model order, as far as known
    std::vector<Group> groups;
    std::vector<NameMap::Source> sources;  // by group
    std::vector<Note> notes;
};

Parameters gatherParameters(const HybridFiles& files);

}  // namespace shardscope::paddle_nlp
