#include "formats/nanotron/nanotron.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/numbers.h"
#include "base/rule.h"
#include "base/text.h"
#include "encoding/json_value.h"
#include "formats/nanotron/names.h"
#include "formats/rank_cut.h"
#include "formats/tensor_assembly.h"
#include "model/paths.h"
#include "model/value_view.h"
#include "storage/files_below.h"
#include "storage/open_files.h"

namespace shardscope::nanotron {

namespace {

// ------------------------------------------------------------------ the shard of a parameter

// As the safetensors header of its file states it. Source: nanotron/parallel/parameters.py (SlicesPair),
// nanotron/serialize/metadata.py (TensorMetadata). Other programs write the slice pairs as JSON.
struct Place {
    Dims whole;  // global shape
    RankCut cut;
};

Error wrong(const char* message) {
    return damaged(message).byRule(rule::metaInconsistent);
}

struct Slice {
    int64_t from = 0, to = 0;
};
using Slices = std::vector<Slice>;
struct SlicePair {
    Slices local, global;
};

std::vector<std::string_view> split(std::string_view text, char at) {
    std::vector<std::string_view> parts;
    while (true) {
        const size_t end = text.find(at);
        parts.push_back(text.substr(0, end));
        if (end == text.npos) return parts;
        text.remove_prefix(end + 1);
    }
}

std::string_view trimmed(std::string_view text, std::string_view what = " ()[]") {
    const size_t first = text.find_first_not_of(what);
    if (first == text.npos) return {};
    return text.substr(first, text.find_last_not_of(what) - first + 1);
}

// "(48, 16)", "(16,)", "(np.int64(48), 16)".
std::optional<Dims> parseShape(std::string_view text) {
    Dims shape;
    if (trimmed(text).empty()) return shape;
    for (std::string_view part : split(trimmed(text, " "), ',')) {
        part = trimmed(part);
        if (part.empty()) continue;
        if (part.starts_with("np.int")) part = trimmed(part.substr(part.find('(') + 1));
        const auto size = parseNumber<int64_t>(part, 0, kMaxDim);
        if (!size || shape.size() == static_cast<size_t>(kMaxRank)) return std::nullopt;
        shape.push_back(*size);
    }
    return shape;
}

std::optional<Slice> checkedSlice(std::optional<int64_t> from, std::optional<int64_t> to, int64_t size) {
    const Slice slice{from.value_or(0), to.value_or(size)};
    if (slice.from < 0 || slice.from > slice.to || slice.to > size) return std::nullopt;
    return slice;
}

// "0,24,None|None,None,None"
std::optional<Slices> parseSlices(std::string_view text, DimSpan shape) {
    Slices slices;
    if (text.empty() && shape.empty()) return slices;
    for (const std::string_view part : split(text, '|')) {
        const auto bounds = split(part, ',');
        if (slices.size() == shape.size() || bounds.size() != 3 || (bounds[2] != "None" && bounds[2] != "1"))
            return std::nullopt;
        std::optional<int64_t> ends[2];
        for (size_t i = 0; i < 2; ++i) {
            if (bounds[i] == "None") continue;
            ends[i] = parseNumber<int64_t>(bounds[i]);
            if (!ends[i]) return std::nullopt;
        }
        const auto slice = checkedSlice(ends[0], ends[1], shape[slices.size()]);
        if (!slice) return std::nullopt;
        slices.push_back(*slice);
    }
    return slices.size() == shape.size() ? std::optional(slices) : std::nullopt;
}

// [[0, 24], [0, 16]]
std::optional<Slices> slicesOf(ValueView list, DimSpan shape) {
    const std::vector<ValueView> parts = list.items();
    if (!list.isList() || parts.size() != shape.size()) return std::nullopt;
    Slices slices;
    for (const ValueView part : parts) {
        const std::vector<ValueView> ends = part.items();
        if (ends.size() < 2 || !ends[0].integer() || !ends[1].integer()) return std::nullopt;
        if (ends.size() > 2 && !ends[2].is(ValueKind::none) && ends[2].integer() != 1) return std::nullopt;
        const auto slice = checkedSlice(ends[0].integer(), ends[1].integer(), shape[slices.size()]);
        if (!slice) return std::nullopt;
        slices.push_back(*slice);
    }
    return slices;
}

std::optional<std::vector<SlicePair>> parseJsonPairs(std::string_view text, DimSpan local, DimSpan global) {
    const Value list = jsonValue(text);
    if (!ValueView(list).isList()) return std::nullopt;
    std::vector<SlicePair> pairs;
    for (const ValueView pair : ValueView(list).items()) {
        auto from = slicesOf(pair["local_slices"], local), to = slicesOf(pair["global_slices"], global);
        if (!from || !to) return std::nullopt;
        pairs.push_back({*std::move(from), *std::move(to)});
    }
    return pairs;
}

std::optional<std::vector<SlicePair>> parsePairs(std::string_view text, DimSpan local, DimSpan global) {
    if (text.starts_with('[')) return parseJsonPairs(text, local, global);
    std::vector<SlicePair> pairs;
    for (const std::string_view part : split(text, ';')) {
        const auto sides = split(part, '#');
        if (sides.size() != 2) return std::nullopt;
        auto from = parseSlices(sides[0], local), to = parseSlices(sides[1], global);
        if (!from || !to) return std::nullopt;
        pairs.push_back({*std::move(from), *std::move(to)});
    }
    return pairs;
}

// `shape`: global shape, "(48, 16)". `pairs`: local slices, then global ones,
// "0,24,None|None,None,None#0,24,None|None,None,None;...". `stored`: shape of the stored tensor. Errors:
// damaged (meta.inconsistent) for malformed text or slices that do not fit `stored`; unsupported where more
// than one dimension is sharded.
Result<Place> parsePlace(std::string_view shape, std::string_view text, DimSpan stored) {
    const auto whole = parseShape(shape);
    if (!whole) return wrong("its unsharded_shape is not a shape");
    if (whole->size() != stored.size()) return wrong("it has other dimensions than its unsharded_shape");
    const auto pairs = parsePairs(text, stored, *whole);
    if (!pairs) return wrong("its local_global_slices_pairs are not ranges of it and of the whole");
    Place place{*whole, {}};
    int& axis = place.cut.axis;
    for (size_t d = 0; d < stored.size(); ++d) {
        const bool along = pairs->size() > 1 && std::ranges::any_of(*pairs, [&](const SlicePair& pair) {
                               return pair.local[d].from != 0 || pair.local[d].to != stored[d];
                           });
        if (stored[d] == (*whole)[d] && !along) continue;
        if (axis >= 0) return unsupported("more than one dimension of it is sharded, which is not read");
        axis = static_cast<int>(d);
    }
    int64_t held = 0;
    for (const auto& [local, global] : *pairs) {
        for (size_t d = 0; d < stored.size(); ++d) {
            const bool cut = static_cast<int>(d) == axis;
            if (local[d].to - local[d].from != global[d].to - global[d].from ||
                (!cut && (local[d].from != 0 || local[d].to != stored[d])))
                return wrong("its local ranges are not as long as its global ones");
        }
        if (axis < 0) continue;
        const auto d = static_cast<size_t>(axis);
        if (local[d].from != held) return wrong("its local ranges are not one behind the other");
        held = local[d].to;
        place.cut.parts.push_back({local[d].from, local[d].to - local[d].from, global[d].from});
    }
    if (axis >= 0 && held != stored[static_cast<size_t>(axis)])
        return wrong("its local ranges are not all of it");
    return place;
}

// ------------------------------------------------------------------ the states of the optimizer

// Source: nanotron/optim/{named_optimizer,zero,optimizer_from_gradient_accumulator}.py,
// serialize/optimizer.py.

// The shard of a parameter that rank `of` holds; along an axis without a rank, all ranks hold it.
struct Shard {
    RankOf of;
    RankCut cut;
    Dims local;  // shape of the shard
};

struct Parameter {
    Dims whole;                 // global shape
    std::vector<Shard> shards;  // of the files of all ranks
};

using Parameters = std::map<std::string, Parameter, std::less<>>;

// One file of a rank, and where the assembly holds it.
struct RankFile {
    std::string path;
    RankName name;
    uint32_t rank = 0;
    uint32_t index = kNone;  // in TensorAssembly::files(); kNone = not read
};

constexpr std::string_view kState = "state", kNames = "names", kMasters = "gradient_accumulator";
constexpr std::string_view kWrapped = "module.";  // of DistributedDataParallel

std::string_view unwrapped(std::string_view name) {
    return name.starts_with(kWrapped) ? name.substr(kWrapped.size()) : name;
}

// {"configs": {"param_name_to_dp_rank_offsets": {"<name>": {"<rank>": ["<start>", "<stop>"]}}}}
class Offsets {
  public:
    explicit Offsets(std::string_view config) : config_(jsonValue(config)) {
        const ValueView all = ValueView(config_)["configs"]["param_name_to_dp_rank_offsets"];
        for (const auto& [name, ranks] : all.pairs())
            ranksOf_.emplace(name.textOr({}), ranks);
    }
    std::optional<FlatRange> of(const std::string& name, uint32_t rank) const {
        const auto ranks = ranksOf_.find(name);
        if (ranks == ranksOf_.end()) return std::nullopt;
        const std::vector<ValueView> ends = ranks->second[std::to_string(rank)].items();
        if (ends.size() != 2) return std::nullopt;
        const auto start = parseNumber<int64_t>(ends[0].textOr({}), 0);
        const auto stop = parseNumber<int64_t>(ends[1].textOr({}), 0);
        if (!start || !stop || *start > *stop) return std::nullopt;
        return FlatRange{*start, *stop};
    }

