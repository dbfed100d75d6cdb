#include <array>

#include "encoding/pickle.h"
#include "formats/paddle_dist/layouts.h"

namespace shardscope::paddle {

namespace {

constexpr size_t kPiece = size_t{1} << 20;

struct Stored {
    DType dtype;
    std::string_view code;
};
// bfloat16 is stored as uint16 and float8 as int8, for numpy has neither.
constexpr std::array<Stored, 14> kStored{{{DType::boolean, "b1"},
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
                                          {DType::float8E5M2, "i1"}}};

class Writer {
  public:
    Writer(const MetadataPlan& plan, const std::function<Status(std::string_view)>& sink)
        : plan_(plan),
          catalog_(*plan.catalog),
          sink_(sink),
          module_(plan.flex ? "paddle.distributed.flex_checkpoint.dcp.metadata"
                            : "paddle.distributed.checkpoint.metadata"),
          w_(PickleWriter::For::python3) {}

    Status run() {
        beginInstance("Metadata");
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
                w_.memoText(plan_.fileName(c));
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
        endInstance();
        return sink_(w_.finish());
    }

  private:
    Status flush() {
        if (w_.size() < kPiece) return {};
        return sink_(w_.take());
    }

    void beginInstance(std::string_view name) {
        w_.memoGlobal(module_, name);
        w_.emptyTuple();
        w_.newObject();
        w_.emptyDict();
        w_.mark();
    }
    void endInstance() {
        w_.setItems();
        w_.build();
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
        beginInstance("LocalTensorMetadata");
        w_.memoText("global_offset");
        dims(chunk.offsets);
        w_.memoText("local_shape");
        dims(chunk.lengths);
        w_.memoText("dtype");
        w_.memoText(dtypeName(catalog_.dtype(t)));  // Paddle has taken torch's names
        if (plan_.flex) {
            w_.memoText("global_shape");
            dims(catalog_.shape(t));
            flat(chunk);
        }
        endInstance();
    }

    void index(TensorId t, const ChunkInfo& chunk) {
        beginInstance("LocalTensorIndex");
        w_.memoText("tensor_key");
        name(t);
        w_.memoText("global_offset");
        dims(chunk.offsets);
        if (plan_.flex) {
            flat(chunk);
            w_.memoText("replica_id");
            w_.none();
            w_.memoText("local_shape");
            dims(chunk.lengths);
        }
        endInstance();
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

    const MetadataPlan& plan_;
    const Catalog& catalog_;
    const std::function<Status(std::string_view)>& sink_;
    const std::string_view module_;
    PickleWriter w_;
    std::vector<uint32_t> names_;  // memo indices
};

}  // namespace

std::string_view arrayCode(DType dtype) {
    for (const Stored& stored : kStored) {
        if (stored.dtype == dtype) return stored.code;
    }
    return {};
}

Status writeMetadata(const MetadataPlan& plan, const std::function<Status(std::string_view)>& sink) {
    return Writer(plan, sink).run();
}

}  // namespace shardscope::paddle
