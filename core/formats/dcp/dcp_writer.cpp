#include "formats/dcp/dcp_writer.h"

#include <algorithm>
#include <unordered_map>

#include <fmt/format.h>

#include "base/checked.h"
#include "base/units.h"
#include "encoding/pickle_instance.h"
#include "encoding/torch_tensor.h"
#include "encoding/zip.h"
#include "formats/entry_tree.h"
#include "formats/file_layout.h"
#include "storage/digest.h"

namespace shardscope::dcp {

namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kAlignedChunk = uint64_t{64}
                                   << 10;  // from this size on, raw data starts on a page of the file
constexpr uint32_t kMaxRanks = 1 << 20;
constexpr size_t kPiece = size_t{1} << 20;
constexpr size_t kBatch =
    1000;  // items between a mark and its SETITEMS or APPENDS, as CPython's pickler has it
constexpr std::string_view kModule = "torch.distributed.checkpoint.metadata";

uint32_t crcOf(std::string_view text) {
    return crc32Of(std::as_bytes(std::span(text)));
}

constexpr std::string_view kByteOrder = "little";
constexpr std::string_view kVersion = "3\n";

// The torch.save archive around one tensor, or around one object (without data/0).
class Blob {
  public:
    explicit Blob(std::string pickle, std::optional<uint64_t> dataSize)
        : pickle_(std::move(pickle)), zip_("archive") {
        zip_.addRecord("data.pkl", pickle_.size());
        zip_.addRecord("byteorder", kByteOrder.size());
        if (dataSize) data_ = zip_.addRecord("data/0", *dataSize);
        zip_.addRecord("version", kVersion.size());
    }

    uint64_t dataOffset() const { return zip_.dataOffset(*data_); }
    uint64_t size() const { return zip_.totalSize(); }

    // Everything before the data of data/0 (for an object: everything).
    std::string before() const {
        std::string out = small(0, pickle_);
        out += small(1, kByteOrder);
        if (data_) return out + zip_.header(*data_);
        return out + small(2, kVersion) +
               zip_.directory({crcOf(pickle_), crcOf(kByteOrder), crcOf(kVersion)});
    }
    std::string after(uint32_t dataCrc) const {
        std::string out = zip_.descriptor(*data_, dataCrc);
        out += small(3, kVersion);
        return out + zip_.directory({crcOf(pickle_), crcOf(kByteOrder), dataCrc, crcOf(kVersion)});
    }

  private:
    std::string small(size_t record, std::string_view content) const {
        return zip_.header(record) + std::string(content) + zip_.descriptor(record, crcOf(content));
    }

    std::string pickle_;
    ZipLayout zip_;
    std::optional<size_t> data_;
};

Blob tensorBlob(DType dtype, DimSpan shape) {
    const uint64_t bytes = static_cast<uint64_t>(elementCount(shape)) * dtypeBytes(dtype);
    return Blob(pickleOneTensor(dtype, shape), bytes);
}

using Sink = std::function<Status(std::string_view)>;

class DcpLayout final : public TargetLayout {
  public:
    DcpLayout(std::shared_ptr<const Catalog> target, NamePaths paths)
        : kept_(std::move(target)), wanted_(*kept_), paths_(paths) {
        needsCrc = true;
    }

    Status plan();
    Status chunkLiterals(ChunkId chunk, uint32_t crc32, const LiteralSink& sink) const override;
    Status fileLiterals(FileId file, std::span<const uint32_t> chunkCrcs,
                        const LiteralSink& sink) const override;

  private:
    friend class MetadataWriter;
    struct Sizes {
        uint64_t dataOffset = 0;
        uint64_t total = 0;
    };
    using KnownSizes = std::unordered_map<std::string, Sizes>;
    // Where a chunk's or object's archive is.
    struct BlobExtent {
        FileId file = 0;
        uint64_t offset = 0;
        uint64_t length = 0;
    };
    Sizes sizesOf(DType dtype, DimSpan shape, KnownSizes& known) const;
    Status planObjects();
    Status planAlias(TensorId tensor);
    Status metadata(const Sink& sink) const;
    FileId metadataFile() const { return static_cast<FileId>(files.size() - 1); }

