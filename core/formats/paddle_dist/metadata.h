// The {id}.metadata of a distributed checkpoint, decoded. Its generations differ in the classes' module and
// fields and are told apart by these. Source: paddle/distributed/checkpoint/metadata.py (2.6, 3.0) and
// paddle/distributed/flex_checkpoint/dcp/metadata.py (3.2 and later).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/stop.h"
#include "formats/format.h"

namespace shardscope::paddle {

enum class Generation : uint8_t {
    v0a,    // 2.6: no dtype, no flat_mapping; every rank's file has its replicas
    v0b,    // with flat_mapping
    v1,     // 3.0: with dtype
    flex2,  // 3.2: with global shapes and flattened shards
    flex3,  // 3.3: with replica ids
};
std::string_view generationName(Generation generation);  // "v0a", "flex-v3"
std::string_view generationWriter(Generation generation);

// A stretch of Metadata::dims.
struct DimsAt {
    uint64_t at = 0;
    uint32_t rank = 0;
};

// LocalTensorMetadata: one distinct piece of a tensor.
struct ShardRow {
    DimsAt offset;
    DimsAt shape;                  // of the box; sizes may be zero or negative (an empty piece)
    std::optional<DimsAt> global;  // of the whole tensor
    uint32_t dtype = kNone;        // in Metadata::dtypes
    bool flat = false;             // only `range` of the box's row-major order
    FlatRange range;
};

struct TensorRows {
    std::string key;
    std::vector<ShardRow> rows;
};

// An entry of storage_metadata: where a piece is stored.
struct StoredRow {
    uint32_t tensor = kNone;    // in Metadata::tensors
    uint32_t stranger = kNone;  // in Metadata::strangers, where no tensor has the key
    DimsAt offset;
    std::optional<DimsAt> shape;
    bool flat = false;
    FlatRange range;
    int64_t replica = 0;
    uint32_t file = 0;  // in Metadata::files
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
    std::vector<std::string> dtypes, files, strangers;
    std::vector<TensorRows> tensors;
    std::vector<StoredRow> stored;
    std::vector<FlatPath> paths;
    std::vector<Note> notes;  // without a file name

    DimSpan dimsOf(DimsAt where) const { return DimSpan(dims).subspan(where.at, where.rank); }
};

// Errors: damaged, limit, unsupported, io; with file and, where it is known, offset.
Result<Metadata> readMetadata(const ReadFile& file, const Limits& limits, const StopToken& stop);
// The same on bytes in memory.
Result<Metadata> decodeMetadata(std::span<const std::byte> bytes, const Limits& limits);
// The general decoder, which decodeMetadata() uses for what is not as Paddle writes it.
Result<Metadata> decodeMetadataSlow(std::span<const std::byte> bytes, const Limits& limits);

// Whether bytes from the start of a file are those of such a metadata file.
bool looksLikeMetadata(std::string_view first);

}  // namespace shardscope::paddle
