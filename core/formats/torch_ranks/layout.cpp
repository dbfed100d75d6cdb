#include "formats/torch_ranks/layout.h"

#include <algorithm>
#include <unordered_map>

#include <fmt/format.h>

#include "encoding/torch_tensor.h"
#include "formats/entry_tree.h"
#include "formats/rank_writer.h"

namespace shardscope::torch_ranks {

namespace {

constexpr size_t kBatchOfTensors = 1000;  // between MARK and SETITEMS, as picklers write them
constexpr std::string_view kOptimizer = "optim";

bool ofOptimizer(const Path& path) {
    return path.size() > 1 && path[0] == keyPart(kOptimizer);
}

// What lies under "optim", in the optimizer's own state dict.
std::optional<Path> insideOptimizer(const Path& path) {
    if (!ofOptimizer(path)) return std::nullopt;
    return Path(path.begin() + 1, path.end());
}

bool isParamGroups(const Path& path) {
    return path.size() == 2 && ofOptimizer(path) && path[1] == keyPart("param_groups");
}

// Calls visit(group, key, list) for the list of parameters of each group. False when it is not such a value.
template <class Visit>
bool forEachGroup(const ValueGraph& g, NodeId groups, Visit&& visit) {
    if (g.kind(groups) != ValueKind::list) return false;
    for (const NodeId group : g.items(groups)) {
        if (!g.isMapping(group)) return false;
        const NodeId list = g.find(group, "params");
        if (list == kNoNode || g.kind(list) != ValueKind::list) return false;
        visit(g.items(list));
    }
    return true;
}

// The number of each parameter, where groups list them by name: as they come.
std::unordered_map<std::string, int64_t> numbersOf(const Value& groups) {
    std::unordered_map<std::string, int64_t> numbers;
    if (!groups) return numbers;
    const ValueGraph& g = *groups.graph;
    bool names = true;
    const bool all = forEachGroup(g, groups.node, [&](std::span<const NodeId> parameters) {
        for (const NodeId parameter : parameters) {
            names = names && g.kind(parameter) == ValueKind::text;
            if (names) numbers.emplace(g.text(parameter), static_cast<int64_t>(numbers.size()));
        }
    });
    if (!all || !names) numbers.clear();
    return numbers;
}

// The same groups with numbers in place of names.
Value numbered(const Value& groups, const std::unordered_map<std::string, int64_t>& numbers) {
    ValueGraph graph;
    const NodeId root = copyValue(groups, graph);
    if (root == kNoNode) return groups;
    const std::vector<NodeId> all(graph.items(root).begin(), graph.items(root).end());
    std::vector<NodeId> changed;
    for (const NodeId group : all) {
        std::vector<NodeId> pairs(graph.pairs(group).begin(), graph.pairs(group).end());
        for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
            if (!graph.isText(pairs[i], "params")) continue;
            const std::vector<NodeId> names(graph.items(pairs[i + 1]).begin(),
                                            graph.items(pairs[i + 1]).end());
            std::vector<NodeId> ids;
            for (const NodeId name : names)
                ids.push_back(graph.addInteger(numbers.at(std::string(graph.text(name)))));
            pairs[i + 1] = graph.addContainer(ValueKind::list, ids);
        }
        changed.push_back(graph.addContainer(ValueKind::dict, pairs));
    }
    const NodeId list = graph.addContainer(ValueKind::list, changed);
    return makeValue(std::move(graph), list);
}

class RankLayout final : public TargetLayout {
  public:
    RankLayout(const Catalog& target, const WriteOptions& options)
        : target_(target),
          accelerate_(options.variant.starts_with("accelerate")),
          writer_(target, options.variant.ends_with("-cpu") ? "cpu" : "cuda") {
        needsCrc = true;
    }

