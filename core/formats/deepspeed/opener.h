// Opens a tag's files as one checkpoint. Private to this format.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "formats/deepspeed/file_names.h"
#include "formats/deepspeed/states.h"
#include "formats/deepspeed/tp_placement.h"
#include "formats/tensor_assembly.h"

namespace shardscope::deepspeed {

class Opener {
  public:
    Opener(const Source& source, const OpenOptions& options, Tag tag);
    Result<std::unique_ptr<Reader>> open();

  private:
    struct ModelFile {
        const TagFile* file = nullptr;
        uint32_t dp = 0, mp = 0;
        uint32_t index = kNone;  // of the assembly
        ModelStates states;
    };
    struct OptimizerFile {
        const TagFile* file = nullptr;
        uint32_t dp = 0, mp = 0;
        uint32_t index = kNone;
        OptimizerStates states;
    };
    // A weight or a buffer, as one rank holds it whole.
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
    };
    // A stage of a pipeline without ZeRO: what its optimizer holds, and of which layers.
    struct Stage {
        struct Entry {
            size_t group = 0, index = 0;  // in PlainStates
            uint32_t tensor = kNone;      // one of its states; kNone = it has none
            bool tied = false;            // an earlier stage has the same values
        };
        const ModelFile* model = nullptr;
        PlainStates states;
        std::vector<Entry> entries;
        size_t layers = 0;         // how many layers the stage has
        std::vector<size_t> drop;  // entries of parameters that an earlier stage lists
    };
    // A flat group, with its parameters one after the other.
    struct FlatGroup {
        std::vector<size_t> parameters;
        std::vector<int64_t> starts;  // of each, and where the last one ends
        std::vector<int64_t> elements;
        std::vector<bool> listed;  // not where other ranks have the same, cut at other places
    };
    struct Slot {
        size_t parameter = 0;
        int64_t begin = 0, end = 0;  // elements of the shard
        int64_t at = 0;              // where they begin in the partition
        bool listed = true;
    };
    // What one rank holds of it.
    struct Partition {
        int64_t length = 0;  // with padding
        int64_t owned = 0;   // without the padding at the end
        std::vector<Slot> slots;
    };

    // opener.cpp: files and ranks
    void noteTracker();
    // Reads one file ahead of the others.
    Result<uint32_t> look(const TagFile& file) { return assembly_.addFile(file.name, file.about.dp); }
    Status readModelFiles();
    Status readOptimizerFiles();
    Status groupsFromSlices();
    Status chooseDegrees();
    void noteSteps();
    void addUnused(const TagFile& file, uint32_t rank, std::string message);
    void addMissingFiles();
    void addObjects();
    void addOthers();
    Mesh mesh() const;
    uint32_t rankOf(uint32_t dp, uint32_t mp) const {
        return (mp / tpDegree_ * dpWorld_ + dp) * tpDegree_ + mp % tpDegree_;
    }
    uint32_t tpOf(uint32_t mp) const { return mp % tpDegree_; }
    const TensorFile& contents(uint32_t index) { return assembly_.files()[index]; }
    const ModelFile* modelOf(uint32_t mp) const;  // the first that could be read

    // weights.cpp: names, shapes, and weights that are stored
    Status gatherWeights();
    void gatherModule(const ModelFile& model);
    void gatherLayers();
    std::string tieFor(const TensorFile& file, const std::map<std::string, const NamedShape*>& shapes,
                       const std::map<std::string, uint32_t>& taken, uint32_t index);
    void gatherExperts();
    size_t parameterOf(const std::string& name);
    void stateShape(const std::string& name, uint32_t tp, const Dims& shape, const std::string& file);
    void addStored(const std::string& name, StoredWeight stored, bool buffer);
    Status placeAll();
    void noteRefused(const Parameter& parameter);
    void addWeights();
    void addShard(const Path& path, DType dtype, Role role, const Parameter& parameter,
                  const StoredWeight& stored);
    void addAliases();
    std::string globalName(const std::string& local, int64_t expertRank) const;

