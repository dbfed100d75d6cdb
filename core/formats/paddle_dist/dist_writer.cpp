#include <algorithm>
#include <array>
#include <functional>

#include <fmt/format.h>

#include "base/checked.h"
#include "base/units.h"
#include "encoding/paddle_file.h"
#include "encoding/pickle_instance.h"
#include "formats/file_layout.h"
#include "formats/paddle_dist/layouts.h"

namespace shardscope::paddle {

namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kAlignedArray = uint64_t{64}
                                   << 10;  // from this size on, elements start on a page of the file
constexpr uint32_t kMaxRanks = 1 << 20;
constexpr size_t kPiece = size_t{1} << 20;

struct Stored {
    DType dtype;
    std::string_view code;
};
// bfloat16 is stored as uint16 and float8 as int8, for numpy has neither.
constexpr std::array kStored = std::to_array<Stored>({{DType::boolean, "b1"},
                                                      {DType::uint8, "u1"},
                                                      {DType::int8, "i1"},
                                                      {DType::int16, "i2"},
                                                      {DType::int32, "i4"},
                                                      {DType::int64, "i8"},
                                                      {DType::float16, "f2"},
                                                      {DType::bfloat16, "u2"},
                                                      {DType::float32, "f4"},
                                                      {DType::float64, "f8"},
                                                      {DType::complex64, "c8"},
                                                      {DType::complex128, "c16"},
                                                      {DType::float8E4M3FN, "i1"},
                                                      {DType::float8E5M2, "i1"}});

// numpy's type code for an array of the dtype, "f4"; empty if Paddle has no such tensors.
std::string_view arrayCode(DType dtype) {
    for (const Stored& stored : kStored) {
        if (stored.dtype == dtype) return stored.code;
    }
    return {};
}

// The pickle of one rank's file as paddle.save writes a state dict: a dict of arrays, then the table of
// names. Calls piece(offset, bytes) for what is not data and data(chunk, offset) where the elements of a
// chunk go.
template <class Piece, class Data>
Status walkRankFile(const Catalog& target, std::span<const ChunkId> chunks, uint64_t& size, Piece&& piece,
                    Data&& data) {
    PickleWriter w(PickleWriter::For::python3);
    uint64_t at = 0;
    const auto flush = [&]() -> Status {
        const std::string bytes = w.take();
        SHARDSCOPE_TRY(piece(at, bytes));
        if (!checkedAdd<uint64_t>(at, bytes.size(), at))
            return makeError(ErrorCode::limit, "a file would be too large");
        return {};
    };
    std::vector<uint32_t> names;
    names.reserve(chunks.size());
    w.emptyDict();
    w.mark();
    for (const ChunkId c : chunks) {
        const ChunkInfo chunk = target.chunk(c);
        const DType dtype = target.dtype(chunk.tensor);
        const uint64_t bytes = static_cast<uint64_t>(chunk.elements()) * dtypeBytes(dtype);
        w.text(target.name(chunk.tensor));
        names.push_back(w.put());
        // numpy.core rather than numpy._core: numpy 1 and 2 know it.
        w.memoGlobal("numpy.core.multiarray", "_reconstruct");
        w.memoGlobal("numpy", "ndarray");
        w.integer(0);
        w.tuple1();
        w.bytes("b");
        w.tuple3();
        w.reduce();
        w.mark();
        w.integer(1);
        if (chunk.flat) {
            w.integer(chunk.elements());
            w.tuple1();
        } else {
            w.beginTuple(chunk.lengths.size());
            for (int64_t length : chunk.lengths)
                w.integer(length);
            w.endTuple(chunk.lengths.size());
        }
        w.memoGlobal("numpy", "dtype");
        const std::string_view code = arrayCode(dtype);
        w.memoText(code);
        w.boolean(false);
        w.boolean(true);
        w.tuple3();
        w.reduce();
        w.mark();
        w.integer(3);
        w.memoText(code.ends_with('1') ? "|" : "<");
        w.none();
        w.none();
        w.none();
        w.integer(-1);
        w.integer(-1);
        w.integer(0);
        w.tuple();
        w.build();
        w.boolean(false);
        SHARDSCOPE_TRY(flush());
        if (bytes >= kAlignedArray) {
            // A value that is thrown away fills the room before the page: BINBYTES n ... POP, then the opcode
            // of the data itself. It has 256 bytes or more, for the long form of its opcode.
            const uint64_t around = 5 + 256 + 1 + (bytes <= UINT32_MAX ? 5 : 9);
            const uint64_t pad = 256 + (kPage - (at + around) % kPage) % kPage;
            w.beginBytes(pad);
            SHARDSCOPE_TRY(flush());
            at += pad;  // zeros
            w.pop();
        }
        w.beginBytes(bytes);
        SHARDSCOPE_TRY(flush());
        SHARDSCOPE_TRY(data(c, at));
        if (!checkedAdd(at, bytes, at) || at > uint64_t{INT64_MAX})
            return makeError(ErrorCode::limit, "a file would be too large");
        w.tuple();
        w.build();
    }
    w.text(kPaddleNameTable);
    w.emptyDict();
    w.mark();
    for (const uint32_t name : names) {
        w.get(name);
        w.get(name);
    }
    w.setItems();
    w.setItems();
    const std::string last = w.finish();
    SHARDSCOPE_TRY(piece(at, last));
    size = at + last.size();
    return {};
}

using Sink = std::function<Status(std::string_view)>;

class DistLayout final : public FileLayout {
  public:
    DistLayout(const Catalog& target, bool flex) : FileLayout(target), flex_(flex) {}

