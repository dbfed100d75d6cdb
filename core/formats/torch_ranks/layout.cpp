#include "formats/torch_ranks/layout.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include <fmt/format.h>

#include "formats/entry_tree.h"
#include "formats/rank_writer.h"
#include "model/paths.h"

namespace shardscope::torch_ranks {

namespace {

constexpr std::string_view kOptimizer = "optim";

bool ofOptimizer(const Path& path) {
    return path.size() > 1 && path[0] == keyPart(kOptimizer);
}

// What is under "optim", in the optimizer's own state dict.
std::optional<Path> insideOptimizer(const Path& path) {
    if (!ofOptimizer(path)) return std::nullopt;
    return below(path);
}

// Below "extra_state", of the first rank: what is the same on all ranks.
constexpr std::string_view kExtra = "extra_state", kFirstRank = "rank_0", kScheduler = "lr_scheduler";

std::optional<Path> insideExtra(const Path& path) {
    if (path.size() < 3 || path[0] != keyPart(kExtra) || path[1] != keyPart(kFirstRank)) return std::nullopt;
    return below(path, 2);
}

// Random states are those of one rank, as are its number and that of all ranks.
bool isOfAllRanks(const PathPart& key) {
    return std::ranges::any_of(
        std::array<std::string_view, 4>{kScheduler, "client_state", "tag", "fsdp_strategy"},
        [&](std::string_view name) { return key == keyPart(name); });
}

constexpr const char* kOfOneRank = "it is the state of one rank, such as that of a random generator";

// Why each object below "extra_state" is not carried; empty for those of the first rank that are.
class ExtraStates {
  public:
    explicit ExtraStates(const Catalog& target) {
        for (const ObjectInfo& object : target.objects()) {
            const Path& path = object.path;
            if (path.size() < 3 || path[0] != keyPart(kExtra)) continue;
            ranks_.insert(path[1].text);
            Entry& entry = entries_[encodePath(below(path, 2))];
            entry.values.insert(object.value ? valueToJson(object.value) : std::string());
            ++entry.ranks;
        }
    }
    std::string whyNot(const ObjectInfo& object) const {
        if (object.path.size() < 3 || !isOfAllRanks(object.path[2])) return kOfOneRank;
        const Entry& entry = entries_.at(encodePath(below(object.path, 2)));
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

class RankLayout final : public RankFileLayout {
  public:
    RankLayout(const Catalog& target, const WriteOptions& options)
        : RankFileLayout(target, options, options.variant.ends_with("-cpu") ? "cpu" : "cuda"),
          accelerate_(options.variant.starts_with("accelerate")) {}

    Status plan() {
        SHARDSCOPE_TRY(findPlacements());
        for (TensorId t = 0; t < target_.tensorCount(); ++t) {
            if (!ofOptimizer(target_.path(t))) model_.push_back(t);
        }
        tree_ = buildTree(target_, insideOptimizer);
        extra_ = buildTree(target_, insideExtra);
        SHARDSCOPE_TRY(tree_.check());
        noteForm();
        std::vector<Kind> kinds;  // each has a file on each rank, in this order
        if (!model_.empty()) kinds.push_back(Kind::model);
        if (tree_.nodes.size() > 1) kinds.push_back(Kind::optimizer);
        if (kinds.empty()) return makeError(ErrorCode::impossible, "there is nothing to write");
        // verl and SkyRL look for its files.
        if (!accelerate_) kinds.push_back(Kind::extra);
        for (const Kind kind : kinds) {
            for (uint32_t rank = 0; rank < ranks(); ++rank) {
                const std::string name = nameOf(rank, kind);
                SHARDSCOPE_TRY(addFile(name, name.substr(0, name.rfind('.')), rank,
                                       [this, kind](File& file) { return write(file, kind); }));
            }
        }
        tie();
        if (!accelerate_)
            addText("fsdp_config.json",
                    fmt::format("{{\n    \"FSDP_version\": 2,\n    \"world_size\": {}\n}}", ranks()));
        return {};
    }

  private:
    enum class Kind : uint8_t { model, optimizer, extra };

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

    Status write(File& file, Kind kind) const {
        const auto add = [&](TensorId t) { tensor(file, t); };
        PickleWriter& out = file.archive.pickle();
        if (kind == Kind::extra && extra_.nodes.size() == 1) {
            out.emptyDict();
            out.memoText(kScheduler);
            out.none();
            out.setItem();
        } else if (kind != Kind::model) {
            std::vector<LeftOut> said;
            TreePickler pickler(target_, kind == Kind::extra ? extra_ : tree_, out, said, add);
            return pickler.write();
        } else {
            writeStateDict(
                out, model_.size(), [&](size_t i) { return target_.name(model_[i]); },
                [&](size_t i) { add(model_[i]); });
        }
        return {};
    }

    const bool accelerate_;
    std::vector<TensorId> model_;
    Tree tree_, extra_;
};

}  // namespace

std::optional<Path> pathFor(const Path& path, bool optimizer) {
    if (path.empty()) return std::nullopt;
    const std::string first = path[0].toString();
    const bool deeper = path.size() > 1;
    if (first == "model" && deeper) return below(path);
    if (first == "optimizer" && deeper) return joined({kOptimizer}, path, 1);
    if ((first == kScheduler || first == "scheduler") && deeper)
        return joined({kExtra, kFirstRank, kScheduler}, path, 1);
    if (optimizer && (first == "state" || first == "param_groups")) return joined({kOptimizer}, path);
    return std::nullopt;
}

std::vector<LeftOut> cannotHold(const Catalog& target, const WriteOptions&) {
    const ExtraStates extra(target);
    std::vector<LeftOut> out = leftOutOf(
        target,
        [&](TensorId t) {
            return target.name(t).starts_with("extra_state.") ? kOfOneRank : whyNotPickled(target.dtype(t));
        },
        [&](const ObjectInfo& object) {
            return object.name.starts_with("extra_state.") ? extra.whyNot(object)
                   : ofOptimizer(object.path)              ? whyNotPickled(object.value)
                                                           : "the files of a model hold tensors only";
        });
    buildTree(target, insideOptimizer).leaveOutCollisions(out);
    return out;
}

Result<std::unique_ptr<TargetLayout>> layOut(const Catalog& target, const WriteOptions& options) {
    return planned<RankLayout>(target, options);
}

}  // namespace shardscope::torch_ranks
