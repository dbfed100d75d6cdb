// Opens the mp_rank_* directories of --ckpt-format torch. Private to this format.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "formats/megatron/place.h"
#include "formats/megatron/run_state.h"
#include "formats/megatron/tensor_parallel.h"
#include "formats/rank_parts.h"
#include "formats/tp_rule.h"

namespace shardscope::megatron {

class LegacyOpener {
  public:
    LegacyOpener(const Source& source, const OpenOptions& options, const Place& place)
        : source_(source),
          options_(options),
          place_(place),
          assembly_(source, options, "megatron", place.nemo() ? "nemo" : "torch",
                    place.nemo() ? "NeMo 1" : "Megatron-LM, --ckpt-format torch") {}

    Result<std::unique_ptr<Reader>> open();

  private:
    struct RankFiles {
        std::string directory;
        uint32_t tp = 0, pp = 0, ep = 0;
        uint32_t etp = 0;   // expert-tensor-parallel rank
        bool saves = true;  // Megatron itself writes this directory
        uint32_t rank = 0;
        uint32_t model = kNone, optimizer = kNone;  // in assembly_.files(); kNone = missing or damaged
    };
    // A parameter of the model, as one rank holds it.
    struct Shard {
        const RankFiles* rank = nullptr;
        uint32_t tensor = 0;
    };
    struct Parameter {
        Path path;
        std::string name;  // without "model."
        std::vector<Shard> shards;
        std::optional<Cut> cut;  // nullopt: the shards cannot be joined
        int axis = 0;
        uint32_t degree = 1;         // number of ranks that shard the parameter
        bool byExpertRanks = false;  // these ranks are RankFiles::etp
        // Lengths along dimension 0 of the fused parts of a rank's shard; each part is sharded separately.
        // Empty = one part. In weight1 of grouped experts: gate and up projection.
        std::vector<int64_t> parts;
        // Experts per rank in weight1 or weight2 of grouped experts. Whatever the stored shape, elements are
        // in the order of [experts, hidden, ffn] or [experts, ffn, hidden].
        int64_t experts = 0;
        bool grouped = false;
        Dims whole;
        std::string refused;  // why the joined shards are not the parameter; empty = they are
    };
    using StageKey = std::pair<uint32_t, uint32_t>;  // (virtual stage, pipeline stage), in layer order

    const TensorFile& contents(uint32_t file) { return assembly_.files()[file]; }

    // legacy.cpp: files, and the model
    Status readArguments();
    void readNemoConfig();
    Path modelPath(const std::string& name) const;
    void findFirstRanks();
    RankFiles rankAt(uint32_t tp, uint32_t pp, uint32_t ep) const;
    Status listRanks();
    Status readFiles();
    void noteSteps();
    // Calls visit(virtual stage, name below "model", tensor or kNone, value or null) for the model's entries.
    using VisitEntry = std::function<void(uint32_t, const std::string&, uint32_t, const Value*)>;
    void forModelEntries(const RankFiles& rank, const VisitEntry& visit);
    void checkStages();
    void countLayers();
    std::string layerName(const RankFiles& rank, uint32_t virtualStage, const std::string& local);
    std::string globalName(const RankFiles& rank, uint32_t virtualStage, const std::string& local);
    void gatherModel();
    void addObject(const RankFiles& rank, Path path, const Value& value, RankObject::When when);
    const StoredTensor& stored(const Shard& shard) {
        return contents(shard.rank->model).tensors[shard.tensor];
    }
    const Parameter* scaledBy(const Parameter& parameter);
    void addScales(const Parameter& scales, const Parameter& values);
    void addModel();
    void addShard(const Parameter& parameter, const Path& path, DType dtype, const Dims& local, Role role,
                  uint32_t file, uint32_t tensor, const RankFiles& rank);
    void noteVersion();

    // legacy_cuts.cpp: how ranks shard a parameter
    const Dims* localShape(const std::string& name);  // nullptr = the model has no such parameter
    bool isGated(const std::string& name);
    void choosePlacement(Parameter& parameter);
    bool placeGrouped(Parameter& parameter, const Dims& local);
    std::optional<LayerCut> stateLayerCutOf(const std::string& name, bool& belongs);
    LayerCut cutByName(Parameter& parameter, const Dims& local);
    bool differAmongRanks(const Parameter& parameter);
    std::vector<CutBox> boxesOf(const Parameter& parameter, const Dims& local, const RankFiles& rank) const;
    std::vector<CutBox> groupedBoxes(const Parameter& parameter, const Dims& local,
                                     const RankFiles& rank) const;
    bool refused(const Parameter& parameter, const Path& path, DType dtype, Role role);

    // legacy_optimizer.cpp: states of the optimizer
    // A trained parameter on one rank.
    struct RankParameter {
        size_t parameter = 0;  // of parameters_
        uint32_t tensor = 0;   // of the rank's model file
        uint32_t virtualStage = 0;
        int64_t elements = 0;
        DType dtype = DType::float32;
        bool expert = false, alone = false;
    };
    Status addOptimizer();
    std::vector<RankParameter> parametersOf(const RankFiles& rank);
    Result<bool> isMaster(uint32_t file, uint32_t master, int64_t first, const RankFiles& rank,
                          const RankParameter& parameter);
    Status addBuffers(const RankFiles& rank, std::set<uint32_t>& named);
    Result<std::vector<int64_t>> startsIn(const RankFiles& rank,
                                          const std::map<std::string, uint32_t>& states, int64_t length,
                                          const std::vector<RankParameter>& parameters,
                                          const std::vector<int64_t>& elements,
                                          const std::vector<bool>& alone);
    Status addNumberedStates(const RankFiles& rank, std::set<uint32_t>& named);
    Result<std::vector<size_t>> membersOf(const RankFiles& rank, const std::vector<RankParameter>& all,
                                          const std::set<size_t>& used,
                                          const std::function<uint32_t(size_t)>& tensorOf, size_t count,
                                          bool masters);

    const Source& source_;
    const OpenOptions& options_;
    const Place& place_;
    TensorAssembly assembly_;
    std::vector<TpRule> stated_;
    Arguments args_;
    double version_ = 3;
    std::string evidenceFile_;
    ParallelSizes sizes_;
    uint32_t etp_ = 1;  // tensor-parallel ranks of experts
    // For each expert- and tensor-parallel rank: the first rank of a pipeline stage; kNone = none.
    std::vector<uint32_t> firstRanks_;
    std::vector<RankFiles> ranks_;
    std::map<std::string, std::map<StageKey, int64_t>> firstLayer_;
    std::map<std::string, int64_t> localExperts_;  // by the name before the expert's number
    std::vector<Parameter> parameters_;
    std::map<std::string, size_t> byName_;
    std::deque<Value> values_;  // values that objects_ refers to
    std::vector<RankObject> objects_;
    bool saidCarried_ = false;
    std::set<std::string> refused_;  // names of tensors
};

// The virtual stage of a key "model", "model0", "model1"; nullopt for any other key.
std::optional<uint32_t> virtualStageOf(std::string_view key);

// Errors: limit, cancelled, usage for a --tp-dim that cannot be read; damaged files of ranks are notes.
Result<std::unique_ptr<Reader>> openLegacy(const Source& source, const OpenOptions& options,
                                           const Place& place);

}  // namespace shardscope::megatron
