// torch_dist: a DCP whose names are those of ShardedTensors and ShardedObjects.
//
// Source: megatron/core/dist_checkpointing/{mapping,strategies/torch}.py of megatron-core 0.8 to 0.16.
#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "base/checked.h"
#include "base/rule.h"
#include "base/text.h"
#include "base/units.h"
#include "formats/catalog_reader.h"
#include "formats/dcp/dcp.h"
#include "formats/megatron/bucket_states.h"
#include "formats/megatron/run_state.h"
#include "formats/megatron/store.h"
#include "formats/megatron/target_names.h"
#include "formats/rank_cut.h"
#include "storage/open_files.h"

namespace shardscope::megatron {

namespace {

// What a rank holds of one key, in a list: torch.save([object, ...]). Nearly always one object.
Value unwrapped(const Value& value) {
    if (value.kind() != ValueKind::list || value.graph->items(value.node).size() != 1) return value;
    return {value.graph, value.graph->items(value.node)[0]};
}

class TorchDistReader final : public CatalogReader {
  public:
    // A chunk that is not one of the DCP's, but a part of one.
    struct Part {
        ChunkId chunk = kNone;
        int64_t first = 0;
    };
    // `parts` of all chunks; empty where all are those of the DCP.
    TorchDistReader(const Source& source, Catalog catalog, std::unique_ptr<Reader> dcp,
                    std::vector<Part> parts)
        : CatalogReader(std::move(catalog), source.directory->path()),
          dcp_(std::move(dcp)),
          parts_(std::move(parts)),
          files_(source.directory) {}

  private:
    Result<Extent> extentOf(const ChunkInfo& chunk) const override {
        if (parts_.empty()) return dcp_->locate(chunk.id);
        const Part& part = parts_[chunk.id];
        SHARDSCOPE_ASSIGN(Extent extent, dcp_->locate(part.chunk));
        const uint64_t width = dtypeBytes(catalog().dtype(chunk.tensor));
        const uint64_t first = static_cast<uint64_t>(part.first) * width,
                       length = static_cast<uint64_t>(chunk.elements()) * width;
        if (first == 0 && length == extent.length) return extent;
        if (!extent.strides.empty() || !rangeFits(first, length, extent.length))
            return damaged("the bucket's elements are not where its parameters are")
                .byRule(rule::metaInconsistent);
        extent.offset += first;
        extent.length = length;
        return extent;
    }
    Result<Value> valueOf(ObjectId object) const override {
        SHARDSCOPE_ASSIGN(Value value, dcp_->objectValue(object));
        return parseShardedName(catalog().objects()[object].name) ? unwrapped(value) : value;
    }
    Result<std::shared_ptr<const ReadFile>> openPresent(const FileInfo& file) const override {
        return files_.open(file.path);
    }
    Result<std::vector<Note>> ownNotes() const override { return dcp_->fileNotes(); }

    const std::unique_ptr<Reader> dcp_;
    const std::vector<Part> parts_;
    const OpenFiles files_;
};

class TorchDistOpener : private StoreOpener {
  public:
    TorchDistOpener(const Source& source, const OpenOptions& options, const Place& place)
        : StoreOpener(source, options, place, "torch_dist") {}

    Result<std::unique_ptr<Reader>> open() {
        SHARDSCOPE_ASSIGN(dcp_, dcpFormat().open(source_, options_));
        SHARDSCOPE_TRY(readCommon());
        addFiles();
        SHARDSCOPE_TRY(addObjects());
        SHARDSCOPE_TRY(lookAtBuckets());
        SHARDSCOPE_TRY(addTensors());
        addNotes();
        builder_.setWriter(generation());
        auto reader = std::make_unique<TorchDistReader>(source_, std::move(builder_).finish(),
                                                        std::move(dcp_), std::move(parts_));
        return withCommon(std::move(reader));
    }

  private:
    const Catalog& stored() const { return dcp_->catalog(); }

