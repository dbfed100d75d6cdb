// Decodes the {id}.metadata of a distributed checkpoint. The module and the fields of its classes tell the
// generation. Source: paddle/distributed/checkpoint/metadata.py (2.6, 3.0) and
// paddle/distributed/flex_checkpoint/dcp/metadata.py (3.2 and later).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/stop.h"
#include "formats/format.h"

namespace shardscope::paddle {

enum class Generation : uint8_t {
    v0a,    // 2.6: no dtype, no flat_mapping; every rank's file holds its replicas
    v0b,    // with flat_mapping
    v1,     // 3.0: with dtype
    flex2,  // 3.2: with global shapes and flattened shards
    flex3,  // 3.3: with replica ids
};
std::string_view generationName(Generation generation);  // "v0a", "flex-v3"
std::string_view generationWriter(Generation generation);

// A range of Metadata::dims, or none.
struct DimsAt {
    uint32_t at = 0;
    uint16_t rank = 0;
    bool given = false;
    explicit operator bool() const { return given; }
};

// LocalTensorMetadata: one distinct chunk of a tensor.
struct ShardRow {
    DimsAt offset;
    DimsAt shape;            // of the box; a size of zero or less is an empty chunk
    DimsAt global;           // of the whole tensor
    DimsAt range;            // where given: only this range of the box's row-major order
    uint32_t dtype = kNone;  // in Metadata::dtypes
    uint32_t file = kNone;   // in Metadata::files; kNone = see Metadata::stored
    int32_t replica = 0;     // of its storage_metadata entry
};

struct TensorRows {
    std::string key;
    uint32_t first = 0, count = 0;  // range of Metadata::rows
};

// An entry of storage_metadata (the file of a chunk) that ShardRow::file does not already state.
struct StoredRow {
    int64_t replica = 0;
    DimsAt offset;
    DimsAt shape;
    DimsAt range;
    uint32_t key = kNone;  // index in Metadata::tensors, continued by Metadata::strangers
    uint32_t file = 0;     // in Metadata::files
};

struct FlatPath {
    std::string key;
    std::vector<std::string> parts;
};

struct Metadata {
    Generation generation = Generation::v1;
    bool flexModule = false;
    int protocol = 0;
    std::vector<int64_t> dims;
    std::vector<std::string> dtypes, files;
    std::vector<std::string> strangers;  // keys of storage_metadata that no tensor has
    std::vector<TensorRows> tensors;
    std::vector<ShardRow> rows;  // grouped by tensor
    std::vector<StoredRow> stored;
    std::vector<FlatPath> paths;
    std::vector<Note> notes;  // without a file name

    DimSpan dimsOf(DimsAt where) const { return DimSpan(dims).subspan(where.at, where.rank); }
    FlatRange rangeOf(DimsAt where) const { return {dims[where.at], dims[where.at + 1]}; }
    std::span<const ShardRow> rowsOf(const TensorRows& tensor) const {
        return std::span(rows).subspan(tensor.first, tensor.count);
    }
    bool hasTensor(const StoredRow& row) const { return row.key < tensors.size(); }
    const std::string& keyOf(const StoredRow& row) const {
        return hasTensor(row) ? tensors[row.key].key : strangers[row.key - tensors.size()];
    }
};

// Errors, with file and, if known, offset: damaged, limit, unsupported, io.
Result<Metadata> readMetadata(const ReadFile& file, const Limits& limits, const StopToken& stop);

// Whether `first`, the first bytes of a file, are those of a metadata file.
bool looksLikeMetadata(std::string_view first);

}  // namespace shardscope::paddle
