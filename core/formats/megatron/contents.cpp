#include "formats/megatron/contents.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <span>
#include <variant>

#include <fmt/format.h>

#include "base/checked.h"
#include "base/option_words.h"
#include "base/units.h"
#include "formats/dcp/dcp.h"
#include "formats/entry_tree.h"
#include "formats/file_layout.h"
#include "formats/megatron/fsdp_dtensor.h"
#include "formats/megatron/placement.h"
#include "formats/megatron/run_state.h"
#include "formats/megatron/target_names.h"
#include "formats/megatron/tensor_parallel.h"
#include "model/paths.h"
#include "model/value_make.h"

namespace shardscope::megatron {

namespace {

constexpr std::string_view kBucketPrefix = "optimizer.distributed.";
constexpr std::string_view kSharding = "param_state_sharding_type";
constexpr std::string_view kReshardable = "fully_reshardable";
constexpr double kCheckpointVersion = 3.0;

bool isCommon(std::string_view name) {
    return name.starts_with(kCommonPrefix);
}
bool isBucket(std::string_view name) {
    return withoutChain(name).starts_with(kBucketPrefix);
}

using Simple = std::variant<std::monostate, bool, int64_t, std::string>;
NodeId add(ValueGraph& graph, const Simple& value) {
    if (const auto* flag = std::get_if<bool>(&value)) return graph.addBoolean(*flag);
    if (const auto* number = std::get_if<int64_t>(&value)) return graph.addInteger(*number);
    if (const auto* text = std::get_if<std::string>(&value)) return graph.addText(ValueKind::text, *text);
    return graph.addNone();
}
Value simpleValue(const Simple& value) {
    return makeValueBy([&](ValueGraph& graph) { return add(graph, value); });
}

using Others = std::map<std::string, Simple>;

// A dict with other values for some keys, and without one.
NodeId withOthers(ValueGraph& graph, NodeId dict, const Others& others, std::string_view without = {}) {
    const std::span<const NodeId> pairs = graph.pairs(dict);
    const std::vector<NodeId> old(pairs.begin(), pairs.end());
    std::vector<NodeId> items;
    for (size_t i = 0; i + 1 < old.size(); i += 2) {
        const bool text = graph.kind(old[i]) == ValueKind::text;
        if (text && (others.contains(std::string(graph.text(old[i]))) || graph.text(old[i]) == without))
            continue;
        items.push_back(old[i]);
        items.push_back(old[i + 1]);
    }
    for (const auto& [name, value] : others) {
        items.push_back(graph.addText(ValueKind::text, name));
        items.push_back(add(graph, value));
    }
    return graph.addContainer(ValueKind::dict, items);
}

// The `args`, a Namespace or a dict.
Value withArguments(const Value& args, const Others& others) {
    ValueGraph graph;
    const NodeId root = copyValue(args, graph);
    if (root == kNoNode) return args;
    const bool object = graph.kind(root) == ValueKind::object;
    const NodeId mapping = object ? graph.object(root).state : root;
    if (mapping == kNoNode || graph.kind(mapping) != ValueKind::dict) return args;
    const NodeId made = withOthers(graph, mapping, others);
    if (!object) return makeValue(std::move(graph), made);
    graph.object(root).state = made;
    return makeValue(std::move(graph), root);
}

// `param_groups`: a list of dicts.
Value withGroups(const Value& groups, const Others& others, std::string_view without = {}) {
    ValueGraph graph;
    const NodeId root = copyValue(groups, graph);
    if (root == kNoNode || graph.kind(root) != ValueKind::list) return groups;
    const std::vector<NodeId> old(graph.items(root).begin(), graph.items(root).end());
    std::vector<NodeId> made;
    for (const NodeId group : old)
        made.push_back(graph.kind(group) == ValueKind::dict ? withOthers(graph, group, others, without)
                                                            : group);
    const NodeId list = graph.addContainer(ValueKind::list, made);
    return makeValue(std::move(graph), list);
}

// A parameter of one expert of several, as mp_rank_* directories name it: in a list of experts, or of one
// layer for all of them ("experts.linear_fc1.weight3").
bool isOneExpert(std::string_view name) {
    const bool numbered = !name.empty() && name.back() >= '0' && name.back() <= '9';
    return name.find(".local_experts.") != name.npos ||
           (numbered && name.find(".mlp.experts.linear_fc") != name.npos);
}

// Objects of a group of data-parallel ranks that fully_reshardable has once, in common.pt.
constexpr std::string_view kGroupSettings = ".optimizer/shard_0_1", kGroupScaler = ".grad_scaler/shard_0_1";

// What a target is, seen as a whole.
struct Summary {
    explicit Summary(const Catalog& target) {
        for (TensorId t = 0; t < target.tensorCount(); ++t) {
            const std::string_view name = target.name(t);
            buckets = buckets || isBucket(name);
            if (const auto weight = weightOfState(name)) {
                states = true;
                named = named || withoutChain(name).starts_with("optimizer.state.param.");
            }
            chained = chained || withoutChain(name).size() != name.size();
            if (isCommon(name) || isBucket(name)) continue;
            const LeadingDims leading = leadingDimsOf(weightOfState(name).value_or(name));
            stacked = stacked || leading.layers;
            numbered = numbered || leading.layer >= 0;
            singleton = singleton || name.ends_with(".weight_w") || name.ends_with(".weight_v");
        }
        for (const ObjectInfo& object : target.objects()) {
            if (object.name == "common.args") args = Arguments(object.value);
            if (object.name.starts_with(kCommonState) && object.value)
                args = Arguments(entryOf(object.value, "args"));
        }
    }
    bool optimizer() const { return buckets || states; }