  private:
    const Value config_;
    std::map<std::string, ValueView> ranksOf_;
};

// Adds the optimizer states, whose files number the parameters and name each number, and the fp32 master
// weights of the gradient accumulator. `config`: text of optimizer_config.json, which states the flat range
// of each parameter that ZeRO gave to each rank.
class OptimizerStates {
  public:
    OptimizerStates(TensorAssembly& assembly, const Parameters& parameters, std::string_view config)
        : assembly_(assembly), parameters_(parameters), offsets_(config) {}

    void add(const RankFile& file, bool first) {
        findNames(assembly_.files()[file.index]);
        const TensorFile& saved = assembly_.files()[file.index];
        for (uint32_t t = 0; t < saved.tensors.size(); ++t)
            addTensor(file, t);
        for (const StoredObject& object : saved.objects)
            addObject(file, object, first);
    }

  private:
    // A state, by the parameter that it is of.
    struct Entry {
        std::string parameter;  // as the optimizer calls it; empty = it is of none
        Path path;              // in the catalog
    };

    // state_dict()["names"]: number to name.
    void findNames(const TensorFile& saved) {
        names_.clear();
        for (const StoredObject& object : saved.objects) {
            if (const auto name = ValueView(object.value).text();
                name && object.path.size() == 2 && object.path[0].text == kNames)
                names_[object.path[1].index] = *name;
        }
    }

