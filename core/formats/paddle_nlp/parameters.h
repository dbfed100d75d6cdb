// What the ranks of a hybrid-parallel checkpoint hold, by structured name.
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
    bool sliced = false;  // a stage-3 slice by its name
};

struct State {
    std::string name;  // "moment1", ...; empty = the weight
    std::vector<StoredShard> held;
};

struct Parameter {
    std::string name;
    std::string tiedTo;  // the name that has its states
    std::vector<State> states;
    // By tensor-parallel rank: the shape there. Absent = known of no rank.
    std::map<uint32_t, Dims> local;
    std::optional<Dims> whole;   // of a weight that was merged before saving
    std::optional<DType> dtype;  // of the weight
    std::optional<bool> distributed;
    std::map<std::pair<uint32_t, uint32_t>, std::string>
        stages;  // (pp, moe) that have it, and under which static name

    State* find(std::string_view state);
    State& get(std::string_view state);
};

struct Parameters {
    std::vector<Parameter> list;  // in the order of the model, as far as the files tell
    std::vector<Group> groups;
    std::vector<NameMap::Source> sources;  // of each group
    std::vector<Note> notes;
};

Parameters gatherParameters(const HybridFiles& files);

}  // namespace shardscope::paddle_nlp
