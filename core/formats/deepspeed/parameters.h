// The parameters of a save: names, shapes, how tensor-parallel ranks cut them, and the weights that are
// stored. Private to this format.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "formats/deepspeed/save.h"
#include "formats/deepspeed/tp_placement.h"

namespace shardscope::deepspeed {

// What a rank has of a weight, a buffer or a state; the place in the files of the assembly.
struct StoredWeight {
    uint32_t tp = 0, rank = 0, file = 0, tensor = 0;
};

struct Parameter {
    std::string name;
    std::vector<std::optional<Dims>> shapes;  // by tensor-parallel rank
    std::optional<DType> dtype;               // of the model
    bool buffer = false;
    const FileName* expert = nullptr;  // the file of experts that it is in
    std::vector<StoredWeight> stored;
    Placement placement;

    // Whether its shape is known, so that pieces of it have a place.
    bool placed() const { return !placement.shards.empty(); }
    int64_t elementsOn(uint32_t tp) const { return elementCount(shapes[tp].value_or(Dims{0})); }
};

Path statePath(const std::string& name, const std::string& state);

class Parameters {
  public:
    explicit Parameters(Save& save) : save_(save) {}

    // Names, shapes and weights: from `module`, layer files and files of experts.
    void gather();
    // Where the shards of tensor-parallel ranks belong. Errors: usage for a --tp-dim that cannot be read.
    Status place();

    const std::vector<Parameter>& all() const { return list_; }
    const Parameter& operator[](size_t index) const { return list_[index]; }
    bool contains(const std::string& name) const { return byName_.contains(name); }
    size_t indexOf(const std::string& name);  // of a new one where there is none yet
    // The name of an expert's parameter over all ranks: the optimizer's files and param_shapes count on each
    // rank.
    std::string globalName(const std::string& local, int64_t expertRank) const;

    // To the catalog: weights that are stored, and names that are others' (share_params).
    void addWeights();
    void addAliases();
    // Makes a tensor known of which nothing may be here.
    void declare(const Path& path, DType dtype, Role role, uint32_t file, const Parameter& parameter);
    // What a tensor-parallel rank holds of a tensor, stored as a whole.
    void addShard(const Path& path, DType dtype, Role role, const Parameter& parameter,
                  const StoredWeight& stored);
    // The elements `range` of its shard, which are stored from element `at` on.
    void addFlat(const Path& path, DType dtype, Role role, const Parameter& parameter,
                 const StoredWeight& stored, FlatRange range, int64_t at);
    // A state that is not distributed.
    void addState(const std::string& name, const std::string& state, uint32_t file, uint32_t tensor,
                  uint32_t rank);
    // Of the first rank that has it.
    void addStateObject(const std::string& name, const std::string& state, const Value& value, uint32_t file,
                        uint32_t rank);

  private:
    void countExperts();
    void gatherModule(const ModelFile& model);
    void gatherFragments(const ModelFile& model);
    void gatherLayers();
    void gatherExperts();
    void stateShape(const std::string& name, uint32_t tp, const Dims& shape, const std::string& file);
    void addStored(const std::string& name, StoredWeight stored, bool buffer);
    std::vector<TpShards> shardsOfAll(bool compares) const;
    void noteRefused(const Parameter& parameter);
    void addFragment(const Parameter& parameter, const StoredWeight& stored);

    Save& save_;
    std::vector<Parameter> list_;
    std::unordered_map<std::string, size_t> byName_;
    std::map<std::string, int64_t> expertsPerRank_;         // by what stands before their number
    std::set<std::string> disagreeing_;                     // about shapes
    std::set<std::pair<std::string, std::string>> stated_;  // state objects that are there
};

}  // namespace shardscope::deepspeed
