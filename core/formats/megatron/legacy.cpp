// --ckpt-format torch: a directory for each rank of the model, with what it holds under local names. Files,
// and the model.
//
// Source: megatron/training/checkpointing.py of Megatron-LM (get_checkpoint_name, generate_state_dict,
// fix_query_key_value_ordering).
#include "formats/megatron/legacy.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/numbers.h"
#include "base/rule.h"
#include "base/units.h"
#include "encoding/flat_yaml.h"
#include "encoding/torch_scaled.h"
#include "model/paths.h"

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
        std::string_view rest = name.substr(at + kLayers.size());
        const auto layer = takeNumber<int64_t>(rest, INT32_MAX);
        if (!layer || !rest.starts_with('.')) continue;
        return LayerName{name.substr(0, at + kLayers.size()), rest, *layer};
    }
    return std::nullopt;
}

// Of model_config.yaml: what says how ranks hold the model. How many ranks trained it side by side is not
// there.
bool isNemoSize(std::string_view key) {
    return key == "tensor_model_parallel_size" || key == "pipeline_model_parallel_size" ||
           key == "num_layers" || key == "num_moe_experts";
}

// "mlp.experts.local_experts.1.linear_fc1.weight" and "mlp.experts.linear_fc1.weight1".
std::optional<NumberInName> expertOf(std::string_view name) {
    if (const auto local = NumberInName::behind(name, "local_experts.", INT32_MAX)) return local;
    if (name.find("local_experts.") != name.npos || name.find(".experts.linear_fc") == name.npos)
        return std::nullopt;
    return NumberInName::at(name, name.find_last_not_of("0123456789") + 1, INT32_MAX);
}

}  // namespace

std::optional<uint32_t> virtualStageOf(std::string_view key) {
    constexpr std::string_view kModel = "model";
    if (key == kModel) return 0;
    if (!key.starts_with(kModel)) return std::nullopt;
    key.remove_prefix(kModel.size());
    return parseNumber<uint32_t>(key, 0, 4096);
}

Result<std::unique_ptr<Reader>> LegacyOpener::open() {
    SHARDSCOPE_ASSIGN(stated_, tpRulesOf(options_));
    SHARDSCOPE_TRY(readArguments());
    SHARDSCOPE_TRY(listRanks());
    SHARDSCOPE_TRY(readFiles());
    noteSteps();
    checkStages();
    countLayers();
    gatherModel();
    addModel();
    SHARDSCOPE_TRY(addOptimizer());
    assembly_.noteDifferentCopies(Note::Lacks::nothing, TensorAssembly::Vectors::mayDrift);
    addRankObjects(assembly_, objects_);
    noteVersion();
    std::optional<Mesh> mesh;
    if (sizes_.ranks() > 1) mesh = sizes_.mesh();
    return assembly_.finish(sizes_.ranks(), std::move(mesh));
}

// The first file that can be read says how many ranks there are.
Status LegacyOpener::readArguments() {
    if (place_.nemo()) {
        readNemoConfig();
        return {};
    }
    TensorFiles files(source_, options_);
    for (const RankDirectory& directory : place_.ranks) {
        const auto index = files.add(directory.name + '/' + kModelFile);
        if (!index.ok()) {
            if (index.error().code == ErrorCode::cancelled) return index.error();
            continue;
        }
        for (const StoredObject& object : files[*index].objects) {
            if (object.name == "args") args_ = Arguments(object.value);
            if (const auto version = ValueView(object.value).real();
                version && object.name == "checkpoint_version")
                version_ = *version;
        }
        evidenceFile_ = directory.name + '/' + kModelFile;
        break;
    }
    return {};
}