    Entry entryOf(const Path& path) const {
        Entry entry{{}, joined({kOptimizer}, path)};
        if (path.size() == 3 && path[0].text == kState && names_.contains(path[1].index))
            entry.parameter = names_.at(path[1].index);
        else if (path.size() == 2 && path[0].text == kMasters)
            entry.parameter = path[1].text;
        if (!entry.parameter.empty()) entry.path[2] = keyPart(unwrapped(entry.parameter));
        return entry;
    }

    // What the rank holds of the parameter. A tied one may be that of another stage.
    const Shard* shardOf(const Parameter& parameter, const RankOf& of) const {
        const Shard* found = nullptr;
        for (const Shard& shard : parameter.shards) {
            const auto fits = [&](Axis axis) {
                return !shard.of.rank[axis] || shard.of.rank[axis] == of.rank[axis];
            };
            if (!fits(Axis::tensor) || !fits(Axis::expert)) continue;
            if (fits(Axis::pipeline)) return &shard;
            found = &shard;
        }
        return found;
    }

    void addTensor(const RankFile& file, uint32_t t) {
        const StoredTensor& stored = assembly_.files()[file.index].tensors[t];
        Entry entry = entryOf(stored.path);
        const auto at = parameters_.find(unwrapped(entry.parameter));
        const Shard* const shard = at == parameters_.end() ? nullptr : shardOf(at->second, file.name.of);
        const bool counter = stored.shape.empty() && !(shard && shard->local.empty());
        if (counter)
            return assembly_.addWhole(file.index, t, std::move(entry.path), Role::optimizer, file.rank);
        if (!shard) return noteUnplaced(file, stored, "it is of no parameter that is here");
        const TensorAssembly::Piece piece{file.rank, StoredPart::whole(file.index, t), {}, {}, {}};
        const Dims& whole = at->second.whole;
        if (stored.shape == shard->local)
            return assembly_.addBoxes(entry.path, stored.dtype, whole, Role::optimizer, piece,
                                      shard->cut.boxes(shard->local));
        const auto range = offsets_.of(entry.parameter, file.name.of.rank[Axis::data].value_or(0));
        if (!range || range->stop > elementCount(shard->local) || stored.shape.size() != 1 ||
            stored.shape[0] != range->stop - range->start)
            return noteUnplaced(file, stored, "nothing says which elements of its parameter it is of");
        assembly_.addBoxes(entry.path, stored.dtype, whole, Role::optimizer, piece,
                           shard->cut.boxes(shard->local, *range), -range->start);
    }