    Status plan() {
        SHARDSCOPE_TRY(writer_.plan());
        for (TensorId t = 0; t < target_.tensorCount(); ++t) {
            if (!ofOptimizer(target_.path(t))) model_.push_back(t);
        }
        tree_ = buildTree(target_, insideOptimizer);
        if (!tree_.collisions.empty())
            return makeError(ErrorCode::impossible,
                             "its place in the nested object is taken by another entry")
                .ofTensor(tree_.collisions[0]);
        for (ObjectId o = 0; o < target_.objects().size(); ++o) {
            const ObjectInfo& object = target_.objects()[o];
            if (!isParamGroups(object.path)) continue;
            noteForm(object);
            if (accelerate_) continue;
            if (const auto numbers = numbersOf(object.value); !numbers.empty()) {
                groups_ = {o, numbered(object.value, numbers)};
                changed.push_back({object.name, "lists parameters by number, as the optimizer counts them"});
            }
        }
        chunkFile.assign(target_.chunkCount(), 0);
        chunkOffset.assign(target_.chunkCount(), 0);
        for (const bool optimizer : {false, true}) {
            const bool any = optimizer ? tree_.nodes.size() > 1 : !model_.empty();
            for (uint32_t rank = 0; any && rank < ranks(); ++rank) {
                const std::string name = nameOf(rank, optimizer);
                SHARDSCOPE_ASSIGN(const auto file, build(rank, optimizer, name));
                RankWriter::place(*file, name, *this);
            }
        }
        if (files.empty()) return makeError(ErrorCode::impossible, "there is nothing to write");
        writer_.tie(*this);
        if (!accelerate_) {
            config_ = fmt::format("{{\n    \"FSDP_version\": 2,\n    \"world_size\": {}\n}}", ranks());
            files.push_back({"fsdp_config.json", config_.size(), true});
        }
        return {};
    }

    Status chunkLiterals(ChunkId, uint32_t, const LiteralSink&) const override { return {}; }

    Status fileLiterals(FileId id, std::span<const uint32_t> chunkCrcs,
                        const LiteralSink& sink) const override {
        if (files[id].metadata) return sink(id, 0, std::as_bytes(std::span(config_)));
        const bool optimizer = id >= ranks() || model_.empty();
        const uint32_t rank = id % ranks();
        SHARDSCOPE_ASSIGN(const auto file, build(rank, optimizer, files[id].path));
        return RankWriter::literals(*file, id, chunkCrcs, sink);
    }

  private:
    uint32_t ranks() const { return writer_.mesh().ranks(); }

    std::string nameOf(uint32_t rank, bool optimizer) const {
        if (accelerate_)
            return fmt::format("{}_0_rank{}.bin", optimizer ? "optimizer" : "pytorch_model_fsdp", rank);
        return fmt::format("{}_world_size_{}_rank_{}.pt", optimizer ? "optim" : "model", ranks(), rank);
    }

    // Frameworks number the parameters of an optimizer or name them, and take nothing else.
    void noteForm(const ObjectInfo& object) {
        const bool names = !numbersOf(object.value).empty();
        if (accelerate_ && !names)
            changed.push_back(
                {object.name, "numbers its parameters; Accelerate's loader expects their names"});
    }

    // ------------------------------------------------------------------ files

    Result<std::unique_ptr<RankWriter::File>> build(uint32_t rank, bool optimizer,
                                                    const std::string& name) const {
        auto file = writer_.start(name.substr(0, name.rfind('.')), rank);
        const auto tensor = [&](TensorId t) { writer_.tensor(*file, t); };
        PickleWriter& out = file->archive.pickle();
        if (optimizer) {
            std::vector<LeftOut> said;
            TreePickler pickler(target_, tree_, out, said, tensor);
            if (groups_.second) pickler.replace(groups_.first, groups_.second);
            SHARDSCOPE_TRY(pickler.write());
        } else {
            out.memoGlobal("collections", "OrderedDict");
            out.emptyTuple();
            out.reduce();
            out.put();
            for (size_t i = 0; i < model_.size(); i += kBatchOfTensors) {
                out.mark();
                for (size_t k = i; k < std::min(i + kBatchOfTensors, model_.size()); ++k) {
                    out.memoText(target_.name(model_[k]));
                    tensor(model_[k]);
                }
                out.setItems();
            }
        }
        file->archive.finish();
        return file;
    }