    const std::shared_ptr<const Catalog> kept_;
    const Catalog& wanted_;
    const NamePaths paths_;
    std::vector<BlobExtent> objects_;
    std::vector<uint16_t> padding_;  // bytes in front of a chunk that belong to none, by ChunkId
};

// Archives differ only by dtype and shape, and most chunks of a checkpoint look like another one.
DcpLayout::Sizes DcpLayout::sizesOf(DType dtype, DimSpan shape, KnownSizes& known) const {
    std::string key(1, static_cast<char>(dtype));
    key.append(reinterpret_cast<const char*>(shape.data()), shape.size() * sizeof(int64_t));
    if (known.size() > 65536) known.clear();
    const auto [it, fresh] = known.try_emplace(std::move(key));
    if (fresh) {
        const Blob blob = tensorBlob(dtype, shape);
        it->second = {blob.dataOffset(), blob.size()};
    }
    return it->second;
}

Status DcpLayout::planObjects() {
    for (const ObjectInfo& object : wanted_.objects()) {
        if (!object.value)
            return makeError(ErrorCode::internal, "the value of an object was not read")
                .ofTensor(object.name);
        auto pickle = encodePickle(object.value);
        if (!pickle.ok()) return std::move(pickle).error().ofTensor(object.name);
        const uint64_t size = Blob(std::move(pickle).value(), std::nullopt).size();
        objects_.push_back({0, files[0].size, size});
        files[0].size += size;
    }
    return {};
}

// The names of one storage point at the same bytes.
Status DcpLayout::planAlias(TensorId tensor) {
    const TensorId original = wanted_.aliasOf(tensor);
    for (ChunkId c = wanted_.firstChunk(tensor); c < wanted_.endChunk(tensor); ++c) {
        const ChunkInfo chunk = wanted_.chunk(tensor, c);
        ChunkId twin = kNone;
        // As a rule at the same position.
        const ChunkId guess = wanted_.firstChunk(original) + (c - wanted_.firstChunk(tensor));
        const auto same = [&](ChunkId o) {
            const ChunkInfo other = wanted_.chunk(original, o);
            return std::equal(chunk.offsets.begin(), chunk.offsets.end(), other.offsets.begin(),
                              other.offsets.end()) &&
                   std::equal(chunk.lengths.begin(), chunk.lengths.end(), other.lengths.begin(),
                              other.lengths.end());
        };
        if (guess < wanted_.endChunk(original) && same(guess)) twin = guess;
        for (ChunkId o = wanted_.firstChunk(original); twin == kNone && o < wanted_.endChunk(original); ++o) {
            if (same(o)) twin = o;
        }
        if (twin == kNone) {
            return makeError(ErrorCode::impossible,
                             fmt::format("the tensor shares its data with '{}', but is sharded differently",
                                         wanted_.name(original)))
                .ofTensor(wanted_.name(tensor));
        }
        chunkFile[c] = chunkFile[twin];
        chunkOffset[c] = chunkOffset[twin];
    }
    return {};
}

Status DcpLayout::plan() {
    uint32_t ranks = std::max<uint32_t>(1, wanted_.rankCount());
    for (TensorId t = 0; t < wanted_.tensorCount(); ++t) {
        for (ChunkId c = wanted_.firstChunk(t); c < wanted_.endChunk(t); ++c) {
            const uint32_t rank = wanted_.chunk(t, c).rank;
            if (rank != kNone && rank >= ranks) ranks = rank + 1;
        }
    }
    if (ranks > kMaxRanks)
        return makeError(ErrorCode::limit,
                         fmt::format("{} are more than are written", counted(ranks, "rank")));
    for (uint32_t r = 0; r < ranks; ++r)
        files.push_back({fmt::format("__{}_0.distcp", r), 0, false});
    SHARDSCOPE_TRY(planObjects());

    chunkFile.resize(wanted_.chunkCount());
    chunkOffset.resize(wanted_.chunkCount());
    padding_.resize(wanted_.chunkCount());
    KnownSizes known;
    for (TensorId t = 0; t < wanted_.tensorCount(); ++t) {
        if (wanted_.aliasOf(t) != kNone) continue;
        const DType dtype = wanted_.dtype(t);
        if (!dtypeIsWholeBytes(dtype)) {
            return makeError(ErrorCode::impossible, fmt::format("torch has no {} tensors", dtypeName(dtype)))
                .ofTensor(wanted_.name(t));
        }
        for (ChunkId c = wanted_.firstChunk(t); c < wanted_.endChunk(t); ++c) {
            const ChunkInfo chunk = wanted_.chunk(t, c);
            if (chunk.flat) {
                return makeError(ErrorCode::impossible,
                                 "a chunk is a flat range, which this format cannot hold: only boxes")
                    .ofTensor(wanted_.name(t));
            }
            const FileId file = chunk.rank == kNone ? 0 : chunk.rank;
            const Sizes sizes = sizesOf(dtype, chunk.lengths, known);
            uint64_t& end = files[file].size;
            uint64_t data = 0;
            if (!checkedAdd(end, sizes.dataOffset, data))
                return makeError(ErrorCode::limit, "a file would be too large");
            const bool aligned = static_cast<uint64_t>(chunk.elements()) * dtypeBytes(dtype) >= kAlignedChunk;
            if (aligned && !checkedAlignUp(data, kPage, data))
                return makeError(ErrorCode::limit, "a file would be too large");
            chunkFile[c] = file;
            chunkOffset[c] = data;
            padding_[c] = static_cast<uint16_t>(data - sizes.dataOffset - end);
            if (!checkedAdd(data, sizes.total - sizes.dataOffset, end) || end > uint64_t{INT64_MAX})
                return makeError(ErrorCode::limit, "a file would be too large");
        }
    }
    for (TensorId t = 0; t < wanted_.tensorCount(); ++t) {
        if (wanted_.aliasOf(t) != kNone) SHARDSCOPE_TRY(planAlias(t));
    }

    files.push_back({".metadata", 0, true});
    uint64_t size = 0;
    SHARDSCOPE_TRY(metadata([&](std::string_view piece) -> Status {
        size += piece.size();
        return {};
    }));
    files.back().size = size;
    return {};
}

// The `.metadata` pickle, which goes to the sink in parts of about 1 MiB. It has protocol 2, and the classes
// and five tensor properties that torch 2.3 and later read.
class MetadataWriter {
  public:
    MetadataWriter(const DcpLayout& layout, const Sink& sink)
        : of_(layout), catalog_(layout.wanted_), sink_(sink) {}

