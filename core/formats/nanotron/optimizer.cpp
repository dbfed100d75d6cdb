// Source: nanotron/optim/{named_optimizer,zero,optimizer_from_gradient_accumulator}.py,
// serialize/optimizer.py.
#include "formats/nanotron/optimizer.h"

#include <set>

#include <nlohmann/json.hpp>

#include "base/numbers.h"
#include "formats/paths.h"
#include "model/value_view.h"

namespace shardscope::nanotron {

namespace {

using nlohmann::json;

constexpr std::string_view kState = "state", kNames = "names", kMasters = "gradient_accumulator";
constexpr std::string_view kWrapped = "module.";  // of DistributedDataParallel

std::string_view unwrapped(std::string_view name) {
    return name.starts_with(kWrapped) ? name.substr(kWrapped.size()) : name;
}

// {"configs": {"param_name_to_dp_rank_offsets": {"<name>": {"<rank>": ["<start>", "<stop>"]}}}}
class Offsets {
  public:
    explicit Offsets(std::string_view config) {
        json all = json::parse(config, nullptr, false);
        if (!all.is_object() || !all.contains("configs") || !all["configs"].is_object()) return;
        json& configs = all["configs"];
        if (configs.contains(kKey) && configs[kKey].is_object()) offsets_ = std::move(configs[kKey]);
    }
    std::optional<FlatRange> of(const std::string& name, uint32_t rank) const {
        const json* const ranks = member(offsets_, name);
        const json* const ends = ranks ? member(*ranks, std::to_string(rank)) : nullptr;
        if (!ends || !ends->is_array() || ends->size() != 2 || !(*ends)[0].is_string() ||
            !(*ends)[1].is_string())
            return std::nullopt;
        const auto start = parseNumber<int64_t>((*ends)[0].get_ref<const std::string&>(), 0);
        const auto stop = parseNumber<int64_t>((*ends)[1].get_ref<const std::string&>(), 0);
        if (!start || !stop || *start > *stop) return std::nullopt;
        return FlatRange{*start, *stop};
    }

  private:
    static constexpr char kKey[] = "param_name_to_dp_rank_offsets";
    static const json* member(const json& object, const std::string& key) {
        if (!object.is_object()) return nullptr;
        const auto at = object.find(key);
        return at == object.end() ? nullptr : &*at;
    }
    json offsets_;
};

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

}  // namespace

void addOptimizer(TensorAssembly& assembly, const Parameters& parameters, const std::vector<RankFile>& files,
                  std::string_view config) {
    OptimizerStates states(assembly, parameters, config);
    bool first = true;
    for (const RankFile& file : files) {
        if (file.index == kNone) continue;
        states.add(file, std::exchange(first, false));
    }
}

}  // namespace shardscope::nanotron
