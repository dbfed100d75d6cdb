#include "formats/tensor_parallel/layout.h"

#include <algorithm>
#include <span>

#include <fmt/format.h>

#include "base/checked.h"
#include "base/option_words.h"
#include "formats/named_file_layout.h"
#include "formats/tensor_parallel/cuts.h"

namespace shardscope::tensor_parallel {

namespace {

constexpr uint32_t kMostRanksWritten = 4096;

class RankFileLayout final : public NamedFileLayout {
  public:
    RankFileLayout(const Catalog& target, const WriteOptions& options)
        : NamedFileLayout(target),
          stop_(options.stop),
          config_(options.modelConfig),
          vllm_(options.variant == kVllm),
          columns_(options.variant == kMetaLlama2),
          maxFileSize_(options.maxFileSize) {
        needsCrc = !vllm_;
    }

    Status plan() {
        const uint32_t ranks = std::max<uint32_t>(1, target_.rankCount());
        SHARDSCOPE_TRY(vllm_ ? checkVllm(target_, config_) : checkMeta(target_, config_, columns_, ranks));
        for (uint32_t rank = 0; rank < ranks; ++rank) {
            SHARDSCOPE_TRY(stop_.poll());
            SHARDSCOPE_TRY(addRank(rank, ranks));
        }
        if (!vllm_) {
            SHARDSCOPE_ASSIGN(std::string params, paramsJson(config_, columns_));
            addText("params.json", std::move(params));
        }
        return {};
    }

  private:
    Error otherParts(TensorId t) const {
        return makeError(ErrorCode::impossible, "its parts are not those of tensor-parallel ranks")
            .ofTensor(target_.name(t))
            .withHint(fmt::format("{} alone says how many ranks there are", option("mesh", "tp=N")));
    }

    // The rank's shards, in one file or in several.
    Status addRank(uint32_t rank, uint32_t ranks) {
        const Cuts cuts(readSizes(config_), {}, true);
        std::vector<Entry> entries;
        uint64_t bytes = 0;
        uint32_t part = 0;
        for (TensorId t = 0; t < target_.tensorCount(); ++t) {
            auto cut = cuts.ofWhole(target_.name(t), target_.shape(t), ranks, rank, columns_);
            if (!cut.ok()) return std::move(cut).error().ofTensor(target_.name(t));
            SHARDSCOPE_ASSIGN(Entry entry, shardOf(t, rank, *cut));
            if (vllm_ && maxFileSize_ > 0 && bytes > 0 &&
                entry.bytes > maxFileSize_ - std::min(bytes, maxFileSize_)) {
                SHARDSCOPE_TRY(addFile(rank, part++, std::move(entries)));
                entries.clear();
                bytes = 0;
            }
            bytes += entry.bytes;
            entries.push_back(std::move(entry));
        }
        return addFile(rank, part, std::move(entries));
    }

    Status addFile(uint32_t rank, uint32_t part, std::vector<Entry> entries) {
        if (vllm_)
            return addSafetensors(fmt::format("model-rank-{}-part-{}.safetensors", rank, part),
                                  std::move(entries), {{"format", "pt"}});
        addStateDict(fmt::format("consolidated.{:02}.pth", rank), entries, false);
        return {};
    }

    // What the rank holds of a tensor: chunks of the target, one behind the other.
    Result<Entry> shardOf(TensorId t, uint32_t rank, const RankCut& cut) const {
        const DimSpan whole = target_.shape(t);
        Entry shard{std::string(target_.name(t)), target_.dtype(t), Dims(whole.begin(), whole.end()), 0, {}};
        const std::vector<CutBox> boxes = cut.boxes(whole);
        for (ChunkId c = target_.firstChunk(t); c < target_.endChunk(t); ++c) {
            const ChunkInfo chunk = target_.chunk(t, c);
            if (chunk.rank != rank) continue;
            const size_t i = shard.chunks.size();
            if (chunk.flat || i >= boxes.size() || !std::ranges::equal(chunk.offsets, boxes[i].offsets) ||
                !std::ranges::equal(chunk.lengths, boxes[i].lengths))
                return otherParts(t);
            shard.chunks.push_back(c);
            shard.bytes += bytesOf(c);
        }
        if (shard.chunks.size() != boxes.size()) return otherParts(t);
        if (cut.axis != RankCut().axis) {
            int64_t& length = shard.shape[static_cast<size_t>(cut.axis)];
            length = 0;
            for (const CutPart& part : cut.parts)
                length += part.length;
        }
        return shard;
    }

    const StopToken stop_;
    const std::string config_;
    const bool vllm_, columns_;
    const uint64_t maxFileSize_;
};

Result<uint32_t> ranksOf(const std::optional<Mesh>& asked, const Catalog& source) {
    const bool own = !asked && source.format() == "tensor-parallel";
    const std::optional<Mesh>& mesh = own ? source.mesh() : asked;
    if (!mesh) return 1;
    if (mesh->axes.size() != 1 || mesh->axes[0].name != "tp")
        return makeError(ErrorCode::usage, fmt::format("these files are of tensor-parallel ranks, of which a "
                                                       "mesh {} says nothing",
                                                       formatMesh(*mesh)))
            .withHint("for example " + option("mesh", "tp=2"));
    if (mesh->axes[0].size > kMostRanksWritten)
        return makeError(ErrorCode::limit, fmt::format("more than {} ranks", kMostRanksWritten));
    return mesh->axes[0].size;
}

}  // namespace

Result<Catalog> place(const Catalog& target, const std::optional<Mesh>& asked, const Catalog& source,
                      const WriteOptions& options) {
    SHARDSCOPE_ASSIGN(const uint32_t ranks, ranksOf(asked, source));
    const Cuts cuts(readSizes(options.modelConfig), {}, true);
    const bool columns = options.variant == kMetaLlama2;
    return withChunks(
        target, Mesh{{{"tp", ranks}}, {}},
        [&](TensorId, const TensorInfo& info, CatalogBuilder& builder) -> Status {
            for (uint32_t rank = 0; rank < ranks; ++rank) {
                const auto cut = cuts.ofWhole(info.name, info.shape, ranks, rank, columns);
                for (const CutBox& box : (cut.ok() ? *cut : RankCut{}).boxes(info.shape))
                    SHARDSCOPE_TRY(builder.addChunk({rank, kNone, 0, 0, box.offsets, box.lengths, {}}));
            }
            return {};
        });
}

std::vector<LeftOut> cannotHold(const Catalog& target, const WriteOptions&) {
    return leftOutOf(
        target, [](TensorId) { return std::string(); },
        [](const ObjectInfo&) { return std::string("files of tensor-parallel ranks hold tensors alone"); });
}

std::vector<TargetCopy> copies(const Catalog& target, const WriteOptions&) {
    std::vector<TargetCopy> apart;
    for (TensorId t = 0; t < target.tensorCount(); ++t) {
        if (target.aliasOf(t) != kNone) apart.push_back({{}, t, target.dtype(t), target.role(t), {}});
    }
    return apart;
}

Result<std::unique_ptr<TargetLayout>> layOut(const Catalog& target, const WriteOptions& options) {
    if (options.variant.empty())
        return makeError(ErrorCode::usage, "whose files of ranks to write is not said")
            .withHint("the variants are vllm, meta and meta-llama2");
    return planned<RankFileLayout>(target, options);
}

}  // namespace shardscope::tensor_parallel