    bool buckets = false;
    bool states = false;   // of named parameters
    bool named = false;    // with the names of fully_reshardable
    bool chained = false;  // names say which of several optimizers
    bool stacked = false, numbered = false, singleton = false;
    Arguments args;
};

std::string whyNotTensor(const Summary& summary, const Path& path, std::string_view name) {
    if (name.starts_with(kRankPrefix)) {
        if (name.find(".rng_state.") != name.npos)
            return "the random state of a rank; a run that loads this starts a new one";
        return "it is not known which parameters it belongs to";
    }
    if (path.size() == 4 && path[3].text == "step" && name.starts_with("optimizer.state."))
        return fmt::format("Megatron keeps one step for all parameters, which is '{}'", kCommonStep);
    if (withoutChain(name).starts_with("optimizer.state.step."))
        return "Megatron keeps one step for all parameters, in the groups of its optimizer";
    if (isSettingOfParameter(name) ||
        (isCommon(name) && isSettingOfParameter(name.substr(kCommonPrefix.size()))))
        return "it is a tensor among the settings of one parameter";
    const bool tied = summary.args && summary.args.has("untie_embeddings_and_output_weights") &&
                      !summary.args.isTrue("untie_embeddings_and_output_weights");
    if (tied && weightOfState(name).value_or(name) == "output_layer.weight")
        return "it is tied to the embedding, which Megatron saves once";
    return {};
}

std::string whyNotObject(const Summary& summary, const Catalog& target, const ObjectInfo& object) {
    const std::string_view name = object.name;
    if (name.starts_with(kRankPrefix))
        return name.find(".rng_state") != name.npos
                   ? "the random state of a rank; a run that loads this starts a new one"
                   : "it describes the files of one rank";
    if (name.starts_with("output_layer._extra_state/")) return "Megatron does not save it";
    const bool settings = name.starts_with("common.optimizer") || isBucket(name);
    if (settings && !summary.optimizer()) return "the optimizer's state is not carried";
    if (isBucket(name) && !summary.buckets && !name.ends_with(kGroupSettings) &&
        !name.ends_with(kGroupScaler))
        return "it describes buckets, and there are none";
    if (const auto sharded = parseShardedName(name); sharded && sharded->key == "rng_state") {
        const auto sizes = target.mesh() ? sizesOf(*target.mesh()) : std::optional(ParallelSizes());
        if (!sizes || sharded->grid != Dims{sizes->pp, sizes->tp})
            return "the random states of other pipeline and tensor-parallel ranks; a run that loads this "
                   "starts new ones";
    }
    return whyNotPickled(object.value);
}

class ContentsBuilder {
  public:
    explicit ContentsBuilder(const Catalog& target) : target_(target), summary_(target) {}

