#include "formats/torch_save/writer.h"

#include <algorithm>
#include <unordered_set>

#include <fmt/format.h>

#include "encoding/pickle.h"
#include "encoding/pickle_text.h"
#include "encoding/torch_archive.h"
#include "encoding/torch_walk.h"
#include "formats/entry_tree.h"
#include "formats/file_layout.h"

namespace shardscope::torch_save {

namespace {

// Why torch.load(weights_only=True) would refuse the value; empty when it would not.
std::string refusedBecause(const Value& value) {
    constexpr size_t kMaxNodes = 10'000'000;
    if (!value) return "its value was not read";
    const ValueGraph& g = *value.graph;
    std::unordered_set<NodeId> seen{value.node};
    std::vector<NodeId> order{value.node};
    const auto reach = [&](NodeId node) {
        if (node != kNoNode && seen.insert(node).second) order.push_back(node);
    };
    for (size_t i = 0; i < order.size(); ++i) {
        if (order.size() > kMaxNodes) return "it is too large";
        const NodeId node = order[i];
        switch (g.kind(node)) {
            case ValueKind::persistent:
                return "it holds a tensor storage";
            case ValueKind::frozenSet:
                return "torch.load(weights_only=True) refuses builtins.frozenset";
            case ValueKind::bigInteger:
                if (g.text(node).size() > UINT8_MAX)
                    return "torch.load(weights_only=True) refuses integers of more than 255 bytes";
                break;
            case ValueKind::global:
                if (classifyGlobal(g.globalModule(node), g.globalName(node)) != GlobalKind::weights) {
                    return fmt::format("torch.load(weights_only=True) refuses {}.{}", g.globalModule(node),
                                       g.globalName(node));
                }
                break;
            case ValueKind::object: {
                const ValueObject& object = g.object(node);
                if (object.made == ValueObject::Made::instance ||
                    object.made == ValueObject::Made::newObjectWithKeywords) {
                    return "torch.load(weights_only=True) refuses the way in which it is made";
                }
                const bool ordered = g.isGlobal(object.callable, "collections", "OrderedDict");
                if ((object.state != kNoNode && !ordered) || object.appended != kNoNode) {
                    return "torch.load(weights_only=True) refuses objects with a state of their own";
                }
                for (NodeId part : {object.callable, object.arguments, object.state, object.pairs})
                    reach(part);
                break;
            }
            case ValueKind::list:
            case ValueKind::tuple:
            case ValueKind::set:
            case ValueKind::dict:
                for (NodeId item : g.items(node))
                    reach(item);
                break;
            default:
                break;
        }
    }
    return {};
}

class TorchSaveLayout final : public FileLayout {
  public:
    TorchSaveLayout(const Catalog& target, const WriteOptions& options)
        : FileLayout(target), file_(options.archiveName) {
        needsCrc = true;
    }

    Status plan() {
        SHARDSCOPE_TRY(file_.build(target_, changed));
        files.push_back({"model.pt", file_.size(), false});
        for (TensorId t = 0; t < target_.tensorCount(); ++t) {
            SHARDSCOPE_TRY(checkWhole(t, "a torch.save file holds whole tensors, not shards of them"));
            for (ChunkId c = target_.firstChunk(t); c < target_.endChunk(t); ++c)
                chunkOffset[c] = file_.offsetOf(t);
        }
        return {};
    }

    Status fileLiterals(FileId file, std::span<const uint32_t> chunkCrcs,
                        const LiteralSink& sink) const override {
        return file_.literals(
            [&](TensorId t) {
                return target_.firstChunk(t) < target_.endChunk(t) ? chunkCrcs[target_.firstChunk(t)] : 0;
            },
            [&](uint64_t at, std::span<const std::byte> bytes) { return sink(file, at, bytes); });
    }

  private:
    ObjectFile file_;
};

}  // namespace

Status ObjectFile::build(const Catalog& content, std::vector<LeftOut>& changed) {
    const Tree tree = buildTree(content);
    SHARDSCOPE_TRY(tree.check());
    // Which storage each tensor has in it: tied ones have one.
    storageOf_.assign(content.tensorCount(), kNone);
    TreePickler pickler(content, tree, archive_->pickle(), changed, [&](TensorId t) {
        const TensorId owner = content.aliasOf(t) == kNone ? t : content.aliasOf(t);
        if (storageOf_[owner] == kNone) {
            storageOf_[owner] = static_cast<uint32_t>(storages_.size());
            storages_.push_back(owner);
        }
        storageOf_[t] = storageOf_[owner];
        archive_->tensor(content.dtype(t), content.shape(t), storageOf_[t], content.bytes(owner));
    });
    SHARDSCOPE_TRY(pickler.write());
    archive_->finish();
    return {};
}

Status ObjectFile::literals(const std::function<uint32_t(TensorId)>& crcOf,
                            const TorchArchiveWriter::Sink& sink) const {
    std::vector<uint32_t> crcs;
    for (TensorId t : storages_)
        crcs.push_back(crcOf(t));
    return archive_->literals(crcs, sink);
}

std::string whyNoFileHolds(const Catalog& target, TensorId t) {
    std::string why = whyNotPickled(target.dtype(t));
    return why.empty() && !pickle_text::isUtf8(target.name(t)) ? "its name is not text" : why;
}

std::vector<LeftOut> cannotHold(const Catalog& target, const WriteOptions&) {
    std::vector<LeftOut> out = leftOutOf(
        target, [&](TensorId t) { return whyNoFileHolds(target, t); },
        [](const ObjectInfo& object) { return refusedBecause(object.value); });
    buildTree(target).leaveOutCollisions(out);
    return out;
}

Result<std::unique_ptr<TargetLayout>> layOut(const Catalog& target, const WriteOptions& options) {
    for (TensorId t = 0; t < target.tensorCount(); ++t) {
        if (std::string why = whyNotPickled(target.dtype(t)); !why.empty()) {
            return makeError(ErrorCode::impossible, std::move(why)).ofTensor(target.name(t));
        }
    }
    return planned<TorchSaveLayout>(target, options);
}

}  // namespace shardscope::torch_save