// NeMo's configuration of the model has the names of Megatron's arguments for what is asked of them here.
void LegacyOpener::readNemoConfig() {
    evidenceFile_ = kNemoConfig;
    ValueGraph graph;
    std::vector<NodeId> items;
    const std::string text = assembly_.addText(kNemoConfig);
    forYamlFields(text, [&](std::string_view key, std::string_view value) {
        // "swiglu", "fast-geglu": the first layer of an MLP holds gate and up projection.
        if (key == "activation" && value.find("glu") != value.npos)
            items.insert(items.end(), {graph.addText(ValueKind::text, "swiglu"), graph.addBoolean(true)});
        if (const auto number = parseNumber<int64_t>(value); number && isNemoSize(key))
            items.insert(items.end(), {graph.addText(ValueKind::text, key), graph.addInteger(*number)});
    });
    const NodeId root = graph.addContainer(ValueKind::dict, items);
    args_ = Arguments(makeValue(std::move(graph), root));
}

// NeMo's files hold the state_dict alone, whose keys have dots in them.
Path LegacyOpener::modelPath(const std::string& name) const {
    if (place_.nemo()) return {keyPart(name)};
    return {keyPart("model"), keyPart(name)};
}

// The rank of these numbers. With fewer tensor-parallel ranks for experts than for the rest, rank s of a
// pipeline stage is tensor-parallel rank s % tp, and among experts s % etp and (s / etp) % ep.
LegacyOpener::RankFiles LegacyOpener::rankAt(uint32_t tp, uint32_t pp, uint32_t ep) const {
    RankFiles rank;
    rank.directory = fmt::format("mp_rank_{:02}", tp);
    if (sizes_.pp > 1 && place_.nemo())
        rank.directory = fmt::format("tp_rank_{:02}_pp_rank_{:03}", tp, pp);
    else if (sizes_.pp > 1)
        rank.directory += fmt::format("_{:03}", pp);
    if (sizes_.ep > 1) rank.directory += fmt::format("_{:03}", ep);
    rank.tp = tp;
    rank.pp = pp;
    rank.ep = ep;
    rank.etp = tp % etp_;
    rank.rank = (pp * sizes_.dp + ep % sizes_.dp) * sizes_.cp * sizes_.tp + tp;
    if (etp_ == sizes_.tp) return rank;
    const uint32_t s = firstRanks_[size_t{ep} * sizes_.tp + tp];
    // Weights outside of experts are on all tensor-parallel ranks, whichever rank saves.
    rank.saves = s < std::max(etp_ * sizes_.ep, sizes_.tp);
    if (s == kNone) return rank;
    rank.etp = s % etp_;
    rank.rank = pp * sizes_.tp * sizes_.cp * sizes_.dp + s;
    return rank;
}

void LegacyOpener::findFirstRanks() {
    firstRanks_.assign(size_t{sizes_.ep} * sizes_.tp, kNone);
    for (uint32_t s = sizes_.tp * sizes_.cp * sizes_.dp; s-- > 0;)
        firstRanks_[size_t{s / etp_ % sizes_.ep} * sizes_.tp + s % sizes_.tp] = s;
}