    Result<Contents> make() {
        SHARDSCOPE_TRY(sortTensors());
        sortObjects();
        gatherGroups();
        gatherSettings();
        arrangeGroups();
        SHARDSCOPE_TRY(checkBuckets());
        nameSharding();
        addExtraStates();
        addContentMetadata();
        addRunState();
        return std::move(out_);
    }

  private:
    Status sortTensors() {
        for (TensorId t = 0; t < target_.tensorCount(); ++t) {
            const std::string_view name = target_.name(t);
            out_.inCommon.push_back(isCommon(name));
            if (isOneExpert(name))
                return makeError(ErrorCode::impossible,
                                 fmt::format(
                                     "Megatron-Core loads the experts of a layer as one tensor, and here "
                                     "each is a tensor of its own; a recipe ({}) that stacks them is needed",
                                     option("map")))
                    .ofTensor(name);
        }
        return {};
    }

    void sortObjects() {
        for (const ObjectInfo& object : target_.objects()) {
            const std::string_view name = object.name;
            if (name.starts_with(kCommonState)) {
                // Since core 0.19 in place of common.pt, which all earlier ones read.
                const Value& state = object.value;
                if (state.graph->isMapping(state.node)) {
                    const auto pairs = state.graph->pairs(state.node);
                    for (size_t i = 0; i + 1 < pairs.size(); i += 2)
                        add(Path{keyPart(valueText(state, pairs[i]))}, {state.graph, pairs[i + 1]});
                    continue;
                }
            }
            if (isBucket(name) && !summary_.buckets) {
                groups_.push_back(&object);
            } else if (parseShardedName(name) && !isCommon(name)) {
                out_.sharded.push_back({object.name, makeListOf({&object.value, 1})});
            } else {
                add(commonPath(object.path.empty() ? Path{keyPart(object.name)} : object.path), object.value);
            }
        }
    }
    static std::string valueText(const Value& value, NodeId node) {
        return value.graph->kind(node) == ValueKind::text ? std::string(value.graph->text(node))
                                                          : valueRepr({value.graph, node});
    }
    void add(Path path, Value value) { out_.common.push_back({std::move(path), std::move(value)}); }
    void add(std::initializer_list<std::string_view> path, const Simple& value) {
        add(joined(path, {}), simpleValue(value));
    }
    Contents::Entry* find(std::string_view name) {
        const auto it = std::ranges::find_if(
            out_.common, [&](const Contents::Entry& e) { return pathName(e.path) == name; });
        return it == out_.common.end() ? nullptr : &*it;
    }
    void change(std::string name, std::string why) {
        out_.changed.push_back({std::string(kCommonPrefix) + std::move(name), std::move(why)});
    }

    // With buckets each group of ranks has the settings of its parameters; fully_reshardable has them once.
    void gatherGroups() {
        if (groups_.empty()) return;
        const bool chain = find(fmt::format("optimizer.0.{}", kSharding)) != nullptr;
        std::map<size_t, ValueGraph> graphs;
        std::map<size_t, std::vector<NodeId>> lists;
        std::set<std::string> seen;
        const ObjectInfo* scaler = nullptr;  // all optimizers of a run have the same
        for (const ObjectInfo* object : groups_) {
            if (object->name.ends_with(kGroupScaler) && !scaler) scaler = object;
            const Value groups = entryOf(object->value, "param_groups");
            if (!groups || groups.kind() != ValueKind::list) continue;
            for (const NodeId group : groups.graph->items(groups.node)) {
                const Value value{groups.graph, group};
                const size_t which = chain && isExpertGroup(value);
                if (!seen.insert(valueToJson(value)).second) continue;
                lists[which].push_back(copyValue(value, graphs[which]));
            }
        }
        for (auto& [which, graph] : graphs) {
            const NodeId list = graph.addContainer(ValueKind::list, lists[which]);
            Path path = groupsPath(chain ? std::optional(which) : std::nullopt);
            add(path, makeValue(std::move(graph), list));
            path.pop_back();
            path.back() = keyPart("grad_scaler");
            if (scaler) add(path, scaler->value);
        }
        for (const ObjectInfo* object : groups_)
            out_.changed.push_back({object->name,
                                    "its settings are in common.pt, where fully_reshardable has those "
                                    "of all ranks"});
    }

