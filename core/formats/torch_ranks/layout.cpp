#include "formats/torch_ranks/layout.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

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

// What is under "optim", in the optimizer's own state dict.
std::optional<Path> insideOptimizer(const Path& path) {
    if (!ofOptimizer(path)) return std::nullopt;
    return Path(path.begin() + 1, path.end());
}

// Below "extra_state", of the first rank: what is the same on all ranks.
constexpr std::string_view kExtra = "extra_state", kFirstRank = "rank_0", kScheduler = "lr_scheduler";

std::optional<Path> insideExtra(const Path& path) {
    if (path.size() < 3 || path[0] != keyPart(kExtra) || path[1] != keyPart(kFirstRank)) return std::nullopt;
    return Path(path.begin() + 2, path.end());
}

// Random states are those of one rank, as are its number and that of all ranks.
bool isOfAllRanks(const PathPart& key) {
    return std::ranges::any_of(
        std::array<std::string_view, 4>{kScheduler, "client_state", "tag", "fsdp_strategy"},
        [&](std::string_view name) { return key == keyPart(name); });
}

// Why each object below "extra_state" is not carried; empty for those of the first rank that are.
class ExtraStates {
  public:
    explicit ExtraStates(const Catalog& target) {
        for (const ObjectInfo& object : target.objects()) {
            const Path& path = object.path;
            if (path.size() < 3 || path[0] != keyPart(kExtra)) continue;
            ranks_.insert(path[1].text);
            Entry& entry = entries_[encodePath(Path(path.begin() + 2, path.end()))];
            entry.values.insert(object.value ? valueToJson(object.value) : std::string());
            ++entry.ranks;
        }
    }
    std::string whyNot(const ObjectInfo& object) const {
        constexpr const char* kOfOneRank = "it is the state of one rank, such as that of a random generator";
        if (object.path.size() < 3 || !isOfAllRanks(object.path[2])) return kOfOneRank;
        const Entry& entry = entries_.at(encodePath(Path(object.path.begin() + 2, object.path.end())));
        if (entry.values.size() > 1 || entry.ranks != ranks_.size())
            return "ranks have different ones, and the new ranks are others";
        if (object.path[1] != keyPart(kFirstRank))
            return "it is the same as that of rank 0, which every rank gets";
        return whyNotPickled(object.value);
    }

  private:
    struct Entry {
        std::set<std::string> values;
        size_t ranks = 0;
    };
    std::set<std::string> ranks_;
    std::map<std::string, Entry> entries_;
};

class RankLayout final : public TargetLayout {
  public:
    RankLayout(const Catalog& target, const WriteOptions& options)
        : target_(target),
          stop_(options.stop),
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
        extra_ = buildTree(target_, insideExtra);
        if (!tree_.collisions.empty())
            return makeError(ErrorCode::impossible,
                             "its place in the nested object is taken by another entry")
                .ofTensor(tree_.collisions[0]);
        noteForm();
        chunkFile.assign(target_.chunkCount(), 0);
        chunkOffset.assign(target_.chunkCount(), 0);
        if (!model_.empty()) kinds_.push_back(Kind::model);
        if (tree_.nodes.size() > 1) kinds_.push_back(Kind::optimizer);
        if (kinds_.empty()) return makeError(ErrorCode::impossible, "there is nothing to write");
        // verl and SkyRL look for its files.
        if (!accelerate_) kinds_.push_back(Kind::extra);
        for (const Kind kind : kinds_) {
            for (uint32_t rank = 0; rank < ranks(); ++rank) {
                SHARDSCOPE_TRY(stop_.poll());
                const std::string name = nameOf(rank, kind);
                SHARDSCOPE_ASSIGN(const auto file, build(rank, kind, name));
                RankWriter::place(*file, name, *this);
            }
        }
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
        SHARDSCOPE_ASSIGN(const auto file, build(id % ranks(), kinds_[id / ranks()], files[id].path));
        return RankWriter::literals(*file, id, chunkCrcs, sink);
    }

  private:
    enum class Kind : uint8_t { model, optimizer, extra };

    uint32_t ranks() const { return writer_.mesh().ranks(); }

    std::string nameOf(uint32_t rank, Kind kind) const {
        if (accelerate_)
            return fmt::format("{}_0_rank{}.bin",
                               kind == Kind::optimizer ? "optimizer" : "pytorch_model_fsdp", rank);
        const std::string_view name = kind == Kind::model       ? "model"
                                      : kind == Kind::optimizer ? "optim"
                                                                : kExtra;
        return fmt::format("{}_world_size_{}_rank_{}.pt", name, ranks(), rank);
    }

    // Optimizer.load_state_dict() takes numbers and names, where groups list them; Accelerate's loader names.
    void noteForm() {
        for (TensorId t = 0; t < target_.tensorCount(); ++t) {
            const Path path = target_.path(t);
            if (!ofOptimizer(path)) continue;
            if (path.size() == 2 && path[1].toString().starts_with("state."))
                changed.push_back(
                    {std::string(target_.name(t)),
                     "its key is flattened, which set_optimizer_state_dict() takes when it is told so"});
            else if (accelerate_ && path.size() > 2 && path[2].kind == PathPart::Kind::integerKey)
                changed.push_back({std::string(target_.name(t)),
                                   "its parameter is numbered; Accelerate's loader expects a name"});
            else
                continue;
            return;
        }
    }

    // ------------------------------------------------------------------ files

    Result<std::unique_ptr<RankWriter::File>> build(uint32_t rank, Kind kind, const std::string& name) const {
        auto file = writer_.start(name.substr(0, name.rfind('.')), rank);
        const auto tensor = [&](TensorId t) { writer_.tensor(*file, t); };
        PickleWriter& out = file->archive.pickle();
        if (kind == Kind::extra && extra_.nodes.size() == 1) {
            out.emptyDict();
            out.memoText(kScheduler);
            out.none();
            out.setItem();
        } else if (kind != Kind::model) {
            std::vector<LeftOut> said;
            TreePickler pickler(target_, kind == Kind::extra ? extra_ : tree_, out, said, tensor);
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
    const StopToken stop_;
    const bool accelerate_;
    RankWriter writer_;
    std::vector<TensorId> model_;
    Tree tree_, extra_;
    std::vector<Kind> kinds_;  // each has a file on each rank, in this order
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
    if ((first == kScheduler || first == "scheduler") && !rest.empty()) {
        Path out{keyPart(kExtra), keyPart(kFirstRank), keyPart(kScheduler)};
        out.insert(out.end(), rest.begin(), rest.end());
        return out;
    }
    if (optimizer && (first == "state" || first == "param_groups")) {
        Path out{keyPart(kOptimizer)};
        out.insert(out.end(), path.begin(), path.end());
        return out;
    }
    return std::nullopt;
}

std::vector<LeftOut> cannotHold(const Catalog& target, const WriteOptions&) {
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
    const ExtraStates extra(target);
    for (const ObjectInfo& object : target.objects()) {
        std::string why = object.name.starts_with("extra_state.") ? extra.whyNot(object)
                          : ofOptimizer(object.path)              ? whyNotPickled(object.value)
                                                                  : "the files of a model hold tensors only";
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
