// --ckpt-format torch: a directory for each rank of the model, with what it holds under local names.
//
// Source: megatron/training/checkpointing.py of Megatron-LM (get_checkpoint_name, generate_state_dict,
// fix_query_key_value_ordering), megatron/core/optimizer/{optimizer,distrib_optimizer}.py.
#include "formats/megatron/legacy.h"

#include <algorithm>
#include <charconv>
#include <deque>
#include <functional>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include "base/checked.h"
#include "base/rule.h"
#include "base/text.h"
#include "formats/megatron/buffers.h"
#include "formats/megatron/run_state.h"
#include "formats/megatron/tensor_parallel.h"
#include "formats/rank_parts.h"
#include "formats/tp_rule.h"

namespace shardscope::megatron {

namespace {

constexpr size_t kMostDirectories = 100'000;

// "decoder.layers.3.mlp.router.weight": what stands before the number of the layer, the number, and what
// stands behind it.
struct LayerName {
    std::string_view before, after;
    int64_t layer = 0;
};
std::optional<LayerName> parseLayerName(std::string_view name) {
    constexpr std::string_view kLayers = "layers.";
    for (size_t at = name.find(kLayers); at != name.npos; at = name.find(kLayers, at + 1)) {
        if (at > 0 && name[at - 1] != '.') continue;
        const std::string_view rest = name.substr(at + kLayers.size());
        int64_t layer = 0;
        const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), layer);
        if (error != std::errc{} || layer < 0 || layer > INT32_MAX || end == rest.data() + rest.size() ||
            *end != '.')
            continue;
        return LayerName{name.substr(0, at + kLayers.size()),
                         rest.substr(static_cast<size_t>(end - rest.data())), layer};
    }
    return std::nullopt;
}

// "mlp.experts.local_experts.1.linear_fc1.weight" and "mlp.experts.linear_fc1.weight1": where the number of
// the expert is.
struct ExpertNumber {
    size_t begin = 0, end = 0;
    int64_t number = 0;
};
std::optional<ExpertNumber> parseExpertNumber(std::string_view name) {
    constexpr std::string_view kLocal = "local_experts.", kExperts = ".experts.linear_fc";
    ExpertNumber out;
    if (const size_t at = name.find(kLocal); at != name.npos) {
        out.begin = at + kLocal.size();
    } else if (name.find(kExperts) != name.npos) {
        out.begin = name.size();
        while (out.begin > 0 && name[out.begin - 1] >= '0' && name[out.begin - 1] <= '9')
            --out.begin;
    } else {
        return std::nullopt;
    }
    const auto [end, error] = std::from_chars(name.data() + out.begin, name.data() + name.size(), out.number);
    if (error != std::errc{} || out.number < 0 || out.number > INT32_MAX) return std::nullopt;
    out.end = static_cast<size_t>(end - name.data());
    return out;
}

// "model", "model0", "model1": the virtual stage that a rank's key is of.
std::optional<uint32_t> virtualStageOf(std::string_view key) {
    constexpr std::string_view kModel = "model";
    if (key == kModel) return 0;
    if (!key.starts_with(kModel)) return std::nullopt;
    key.remove_prefix(kModel.size());
    uint32_t number = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), number);
    if (error != std::errc{} || end != key.data() + key.size() || number > 4096) return std::nullopt;
    return number;
}

class LegacyOpener {
  public:
    LegacyOpener(const Source& source, const OpenOptions& options, const Place& place)
        : source_(source),
          options_(options),
          place_(place),
          assembly_(source, options, "megatron", "torch", "Megatron-LM, --ckpt-format torch") {}

    Result<std::unique_ptr<Reader>> open() {
        for (const std::string& text : options_.valuesOf(kTpDim)) {
            SHARDSCOPE_ASSIGN(TpRule rule, parseTpRule(text));
            stated_.push_back(std::move(rule));
        }
        SHARDSCOPE_TRY(readArguments());
        SHARDSCOPE_TRY(listRanks());
        SHARDSCOPE_TRY(readFiles());
        countLayers();
        gatherModel();
        addModel();
        SHARDSCOPE_TRY(addOptimizer());
        addRankObjects(assembly_, objects_);
        noteVersion();
        std::optional<Mesh> mesh;
        if (sizes_.ranks() > 1) mesh = sizes_.mesh();
        return assembly_.finish(sizes_.ranks(), std::move(mesh));
    }

  private:
    struct RankFiles {
        std::string directory;
        uint32_t tp = 0, pp = 0, ep = 0;
        uint32_t rank = 0;
        uint32_t model = kNone, optimizer = kNone;  // of the assembly; kNone = missing or damaged
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
        std::optional<Cut> cut;  // nullopt: shards that cannot be put together
        int axis = 0;
        Dims whole;
    };
    using StageKey = std::pair<uint32_t, uint32_t>;  // virtual stage, pipeline stage: the order of layers