    // Files keep their numbers, but for those that belong to the checkpoint without being part of the DCP.
    void addFiles() {
        for (const FileInfo& file : stored().files()) {
            if (file.path == kCommon || file.path == kMetadataJson) {
                files_.push_back(kNone);
                continue;
            }
            files_.push_back(builder_.addFile(file));
            if (file.rank != kNone && file.referenced && (highest_ == kNone || file.rank > highest_))
                highest_ = file.rank;
        }
        addCommitMark();
    }

    Status lookAtBuckets() {
        const std::vector<std::string> how = options_.valuesOf(kBuckets);
        if (!how.empty() && how.back() != kKeepBuckets && how.back() != kNamedBuckets)
            return makeError(ErrorCode::usage, fmt::format("{} '{}' is neither {} nor {}", kBuckets,
                                                           how.back(), kKeepBuckets, kNamedBuckets));
        buckets_ = findBuckets(stored());
        if (buckets_.buckets == 0) return {};
        if (how.empty() || how.back() == kKeepBuckets) {
            note(rule::metaInconsistent, Severity::info,
                 fmt::format("the optimizer's state is in {} (dp_reshardable) without the names of the "
                             "parameters; '{} {}' finds these",
                             counted(buckets_.buckets, "bucket"), kBuckets, kNamedBuckets));
            return {};
        }
        SHARDSCOPE_ASSIGN(buckets_, resolveBuckets(*dcp_, sizes_));
        if (buckets_.states.empty())
            note(rule::metaInconsistent, Severity::warning,
                 fmt::format("the optimizer's state stays in buckets (dp_reshardable): {}", buckets_.whyNot));
        return {};
    }

    Status addTensors() {
        const Catalog& dcp = stored();
        const bool resolved = !buckets_.states.empty();
        std::vector<TensorId> ids(dcp.tensorCount(), kNone);
        for (TensorId t = 0; t < dcp.tensorCount(); ++t) {
            if (resolved && buckets_.isBucket[t]) continue;
            ids[t] = static_cast<TensorId>(builder_.tensorCount());
            TensorInfo info = infoOf(dcp, t);
            info.role = roleOf(info.name);
            notePadding(info.name, info.shape);
            if (info.aliasOf != kNone) info.aliasOf = ids[info.aliasOf];
            SHARDSCOPE_TRY(builder_.addTensor(info));
            for (ChunkId c = dcp.firstChunk(t); c < dcp.endChunk(t); ++c) {
                const ChunkInfo chunk = dcp.chunk(t, c);
                flat_ = flat_ || chunk.flat;
                if (resolved) parts_.push_back({c, 0});
                SHARDSCOPE_TRY(addChunk(chunk, chunk.offsets, chunk.lengths, chunk.flat));
            }
            noteTwins(t);
        }
        for (const BucketState& state : buckets_.states) {
            SHARDSCOPE_TRY(builder_.addTensor({state.name,
                                               {keyPart(state.name)},
                                               state.dtype,
                                               state.shape,
                                               Role::optimizer,
                                               kNone,
                                               kNone}));
            for (const BucketPart& part : state.parts) {
                parts_.push_back({part.chunk, part.first});
                SHARDSCOPE_TRY(addChunk(dcp.chunk(part.chunk), part.offsets, part.lengths, part.flat));
            }
        }
        return {};
    }

    // What is stored as a chunk of the DCP.
    Status addChunk(const ChunkInfo& stored, DimSpan offsets, DimSpan lengths,
                    const std::optional<FlatRange>& flat) {
        return builder_.addChunk({stored.rank, stored.file == kNone ? kNone : files_[stored.file],
                                  stored.offset, stored.length, offsets, lengths, flat});
    }