    Status write() {
        beginInstance(out_, kModule, "Metadata");
        out_.memoText("state_dict_metadata");
        SHARDSCOPE_TRY(stateDict());
        out_.memoText("planner_data");
        SHARDSCOPE_TRY(plannerData());
        out_.memoText("storage_data");
        SHARDSCOPE_TRY(storageData());
        out_.memoText("storage_meta");
        out_.none();
        endInstance(out_);
        return sink_(out_.finish());
    }

  private:
    void dims(DimSpan values) {
        out_.memoGlobal("torch", "Size");
        out_.beginTuple(values.size());
        for (const int64_t value : values)
            out_.integer(value);
        out_.endTuple(values.size());
        out_.tuple1();
        out_.reduce();
    }
    Status flush() { return out_.size() < kPiece ? Status() : sink_(out_.take()); }

    // Runs item(i) for each i inside an empty container, in batches.
    template <class Item>
    Status batches(size_t count, bool list, Item&& item) {
        for (size_t i = 0; i < count; ++i) {
            if (i % kBatch == 0) out_.mark();
            SHARDSCOPE_TRY(item(i));
            if ((i + 1) % kBatch == 0 || i + 1 == count) list ? out_.appends() : out_.setItems();
            SHARDSCOPE_TRY(flush());
        }
        return {};
    }

