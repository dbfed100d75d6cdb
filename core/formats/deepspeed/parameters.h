// Collects the parameters of a save (names, shapes, tensor-parallel placement, stored weights) and adds them
// to the catalog. Private to this format.
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

// A rank's shard of a weight, buffer or state: file and tensor in the assembly.
struct StoredWeight {
    uint32_t tp = 0, rank = 0, file = 0, tensor = 0;
};

struct Parameter {
    std::string name;
    std::vector<std::optional<Dims>> shapes;  // by tensor-parallel rank
    std::optional<DType> dtype;               // dtype in the model
    bool buffer = false;
    const FileName* expert = nullptr;  // its file, if it is a parameter of an expert
    std::vector<StoredWeight> stored;
    Placement placement;

    // Whether the placement is known, so that shards can be added.
    bool placed() const { return !placement.shards.empty(); }
    int64_t elementsOn(uint32_t tp) const { return elementCount(shapes[tp].value_or(Dims{0})); }
};

class Parameters {
  public:
    explicit Parameters(Save& save) : save_(save) {}

    // Collects names, shapes and weights from `module`, layer files and expert files.
    void gather();
    // Finds the placement of each parameter over tensor-parallel ranks. Errors: usage for a --tp-dim that
    // cannot be read.
    Status place();

    const std::vector<Parameter>& all() const { return list_; }
    const Parameter& operator[](size_t index) const { return list_[index]; }
    bool contains(const std::string& name) const { return byName_.contains(name); }
    size_t indexOf(const std::string& name);  // adds the parameter if it is new
    // The global name of an expert's parameter. Optimizer files and param_shapes number experts per rank.
    std::string globalName(const std::string& local, int64_t expertRank) const;

    // Add the stored weights, and the aliases of share_params, to the catalog.
    void addWeights();
    void addAliases();
    // Adds a tensor to the catalog even if no file holds a shard of it.
    void declare(const Path& path, DType dtype, Role role, uint32_t file, const Parameter& parameter);
    // Adds a tensor-parallel rank's whole shard, which is one stored tensor.
    void addShard(const Path& path, DType dtype, Role role, const Parameter& parameter,
                  const StoredWeight& stored);
    // Adds the elements `range` of a shard; they are stored from element `at` on.
    void addFlat(const Path& path, DType dtype, Role role, const Parameter& parameter,
                 const StoredWeight& stored, FlatRange range, int64_t at);
    // Adds a state tensor that is not sharded.
    void addState(const std::string& name, const std::string& state, uint32_t file, uint32_t tensor,
                  uint32_t rank);
    // Adds a state object; only the first rank's counts.
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
    std::map<std::string, int64_t, std::less<>> expertsPerRank_;  // by the name before the expert's number
    std::set<std::string> disagreeing_;                     // parameters whose ranks state different shapes
    std::set<std::pair<std::string, std::string>> stated_;  // state objects added so far: (parameter, state)
};

// Adds the flat ZeRO partitions of all ranks. Returns the implementation of Reader::fileNotes(); may be
// empty.
FindNotes addPartitions(Save& save, Parameters& parameters);
// Adds the state of an optimizer without ZeRO.
void addPlainStates(Save& save, Parameters& parameters);
// Adds a universal checkpoint, with a directory for each parameter. Errors: those of reading
// `optimizer_state.pt`.
Status addUniversal(Save& save, Parameters& parameters);

// Notes files that ranks should have written, and weights that no file holds.
void addMissingFiles(Save& save, const Parameters& parameters);
// Notes files of different steps.
void noteMixedSteps(Save& save);

}  // namespace shardscope::deepspeed