    const TensorFile& contents(uint32_t file) { return assembly_.files()[file]; }

    // The first file that can be read says how many ranks there are.
    Status readArguments() {
        TensorFiles files(source_, options_);
        for (const RankDirectory& directory : place_.ranks) {
            const auto index = files.add(directory.name + '/' + kModelFile);
            if (!index.ok()) {
                if (index.error().code == ErrorCode::cancelled) return index.error();
                continue;
            }
            for (const StoredObject& object : files[*index].objects) {
                if (object.name == "args") args_ = Arguments(object.value);
                if (object.name == "checkpoint_version" && object.value.kind() == ValueKind::real)
                    version_ = object.value.graph->real(object.value.node);
            }
            evidenceFile_ = directory.name + '/' + kModelFile;
            break;
        }
        return {};
    }

    Status listRanks() {
        uint32_t tp = 0, second = 0, third = 0;
        size_t most = 0;
        for (const RankDirectory& directory : place_.ranks) {
            tp = std::max(tp, directory.tp);
            if (!directory.others.empty()) second = std::max(second, directory.others[0]);
            if (directory.others.size() > 1) third = std::max(third, directory.others[1]);
            most = std::max(most, directory.others.size());
        }
        const auto stated = sizesOf(args_, evidenceFile_);
        if (stated) {
            sizes_ = *stated;
        } else {
            // One number behind that of the tensor-parallel rank is that of a pipeline stage or of an expert;
            // nothing but the args tells which.
            sizes_.tp = tp + 1;
            sizes_.pp = second + 1;
            sizes_.ep = third + 1;
            sizes_.dp = sizes_.ep;
            sizes_.evidence = "the names of the directories";
        }
        const bool stages = sizes_.pp > 1, experts = sizes_.ep > 1;
        if (uint64_t{sizes_.tp} * sizes_.pp * sizes_.ep > kMostDirectories)
            return makeError(ErrorCode::limit,
                             fmt::format("more than {} directories of ranks", kMostDirectories))
                .inFile(source_.display);
        for (uint32_t e = 0; e < sizes_.ep; ++e) {
            for (uint32_t p = 0; p < sizes_.pp; ++p) {
                for (uint32_t t = 0; t < sizes_.tp; ++t) {
                    RankFiles rank;
                    rank.directory = fmt::format("mp_rank_{:02}", t);
                    if (stages) rank.directory += fmt::format("_{:03}", p);
                    if (experts) rank.directory += fmt::format("_{:03}", e);
                    rank.tp = t;
                    rank.pp = p;
                    rank.ep = e;
                    rank.rank = (p * sizes_.dp + e % sizes_.dp) * sizes_.cp * sizes_.tp + t;
                    ranks_.push_back(std::move(rank));
                }
            }
        }
        std::set<std::string_view> expected;
        for (const RankFiles& rank : ranks_)
            expected.insert(rank.directory);
        for (const RankDirectory& directory : place_.ranks) {
            if (expected.contains(directory.name)) continue;
            assembly_.note(
                rule::fileStale, Severity::warning,
                fmt::format("'{}' is not part of this checkpoint, whose mesh is {}; an earlier save by "
                            "other ranks may have left it",
                            directory.name, formatMesh(sizes_.mesh())),
                directory.name);
        }
        return {};
    }

    Status readFiles() {
        std::vector<std::pair<std::string, uint32_t>> names;
        for (const RankFiles& rank : ranks_)
            names.emplace_back(rank.directory + '/' + kModelFile, rank.rank);
        SHARDSCOPE_ASSIGN(const auto models, assembly_.addFiles(names));
        // Only a distributed optimizer has a file of its own; what some ranks have all must have.
        std::vector<size_t> with, without;
        for (size_t r = 0; r < ranks_.size(); ++r) {
            ranks_[r].model = models[r];
            const auto entry = source_.directory->stat(ranks_[r].directory + '/' + kOptimizerFile);
            (entry.ok() ? with : without).push_back(r);
        }
        std::vector<std::pair<std::string, uint32_t>> optimizers;
        for (const size_t r : with)
            optimizers.emplace_back(ranks_[r].directory + '/' + kOptimizerFile, ranks_[r].rank);
        SHARDSCOPE_ASSIGN(const auto opened, assembly_.addFiles(optimizers));
        for (size_t i = 0; i < with.size(); ++i)
            ranks_[with[i]].optimizer = opened[i];
        for (size_t i = 0; !with.empty() && i < without.size(); ++i) {
            const RankFiles& rank = ranks_[without[i]];
            assembly_.addMissing(rank.directory + '/' + kOptimizerFile, rank.rank, Severity::error,
                                 "the distributed optimizer's state of this rank is missing",
                                 Note::Lacks::optimizerState);
        }
        return {};
    }

