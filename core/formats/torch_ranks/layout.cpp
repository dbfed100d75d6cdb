#include "formats/torch_ranks/layout.h"

#include <algorithm>

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
        if (!tree_.collisions.empty())
            return makeError(ErrorCode::impossible,
                             "its place in the nested object is taken by another entry")
                .ofTensor(tree_.collisions[0]);
        noteForm();
        chunkFile.assign(target_.chunkCount(), 0);
        chunkOffset.assign(target_.chunkCount(), 0);
        for (const bool optimizer : {false, true}) {
            const bool any = optimizer ? tree_.nodes.size() > 1 : !model_.empty();
            for (uint32_t rank = 0; any && rank < ranks(); ++rank) {
                SHARDSCOPE_TRY(stop_.poll());
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

    Result<std::unique_ptr<RankWriter::File>> build(uint32_t rank, bool optimizer,
                                                    const std::string& name) const {
        auto file = writer_.start(name.substr(0, name.rfind('.')), rank);
        const auto tensor = [&](TensorId t) { writer_.tensor(*file, t); };
        PickleWriter& out = file->archive.pickle();
        if (optimizer) {
            std::vector<LeftOut> said;
            TreePickler pickler(target_, tree_, out, said, tensor);
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
    Tree tree_;
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
    for (const ObjectInfo& object : target.objects()) {
        std::string why = object.name.starts_with("extra_state.")
                              ? "it is the state of one rank, such as that of a random generator"
                          : ofOptimizer(object.path) ? whyNotPickled(object.value)
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
