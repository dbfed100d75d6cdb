#include <fmt/format.h>

#include "encoding/pickle.h"
#include "formats/dcp/dcp_writer.h"

namespace shardscope::dcp {

namespace {

constexpr size_t kPiece = size_t{1} << 20;
constexpr size_t kBatch =
    1000;  // items between a mark and its SETITEMS or APPENDS, as CPython's pickler has it
constexpr std::string_view kModule = "torch.distributed.checkpoint.metadata";

class MetadataWriter {
  public:
    MetadataWriter(const MetadataPlan& plan, const std::function<Status(std::string_view)>& sink)
        : plan_(plan), catalog_(*plan.catalog), sink_(sink) {}

    Status write() {
        out_.memoGlobal(kModule, "Metadata");
        openObject();
        out_.memoText("state_dict_metadata");
        SHARDSCOPE_TRY(stateDict());
        out_.memoText("planner_data");
        SHARDSCOPE_TRY(plannerData());
        out_.memoText("storage_data");
        SHARDSCOPE_TRY(storageData());
        out_.memoText("storage_meta");
        out_.none();
        closeObject();
        return sink_(out_.finish());
    }

  private:
    // A dataclass: cls.__new__(cls), then its attributes as a dict.
    void openObject() {
        out_.emptyTuple();
        out_.newObject();
        out_.emptyDict();
        out_.mark();
    }
    void closeObject() {
        out_.setItems();
        out_.build();
    }
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
        once(layout_, [&] {
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
            out_.memoGlobal(kModule, "TensorStorageMetadata");
            openObject();
            out_.memoText("properties");
            properties(catalog_.dtype(t));
            out_.memoText("size");
            dims(catalog_.shape(t));
            out_.memoText("chunks");
            out_.emptyList();
            const ChunkId first = catalog_.firstChunk(t);
            SHARDSCOPE_TRY(batches(catalog_.endChunk(t) - first, true, [&](size_t c) -> Status {
                const ChunkInfo chunk = catalog_.chunk(t, static_cast<ChunkId>(first + c));
                out_.memoGlobal(kModule, "ChunkStorageMetadata");
                openObject();
                out_.memoText("offsets");
                dims(chunk.offsets);
                out_.memoText("sizes");
                dims(chunk.lengths);
                closeObject();
                return {};
            }));
            closeObject();
            return {};
        });
    }

    Status plannerData() {
        if (plan_.paths == NamePaths::none) {
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
            out_.memoGlobal(kModule, "MetadataIndex");
            openObject();
            out_.memoText("fqn");
            if (i < objects) {
                out_.get(names_[tensors + i]);
                out_.memoText("index");
                out_.none();
                closeObject();
                info(plan_.objectPlace(static_cast<ObjectId>(i)));
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
            closeObject();
            info(plan_.chunkPlace(t, chunk));
            return {};
        });
    }

    void info(const BlobExtent& place) {
        out_.memoGlobal("torch.distributed.checkpoint.filesystem", "_StorageInfo");
        openObject();
        out_.memoText("relative_path");
        if (paths_.empty()) paths_.resize(plan_.fileCount);
        once(paths_[place.file], [&] { out_.text(plan_.fileName(place.file)); });
        out_.memoText("offset");
        out_.integer(static_cast<int64_t>(place.offset));
        out_.memoText("length");
        out_.integer(static_cast<int64_t>(place.length));
        closeObject();
    }

    const MetadataPlan& plan_;
    const Catalog& catalog_;
    const std::function<Status(std::string_view)>& sink_;
    PickleWriter out_;
    std::vector<uint32_t> names_;  // memo index of each tensor's name, then of each object's
    std::vector<std::optional<uint32_t>> paths_;
    std::optional<uint32_t> layout_, memoryFormat_;
};

}  // namespace

Status writeMetadata(const MetadataPlan& plan, const std::function<Status(std::string_view)>& sink) {
    return MetadataWriter(plan, sink).write();
}

}  // namespace shardscope::dcp