    // Calls visit(virtual stage, name below "model", tensor or kNone, value or null) for the model's entries.
    template <class Visit>
    void forModelEntries(const RankFiles& rank, Visit&& visit) {
        if (rank.model == kNone) return;
        const TensorFile& file = contents(rank.model);
        const auto below = [&](const Path& path, uint32_t tensor, const Value* value) {
            if (path.size() < 2 || path[0].kind != PathPart::Kind::key) return false;
            const auto stage = virtualStageOf(path[0].text);
            if (!stage) return false;
            visit(*stage, pathName(Path(path.begin() + 1, path.end())), tensor, value);
            return true;
        };
        for (uint32_t t = 0; t < file.tensors.size(); ++t) {
            if (file.tensors[t].special == kNone) below(file.tensors[t].path, t, nullptr);
        }
        for (const StoredObject& object : file.objects)
            below(object.path, kNone, &object.value);
    }

    // Layers are counted from 0 in every stage.
    void countLayers() {
        std::map<std::string, std::map<StageKey, int64_t>> counts;  // by what stands before the number
        std::set<StageKey> stages;
        for (uint32_t v = 0; v < sizes_.virtualStages; ++v) {
            for (uint32_t p = 0; p < sizes_.pp; ++p)
                stages.emplace(v, p);
        }
        std::set<uint32_t> known;
        for (const RankFiles& rank : ranks_) {
            if (rank.model != kNone) known.insert(rank.pp);
            forModelEntries(rank, [&](uint32_t v, const std::string& name, uint32_t, const Value*) {
                stages.emplace(v, rank.pp);
                if (const auto layer = parseLayerName(name)) {
                    int64_t& count = counts[std::string(layer->before)][{v, rank.pp}];
                    count = std::max(count, layer->layer + 1);
                }
            });
        }
        for (auto& [before, perStage] : counts) {
            // A stage that cannot be read has what the others leave of all layers.
            int64_t seen = 0, lost = 0;
            for (const StageKey& stage : stages) {
                if (const auto it = perStage.find(stage); it != perStage.end()) seen += it->second;
                lost += !known.contains(stage.second);
            }
            const int64_t all = args_.integer("num_layers").value_or(0);
            int64_t each = 0;
            if (lost > 0 && all > seen && before.find("mtp") == before.npos) each = (all - seen) / lost;
            int64_t first = 0;
            for (const StageKey& stage : stages) {
                firstLayer_[before][stage] = first;
                const auto it = perStage.find(stage);
                first += it != perStage.end() ? it->second : known.contains(stage.second) ? 0 : each;
            }
        }
    }

    // The name that a local one has in the whole model.
    std::string globalName(const RankFiles& rank, uint32_t virtualStage, const std::string& local) {
        std::string name = local;
        if (const auto layer = parseLayerName(local)) {
            const int64_t first = firstLayer_[std::string(layer->before)][{virtualStage, rank.pp}];
            name = fmt::format("{}{}{}", layer->before, layer->layer + first, layer->after);
        }
        if (const auto expert = parseExpertNumber(name); expert && rank.ep > 0) {
            const int64_t experts = localExperts_[name.substr(0, expert->begin)];
            name = fmt::format("{}{}{}", name.substr(0, expert->begin), expert->number + rank.ep * experts,
                               name.substr(expert->end));
        }
        return name;
    }

    void gatherModel() {
        // How many experts each rank has, layer by layer.
        for (const RankFiles& rank : ranks_) {
            if (rank.ep > 0) continue;
            forModelEntries(rank, [&](uint32_t v, const std::string& local, uint32_t, const Value*) {
                const std::string name = globalName(rank, v, local);
                if (const auto expert = parseExpertNumber(name)) {
                    int64_t& count = localExperts_[name.substr(0, expert->begin)];
                    count = std::max(count, expert->number + 1);
                }
            });
        }
        for (const RankFiles& rank : ranks_) {
            forModelEntries(rank, [&](uint32_t v, const std::string& local, uint32_t tensor,
                                      const Value* value) {
                const std::string name = globalName(rank, v, local);
                if (tensor == kNone) {
                    addObject(rank, {keyPart("model"), keyPart(name)}, *value, RankObject::When::differing);
                    return;
                }
                const auto [it, fresh] = byName_.try_emplace(name, parameters_.size());
                if (fresh) {
                    Parameter parameter;
                    parameter.name = name;
                    parameter.path = {keyPart("model"), keyPart(name)};
                    parameters_.push_back(std::move(parameter));
                }
                parameters_[it->second].shards.push_back({&rank, tensor});
            });
        }
    }

    void addObject(const RankFiles& rank, Path path, const Value& value, RankObject::When when) {
        Path ofRank = path;
        ofRank.insert(ofRank.begin(), keyPart(rank.directory));
        values_.push_back(value);
        objects_.push_back(
            {std::move(path), std::move(ofRank), rank.model, rank.rank, &values_.back(), when});
    }