    // partitions.cpp: ZeRO
    void addPartitions();
    bool holdsFirst(size_t parameter, uint32_t tp, int64_t start, int64_t length);
    const FlatGroup& flatGroup(const OptimizerFile& file, size_t group);
    Partition partitionOf(const OptimizerFile& file, size_t group, int64_t index);
    static std::vector<Slot> wholeSlots(const FlatGroup& flat, const Partition& partition);
    std::string slicesOf(const OptimizerFile& file, size_t group, int64_t index);
    void addGroup(const OptimizerFile& file, size_t group);
    void watchPadding(const OptimizerFile& file, size_t group, uint32_t tensor);
    void addFlat(const Path& path, DType dtype, Role role, const OptimizerFile& file, uint32_t tensor,
                 const Slot& slot, const Parameter& parameter);
    void declare(const Path& path, DType dtype, Role role, uint32_t file, const Parameter& parameter);
    void addState(const std::string& name, const std::string& state, uint32_t file, uint32_t tensor,
                  uint32_t rank);
    void addStateObject(const std::string& name, const std::string& state, const Value& value, uint32_t file,
                        uint32_t rank);
    int64_t worldOf(const OptimizerFile& file, size_t group) const;
    std::pair<int64_t, int64_t> expertPlace(const OptimizerFile& file, size_t group) const;
    bool checkSlices(const OptimizerFile& file);
    void noteUnknown();
    FindNotes paddingNotes();

    // plain_states.cpp: no ZeRO
    void addPlainStates();
    void addStages();
    void addStage(Stage& stage, const std::vector<std::vector<size_t>>& layers, size_t& next);
    bool alignStages(std::vector<Stage>& stages, const std::vector<std::vector<size_t>>& layers, size_t stage,
                     size_t layer);
    bool tiedInFlat(const Stage& stage, const std::vector<std::vector<size_t>>& layers, size_t next,
                    size_t taken, size_t parameters);
    void noteUneven(const std::vector<Stage>& stages, const std::vector<std::vector<size_t>>& layers);
    void addPlainFile(uint32_t file, const PlainStates& states, const std::vector<size_t>& dense,
                      const std::vector<size_t>& experts, uint32_t mp, uint32_t rank);
    bool addFlatMaster(uint32_t file, const PlainStates& states, size_t group,
                       const std::vector<size_t>& members, uint32_t mp, uint32_t rank);
    size_t fitting(uint32_t file, uint32_t master, uint32_t tp, const std::vector<size_t>& candidates,
                   std::set<size_t>& used, bool& sure);

    // universal.cpp
    Status addUniversal();
    void addUniversalState(const std::string& name, const std::string& state, const std::string& path,
                           uint32_t index, std::optional<DType> modelDtype);
    void addUniversalStep(uint32_t index, const std::vector<std::string>& trained, bool eachHasStep);

    const Source& source_;
    const OpenOptions& options_;
    const Tag tag_;
    TensorAssembly assembly_;
    std::vector<ModelFile> models_;
    std::vector<OptimizerFile> optimizers_;
    uint32_t dpWorld_ = 1, mpWorld_ = 1, tpDegree_ = 1;
    int stage_ = 0;
    bool bf16Optimizer_ = false, expertsAfterData_ = false;
    std::vector<Parameter> parameters_;
    std::unordered_map<std::string, size_t> byName_;
    std::map<std::string, int64_t> expertsPerRank_;         // by what stands before their number
    std::set<std::pair<std::string, std::string>> stated_;  // state objects that are there
    std::set<std::string> noted_;
    using GroupKey = std::tuple<uint32_t, size_t, int64_t>;  // model-parallel rank, group, experts
    std::map<GroupKey, FlatGroup> flatGroups_;
    // Where the first ranks that have a parameter cut it: its start in their flat group, and a partition's
    // length.
    std::map<std::pair<size_t, uint32_t>, std::pair<int64_t, int64_t>> cuts_;
    size_t unlisted_ = 0;
    std::map<GroupKey, std::unordered_map<std::string, int64_t>> slicesOf_;  // whose partition has them
    std::set<GroupKey> spoken_;
    bool misfit_ = false;  // partitions of another length than param_shapes says
    std::optional<TpPlacement> tp_;
    // Slots with padding in the optimizer files of stage 3, for notes on exchanged files.
    struct Padded {
        uint32_t file = 0, dp = 0, mp = 0, tensor = 0;
        std::vector<std::pair<int64_t, int64_t>> slots;  // start and elements of the parameter
        int64_t world = 1;
    };
    std::vector<Padded> padded_;
};

Path statePath(const std::string& name, const std::string& state);

}  // namespace shardscope::deepspeed