    Status plan();
    Status fileLiterals(FileId file, std::span<const uint32_t>, const LiteralSink& sink) const override;

  private:
    friend class MetadataWriter;
    Status assignFiles();
    Status metadata(const Sink& sink) const;

    const bool flex_;
    std::vector<std::vector<ChunkId>> chunksOf_;  // by file
};

// Each chunk goes to the file of its rank; a file holds one piece of a tensor only.
Status DistLayout::assignFiles() {
    uint32_t ranks = std::max<uint32_t>(1, target_.rankCount());
    std::vector<uint32_t> taken;
    for (TensorId t = 0; t < target_.tensorCount(); ++t) {
        taken.clear();
        if (arrayCode(target_.dtype(t)).empty()) {
            return makeError(ErrorCode::impossible,
                             fmt::format("Paddle has no {} tensors", dtypeName(target_.dtype(t))))
                .ofTensor(target_.name(t));
        }
        if (target_.aliasOf(t) != kNone && target_.aliasOf(t) != t)
            changed.push_back(
                {std::string(target_.name(t)), "stored as a tensor of its own: Paddle ties no names"});
        for (ChunkId c = target_.firstChunk(t); c < target_.endChunk(t); ++c) {
            const ChunkInfo chunk = target_.chunk(t, c);
            if (chunk.flat && !flex_) {
                return makeError(ErrorCode::impossible,
                                 "a chunk is a flat range, which this generation of the format cannot hold")
                    .ofTensor(target_.name(t));
            }
            uint32_t rank = chunk.rank == kNone ? 0 : chunk.rank;
            const auto isTaken = [&](uint32_t r) {
                return std::find(taken.begin(), taken.end(), r) != taken.end();
            };
            if (isTaken(rank)) {
                const uint32_t own = rank;
                for (rank = 0; isTaken(rank);)
                    ++rank;
                changed.push_back(
                    {std::string(target_.name(t)),
                     fmt::format("a second chunk of rank {} is in the file of rank {}: a file holds one "
                                 "chunk of a tensor",
                                 own, rank)});
            }
            taken.push_back(rank);
            if (rank >= kMaxRanks)
                return makeError(ErrorCode::limit,
                                 fmt::format("{} are more than are written", counted(rank + 1, "rank")));
            ranks = std::max(ranks, rank + 1);
            if (chunksOf_.size() <= rank) chunksOf_.resize(rank + 1);
            chunksOf_[rank].push_back(c);
            chunkFile[c] = rank;
        }
    }
    if (ranks > kMaxRanks)
        return makeError(ErrorCode::limit,
                         fmt::format("{} are more than are written", counted(ranks, "rank")));
    chunksOf_.resize(ranks);
    return {};
}

Status DistLayout::plan() {
    SHARDSCOPE_TRY(assignFiles());
    for (uint32_t r = 0; r < chunksOf_.size(); ++r) {
        TargetFile file{fmt::format("{}_0.distcp", r), 0, false};
        SHARDSCOPE_TRY(walkRankFile(
            target_, chunksOf_[r], file.size, [](uint64_t, std::string_view) -> Status { return {}; },
            [&](ChunkId c, uint64_t at) -> Status {
                chunkOffset[c] = at;
                return {};
            }));
        files.push_back(std::move(file));
    }
    TargetFile file{"0.metadata", 0, true};
    SHARDSCOPE_TRY(metadata([&](std::string_view bytes) -> Status {
        file.size += bytes.size();
        return {};
    }));
    files.push_back(std::move(file));
    return {};
}

// The pickle of {id}.metadata, which goes to the sink in parts.
class MetadataWriter {
  public:
    MetadataWriter(const DistLayout& layout, const Sink& sink)
        : layout_(layout),
          catalog_(layout.target_),
          sink_(sink),
          module_(layout.flex_ ? "paddle.distributed.flex_checkpoint.dcp.metadata"
                               : "paddle.distributed.checkpoint.metadata"),
          w_(PickleWriter::For::python3) {}