    const StoredTensor& stored(const Shard& shard) {
        return contents(shard.rank->model).tensors[shard.tensor];
    }

    bool isGated(const std::string& name) {
        if (args_.has("swiglu")) return args_.isTrue("swiglu");
        // The second layer takes half of what the first one gives.
        std::string second = name;
        for (const auto& [one, two] : {std::pair<std::string, std::string>{"linear_fc1", "linear_fc2"},
                                       {"dense_h_to_4h", "dense_4h_to_h"}}) {
            if (const size_t at = second.find(one); at != second.npos) second.replace(at, one.size(), two);
        }
        if (second.ends_with(".bias")) second.replace(second.size() - 4, 4, "weight");
        const auto first = byName_.find(name), other = byName_.find(second);
        if (first == byName_.end() || other == byName_.end()) return false;
        const Dims& a = stored(parameters_[first->second].shards[0]).shape;
        const Dims& b = stored(parameters_[other->second].shards[0]).shape;
        return !a.empty() && b.size() == 2 && a[0] == 2 * b[1];
    }

    // Shards on ranks of equal tensor-parallel number are copies of each other.
    void choosePlacement(Parameter& parameter) {
        const Shard& first = parameter.shards[0];
        const Dims local = stored(first).shape;
        parameter.whole = local;
        parameter.cut = Cut::none;
        if (sizes_.tp == 1) return;
        std::optional<Cut> cut;
        const auto rule = std::ranges::find_if(
            stated_, [&](const TpRule& r) { return r.pattern.matches("model." + parameter.name); });
        if (rule != stated_.end()) {
            cut = rule->axis == TpRule::kReplicated || static_cast<size_t>(rule->axis) >= local.size()
                      ? Cut::none
                      : Cut::columns;
            parameter.axis = rule->axis;
        } else {
            cut = cutOf(parameter.name, local.size(), isGated(parameter.name));
            parameter.axis = cut == Cut::columns ? 1 : 0;
        }
        if (!cut) {
            const auto same = [&](const Shard& other) {
                return assembly_.files().equal(first.rank->model, first.tensor, other.rank->model,
                                               other.tensor) == true;
            };
            cut = std::ranges::all_of(parameter.shards, same) ? Cut::none : Cut::rows;
            if (cut == Cut::rows)
                assembly_.note(
                    rule::metaInconsistent, Severity::warning,
                    "nothing says how tensor-parallel ranks cut it; dimension 0 is taken (--tp-dim "
                    "states another one)",
                    contents(first.rank->model).name, "model." + parameter.name);
        }
        parameter.cut = *cut == Cut::gateUp && local[0] % 2 != 0 ? Cut::rows : *cut;
        if (parameter.cut != Cut::none) {
            int64_t& length = parameter.whole[static_cast<size_t>(parameter.axis)];
            if (__builtin_mul_overflow(length, int64_t{sizes_.tp}, &length)) parameter.cut.reset();
        }
    }

    // The boxes of a rank's shard, each with the box of the whole parameter that it is.
    struct Part {
        Dims from, offsets, lengths;
    };
    std::vector<Part> partsOf(const Parameter& parameter, const Dims& local, uint32_t tp) const {
        const size_t axis = static_cast<size_t>(parameter.axis);
        Part whole{Dims(local.size(), 0), Dims(local.size(), 0), local};
        if (parameter.cut == Cut::none) return {whole};
        if (parameter.cut != Cut::gateUp) {
            whole.offsets[axis] = local[axis] * tp;
            return {whole};
        }
        const int64_t half = local[0] / 2;
        std::vector<Part> parts(2, whole);
        for (size_t h = 0; h < 2; ++h) {
            parts[h].lengths[0] = half;
            parts[h].from[0] = half * static_cast<int64_t>(h);
            parts[h].offsets[0] = half * (static_cast<int64_t>(h) * sizes_.tp + tp);
        }
        return parts;
    }

    void addModel() {
        for (Parameter& parameter : parameters_) {
            choosePlacement(parameter);
            if (!parameter.cut) {
                assembly_.note(rule::metaInconsistent, Severity::error, "its size overflows", {},
                               "model." + parameter.name);
                continue;
            }
            const DType dtype = stored(parameter.shards[0]).dtype;
            const Dims local = stored(parameter.shards[0]).shape;
            const Role role = parameter.name.ends_with("expert_bias") ? Role::buffer : Role::parameter;
            for (const Shard& shard : parameter.shards)
                addShard(parameter, parameter.path, dtype, local, role, shard.rank->model, shard.tensor,
                         *shard.rank);
        }
    }