    void noteUnplaced(const RankFile& file, const StoredTensor& stored, const char* why) {
        assembly_.wrong(why, file.path, stored.name, Note::Lacks::optimizerState);
    }

    // Values that all ranks have are those of the first one; states of the parameters of the stage.
    void addObject(const RankFile& file, const StoredObject& object, bool first) {
        if (object.path.empty() || object.path[0].text == kNames) return;
        Entry entry = entryOf(object.path);
        if ((first || !entry.parameter.empty()) && objects_.insert(encodePath(entry.path)).second)
            assembly_.addObject(file.index, std::move(entry.path), object.value, file.rank);
    }

    TensorAssembly& assembly_;
    const Parameters& parameters_;
    const Offsets offsets_;
    std::map<int64_t, std::string> names_;  // of one file
    std::set<std::string> objects_;
};

// ------------------------------------------------------------------ the checkpoint

constexpr int kMostLevels = 32;
constexpr uint64_t kMostConfig = uint64_t{256} << 20;
constexpr char kOptimizerConfig[] = "optimizer/optimizer_config.json";
constexpr std::string_view kTensor = "data";

const std::string* textOf(const TensorFile& file, std::string_view key) {
    const auto at = std::ranges::find(file.texts, key, &std::pair<std::string, std::string>::first);
    return at == file.texts.end() ? nullptr : &at->second;
}

class Opener {
  public:
    Opener(const Source& source, const OpenOptions& options)
        : source_(source), assembly_(source, options, "nanotron", "", "nanotron") {}

    Result<std::unique_ptr<Reader>> open() {
        addJson(kMetadata, Severity::error, "nanotron does not load a checkpoint without it");
        addJson(kModelConfig, Severity::warning, "nanotron writes it last");
        assembly_.addText("config.yaml");
        SHARDSCOPE_ASSIGN(auto model, list(kModel, ".safetensors"));
        SHARDSCOPE_ASSIGN(auto optimizer, list(kOptimizer, ".pt"));
        SHARDSCOPE_ASSIGN(auto scheduler, list(kScheduler, ".pt"));
        SHARDSCOPE_ASSIGN(const auto random, list(kRandom, ".pt"));
        if (model.empty()) return unsupported("holds no parameters of nanotron").inFile(source_.display);
        findStages(model);
        noteMissing(model, Axis::pipeline, Severity::error, Note::Lacks::anything);
        noteMissing(optimizer, std::nullopt, Severity::error, Note::Lacks::optimizerState);
        noteMissing(scheduler, std::nullopt, Severity::error, Note::Lacks::nothing);
        noteMissing(random, std::nullopt, Severity::warning, Note::Lacks::nothing);
        SHARDSCOPE_TRY(read(model, Note::Lacks::anything));
        for (const RankFile& file : model)
            if (file.index != kNone) addParameter(file);
        SHARDSCOPE_TRY(read(optimizer, Note::Lacks::optimizerState));
        if (!optimizer.empty()) {
            const std::string config =
                addJson(kOptimizerConfig, Severity::error, "nanotron does not load the optimizer without it");
            OptimizerStates states(assembly_, parameters_, config);
            bool first = true;
            for (const RankFile& file : optimizer)
                if (file.index != kNone) states.add(file, std::exchange(first, false));
        }
        SHARDSCOPE_TRY(read(scheduler, Note::Lacks::nothing));
        if (!scheduler.empty() && scheduler[0].index != kNone)
            assembly_.addObjects(scheduler[0].index, {keyPart(kScheduler)}, scheduler[0].rank);
        assembly_.noteDifferentCopies(Note::Lacks::anything, TensorAssembly::Vectors::mustAgree);
        return assembly_.finish(worldSize(), mesh());
    }