    // Megatron-FSDP states the settings of each parameter.
    void gatherSettings() {
        ParameterGroups groups = takeParameterGroups(out_.common);
        if (groups.parameters == 0 || !groupLists().empty()) return;
        const auto sizes = ranks();
        const bool chain = sizes && sizes->ep > 1 && !groups.experts.empty();
        // Without expert parallelism a run has no groups of experts.
        if (!chain && groups.dense.empty()) groups.dense = std::move(groups.experts);
        add(groupsPath(chain ? std::optional<size_t>(0) : std::nullopt), makeListOf(groups.dense));
        if (chain) add(groupsPath(1), makeListOf(groups.experts));
        change("optimizer.param_to_group_meta",
               fmt::format("the settings of {} are {} now", counted(groups.parameters, "parameter"),
                           counted(groups.dense.size() + (chain ? groups.experts.size() : 0), "group")));
    }
    static Path groupsPath(std::optional<size_t> ofChain) {
        Path path{keyPart("optimizer")};
        if (ofChain) path.push_back(numberPart(static_cast<int64_t>(*ofChain)));
        path.push_back(keyPart("optimizer"));
        path.push_back(keyPart("param_groups"));
        return path;
    }

    // Entries of `param_groups`, of each of the chained optimizers.
    std::vector<Contents::Entry*> groupLists() {
        std::vector<Contents::Entry*> found;
        for (Contents::Entry& entry : out_.common) {
            if (entry.path.size() > 2 && isOptimizer(entry) && entry.path.back().text == "param_groups")
                found.push_back(&entry);
        }
        return found;
    }
    static bool isOptimizer(const Contents::Entry& entry) {
        return !entry.path.empty() && entry.path[0].text == "optimizer" && entry.path.size() > 1;
    }
    static bool isOfChain(const Contents::Entry& entry) {
        return isOptimizer(entry) && entry.path[1].kind == PathPart::Kind::integerKey;
    }

    // Megatron has an optimizer of its own for experts that are spread over ranks, and only then.
    void arrangeGroups() {
        for (Contents::Entry* entry : groupLists()) {
            const Value without = withGroups(entry->value, {}, "params");
            if (valueToJson(without) == valueToJson(entry->value)) continue;
            entry->value = without;
            change(pathName(entry->path),
                   "the numbers of one rank's parameters are left out: a run has its own");
        }
        bool experts = false;
        for (TensorId t = 0; t < target_.tensorCount() && !experts; ++t)
            experts = leadingDimsOf(target_.name(t)).experts;
        const auto sizes = ranks();
        if (!experts || !sizes || summary_.buckets || summary_.chained) return;
        const bool chain = std::ranges::any_of(out_.common, isOfChain);
        if (chain && sizes->ep == 1) {
            if (!onlyExpertsFollow()) return;
            std::erase_if(out_.common,
                          [](const Contents::Entry& e) { return isOfChain(e) && e.path[1].index > 0; });
            for (Contents::Entry& entry : out_.common) {
                if (isOfChain(entry)) entry.path.erase(entry.path.begin() + 1);
            }
            change("optimizer",
                   "experts have the settings of the other parameters: only with expert parallelism do "
                   "they have an optimizer of their own");
        } else if (!chain && sizes->ep > 1 && !groupLists().empty()) {
            std::vector<Contents::Entry> ofExperts;
            for (Contents::Entry& entry : out_.common) {
                if (!isOptimizer(entry)) continue;
                ofExperts.push_back(entry);
                entry.path.insert(entry.path.begin() + 1, numberPart(0));
                ofExperts.back().path.insert(ofExperts.back().path.begin() + 1, numberPart(1));
                if (entry.path.back().text == "param_groups")
                    ofExperts.back().value = withGroups(entry.value, {{"is_expert_parallel", true}});
            }
            std::ranges::move(ofExperts, std::back_inserter(out_.common));
            change("optimizer",
                   "experts have an optimizer of their own, with the settings of the other parameters: so "
                   "Megatron has it with expert parallelism");
        }
    }
    // Whether the first of the chained optimizers is that of all parameters but experts.
    bool onlyExpertsFollow() {
        for (const Contents::Entry* entry : groupLists()) {
            if (!isOfChain(*entry) || entry->path[1].index > 1) return false;
            if (entry->value.kind() != ValueKind::list) return false;
            for (const NodeId group : entry->value.graph->items(entry->value.node)) {
                if (isExpertGroup({entry->value.graph, group}) != (entry->path[1].index == 1)) return false;
            }
        }
        return true;
    }
    // nullopt where the target's ranks are not those of a mesh of Megatron.
    std::optional<ParallelSizes> ranks() const {
        if (target_.mesh()) return megatron::sizesOf(*target_.mesh());
        return target_.rankCount() <= 1 ? std::optional(ParallelSizes()) : std::nullopt;
    }