    // A stored tensor that is a rank's shard of the parameter, or of a state of it.
    void addShard(const Parameter& parameter, const Path& path, DType dtype, const Dims& local, Role role,
                  uint32_t file, uint32_t tensor, const RankFiles& rank) {
        const StoredTensor& from = contents(file).tensors[tensor];
        if (from.shape != local || from.dtype != dtype) {
            assembly_.note(rule::metaInconsistent, Severity::error,
                           fmt::format("ranks disagree about it: {} {} and {} {}", dtypeName(dtype),
                                       formatDims(local), dtypeName(from.dtype), formatDims(from.shape)),
                           contents(file).name, pathName(path));
            return;
        }
        for (Part& part : partsOf(parameter, local, rank.tp)) {
            TensorAssembly::Piece piece;
            piece.rank = rank.rank;
            piece.part = StoredPart::box(file, tensor, std::move(part.from), part.lengths);
            piece.offsets = std::move(part.offsets);
            piece.lengths = std::move(part.lengths);
            assembly_.addPiece(path, dtype, parameter.whole, role, std::move(piece));
        }
    }

    // A trained parameter as a rank has it.
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
    void noteVersion();

    const Source& source_;
    const OpenOptions& options_;
    const Place& place_;
    TensorAssembly assembly_;
    std::vector<TpRule> stated_;
    Arguments args_;
    double version_ = 3;
    std::string evidenceFile_;
    ParallelSizes sizes_;
    std::vector<RankFiles> ranks_;
    std::map<std::string, std::map<StageKey, int64_t>> firstLayer_;
    std::map<std::string, int64_t> localExperts_;  // by what stands before their number
    std::vector<Parameter> parameters_;
    std::map<std::string, size_t> byName_;
    std::deque<Value> values_;  // of objects_
    std::vector<RankObject> objects_;
    bool saidCarried_ = false;
};

// What is not part of the model goes under its own names, per rank where ranks differ; optimizer state under
// those of the parameters where they can be told.
Status LegacyOpener::addOptimizer() {
    for (const RankFiles& rank : ranks_) {
        for (const uint32_t file : {rank.model, rank.optimizer}) {
            if (file == kNone) continue;
            const bool optimizerFile = file == rank.optimizer;
            std::set<uint32_t> named;
            SHARDSCOPE_TRY(optimizerFile ? addBuffers(rank, named) : addNumberedStates(rank, named));
            const auto pathOf = [&](const Path& path) {
                Path out{keyPart(rank.directory)};
                if (optimizerFile) out.push_back(keyPart("distrib_optim"));
                out.insert(out.end(), path.begin(), path.end());
                return out;
            };
            const auto isModel = [&](const Path& path) {
                return !optimizerFile && path.size() > 1 && path[0].kind == PathPart::Kind::key &&
                       virtualStageOf(path[0].text);
            };
            bool carried = false;
            for (uint32_t t = 0; t < contents(file).tensors.size(); ++t) {
                const StoredTensor& tensor = contents(file).tensors[t];
                if (named.contains(t) || (isModel(tensor.path) && tensor.special == kNone)) continue;
                const bool optimizer = optimizerFile || tensor.name.starts_with("optimizer.");
                carried = carried || optimizer;
                assembly_.addWhole(file, t, pathOf(tensor.path), optimizer ? Role::optimizer : Role::other,
                                   rank.rank);
            }
            if (carried && !saidCarried_) {
                saidCarried_ = true;
                assembly_.note(
                    rule::metaInconsistent, Severity::info,
                    "which parameters the optimizer's state belongs to cannot be told; it is listed "
                    "below the names of the directories",
                    contents(file).name);
            }
            for (const StoredObject& object : contents(file).objects) {
                if (isModel(object.path)) continue;
                if (optimizerFile)
                    assembly_.addObject(file, pathOf(object.path), object.value, rank.rank);
                else
                    addObject(rank, object.path, object.value,
                              object.name.starts_with("rng_state") ? RankObject::When::always
                                                                   : RankObject::When::firstIsMain);
            }
        }
    }
    return {};
}

// The trained parameters of a rank, in the order of the model.
std::vector<LegacyOpener::RankParameter> LegacyOpener::parametersOf(const RankFiles& rank) {
    std::vector<RankParameter> all;
    forModelEntries(rank, [&](uint32_t v, const std::string& local, uint32_t tensor, const Value*) {
        if (tensor == kNone) return;
        const std::string name = globalName(rank, v, local);
        const StoredTensor& from = contents(rank.model).tensors[tensor];
        if (!dtypeIsFloat(from.dtype) || name.ends_with("expert_bias") || name.ends_with("_extra_state"))
            return;
        RankParameter parameter;
        parameter.parameter = byName_.at(name);
        parameter.tensor = tensor;
        parameter.virtualStage = v;
        parameter.elements = elementCount(from.shape);
        parameter.dtype = from.dtype;
        parameter.expert = name.find(".experts.") != name.npos && name.find("shared_experts") == name.npos;
        // The first and the last stage share it, in a bucket of its own.
        const bool tied = sizes_.pp > 1 && !args_.isTrue("untie_embeddings_and_output_weights");
        parameter.alone = tied && ((rank.pp == 0 && name.ends_with("word_embeddings.weight")) ||
                                   (rank.pp + 1 == sizes_.pp && name.ends_with("output_layer.weight")));
        all.push_back(parameter);
    });
    return all;
}

