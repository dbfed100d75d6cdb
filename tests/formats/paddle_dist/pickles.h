// Small pickles as Paddle writes them, put together by hand.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "encoding/pickle.h"
#include "formats/format.h"
#include "support/memory_file_system.h"

namespace shardscope::test {

inline std::string floats(int count, float first = 0) {
    std::string out;
    for (int i = 0; i < count; ++i) {
        const float value = first + static_cast<float>(i);
        out.append(reinterpret_cast<const char*>(&value), sizeof value);
    }
    return out;
}

struct ArraySpec {
    std::string key;
    Dims shape;
    std::string raw;
    std::string code = "f4";
    std::string order = "<";
    bool columns = false;
    bool named = true;  // in the table of names
};

inline void putDims(PickleWriter& w, const Dims& dims, bool list = false) {
    if (list) {
        w.emptyList();
        w.mark();
        for (int64_t d : dims)
            w.integer(d);
        w.appends();
        return;
    }
    w.beginTuple(dims.size());
    for (int64_t d : dims)
        w.integer(d);
    w.endTuple(dims.size());
}

inline void putDType(PickleWriter& w, const ArraySpec& a) {
    w.memoGlobal("numpy", "dtype");
    w.text(a.code);
    w.boolean(false);
    w.boolean(true);
    w.tuple3();
    w.reduce();
    w.mark();
    w.integer(3);
    w.text(a.order);
    w.none();
    w.none();
    w.none();
    w.integer(-1);
    w.integer(-1);
    w.integer(0);
    w.tuple();
    w.build();
}

inline void putArray(PickleWriter& w, const ArraySpec& a) {
    w.memoGlobal("numpy._core.multiarray", "_reconstruct");
    w.memoGlobal("numpy", "ndarray");
    w.integer(0);
    w.tuple1();
    w.bytes("b");
    w.tuple3();
    w.reduce();
    w.mark();
    w.integer(1);
    putDims(w, a.shape);
    putDType(w, a);
    w.boolean(a.columns);
    w.bytes(a.raw);
    w.tuple();
    w.build();
}

// A state dict, with whatever `more` puts behind the arrays and the table of names.
inline std::string stateDict(const std::vector<ArraySpec>& arrays,
                             PickleWriter::For reader = PickleWriter::For::python3,
                             const std::function<void(PickleWriter&)>& more = {}) {
    PickleWriter w(reader);
    w.emptyDict();
    w.mark();
    for (const ArraySpec& a : arrays) {
        w.text(a.key);
        putArray(w, a);
    }
    w.text("StructuredToParameterName@@");
    w.emptyDict();
    w.mark();
    for (const ArraySpec& a : arrays) {
        if (!a.named) continue;
        w.text(a.key);
        w.text("generated_tensor");
    }
    w.setItems();
    if (more) more(w);
    w.setItems();
    return w.finish();
}

// One row of the metadata, and its entry in storage_metadata.
struct RowSpec {
    std::string key;
    Dims offset, shape;
    std::string file;  // empty: no entry
    std::optional<Dims> global;
    std::optional<std::string> dtype = "float32";
    std::optional<FlatRange> flat;
    bool slice = false;    // the range is a slice object
    bool lists = false;    // offset and shape are lists
    bool extra = false;    // a field that nobody knows
    bool scalars = false;  // sizes are numpy integers
};

inline std::string metadataPickle(const std::vector<std::vector<RowSpec>>& tensors, bool flex) {
    const std::string module =
        flex ? "paddle.distributed.flex_checkpoint.dcp.metadata" : "paddle.distributed.checkpoint.metadata";
    PickleWriter w(PickleWriter::For::python3);
    const auto begin = [&](const char* name) {
        w.memoGlobal(module, name);
        w.emptyTuple();
        w.newObject();
        w.emptyDict();
        w.mark();
    };
    const auto end = [&] {
        w.setItems();
        w.build();
    };
    const auto scalarDims = [&](const Dims& dims) {
        w.mark();
        for (int64_t d : dims) {
            w.memoGlobal("numpy.core.multiarray", "scalar");
            putDType(w, {"", {}, "", "i8"});
            w.bytes(std::string(reinterpret_cast<const char*>(&d), sizeof d));
            w.tuple2();
            w.reduce();
        }
        w.tuple();
    };
    const auto range = [&](const RowSpec& r) {
        w.text("is_flattened");
        w.boolean(r.flat.has_value());
        w.text("flattened_range");
        if (!r.flat) return w.none();
        if (r.slice) w.global("builtins", "slice");
        w.integer(r.flat->start);
        w.integer(r.flat->stop);
        if (!r.slice) return w.tuple2();
        w.none();
        w.tuple3();
        w.reduce();
    };
    begin("Metadata");
    w.text("state_dict_metadata");
    w.emptyDict();
    w.mark();
    for (const auto& rows : tensors) {
        w.text(rows[0].key);
        w.emptyList();
        w.mark();
        for (const RowSpec& r : rows) {
            begin("LocalTensorMetadata");
            w.text("global_offset");
            r.scalars ? scalarDims(r.offset) : putDims(w, r.offset, r.lists);
            w.text("local_shape");
            r.scalars ? scalarDims(r.shape) : putDims(w, r.shape, r.lists);
            if (r.dtype) {
                w.text("dtype");
                w.text(*r.dtype);
            }
            if (r.extra) {
                w.text("compression");
                w.text("none yet");
            }
            if (flex) {
                w.text("global_shape");
                r.global ? putDims(w, *r.global, r.lists) : w.none();
                range(r);
            }
            end();
        }
        w.appends();
    }
    w.setItems();
    w.text("storage_metadata");
    w.emptyDict();
    w.mark();
    for (const auto& rows : tensors) {
        for (const RowSpec& r : rows) {
            if (r.file.empty()) continue;
            begin("LocalTensorIndex");
            w.text("tensor_key");
            w.text(r.key);
            w.text("global_offset");
            putDims(w, r.offset);
            if (flex) range(r);
            end();
            w.text(r.file);
        }
    }
    w.setItems();
    end();
    return w.finish();
}

// A source over a directory in memory.
inline Source memorySource(const std::map<std::string, std::string>& files, const std::string& entry = {}) {
    const auto fs = std::make_shared<MemoryFileSystem>();
    for (const auto& [name, content] : files) {
        const auto bytes = std::as_bytes(std::span(content));
        fs->put("/d/" + name, {bytes.begin(), bytes.end()});
    }
    Source source;
    source.fileSystem = fs;
    source.directory = fs->openDirectory("/d").value();
    source.entries = source.directory->list().value();
    source.entry = entry;
    source.display = "/d";
    return source;
}

inline bool hasNote(const std::vector<Note>& notes, const std::string& rule, const std::string& part) {
    for (const Note& note : notes) {
        if (note.rule == rule && note.message.find(part) != std::string::npos) return true;
    }
    return false;
}

inline Result<std::string> bytesOf(const Reader& reader, ChunkId chunk) {
    auto extent = reader.locate(chunk);
    if (!extent.ok()) return std::move(extent).error();
    std::string out(extent->length, '\0');
    const auto read = extent->file->readAt(extent->offset, std::as_writable_bytes(std::span(out)));
    if (!read.ok()) return read.error();
    return out;
}

}  // namespace shardscope::test