    // Buckets hold what one group of data-parallel ranks has of the model.
    Status checkBuckets() {
        if (!summary_.buckets) return {};
        const auto stated = megatron::sizesOf(summary_.args, "common.pt");
        const auto sizes =
            target_.mesh() ? megatron::sizesOf(*target_.mesh()) : std::optional(ParallelSizes());
        if (!stated || !sizes ||
            (stated->tp == sizes->tp && stated->pp == sizes->pp && stated->ep == sizes->ep))
            return {};
        return makeError(ErrorCode::impossible,
                         fmt::format("the optimizer's state is in buckets (dp_reshardable), which "
                                     "Megatron-Core loads on the same tensor, pipeline and expert-parallel "
                                     "ranks only; {} finds the parameters in them",
                                     option("buckets", "parameters")))
            .ofTensor("optimizer.distributed");
    }

    void nameSharding() {
        if (!summary_.named) return;
        bool said = false;
        for (Contents::Entry& entry : out_.common) {
            if (entry.path.empty() || entry.path[0].text != "optimizer" ||
                entry.path.back().text != kSharding)
                continue;
            said = true;
            if (entry.value.graph->isText(entry.value.node, kReshardable)) continue;
            change(pathName(entry.path),
                   fmt::format("{} is {} now", valueRepr(entry.value, 60), kReshardable));
            entry.value = makeTextValue(kReshardable);
        }
        if (!said) add({"optimizer", kSharding}, std::string(kReshardable));
    }

    // Linear layers of Megatron-Core ask for a state of Transformer Engine, which may be None.
    void addExtraStates() {
        const auto has = [](const Contents::ShardedValue& object) {
            return object.name.find(kExtraState) != object.name.npos;
        };
        if (std::ranges::any_of(out_.sharded, has)) return;
        size_t made = 0;
        for (TensorId t = 0; t < target_.tensorCount(); ++t) {
            const std::string_view name = target_.name(t);
            constexpr std::string_view kWeight = ".weight";
            const LeadingDims leading = leadingDimsOf(name);
            const DimSpan shape = target_.shape(t);
            if (target_.role(t) == Role::optimizer || weightOfState(name) || !name.ends_with(kWeight) ||
                shape.size() < leading.count() || (!leading.layers && leading.layer < 0))
                continue;
            const auto cut = cutOf(name, shape.size() - leading.count(), false);
            // One for each chunk in front: what has fewer is not cut by layers and experts.
            int64_t objects = 0;
            if (!cut || *cut == Cut::none || !checkedProduct(shape.first(leading.count()), objects) ||
                static_cast<uint64_t>(objects) > target_.endChunk(t) - target_.firstChunk(t))
                continue;
            const std::string key =
                std::string(name.substr(0, name.size() - kWeight.size())) + std::string(kExtraState);
            const int64_t layers = leading.layers ? shape[0] : 1;
            const int64_t experts = leading.experts ? shape[leading.layers ? 1 : 0] : 1;
            for (int64_t l = 0; l < layers; ++l) {
                for (int64_t e = 0; e < experts; ++e, ++made) {
                    const std::string where = leading.layers && leading.experts
                                                  ? fmt::format("{}.{}_{}.{}", l, e, layers, experts)
                                              : leading.experts ? fmt::format("{}_{}", e, experts)
                                                                : fmt::format("{}_{}", l, layers);
                    out_.sharded.push_back(
                        {fmt::format("{}/shard_{}", key, where), makeListOf(std::vector<Value>(1))});
                }
            }
        }
        if (made > 0)
            out_.changed.push_back(
                {"_extra_state",
                 fmt::format("{} empty ones are added, for the linear layers of Megatron-Core ask for them",
                             made)});
    }