Result<bool> LegacyOpener::isMaster(uint32_t file, uint32_t master, int64_t first, const RankFiles& rank,
                                    const RankParameter& parameter) {
    const int64_t count = std::min(kMostCompared, parameter.elements);
    const DType dtype = contents(file).tensors[master].dtype;
    if (count == 0 || !isComparable(parameter.dtype, dtype)) return true;
    const auto one = assembly_.files().extent(StoredPart::range(file, master, first, count));
    const auto two = assembly_.files().extent(StoredPart::range(rank.model, parameter.tensor, 0, count));
    if (!one.ok() || !two.ok()) return true;
    SHARDSCOPE_ASSIGN(const auto masters, firstValues(*one, 0, count, dtype));
    SHARDSCOPE_ASSIGN(const auto weights, firstValues(*two, 0, count, parameter.dtype));
    return looksLikeMaster(masters, weights);
}

namespace {

Path stateOf(const std::string& name, const std::string& kind) {
    return {keyPart("optimizer"), keyPart("state"), keyPart(name), keyPart(kind)};
}

}  // namespace

// distrib_optim.pt: {buffer: {(dtype of parameters, of gradients): {"param": ..., "exp_avg": ...}}}, each a
// vector of all buckets without the padding at their ends; in a list where optimizers are chained.
Status LegacyOpener::addBuffers(const RankFiles& rank, std::set<uint32_t>& named) {
    if (rank.model == kNone) return {};
    const TensorFile& file = contents(rank.optimizer);
    using Key = std::tuple<int64_t, std::string, int64_t>;  // optimizer, dtypes, buffer
    std::map<Key, std::map<std::string, uint32_t>> buffers;
    for (uint32_t t = 0; t < file.tensors.size(); ++t) {
        const Path& path = file.tensors[t].path;
        const size_t at = path.size() == 4 && path[0].kind != PathPart::Kind::key ? 1 : 0;
        if (path.size() != at + 3 || path[at].kind != PathPart::Kind::integerKey ||
            path[at + 1].kind != PathPart::Kind::otherKey || path[at + 2].kind != PathPart::Kind::key)
            continue;
        buffers[{at ? path[0].index : 0, path[at + 1].text, path[at].index}][path[at + 2].text] = t;
    }
    const std::vector<RankParameter> all = parametersOf(rank);
    std::map<std::pair<int64_t, std::string>, uint32_t> stages;
    for (const auto& [key, states] : buffers) {
        const auto& [chain, dtypes, buffer] = key;
        const uint32_t stage = stages[{chain, dtypes}]++;
        const Dims shape = file.tensors[states.begin()->second].shape;
        const bool vectors = shape.size() == 1 && std::ranges::all_of(states, [&](const auto& state) {
                                 return file.tensors[state.second].shape == shape;
                             });
        if (!vectors) continue;
        for (const bool experts : {false, true}) {
            std::vector<RankParameter> parameters;
            std::vector<int64_t> elements;
            std::vector<bool> alone;
            for (const RankParameter& parameter : all) {
                if (parameter.virtualStage != stage || parameter.expert != experts ||
                    dtypes.find(fmt::format("(torch.{},", dtypeName(parameter.dtype))) != 0)
                    continue;
                parameters.push_back(parameter);
                elements.push_back(parameter.elements);
                alone.push_back(parameter.alone);
            }
            SHARDSCOPE_ASSIGN(const auto starts,
                              startsIn(rank, states, shape[0], parameters, elements, alone));
            if (starts.empty()) continue;
            for (const auto& [kind, t] : states) {
                named.insert(t);
                for (size_t p = 0; p < parameters.size(); ++p) {
                    const Parameter& parameter = parameters_[parameters[p].parameter];
                    if (!parameter.cut) continue;
                    const Dims local = contents(rank.model).tensors[parameters[p].tensor].shape;
                    int64_t first = starts[p];
                    for (const Part& part : partsOf(parameter, local, rank.tp)) {
                        TensorAssembly::Piece piece;
                        const int64_t count = elementCount(part.lengths);
                        piece.rank = rank.rank;
                        piece.part = StoredPart::range(rank.optimizer, t, first, count);
                        piece.offsets = part.offsets;
                        piece.lengths = part.lengths;
                        first += count;
                        assembly_.addPiece(stateOf(parameter.name, kind), file.tensors[t].dtype,
                                           parameter.whole, Role::optimizer, std::move(piece));
                    }
                }
            }
            break;
        }
    }
    return {};
}