Status LegacyOpener::listRanks() {
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
    // The configuration may be that of a model which other ranks have trained further.
    if (place_.nemo()) {
        sizes_.tp = std::max(sizes_.tp, tp + 1);
        sizes_.pp = std::max(sizes_.pp, second + 1);
    }
    const auto etp = args_.integer("expert_tensor_parallel_size");
    etp_ = etp && *etp >= 1 && *etp <= sizes_.tp ? static_cast<uint32_t>(*etp) : sizes_.tp;
    if (uint64_t{sizes_.tp} * sizes_.pp * sizes_.ep > kMostDirectories)
        return makeError(ErrorCode::limit,
                         fmt::format("more than {} of ranks", counted(kMostDirectories, "directory")))
            .inFile(source_.display);
    if (etp_ != sizes_.tp) findFirstRanks();
    std::set<std::string_view> there;
    for (const RankDirectory& directory : place_.ranks)
        there.insert(directory.name);
    // Megatron saves the first rank of each group of replicas of the experts; converters write a directory
    // for each tensor- and expert-parallel rank.
    std::vector<RankFiles> own, grid;
    for (uint32_t e = 0; e < sizes_.ep; ++e) {
        for (uint32_t p = 0; p < sizes_.pp; ++p) {
            for (uint32_t t = 0; t < sizes_.tp; ++t) {
                RankFiles rank = rankAt(t, p, e);
                if (rank.saves) own.push_back(rank);
                grid.push_back(std::move(rank));
            }
        }
    }
    const auto isThere = [&](const RankFiles& rank) { return there.contains(rank.directory); };
    const auto both = std::ranges::count_if(own, isThere);
    ranks_ = std::ranges::count_if(grid, isThere) > both ? std::move(grid) : std::move(own);
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

Status LegacyOpener::readFiles() {
    std::vector<std::pair<std::string, uint32_t>> names;
    for (const RankFiles& rank : ranks_)
        names.emplace_back(rank.directory + '/' + place_.modelFile, rank.rank);
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

void LegacyOpener::forModelEntries(const RankFiles& rank, const VisitEntry& visit) {
    if (rank.model == kNone) return;
    const TensorFile& file = contents(rank.model);
    const auto visitBelow = [&](const Path& path, uint32_t tensor, const Value* value) {
        if (place_.nemo()) return visit(0, pathName(path), tensor, value);
        if (path.size() < 2 || path[0].kind != PathPart::Kind::key) return;
        const auto stage = virtualStageOf(path[0].text);
        if (!stage) return;
        visit(*stage, pathName(below(path)), tensor, value);
    };
    for (uint32_t t = 0; t < file.tensors.size(); ++t) {
        if (file.tensors[t].special == kNone) visitBelow(file.tensors[t].path, t, nullptr);
    }
    for (const StoredObject& object : file.objects)
        visitBelow(object.path, kNone, &object.value);
}

// Files of several saves are not one checkpoint.
void LegacyOpener::noteSteps() {
    std::optional<int64_t> first;
    for (const RankFiles& rank : ranks_) {
        if (rank.model == kNone) continue;
        for (const StoredObject& object : contents(rank.model).objects) {
            const auto iteration = ValueView(object.value).integer();
            if (object.name != "iteration" || !iteration) continue;
            if (!first) first = iteration;
            if (iteration == first) continue;
            assembly_.wrong(
                fmt::format("the file is of iteration {}, that of the first rank of {}", *iteration, *first),
                contents(rank.model).name);
        }
    }
}

// Layers are counted from 0 in every stage, so only the ends tell an exchanged file: the embedding is the
// first stage's, and the norm behind all layers the last one's. Others may have their own, too (encoders,
// MTP).
void LegacyOpener::checkStages() {
    struct Ends {
        const RankFiles* rank = nullptr;
        bool embeds = false, norms = false;
    };
    std::map<std::pair<uint32_t, uint32_t>, std::vector<Ends>> lines;  // by tensor-parallel and expert rank
    for (const RankFiles& rank : ranks_) {
        if (rank.model == kNone) continue;
        Ends& ends = lines[{rank.tp, rank.ep}].emplace_back(Ends{.rank = &rank});
        forModelEntries(rank, [&](uint32_t, const std::string& name, uint32_t, const Value*) {
            ends.embeds = ends.embeds || name.find("embedding.word_embeddings.weight") != name.npos;
            ends.norms = ends.norms || name.find("final_layernorm.") != name.npos ||
                         name.find("final_norm.") != name.npos;
        });
    }
    for (auto& [key, line] : lines) {
        if (line.size() != sizes_.pp || sizes_.pp < 2) continue;
        std::ranges::sort(line, {}, [](const Ends& ends) { return ends.rank->pp; });
        const auto tell = [&, &line = line](size_t where, bool Ends::*has, std::string_view what) {
            const auto other = std::ranges::find_if(line, has);
            if (line[where].*has || other == line.end()) return;
            assembly_.wrong(fmt::format("the {} is in '{}' instead: files of pipeline stages were exchanged",
                                        what, contents(other->rank->model).name),
                            contents(line[where].rank->model).name, {}, Note::Lacks::anything);
        };
        tell(0, &Ends::embeds, "embedding");
        tell(line.size() - 1, &Ends::norms, "norm behind the last layer");
    }
}

// Layers are counted from 0 in every stage.
void LegacyOpener::countLayers() {
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
        // An adapter may leave layers out.
        const auto number = static_cast<int64_t>(stages.size());
        const int64_t even = place_.nemo() && counts.size() == 1 && all % number == 0 ? all / number : 0;
        int64_t first = 0;
        for (const StageKey& stage : stages) {
            firstLayer_[before][stage] = first;
            const auto it = perStage.find(stage);
            if (it != perStage.end()) it->second = std::max(it->second, even);
            first += it != perStage.end() ? it->second : known.contains(stage.second) ? 0 : each;
        }
    }
}

// A local name with the number that the layer has in the whole model.
std::string LegacyOpener::layerName(const RankFiles& rank, uint32_t virtualStage, const std::string& local) {
    const auto layer = parseLayerName(local);
    if (!layer) return local;
    const int64_t first = firstLayer_[std::string(layer->before)][{virtualStage, rank.pp}];
    return fmt::format("{}{}{}", layer->before, layer->layer + first, layer->after);
}

// The name that a local one has in the whole model.
std::string LegacyOpener::globalName(const RankFiles& rank, uint32_t virtualStage, const std::string& local) {
    std::string name = layerName(rank, virtualStage, local);
    if (const auto expert = expertOf(name); expert && rank.ep > 0)
        name =
            expert->with(name, expert->number + rank.ep * localExperts_[std::string(expert->before(name))]);
    return name;
}

void LegacyOpener::gatherModel() {
    // How many experts each rank has, layer by layer.
    for (const RankFiles& rank : ranks_) {
        forModelEntries(rank, [&](uint32_t v, const std::string& local, uint32_t, const Value*) {
            const std::string name = layerName(rank, v, local);
            if (const auto expert = expertOf(name)) {
                int64_t& count = localExperts_[std::string(expert->before(name))];
                count = std::max(count, expert->number + 1);
            }
        });
    }
    for (const RankFiles& rank : ranks_) {
        forModelEntries(rank, [&](uint32_t v, const std::string& local, uint32_t tensor, const Value* value) {
            const std::string name = globalName(rank, v, local);
            if (tensor == kNone) {
                addObject(rank, modelPath(name), *value, RankObject::When::differing);
                return;
            }
            const auto [it, fresh] = byName_.try_emplace(name, parameters_.size());
            if (fresh) {
                Parameter parameter;
                parameter.name = name;
                parameter.path = modelPath(name);
                parameters_.push_back(std::move(parameter));
            }
            parameters_[it->second].shards.push_back({&rank, tensor});
        });
    }
}

void LegacyOpener::addObject(const RankFiles& rank, Path path, const Value& value, RankObject::When when) {
    Path ofRank = joined({rank.directory}, path);
    values_.push_back(value);
    objects_.push_back({std::move(path), std::move(ofRank), rank.model, rank.rank, &values_.back(), when});
}

// The parameter of 8 bits whose scales this one holds; null = it is another one.
const LegacyOpener::Parameter* LegacyOpener::scaledBy(const Parameter& parameter) {
    constexpr std::string_view kSuffix = torch_save::kScaleSuffix;
    if (!parameter.name.ends_with(kSuffix)) return nullptr;
    const auto found = byName_.find(parameter.name.substr(0, parameter.name.size() - kSuffix.size()));
    if (found == byName_.end()) return nullptr;
    const Parameter& values = parameters_[found->second];
    return stored(values.shards[0]).dtype == DType::float8E4M3FN ? &values : nullptr;
}

// Each rank has the scales of its own shard: one for all of it, or those of its blocks.
void LegacyOpener::addScales(const Parameter& scales, const Parameter& values) {
    const Dims local = stored(values.shards[0]).shape, held = stored(scales.shards[0]).shape;
    const DType dtype = stored(scales.shards[0]).dtype;
    const bool one = elementCount(held) == 1;
    const auto axis = static_cast<size_t>(values.axis);
    const auto wrong = [&](std::string_view what) {
        assembly_.wrong(fmt::format("the scales {} of ranks {} {} of its values", formatDims(held), what,
                                    formatDims(local)),
                        contents(scales.shards[0].rank->model).name, "model." + scales.name,
                        Note::Lacks::anything);
    };
    if (values.grouped ||
        (!one && (held.size() != local.size() || held[axis] < 1 || local[axis] % held[axis] != 0)))
        return wrong("are not those of whole blocks of the shards");
    for (const Shard& shard : scales.shards) {
        if (stored(shard).shape != held || stored(shard).dtype != dtype)
            return wrong("differ in shape beside");
        std::vector<CutBox> boxes = boxesOf(values, local, *shard.rank);
        const int64_t block = one ? boxes.front().lengths[axis] : local[axis] / held[axis];
        Dims whole = one ? Dims(local.size(), 1) : held;
        whole[axis] = values.whole[axis] / std::max<int64_t>(block, 1);
        for (CutBox& box : boxes) {
            const int64_t from = one ? 0 : box.from[axis], at = box.offsets[axis], length = box.lengths[axis];
            if (block < 1 || from % block != 0 || at % block != 0 || length % block != 0 ||
                (one && length != block))
                return wrong("are not those of whole blocks of the shards");
            box = {Dims(local.size(), 0), Dims(local.size(), 0), whole};
            box.from[axis] = from / block;
            box.offsets[axis] = at / block;
            box.lengths[axis] = length / block;
        }
        const auto start = one ? std::optional<int64_t>(0) : std::nullopt;
        assembly_.addBoxes(scales.path, dtype, whole, Role::parameter,
                           {shard.rank->rank, StoredPart::whole(shard.rank->model, shard.tensor), {}, {}, {}},
                           std::move(boxes), start);
    }
}

void LegacyOpener::addModel() {
    for (Parameter& parameter : parameters_) {
        const Parameter* const values = scaledBy(parameter);
        if (values && values->cut && values->cut != Cut::none && values->degree > 1) {
            addScales(parameter, *values);
            continue;
        }
        choosePlacement(parameter);
        if (!parameter.cut) {
            assembly_.wrong("its size overflows", {}, "model." + parameter.name, Note::Lacks::anything);
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
void LegacyOpener::addShard(const Parameter& parameter, const Path& path, DType dtype, const Dims& local,
                            Role role, uint32_t file, uint32_t tensor, const RankFiles& rank) {
    const StoredTensor& from = contents(file).tensors[tensor];
    if (from.shape != local || from.dtype != dtype) {
        return assembly_.wrong(fmt::format("ranks disagree about it: {} {} and {} {}", dtypeName(dtype),
                                           formatDims(local), dtypeName(from.dtype), formatDims(from.shape)),
                               contents(file).name, pathName(path));
    }
    if (refused(parameter, path, dtype, role)) return;
    const auto start = parameter.grouped ? std::optional<int64_t>(0) : std::nullopt;
    assembly_.addBoxes(path, dtype, parameter.whole, role,
                       {rank.rank, StoredPart::whole(file, tensor), {}, {}, {}},
                       boxesOf(parameter, local, rank), start);
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

Result<std::unique_ptr<Reader>> openLegacy(const Source& source, const OpenOptions& options,
                                           const Place& place) {
    return LegacyOpener(source, options, place).open();
}

}  // namespace shardscope::megatron
