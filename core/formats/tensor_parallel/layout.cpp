#include "formats/tensor_parallel/layout.h"

#include <algorithm>
#include <span>

#include <fmt/format.h>

#include "base/checked.h"
#include "base/option_words.h"
#include "encoding/safetensors_file.h"
#include "encoding/torch_archive.h"
#include "formats/entry_tree.h"
#include "formats/file_layout.h"
#include "formats/tensor_parallel/cuts.h"

namespace shardscope::tensor_parallel {

namespace {

constexpr uint32_t kMostRanksWritten = 4096;
constexpr std::string_view kObjects = "files of tensor-parallel ranks hold tensors alone";

// What one rank holds of a tensor: chunks of the target, one behind the other.
struct Shard {
    TensorId tensor = kNone;
    std::vector<ChunkId> chunks;
    Dims shape;
    uint64_t bytes = 0;
};

class RankFileLayout final : public FileLayout {
  public:
    RankFileLayout(const Catalog& target, const WriteOptions& options)
        : FileLayout(target),
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
            SHARDSCOPE_TRY(shardsOf(rank, ranks));
        }
        for (size_t id = 0; id < contents_.size(); ++id) {
            SHARDSCOPE_TRY(stop_.poll());
            SHARDSCOPE_TRY(placeFile(static_cast<FileId>(id)));
        }
        if (!vllm_) {
            SHARDSCOPE_ASSIGN(params_, paramsJson(config_, columns_));
            files.push_back({"params.json", params_.size(), true});
        }
        return {};
    }

    Status fileLiterals(FileId id, std::span<const uint32_t> chunkCrcs,
                        const LiteralSink& sink) const override {
        if (id >= contents_.size()) return writeText(id, params_, sink);
        if (vllm_) return writeText(id, heads_[id], sink);
        std::vector<uint32_t> crcs;
        for (const Shard& shard : contents_[id])
            crcs.push_back(chunkCrcs[shard.chunks.front()]);
        return archiveOf(id)->literals(
            crcs, [&](uint64_t at, std::span<const std::byte> bytes) { return sink(id, at, bytes); });
    }

  private:
    Error otherParts(TensorId t) const {
        return makeError(ErrorCode::impossible, "its parts are not those of tensor-parallel ranks")
            .ofTensor(target_.name(t))
            .withHint(fmt::format("{} alone says how many ranks there are", option("mesh", "tp=N")));
    }

    // The rank's shards, in one file or in several.
    Status shardsOf(uint32_t rank, uint32_t ranks) {
        const Cuts cuts(readSizes(config_), {}, true);
        contents_.emplace_back();
        names_.push_back(nameOf(rank, 0));
        uint64_t bytes = 0;
        uint32_t part = 0;
        for (TensorId t = 0; t < target_.tensorCount(); ++t) {
            auto cut = cuts.ofWhole(target_.name(t), target_.shape(t), ranks, rank, columns_);
            if (!cut.ok()) return std::move(cut).error().ofTensor(target_.name(t));
            SHARDSCOPE_ASSIGN(Shard shard, shardOf(t, rank, *cut));
            if (vllm_ && maxFileSize_ > 0 && bytes > 0 &&
                shard.bytes > maxFileSize_ - std::min(bytes, maxFileSize_)) {
                contents_.emplace_back();
                names_.push_back(nameOf(rank, ++part));
                bytes = 0;
            }
            bytes += shard.bytes;
            contents_.back().push_back(std::move(shard));
        }
        return {};
    }

    Result<Shard> shardOf(TensorId t, uint32_t rank, const RankCut& cut) const {
        const DimSpan whole = target_.shape(t);
        Shard shard{t, {}, Dims(whole.begin(), whole.end()), 0};
        const std::vector<CutBox> boxes = cut.boxes(whole);
        for (ChunkId c = target_.firstChunk(t); c < target_.endChunk(t); ++c) {
            const ChunkInfo chunk = target_.chunk(t, c);
            if (chunk.rank != rank) continue;
            const size_t i = shard.chunks.size();
            if (chunk.flat || i >= boxes.size() || !std::ranges::equal(chunk.offsets, boxes[i].offsets) ||
                !std::ranges::equal(chunk.lengths, boxes[i].lengths))
                return otherParts(t);
            shard.chunks.push_back(c);
            shard.bytes += bytesOf(t, c);
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

    uint64_t bytesOf(TensorId t, ChunkId c) const {
        return dtypeByteCount(target_.dtype(t), static_cast<uint64_t>(target_.chunk(t, c).elements()))
            .value_or(0);
    }

    std::string nameOf(uint32_t rank, uint32_t part) const {
        return vllm_ ? fmt::format("model-rank-{}-part-{}.safetensors", rank, part)
                     : fmt::format("consolidated.{:02}.pth", rank);
    }

    Status placeFile(FileId id) {
        std::vector<Shard>& shards = contents_[id];
        std::vector<uint64_t> at(shards.size());
        uint64_t size = 0;
        if (vllm_) {
            std::vector<safetensors::FileEntry> entries;
            for (const Shard& shard : shards)
                entries.push_back({std::string(target_.name(shard.tensor)), target_.dtype(shard.tensor),
                                   shard.shape, shard.bytes, 0});
            SHARDSCOPE_ASSIGN(safetensors::FileLayout laid,
                              safetensors::layOutFile(entries, {{"format", "pt"}}));
            std::ranges::sort(entries, {}, &safetensors::FileEntry::name);
            for (size_t i = 0; i < shards.size(); ++i)
                at[i] = std::ranges::lower_bound(entries, target_.name(shards[i].tensor), {},
                                                 &safetensors::FileEntry::name)
                            ->offset;
            size = laid.size;
            heads_.push_back(std::move(laid.head));
        } else {
            const auto archive = archiveOf(id);
            for (size_t i = 0; i < shards.size(); ++i)
                at[i] = archive->storageOffset(i);
            size = archive->size();
        }
        files.push_back({names_[id], size, false});
        for (size_t i = 0; i < shards.size(); ++i) {
            for (const ChunkId c : shards[i].chunks) {
                chunkFile[c] = id;
                chunkOffset[c] = at[i];
                at[i] += bytesOf(shards[i].tensor, c);
            }
        }
        return {};
    }

    std::unique_ptr<TorchArchiveWriter> archiveOf(FileId id) const {
        const std::string& name = names_[id];
        auto archive = std::make_unique<TorchArchiveWriter>(name.substr(0, name.rfind('.')));
        const std::vector<Shard>& shards = contents_[id];
        writeStateDict(
            archive->pickle(), shards.size(), [&](size_t i) { return target_.name(shards[i].tensor); },
            [&](size_t i) {
                archive->tensor(target_.dtype(shards[i].tensor), shards[i].shape, i, shards[i].bytes);
            });
        archive->finish();
        return archive;
    }

    const StopToken stop_;
    const std::string config_;
    const bool vllm_, columns_;
    const uint64_t maxFileSize_;
    std::vector<std::vector<Shard>> contents_;  // by file
    std::vector<std::string> names_, heads_;    // by file; heads_: of safetensors
    std::string params_;
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
    std::vector<LeftOut> out;
    for (const ObjectInfo& object : target.objects())
        out.push_back({object.name, std::string(kObjects)});
    return out;
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