    const Catalog& target_;
    const bool accelerate_;
    RankWriter writer_;
    std::vector<TensorId> model_;
    Tree tree_;
    std::pair<ObjectId, Value> groups_{kNone, {}};
    std::string config_;
};

}  // namespace

std::vector<std::string> writtenVariants() {
    return {"verl", "verl-cpu", "accelerate", "accelerate-cpu"};
}

std::optional<Path> pathFor(const Path& path, bool optimizer) {
    if (path.empty()) return std::nullopt;
    const std::string first = path[0].toString();
    Path rest(path.begin() + 1, path.end());
    if (first == "model" && !rest.empty()) return rest;
    if (first == "optimizer" && !rest.empty()) {
        rest.insert(rest.begin(), keyPart(kOptimizer));
        return rest;
    }
    if (optimizer && (first == "state" || first == "param_groups")) {
        Path out{keyPart(kOptimizer)};
        out.insert(out.end(), path.begin(), path.end());
        return out;
    }
    return std::nullopt;
}

Format::NewPath pathsFor(const Catalog& source, const std::function<Result<Value>(ObjectId)>& read,
                         const WriteOptions& options) {
    if (options.variant.starts_with("accelerate")) return {};
    for (ObjectId o = 0; o < source.objects().size(); ++o) {
        const Path& path = source.objects()[o].path;
        if (!isParamGroups(pathFor(path, true).value_or(path))) continue;
        const auto value = read(o);
        auto numbers = value.ok() ? numbersOf(*value) : std::unordered_map<std::string, int64_t>();
        if (numbers.empty()) continue;
        const bool own = source.format() == "torch-ranks";
        return [own, numbers = std::move(numbers)](const Path& from, bool optimizer) -> std::optional<Path> {
            auto to = own ? std::optional<Path>() : pathFor(from, optimizer);
            Path out = to.value_or(from);
            if (out.size() < 4 || !ofOptimizer(out) || out[1] != keyPart("state") ||
                out[2].kind != PathPart::Kind::key)
                return to;
            const auto number = numbers.find(out[2].text);
            if (number == numbers.end()) return to;
            out[2] = {PathPart::Kind::integerKey, {}, number->second};
            return out;
        };
    }
    return {};
}

std::vector<LeftOut> cannotHold(const Catalog& target) {
    std::vector<LeftOut> out;
    for (TensorId t = 0; t < target.tensorCount(); ++t) {
        const std::string name(target.name(t)), dtype(dtypeName(target.dtype(t)));
        if (name.starts_with("extra_state.")) {
            out.push_back({name, "it is the state of one rank, such as that of a random generator"});
        } else if (!dtypeFromTorchGlobal("torch", dtype)) {
            out.push_back({name, fmt::format("torch has no dtype {}", dtype)});
        } else if (dtype.starts_with("q")) {
            out.push_back({name, fmt::format("{} data means nothing without its scale", dtype)});
        }
    }
    for (const ObjectInfo& object : target.objects()) {
        std::string why =
            ofOptimizer(object.path) ? whyNotPickled(object.value) : "the files of a model hold tensors only";
        if (!why.empty()) out.push_back({object.name, std::move(why)});
    }
    for (const std::string& name : buildTree(target, insideOptimizer).collisions)
        out.push_back({name, "its place in the nested object is taken by another entry"});
    return out;
}

Result<std::unique_ptr<TargetLayout>> layOut(const Catalog& target, const WriteOptions& options) {
    const std::vector<std::string> variants = writtenVariants();
    if (!options.variant.empty() && std::ranges::find(variants, options.variant) == variants.end())
        return makeError(ErrorCode::usage,
                         fmt::format("'{}' is not a variant of rank files", options.variant))
            .withHint(fmt::format("the variants are {}", fmt::join(variants, ", ")));
    auto layout = std::make_unique<RankLayout>(target, options);
    SHARDSCOPE_TRY(layout->plan());
    return std::unique_ptr<TargetLayout>(std::move(layout));
}

}  // namespace shardscope::torch_ranks