    // What a run builds its sharded state dict by before it loads.
    void addContentMetadata() {
        std::vector<std::pair<std::string, Simple>> wanted;
        if (summary_.named) wanted.emplace_back("distrib_optim_sharding_type", std::string(kReshardable));
        if (summary_.numbered && !summary_.stacked) wanted.emplace_back("non_homogeneous_layers", true);
        if (summary_.singleton) wanted.emplace_back("singleton_local_shards", true);
        if (wanted.empty()) return;
        if (summary_.states) wanted.emplace_back("chained_optim_avoid_prefix", !summary_.chained);
        for (const auto& [key, value] : wanted) {
            const Value made = simpleValue(value);
            if (Contents::Entry* entry = find("content_metadata." + key)) {
                if (valueRepr(entry->value) == valueRepr(made)) continue;
                change("content_metadata." + key,
                       fmt::format("{} is {} now", valueRepr(entry->value, 60), valueRepr(made)));
                entry->value = made;
            } else {
                add({"content_metadata", key}, value);
            }
        }
    }

    // What load_checkpoint() looks for.
    void addRunState() {
        if (Contents::Entry* entry = find("iteration")) {
            if (entry->value.kind() == ValueKind::integer)
                out_.iteration = entry->value.graph->integer(entry->value.node);
        } else {
            add({"iteration"}, int64_t{0});
            change("iteration", "the source does not say it: 0");
        }
        if (!find("checkpoint_version"))
            add(Path{keyPart("checkpoint_version")},
                makeValueBy([](ValueGraph& graph) { return graph.addReal(kCheckpointVersion); }));
        Contents::Entry* args = find("args");
        if (!args) {
            change("args",
                   "the source has no arguments of a run of Megatron: such a run needs --finetune, or its "
                   "own arguments");
            return;
        }
        const Arguments old(args->value);
        const auto sizes = ranks();
        Others others;
        std::string said;
        const auto set = [&](const std::string& name, const Simple& value, bool always) {
            if (!always && !old.has(name)) return;
            others.emplace(name, value);
            said += fmt::format("{}{}={}", said.empty() ? "" : ", ", name, valueRepr(simpleValue(value)));
        };
        const auto size = [&](const char* name, uint32_t value) {
            if (old.integer(name).value_or(value) != value) set(name, int64_t{value}, false);
        };
        if (sizes) {
            if (old.integer("pipeline_model_parallel_size").value_or(sizes->pp) != sizes->pp)
                set("virtual_pipeline_model_parallel_size", std::monostate(), false);
            size("tensor_model_parallel_size", sizes->tp);
            size("pipeline_model_parallel_size", sizes->pp);
            size("context_parallel_size", sizes->cp);
            size("expert_model_parallel_size", sizes->ep);
            size("data_parallel_size", sizes->dp);
            size("world_size", sizes->ranks());
        }
        const bool random = std::ranges::any_of(out_.sharded, [](const Contents::ShardedValue& object) {
            return object.name.starts_with("rng_state/");
        });
        if (!random && !old.isTrue("no_save_rng")) set("no_save_rng", true, true);
        if (!summary_.optimizer() && !old.isTrue("no_save_optim")) set("no_save_optim", true, true);
        if (others.empty()) return;
        args->value = withArguments(args->value, others);
        change("args", "as a run on these ranks would have saved it: " + said);
    }

    const Catalog& target_;
    const Summary summary_;
    std::vector<const ObjectInfo*> groups_;
    Contents out_;
};

}  // namespace

std::vector<LeftOut> cannotHold(const Catalog& target, const WriteOptions& options) {
    if (options.variant == kFsdpVariant) return dcpFormat().cannotHold(target, {});
    const Summary summary(target);
    std::vector<LeftOut> out;
    for (LeftOut& left : dcpFormat().cannotHold(target, {})) {
        if (target.find(left.name) != kNone) out.push_back(std::move(left));
    }
    std::ranges::move(
        leftOutOf(
            target, [&](TensorId t) { return whyNotTensor(summary, target.path(t), target.name(t)); },
            [&](const ObjectInfo& object) { return whyNotObject(summary, target, object); }),
        std::back_inserter(out));
    return out;
}

Result<Contents> contentsOf(const Catalog& target) {
    return ContentsBuilder(target).make();
}

}  // namespace shardscope::megatron