    Status run() {
        beginInstance(w_, module_, "Metadata");
        w_.memoText("state_dict_metadata");
        w_.emptyDict();
        w_.mark();
        for (TensorId t = 0; t < catalog_.tensorCount(); ++t) {
            name(t);
            w_.emptyList();
            w_.mark();
            for (ChunkId c = catalog_.firstChunk(t); c < catalog_.endChunk(t); ++c)
                shard(t, catalog_.chunk(t, c));
            w_.appends();
            SHARDSCOPE_TRY(flush());
        }
        w_.setItems();
        w_.memoText("storage_metadata");
        w_.emptyDict();
        w_.mark();
        for (TensorId t = 0; t < catalog_.tensorCount(); ++t) {
            for (ChunkId c = catalog_.firstChunk(t); c < catalog_.endChunk(t); ++c) {
                index(t, catalog_.chunk(t, c));
                w_.memoText(layout_.files[layout_.chunkFile[c]].path);
            }
            SHARDSCOPE_TRY(flush());
        }
        w_.setItems();
        w_.memoText("flat_mapping");
        w_.emptyDict();
        w_.mark();
        for (TensorId t = 0; t < catalog_.tensorCount(); ++t) {
            name(t);
            path(t);
            SHARDSCOPE_TRY(flush());
        }
        w_.setItems();
        endInstance(w_);
        return sink_(w_.finish());
    }

  private:
    Status flush() {
        if (w_.size() < kPiece) return {};
        return sink_(w_.take());
    }

    // A name stands in all three tables.
    void name(TensorId t) {
        if (names_.size() <= t) {
            w_.text(catalog_.name(t));
            names_.push_back(w_.put());
        } else {
            w_.get(names_[t]);
        }
    }
    void dims(DimSpan values) {
        w_.beginTuple(values.size());
        for (int64_t v : values)
            w_.integer(v);
        w_.endTuple(values.size());
    }
    void flat(const ChunkInfo& chunk) {
        w_.memoText("is_flattened");
        w_.boolean(chunk.flat.has_value());
        w_.memoText("flattened_range");
        if (!chunk.flat) return w_.none();
        w_.integer(chunk.flat->start);
        w_.integer(chunk.flat->stop);
        w_.tuple2();
    }

    void shard(TensorId t, const ChunkInfo& chunk) {
        beginInstance(w_, module_, "LocalTensorMetadata");
        w_.memoText("global_offset");
        dims(chunk.offsets);
        w_.memoText("local_shape");
        dims(chunk.lengths);
        w_.memoText("dtype");
        w_.memoText(dtypeName(catalog_.dtype(t)));  // Paddle has taken torch's names
        if (layout_.flex_) {
            w_.memoText("global_shape");
            dims(catalog_.shape(t));
            flat(chunk);
        }
        endInstance(w_);
    }

    void index(TensorId t, const ChunkInfo& chunk) {
        beginInstance(w_, module_, "LocalTensorIndex");
        w_.memoText("tensor_key");
        name(t);
        w_.memoText("global_offset");
        dims(chunk.offsets);
        if (layout_.flex_) {
            flat(chunk);
            w_.memoText("replica_id");
            w_.none();
            w_.memoText("local_shape");
            dims(chunk.lengths);
        }
        endInstance(w_);
    }

    void path(TensorId t) {
        const Path parts = catalog_.path(t);
        // Keys that are joined to one name, such as 0 and "0", are apart by their names alone.
        if (parts.size() <= 1 || pathName(parts) != catalog_.name(t)) {
            name(t);
            return w_.tuple1();
        }
        w_.beginTuple(parts.size());
        for (const PathPart& part : parts)
            w_.memoText(part.toString());
        w_.endTuple(parts.size());
    }

    const DistLayout& layout_;
    const Catalog& catalog_;
    const Sink& sink_;
    const std::string_view module_;
    PickleWriter w_;
    std::vector<uint32_t> names_;  // memo indices
};

Status DistLayout::metadata(const Sink& sink) const {
    return MetadataWriter(*this, sink).run();
}

Status DistLayout::fileLiterals(FileId file, std::span<const uint32_t>, const LiteralSink& sink) const {
    if (file + 1 == files.size()) {
        uint64_t at = 0;
        return metadata([&](std::string_view bytes) -> Status {
            SHARDSCOPE_TRY(sink(file, at, std::as_bytes(std::span(bytes))));
            at += bytes.size();
            return {};
        });
    }
    uint64_t size = 0;
    return walkRankFile(
        target_, chunksOf_[file], size,
        [&](uint64_t at, std::string_view bytes) { return sink(file, at, std::as_bytes(std::span(bytes))); },
        [](ChunkId, uint64_t) -> Status { return {}; });
}

}  // namespace

std::vector<std::string> writtenVariants() {
    return {"3.3", "3.0"};
}

std::vector<LeftOut> cannotHoldInPaddle(const Catalog& target, const WriteOptions&) {
    return leftOutOf(
        target,
        [&](TensorId t) -> std::string {
            if (arrayCode(target.dtype(t)).empty())
                return fmt::format("Paddle has no {} tensors", dtypeName(target.dtype(t)));
            if (target.elements(t) == 0)
                return "Paddle's distributed checkpoints keep no tensors without elements";
            return target.name(t) == kPaddleNameTable ? "the name is Paddle's own" : "";
        },
        [](const ObjectInfo&) { return std::string("Paddle's distributed checkpoints hold tensors only"); });
}

Result<std::unique_ptr<TargetLayout>> layoutDist(const Catalog& target, const WriteOptions& options) {
    return planned<DistLayout>(target, options.variant != "3.0");
}

}  // namespace shardscope::paddle