// Where each parameter starts in the vectors; empty where they cannot hold these parameters.
Result<std::vector<int64_t>> LegacyOpener::startsIn(const RankFiles& rank,
                                                    const std::map<std::string, uint32_t>& states,
                                                    int64_t length,
                                                    const std::vector<RankParameter>& parameters,
                                                    const std::vector<int64_t>& elements,
                                                    const std::vector<bool>& alone) {
    // arguments.py: --ddp-bucket-size; by default 40 million elements, and a million for each data-parallel
    // rank.
    const int64_t usual = std::max<int64_t>(40'000'000, int64_t{1'000'000} * sizes_.dp);
    for (const std::optional<int64_t> limit :
         {std::optional<int64_t>(), std::optional(args_.integer("ddp_bucket_size").value_or(usual))}) {
        for (const bool apart : {true, false}) {
            const std::vector<int64_t> buckets =
                bucketsOf(elements, apart ? alone : std::vector<bool>(), limit);
            int64_t all = 0;
            for (const int64_t bucket : buckets)
                if (!checkedAdd(all, bucket, all)) return std::vector<int64_t>();
            if (buckets.empty() || all != length) continue;
            const auto places = placeInBuckets(elements, buckets);
            if (!places) continue;
            std::vector<int64_t> starts;
            for (const BufferPlace& place : *places)
                starts.push_back(std::accumulate(
                    buckets.begin(), buckets.begin() + static_cast<int64_t>(place.bucket), place.first));
            const auto master = states.find("param");
            bool fits = true;
            const size_t step = std::max<size_t>(1, parameters.size() / kMostParametersCompared);
            for (size_t p = 0; master != states.end() && fits && p < parameters.size(); p += step) {
                SHARDSCOPE_ASSIGN(fits,
                                  isMaster(rank.optimizer, master->second, starts[p], rank, parameters[p]));
            }
            if (fits) return starts;
        }
    }
    return std::vector<int64_t>();
}

// An optimizer that is not distributed numbers its parameters, group by group: those with weight decay
// (matrices) and those without (vectors and biases), experts apart. The masters of 16-bit parameters are in
// lists of the same order.
Status LegacyOpener::addNumberedStates(const RankFiles& rank, std::set<uint32_t>& named) {
    const TensorFile& file = contents(rank.model);
    struct Optimizer {
        std::map<int64_t, std::vector<std::pair<std::string, uint32_t>>> states;
        std::map<std::pair<int64_t, int64_t>, uint32_t> masters;
        std::vector<std::vector<int64_t>> groups;
    };
    std::map<std::string, Optimizer> optimizers;  // by what stands before "state", "param_groups"
    const auto split = [](const Path& path, std::string_view key) -> std::optional<size_t> {
        if (path.empty() || path[0].text != "optimizer") return std::nullopt;
        for (size_t i = 1; i < path.size() && i < 4; ++i) {
            if (path[i].kind == PathPart::Kind::key && path[i].text == key) return i;
        }
        return std::nullopt;
    };
    const auto owner = [](const Path& path, size_t at) {
        Path before(path.begin(), path.begin() + static_cast<int64_t>(at));
        // {"optimizer": {"state": ...}, "fp32_from_fp16_params": ...}
        if (before.size() > 1 && before.back().kind == PathPart::Kind::key &&
            before.back().text == "optimizer")
            before.pop_back();
        return encodePath(before);
    };
    for (uint32_t t = 0; t < file.tensors.size(); ++t) {
        const Path& path = file.tensors[t].path;
        if (const auto at = split(path, "state"); at && path.size() == *at + 3 &&
                                                  path[*at + 1].kind == PathPart::Kind::integerKey &&
                                                  path[*at + 2].kind == PathPart::Kind::key) {
            optimizers[owner(path, *at)].states[path[*at + 1].index].emplace_back(path[*at + 2].text, t);
        } else if (const auto list = split(path, "fp32_from_fp16_params");
                   list && path.size() == *list + 3 && path[*list + 2].kind == PathPart::Kind::index) {
            optimizers[owner(path, *list)].masters[{path[*list + 1].index, path[*list + 2].index}] = t;
        }
    }
    for (const StoredObject& object : file.objects) {
        const auto at = split(object.path, "param_groups");
        if (!at || object.path.size() != *at + 1 || object.value.kind() != ValueKind::list) continue;
        const ValueGraph& g = *object.value.graph;
        auto& groups = optimizers[owner(object.path, *at)].groups;
        for (const NodeId group : g.items(object.value.node)) {
            auto& ids = groups.emplace_back();
            const NodeId list = g.isMapping(group) ? g.find(group, "params") : kNoNode;
            if (list == kNoNode || g.kind(list) != ValueKind::list) continue;
            for (const NodeId id : g.items(list))
                if (g.kind(id) == ValueKind::integer) ids.push_back(g.integer(id));
        }
    }
    const std::vector<RankParameter> all = parametersOf(rank);
    std::set<size_t> used;
    for (const auto& [before, optimizer] : optimizers) {
        for (size_t g = 0; g < optimizer.groups.size(); ++g) {
            SHARDSCOPE_ASSIGN(const auto parameters,
                              membersOf(
                                  rank, all, used,
                                  [&](size_t k) -> uint32_t {
                                      if (k >= optimizer.groups[g].size()) return kNone;
                                      const auto master = optimizer.masters.find(
                                          {static_cast<int64_t>(g), static_cast<int64_t>(k)});
                                      if (master != optimizer.masters.end()) return master->second;
                                      const auto states = optimizer.states.find(optimizer.groups[g][k]);
                                      if (states == optimizer.states.end()) return kNone;
                                      for (const auto& [kind, t] : states->second)
                                          if (kind == "exp_avg" || kind == "momentum_buffer") return t;
                                      return kNone;
                                  },
                                  optimizer.groups[g].size(), !optimizer.masters.empty()));
            for (size_t k = 0; k < parameters.size(); ++k) {
                const Parameter& parameter = parameters_[all[parameters[k]].parameter];
                const Dims local = contents(rank.model).tensors[all[parameters[k]].tensor].shape;
                used.insert(parameters[k]);
                if (!parameter.cut) continue;
                const auto add = [&](const std::string& kind, uint32_t t) {
                    const StoredTensor& tensor = file.tensors[t];
                    named.insert(t);
                    if (tensor.shape == local && !local.empty())
                        addShard(parameter, stateOf(parameter.name, kind), tensor.dtype, local,
                                 Role::optimizer, rank.model, t, rank);
                    else
                        assembly_.addWhole(rank.model, t, stateOf(parameter.name, kind), Role::optimizer,
                                           rank.rank);
                };
                if (const auto states = optimizer.states.find(optimizer.groups[g][k]);
                    states != optimizer.states.end())
                    for (const auto& [kind, t] : states->second)
                        add(kind, t);
                if (const auto master =
                        optimizer.masters.find({static_cast<int64_t>(g), static_cast<int64_t>(k)});
                    master != optimizer.masters.end())
                    add("fp32_param", master->second);
            }
        }
    }
    return {};
}

