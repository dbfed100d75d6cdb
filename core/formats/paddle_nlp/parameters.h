// Collects what the ranks of a hybrid-parallel checkpoint hold, by structured name.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "formats/paddle_nlp/rank_files.h"

namespace shardscope::paddle_nlp {

// One stored entry of a parameter's weight or of one of its optimizer states.
struct StoredShard {
    const RankFile* file = nullptr;
    const StoredTensor* entry = nullptr;
    bool sliced = false;  // the name marks a slice of sharding stage 3
    RankPlace at() const { return file->at(); }
    uint32_t index() const { return static_cast<uint32_t>(entry - file->content->tensors.data()); }
};

struct State {
    std::string name;  // "moment1", ...; empty = the weight
    std::vector<StoredShard> held;
    bool isWeight() const { return name.empty(); }
    bool isCounter() const { return name.ends_with("pow_acc"); }  // one number for each parameter
    // The dtype of what is held; nullopt where nothing is.
    std::optional<DType> stored() const {
        if (held.empty() || held[0].entry->parts.empty()) return std::nullopt;
        return held[0].entry->parts[0].dtype;
    }
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
    std::string nameOf(const State& state) const { return state.isWeight() ? name : name + "." + state.name; }
    bool hasStates() const;  // of the optimizer
    bool sliced() const;     // some entry is marked as a slice of sharding stage 3
};

// In model order, as far as known. What is wrong with them is noted in `builder`.
std::vector<Parameter> gatherParameters(const HybridFiles& files, CatalogBuilder& builder);

}  // namespace shardscope::paddle_nlp