    // A singleton that is made by a call and used by every tensor.
    template <class Make>
    void once(std::optional<uint32_t>& memo, Make&& make) {
        if (memo) {
            out_.get(*memo);
        } else {
            make();
            memo = out_.put();
        }
    }

    void properties(DType dtype) {
        out_.memoGlobal(kModule, "TensorProperties");
        out_.emptyTuple();
        out_.newObject();
        out_.mark();
        out_.memoGlobal("torch", dtypeName(dtype));
        once(strided_, [&] {
            out_.memoGlobal("torch.serialization", "_get_layout");
            out_.text("torch.strided");
            out_.tuple1();
            out_.reduce();
        });
        out_.boolean(false);
        once(memoryFormat_, [&] {
            out_.memoGlobal(kModule, "_MEM_FORMAT_ENCODING");
            out_.integer(0);
            out_.tuple1();
            out_.reduce();
        });
        out_.boolean(false);
        out_.tuple();
        out_.build();
    }

    Status stateDict() {
        const size_t tensors = catalog_.tensorCount();
        const size_t objects = catalog_.objects().size();
        out_.emptyDict();
        return batches(tensors + objects, false, [&](size_t i) -> Status {
            if (i >= tensors) {
                out_.text(catalog_.objects()[i - tensors].name);
                names_.push_back(out_.put());
                out_.memoGlobal(kModule, "BytesStorageMetadata");
                out_.emptyTuple();
                out_.newObject();
                return {};
            }
            const auto t = static_cast<TensorId>(i);
            out_.text(catalog_.name(t));
            names_.push_back(out_.put());
            beginInstance(out_, kModule, "TensorStorageMetadata");
            out_.memoText("properties");
            properties(catalog_.dtype(t));
            out_.memoText("size");
            dims(catalog_.shape(t));
            out_.memoText("chunks");
            out_.emptyList();
            const ChunkId first = catalog_.firstChunk(t);
            SHARDSCOPE_TRY(batches(catalog_.endChunk(t) - first, true, [&](size_t c) -> Status {
                const ChunkInfo chunk = catalog_.chunk(t, static_cast<ChunkId>(first + c));
                beginInstance(out_, kModule, "ChunkStorageMetadata");
                out_.memoText("offsets");
                dims(chunk.offsets);
                out_.memoText("sizes");
                dims(chunk.lengths);
                endInstance(out_);
                return {};
            }));
            endInstance(out_);
            return {};
        });
    }

    Status plannerData() {
        if (of_.paths_ == NamePaths::none) {
            out_.none();
            return {};
        }
        const size_t tensors = catalog_.tensorCount();
        out_.emptyDict();
        return batches(names_.size(), false, [&](size_t i) -> Status {
            const Path path =
                i < tensors ? catalog_.path(static_cast<TensorId>(i)) : catalog_.objects()[i - tensors].path;
            out_.get(names_[i]);
            if (path.empty()) {
                out_.get(names_[i]);
                out_.tuple1();
                return {};
            }
            out_.mark();
            for (const PathPart& part : path) {
                const bool number =
                    part.kind == PathPart::Kind::index || part.kind == PathPart::Kind::tupleIndex;
                if (number)
                    out_.integer(part.index);
                else
                    out_.text(part.toString());
            }
            out_.tuple();
            return {};
        });
    }

    Status storageData() {
        const size_t objects = catalog_.objects().size();
        const size_t tensors = catalog_.tensorCount();
        out_.emptyDict();
        TensorId t = 0;
        return batches(objects + catalog_.chunkCount(), false, [&](size_t i) -> Status {
            beginInstance(out_, kModule, "MetadataIndex");
            out_.memoText("fqn");
            if (i < objects) {
                out_.get(names_[tensors + i]);
                out_.memoText("index");
                out_.none();
                endInstance(out_);
                info(of_.objects_[i]);
                return {};
            }
            const auto c = static_cast<ChunkId>(i - objects);
            while (catalog_.endChunk(t) <= c)
                ++t;
            const ChunkInfo chunk = catalog_.chunk(t, c);
            out_.get(names_[t]);
            out_.memoText("index");
            out_.integer(c - catalog_.firstChunk(t));
            out_.memoText("offset");
            dims(chunk.offsets);
            endInstance(out_);
            const auto sizes = of_.sizesOf(catalog_.dtype(t), chunk.lengths, known_);
            info({of_.chunkFile[c], of_.chunkOffset[c] - sizes.dataOffset, sizes.total});
            return {};
        });
    }