// The parameters whose shapes are those of a group's tensors, `tensorOf(k)`, in this order; empty where no
// kind of parameters fits.
Result<std::vector<size_t>> LegacyOpener::membersOf(const RankFiles& rank,
                                                    const std::vector<RankParameter>& all,
                                                    const std::set<size_t>& used,
                                                    const std::function<uint32_t(size_t)>& tensorOf,
                                                    size_t count, bool masters) {
    for (const int kind : {0, 1, 2, 3, 4, 5}) {  // with decay, without, both; then of experts
        std::vector<size_t> members;
        for (size_t i = 0; i < all.size(); ++i) {
            const Parameter& parameter = parameters_[all[i].parameter];
            const bool decay = contents(rank.model).tensors[all[i].tensor].shape.size() != 1 &&
                               !parameter.name.ends_with(".bias");
            if (used.contains(i) || all[i].expert != (kind > 2) ||
                (kind % 3 != 2 && decay != (kind % 3 == 0)))
                continue;
            members.push_back(i);
        }
        bool fits = count > 0 && members.size() == count;
        const size_t step = std::max<size_t>(1, count / kMostParametersCompared);
        for (size_t k = 0; fits && k < count; ++k) {
            const uint32_t t = tensorOf(k);
            const RankParameter& parameter = all[members[k]];
            fits = t != kNone && contents(rank.model).tensors[t].shape ==
                                     contents(rank.model).tensors[parameter.tensor].shape;
            if (fits && masters && k % step == 0) {
                SHARDSCOPE_ASSIGN(fits, isMaster(rank.model, t, 0, rank, parameter));
            }
        }
        if (fits) return members;
    }
    return std::vector<size_t>();
}

// Before version 2 the rows of query, key and value were in another order.
void LegacyOpener::noteVersion() {
    if (version_ >= 2) return;
    assembly_.note(
        rule::layoutFused, Severity::warning,
        fmt::format("checkpoint_version is {}: the rows of query_key_value are in the order of that "
                    "version, in which Megatron-LM since 2.0 does not keep them",
                    version_),
        evidenceFile_);
}

}  // namespace

Result<std::unique_ptr<Reader>> openLegacy(const Source& source, const OpenOptions& options,
                                           const Place& place) {
    return LegacyOpener(source, options, place).open();
}

}  // namespace shardscope::megatron
