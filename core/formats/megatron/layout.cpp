
#include <fmt/format.h>

#include "formats/dcp/dcp_writer.h"
#include "formats/file_layout.h"
#include "formats/megatron/contents.h"
#include "formats/megatron/fsdp_dtensor.h"
#include "formats/megatron/place.h"
#include "formats/megatron/target_names.h"
#include "formats/rank_cut.h"
#include "formats/torch_save/writer.h"

namespace shardscope::megatron {

namespace {

constexpr std::string_view kBackends =
    R"({"sharded_backend": "torch_dist", "sharded_backend_version": 1, "common_backend": "torch", )"
    R"("common_backend_version": 1})";
constexpr const char* kTracker = "latest_checkpointed_iteration.txt";

class TorchDistLayout final : public TargetLayout {
  public:
    TorchDistLayout(const Catalog& target, bool run) : wanted_(target), run_(run) { needsCrc = true; }

    Status plan() {
        SHARDSCOPE_ASSIGN(Contents contents, contentsOf(wanted_));
        changed = std::move(contents.changed);
        // Without an iteration it is what Megatron calls a release: weights to begin with.
        const std::string step =
            contents.iteration ? fmt::format("iter_{:07}", *contents.iteration) : std::string("release");
        const std::string below = run_ ? step + '/' : std::string();
        SHARDSCOPE_TRY(split(contents));
        SHARDSCOPE_ASSIGN(sharded_, dcp::layoutDcp(stored_, dcp::NamePaths::none));
        for (const LeftOut& left : sharded_->changed)
            changed.push_back(left);
        for (TargetFile file : sharded_->files) {
            file.path = below + file.path;
            files.push_back(std::move(file));
        }
        SHARDSCOPE_TRY(common_.build(unsharded_, changed));
        const auto commonFile = static_cast<FileId>(files.size());
        files.push_back({below + kCommon, common_.size(), false});
        small_.emplace_back(kBackends);
        files.push_back({below + kMetadataJson, kBackends.size(), true});
        if (run_) {
            small_.push_back(contents.iteration ? std::to_string(*contents.iteration) : step);
            files.push_back({kTracker, small_.back().size(), true});
        }
        placeChunks(commonFile);
        return {};
    }

    Status chunkLiterals(ChunkId chunk, uint32_t crc32, const LiteralSink& sink) const override {
        const ChunkId inner = innerChunk_[chunk];
        return inner == kNone ? Status() : sharded_->chunkLiterals(inner, crc32, sink);
    }
    Status fileLiterals(FileId file, std::span<const uint32_t> chunkCrcs,
                        const LiteralSink& sink) const override {
        if (file < sharded_->files.size()) return sharded_->fileLiterals(file, {}, sink);
        const size_t behind = file - sharded_->files.size();
        if (behind > 0) return sink(file, 0, std::as_bytes(std::span(small_[behind - 1])));
        return common_.literals(
            [&](TensorId t) { return chunkCrcs[wanted_.firstChunk(commonTensors_[t])]; },
            [&](uint64_t at, std::span<const std::byte> bytes) { return sink(file, at, bytes); });
    }

  private:
    // The target as two catalogs: what is sharded, and what common.pt holds.
    Status split(const Contents& contents) {
        CatalogBuilder stored("megatron", "torch_dist", "shardscope"),
            common("megatron", "torch_dist", "shardscope");
        stored.setRankCount(wanted_.rankCount());
        std::vector<TensorId> ids(wanted_.tensorCount(), kNone);
        innerChunk_.assign(wanted_.chunkCount(), kNone);
        for (TensorId t = 0; t < wanted_.tensorCount(); ++t) {
            const bool inCommon = contents.inCommon[t];
            CatalogBuilder& builder = inCommon ? common : stored;
            ids[t] = static_cast<TensorId>(builder.tensorCount());
            TensorInfo info = infoOf(wanted_, t);
            info.path = inCommon ? commonPath(std::move(info.path)) : Path{keyPart(info.name)};
            if (const TensorId of = info.aliasOf; of != kNone)
                info.aliasOf = contents.inCommon[of] == inCommon ? ids[of] : kNone;
            SHARDSCOPE_TRY(builder.addTensor(info));
            if (inCommon) {
                if (wanted_.endChunk(t) - wanted_.firstChunk(t) != 1)
                    return makeError(ErrorCode::impossible,
                                     "common.pt holds whole tensors, not shards of them")
                        .ofTensor(info.name);
                commonTensors_.push_back(t);
                SHARDSCOPE_TRY(builder.addWhole(0, kNone, 0, 0));
                continue;
            }
            for (ChunkId c = wanted_.firstChunk(t); c < wanted_.endChunk(t); ++c) {
                const ChunkInfo chunk = wanted_.chunk(t, c);
                innerChunk_[c] = static_cast<ChunkId>(builder.chunkCount());
                SHARDSCOPE_TRY(
                    builder.addChunk({chunk.rank, kNone, 0, 0, chunk.offsets, chunk.lengths, chunk.flat}));
            }
        }
        for (const Contents::ShardedValue& object : contents.sharded) {
            stored.addObject({.name = object.name, .value = object.value});
        }
        for (const Contents::Entry& entry : contents.common) {
            common.addObject({.name = pathName(entry.path), .path = entry.path, .value = entry.value});
        }
        stored_ = std::move(stored).finish();
        unsharded_ = std::move(common).finish();
        return {};
    }

    void placeChunks(FileId commonFile) {
        chunkFile.assign(wanted_.chunkCount(), commonFile);
        chunkOffset.assign(wanted_.chunkCount(), 0);
        for (ChunkId c = 0; c < innerChunk_.size(); ++c) {
            if (innerChunk_[c] == kNone) continue;
            chunkFile[c] = sharded_->chunkFile[innerChunk_[c]];
            chunkOffset[c] = sharded_->chunkOffset[innerChunk_[c]];
        }
        for (TensorId t = 0; t < commonTensors_.size(); ++t)
            chunkOffset[wanted_.firstChunk(commonTensors_[t])] = common_.offsetOf(t);
    }

    const Catalog& wanted_;
    const bool run_;
    Catalog stored_, unsharded_;
    std::unique_ptr<TargetLayout> sharded_;
    torch_save::ObjectFile common_{"common"};
    std::vector<ChunkId> innerChunk_;  // kNone: in common.pt
    std::vector<TensorId> commonTensors_;
    std::vector<std::string> small_;  // metadata.json and the tracker
};

}  // namespace

Result<std::unique_ptr<TargetLayout>> layOut(const Catalog& target, const WriteOptions& options) {
    if (options.variant == kFsdpVariant) return layOutFsdp(target);
    return planned<TorchDistLayout>(target, options.variant == kRunVariant);
}

}  // namespace shardscope::megatron