  private:
    // The text of a JSON file, empty where it is not there or damaged.
    std::string addJson(const char* name, Severity severity, const char* why) {
        if (!source_.directory->stat(name).ok()) {
            assembly_.addMissing(name, kNone, severity, fmt::format("'{}' is missing: {}", name, why));
            return {};
        }
        assembly_.addText(name);
        std::string text = smallFile(*source_.directory, name, kMostConfig);
        if (nlohmann::json::accept(text)) return text;
        assembly_.note(rule::fileDamaged, Severity::error,
                       "it is not valid JSON: it was not written to its end", name);
        return {};
    }

    // Those of a directory that ranks have written.
    Result<std::vector<RankFile>> list(const char* directory, const char* ending) {
        std::vector<RankFile> files;
        if (!holdsDirectory(source_, directory)) return files;
        SHARDSCOPE_ASSIGN(const auto below, filesBelow(*source_.directory, directory, kMostLevels));
        const bool model = std::string_view(directory) == kModel;
        for (const DirectoryEntry& entry : below) {
            const std::string_view name = lastNameOf(entry.name);
            auto parsed = model ? parseModelFile(name) : parseRankName(name, ending);
            if (!parsed) continue;
            for (size_t axis = 0; axis < kAxes; ++axis)
                size_[axis] = std::max(size_[axis], parsed->of.size[axis]);
            files.push_back({joinPath(directory, entry.name), *std::move(parsed)});
        }
        return files;
    }

    // The stages whose ranks wrote files into a directory or below it.
    void findStages(const std::vector<RankFile>& files) {
        for (const RankFile& file : files) {
            if (!file.name.of.rank[Axis::pipeline]) continue;
            for (std::string_view at = directoryOf(file.path); at.find('/') != at.npos; at = directoryOf(at))
                stages_[std::string(at)].insert(*file.name.of.rank[Axis::pipeline]);
        }
    }

    // Of a parameter that is not cut: the stage of what is cut beside it, where that is one.
    uint32_t stageOf(std::string_view path) const {
        for (std::string_view at = directoryOf(path); at.find('/') != at.npos; at = directoryOf(at)) {
            const auto found = stages_.find(at);
            if (found != stages_.end()) return found->second.size() == 1 ? *found->second.begin() : 0;
        }
        return 0;
    }

    uint32_t rankOf(const RankFile& file) const {
        RankOf of = file.name.of;
        if (!of.rank[Axis::pipeline]) of.rank[Axis::pipeline] = stageOf(file.path);
        uint64_t rank = 0;
        for (size_t axis = 0; axis < kAxes; ++axis)
            rank = rank * size_[axis] + std::min(of.rank[axis].value_or(0), size_[axis] - 1);
        return static_cast<uint32_t>(std::min<uint64_t>(rank, worldSize() - 1));
    }

    uint32_t worldSize() const {
        uint64_t world = 1;
        for (const uint32_t size : size_)
            world = std::min<uint64_t>(world * size, uint64_t{1} << 20);
        return static_cast<uint32_t>(world);
    }

    std::optional<Mesh> mesh() const {
        Mesh mesh;
        for (size_t axis = 0; axis < kAxes; ++axis) {
            const char* name = axis == Axis::expert ? "ep" : kAxisNames[axis];
            if (size_[axis] > 1) mesh.axes.push_back({name, size_[axis]});
        }
        if (mesh.axes.empty() || mesh.ranks() != worldSize()) return std::nullopt;
        mesh.evidence = {"the names of the files"};
        return mesh;
    }

    // Names say how many ranks there were.
    void noteMissing(const std::vector<RankFile>& files, std::optional<Axis> fixed, Severity severity,
                     Note::Lacks lacks) {
        std::set<std::string, std::less<>> there, groups;
        for (const RankFile& file : files)
            there.insert(file.path);
        for (const RankFile& file : files) {
            RankName first = file.name;
            for (size_t axis = 0; axis < kAxes; ++axis)
                if (first.of.rank[axis] && axis != fixed) first.of.rank[axis] = 0;
            const std::string directory(directoryOf(file.path));
            if (!groups.insert(joinPath(directory, first.text())).second) continue;
            const bool counted = first.forEachRank(fixed, [&](const RankName& name) {
                std::string path = joinPath(directory, name.text());
                if (there.contains(path)) return;
                assembly_.addMissingRank(
                    path, rankOf({path, name}), severity,
                    fmt::format("'{}', the file of a rank, is missing", printable(path, kNameInMessage)),
                    lacks);
            });
            if (!counted) assembly_.wrong("its name states too many ranks", file.path, {}, lacks);
        }
    }