    // Only the main replica of each chunk is saved, so two at one place are two for one: what belongs
    // elsewhere is missing there.
    void noteTwins(TensorId t) {
        const Catalog& dcp = stored();
        const ChunkId first = dcp.firstChunk(t), end = dcp.endChunk(t);
        if (end - first < 2) return;
        std::vector<ChunkId> order(end - first);
        std::iota(order.begin(), order.end(), first);
        const auto less = [&](ChunkId a, ChunkId b) {
            const ChunkInfo x = dcp.chunk(t, a), y = dcp.chunk(t, b);
            const int64_t one = x.flat ? x.flat->start : 0, two = y.flat ? y.flat->start : 0;
            if (!std::ranges::equal(x.offsets, y.offsets))
                return std::ranges::lexicographical_compare(x.offsets, y.offsets);
            return one < two;
        };
        std::ranges::sort(order, less);
        for (size_t i = 1; i < order.size(); ++i) {
            const ChunkInfo a = dcp.chunk(t, order[i - 1]), b = dcp.chunk(t, order[i]);
            if (less(order[i - 1], order[i]) || a.elements() == 0 || b.elements() == 0) continue;
            addNote(twins_,
                    {rule::coverageOverlap, Severity::error,
                     fmt::format("two chunks begin at {}; Megatron saves each part once, so that one of "
                                 "them belongs elsewhere",
                                 formatDims(a.offsets)),
                     ".metadata", std::string(dcp.name(t)), std::nullopt});
        }
    }

    Status addObjects() {
        const std::span<const ObjectInfo> objects = stored().objects();
        for (ObjectId id = 0; id < objects.size(); ++id) {
            ObjectInfo object = objects[id];
            if (object.file != kNone) object.file = files_[object.file];
            objects_.push_back(object.name);
            if (object.name.starts_with(kCommonState) && !args_) {
                auto value = dcp_->objectValue(id);
                if (value.ok()) {
                    args_ = Arguments(entryOf(unwrapped(*value), "args"));
                    sizes_ = sizesOf(args_, "common_state");
                } else if (value.error().code == ErrorCode::cancelled) {
                    return value.error();
                }
                commonState_ = true;
            }
            builder_.addObject(std::move(object));
        }
        noteMissingObjects(objects_);
        findSizes(objects_, highest_);
        if (!sizes_) sizes_ = sizesOfCuts(stored());
        if (sizes_ && sizes_->ep == 1) findExpertRanks(stored(), *sizes_);
        addMesh(highest_);
        return {};
    }

    void addNotes() {
        for (const Note& note : stored().notes())
            builder_.addNote(note);
        noteTotals(".metadata", {{twins_, "chunks that begin where another one does"}});
        for (const std::string& name : objects_) {
            if (name.ends_with(".param_state/shard_0_1"))
                note(rule::metaInconsistent, Severity::info,
                     fmt::format("'{}' holds the optimizer's state of a group of ranks as one pickle "
                                 "(dp_zero_gather_scatter); its tensors are not listed",
                                 printable(name, kNameInMessage)));
        }
    }

    std::string generation() const {
        std::string core = "megatron-core";
        if (commonState_)
            core += " 0.19 or later";
        else if (flat_)
            core += " 0.6 to 0.15";
        else if (common_ && hasContentMetadata())
            core += " 0.14 to 0.18";
        return stored().writer().empty() ? core : core + ", " + stored().writer();
    }

    bool hasContentMetadata() const {
        return std::ranges::any_of(common_->catalog().objects(), [](const ObjectInfo& object) {
            return object.name.starts_with("content_metadata");
        });
    }

    std::unique_ptr<Reader> dcp_;
    std::vector<FileId> files_;  // of the DCP's
    BucketStates buckets_;
    std::vector<TorchDistReader::Part> parts_;
    std::vector<std::string> objects_;
    uint32_t highest_ = kNone;
    size_t twins_ = 0;
    bool flat_ = false, commonState_ = false;
};

}  // namespace

Result<std::unique_ptr<Reader>> openTorchDist(const Source& source, const OpenOptions& options,
                                              const Place& place) {
    return TorchDistOpener(source, options, place).open();
}

}  // namespace shardscope::megatron