    void info(const DcpLayout::BlobExtent& place) {
        beginInstance(out_, "torch.distributed.checkpoint.filesystem", "_StorageInfo");
        out_.memoText("relative_path");
        if (paths_.empty()) paths_.resize(of_.files.size());
        once(paths_[place.file], [&] { out_.text(of_.files[place.file].path); });
        out_.memoText("offset");
        out_.integer(static_cast<int64_t>(place.offset));
        out_.memoText("length");
        out_.integer(static_cast<int64_t>(place.length));
        endInstance(out_);
    }

    const DcpLayout& of_;
    const Catalog& catalog_;
    const Sink& sink_;
    PickleWriter out_;
    DcpLayout::KnownSizes known_;
    std::vector<uint32_t> names_;  // memo index of each tensor's name, then of each object's
    std::vector<std::optional<uint32_t>> paths_;
    std::optional<uint32_t> strided_, memoryFormat_;
};

Status DcpLayout::metadata(const Sink& sink) const {
    return MetadataWriter(*this, sink).write();
}

Status DcpLayout::chunkLiterals(ChunkId id, uint32_t crc32, const LiteralSink& sink) const {
    const ChunkInfo chunk = wanted_.chunk(id);
    if (wanted_.aliasOf(chunk.tensor) != kNone) return {};  // its bytes are those of the first name
    const Blob blob = tensorBlob(wanted_.dtype(chunk.tensor), chunk.lengths);
    const uint64_t begin = chunkOffset[id] - blob.dataOffset();
    // With what is in front of it, so that no byte is left out between chunks.
    const std::string before = std::string(padding_[id], '\0') + blob.before();
    SHARDSCOPE_TRY(sink(chunkFile[id], begin - padding_[id], std::as_bytes(std::span(before))));
    const std::string after = blob.after(crc32);
    return sink(chunkFile[id], begin + blob.size() - after.size(), std::as_bytes(std::span(after)));
}

Status DcpLayout::fileLiterals(FileId file, std::span<const uint32_t>, const LiteralSink& sink) const {
    if (file == metadataFile()) {
        uint64_t offset = 0;
        return metadata([&](std::string_view piece) -> Status {
            SHARDSCOPE_TRY(sink(file, offset, std::as_bytes(std::span(piece))));
            offset += piece.size();
            return {};
        });
    }
    for (size_t i = 0; i < objects_.size(); ++i) {
        if (objects_[i].file != file) continue;
        SHARDSCOPE_ASSIGN(std::string pickle, encodePickle(wanted_.objects()[i].value));
        const std::string bytes = Blob(std::move(pickle), std::nullopt).before();
        SHARDSCOPE_TRY(sink(file, objects_[i].offset, std::as_bytes(std::span(bytes))));
    }
    return {};
}

}  // namespace

std::vector<LeftOut> cannotHoldInDcp(const Catalog& target, const WriteOptions&) {
    return leftOutOf(
        target,
        [&](TensorId t) {
            const DType dtype = target.dtype(t);
            return dtypeIsWholeBytes(dtype) ? std::string()
                                            : fmt::format("torch has no {} tensors", dtypeName(dtype));
        },
        [](const ObjectInfo& object) { return whyNotPickled(object.value); });
}

Result<std::unique_ptr<TargetLayout>> layoutDcp(const Catalog& target, NamePaths paths) {
    return planned<DcpLayout>(std::shared_ptr<const Catalog>(std::shared_ptr<void>(), &target), paths);
}

Result<std::unique_ptr<TargetLayout>> layoutDcp(std::shared_ptr<const Catalog> target) {
    return planned<DcpLayout>(std::move(target), NamePaths::written);
}

}  // namespace shardscope::dcp