    Status read(std::vector<RankFile>& files, Note::Lacks lacks) {
        return assembly_.addEach(
            files,
            [&](RankFile& file) {
                file.rank = rankOf(file);
                return std::pair(file.path, file.rank);
            },
            lacks);
    }

    // "model/model/decoder/0/mlp/model_weight_...": "model.decoder.0.mlp.weight".
    static std::string nameOf(const RankFile& file) {
        std::string name(directoryOf(file.path));
        name = name.size() > sizeof(kModel) ? name.substr(sizeof(kModel)) + '/' : std::string();
        std::ranges::replace(name, '/', '.');
        return name + file.name.base.substr(sizeof(kModel));
    }

    void fail(const RankFile& file, const std::string& name, const char* rule, std::string message) {
        assembly_.note(rule, Severity::error, std::move(message), file.path, name, Note::Lacks::anything);
    }

    void addParameter(const RankFile& file) {
        const std::string name = nameOf(file);
        const TensorFile& saved = assembly_.files()[file.index];
        const uint32_t tensor = saved.find(kTensor);
        if (tensor == kNone)
            return fail(file, name, rule::metaInconsistent, "the file holds no tensor 'data'");
        const StoredTensor& stored = saved.tensors[tensor];
        const std::string *shape = textOf(saved, "unsharded_shape"),
                          *pairs = textOf(saved, "local_global_slices_pairs");
        Place place{stored.shape, {}};
        if (shape && pairs) {
            auto parsed = parsePlace(*shape, *pairs, stored.shape);
            if (!parsed.ok()) return fail(file, name, rule::metaInconsistent, parsed.error().message);
            place = *std::move(parsed);
        } else if (file.name.of.size[Axis::tensor] > 1 || file.name.of.size[Axis::expert] > 1) {
            return fail(file, name, rule::layoutFused,
                        "its header does not say which part of the parameter it holds");
        }
        Parameter& parameter = parameters_[name];
        if (parameter.shards.empty()) parameter.whole = place.whole;
        assembly_.addBoxes({keyPart(name)}, stored.dtype, place.whole, Role::parameter,
                           {file.rank, StoredPart::whole(file.index, tensor), {}, {}, {}},
                           place.cut.boxes(stored.shape));
        parameter.shards.push_back({file.name.of, std::move(place.cut), stored.shape});
    }

    const Source& source_;
    TensorAssembly assembly_;
    Parameters parameters_;
    std::array<uint32_t, kAxes> size_{1, 1, 1, 1};
    std::map<std::string, std::set<uint32_t>, std::less<>> stages_;
};

constexpr int kMostLooks = 16;  // directories on the way to the first parameter

// One parameter says that all are of nanotron.
bool holdsParameter(const Directory& directory) {
    return leadsTo(directory, kModel, kMostLooks, [](const DirectoryEntry& entry) {
        return entry.kind == DirectoryEntry::Kind::file && parseModelFile(entry.name);
    });
}

Probe probe(const Source& source) {
    if (!source.entry.empty() && source.entry != kMetadata) return {};
    if (!holdsDirectory(source, kModel)) return {};
    if (!source.hasFile(kMetadata) && !source.hasFile(kModelConfig) && !source.hasFile("config.yaml"))
        return {};
    if (!holdsParameter(*source.directory)) return {};
    return {Probe::Match::certain, "has a file of nanotron for each parameter below 'model'"};
}

Result<std::unique_ptr<Reader>> open(const Source& source, const OpenOptions& options) {
    return Opener(source, options).open();
}

}  // namespace

}  // namespace shardscope::nanotron

namespace shardscope {

const Format& nanotronFormat() {
    static const Format format{
        .about = {.name = "nanotron",
                  .title = "nanotron",
                  .reads = true,
                  .generations = {"versions 1.2 to 1.4: parameters that state their shards, ZeRO 0 and 1"},
                  .shards = true},
        .probe = nanotron::probe,
        .open = nanotron::open};
    return format;
}

}  // namespace shardscope
