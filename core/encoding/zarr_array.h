// Zarr arrays of versions 2 and 3: what `.zarray` or `zarr.json` says, which name each chunk has, and how its
// bytes become elements. Knows nothing of the checkpoint that the array is in.
//
// Source: the zarr v2 specification (zarr-specs, docs/v2/v2.0.rst), the zarr v3 specification with the codecs
// bytes, gzip, crc32c, sharding_indexed (docs/v3) and zstd (zarr-extensions); the dtypes that Megatron-Core
// 0.5 to 0.15 and TensorStore add to them ("bfloat16"), megatron/core/dist_checkpointing/strategies/zarr.py.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/stop.h"
#include "encoding/zstd.h"
#include "model/dtype.h"
#include "model/region.h"
#include "storage/file_system.h"

namespace shardscope {

inline constexpr std::string_view kZarrayName = ".zarray";
inline constexpr std::string_view kZarrJsonName = "zarr.json";

// An array in row-major order. A stored chunk has the elements of a whole chunk, at the edge of the array
// too.
struct ZarrArray {
    // What was done to the bytes of a chunk, in the order of writing.
    enum class Codec : uint8_t { zstd, gzip, crc32c };
    // A chunk that is a file of smaller ones with an index of them (sharding_indexed).
    struct Sharding {
        Dims inner;  // shape of the smaller chunks; divides that of the chunk
        bool indexAtStart = false;
        bool indexHasChecksum = false;
        uint64_t indexBytes = 0;
    };

    Dims shape;
    Dims chunk;  // of the same rank, each at least 1
    DType dtype = DType::float32;
    std::string shownAs;  // the stored dtype, where `dtype` only has the same bytes ("int4" is int8)
    bool bigEndian = false;
    // One element, as stored: what a chunk that is not there holds, if anything says so.
    std::optional<std::vector<std::byte>> fill;
    std::vector<Codec> codecs;  // of a chunk, with sharding of each of the smaller ones
    std::optional<Sharding> sharding;
    int version = 2;
    bool prefixedKeys = false;  // "c/1/0" instead of "1.0"
    char separator = '.';

    uint64_t chunkBytes() const;  // unpacked
    // Whether a stored chunk is its elements and nothing else.
    bool raw() const { return codecs.empty() && !sharding; }
    // The elements of a chunk that are in the array: the first `lengths` along each dimension. The bytes up
    // to the end of the last of them, and their strides in elements where they are not row-major.
    struct Cut {
        uint64_t bytes = 0;
        Dims strides;
    };
    Cut cut(DimSpan lengths) const;
    // How many chunks there are along each dimension.
    Dims grid() const;
    int64_t gridAlong(size_t d) const;
    // The name of a chunk by its index in the grid: "1.0.3" or "c/1/0/3"; "0" or "c" for a scalar.
    std::string chunkName(DimSpan place) const;
    // The index in the grid that the name of a chunk states; nullopt for any other name.
    std::optional<Dims> chunkPlace(std::string_view name) const;
};

// `.zarray`. Errors: damaged (rule meta.inconsistent); unsupported for other compressors than zstd, zlib and
// gzip, filters, column-major order and dtypes that are not known; limit.
Result<ZarrArray> parseZarray(std::string_view json);
// `zarr.json`. Errors: as above; unsupported for other grids, key encodings and codecs than the regular ones.
Result<ZarrArray> parseZarrJson(std::string_view json);

// A stored chunk: bytes of a file.
struct ZarrStoredChunk {
    const ReadFile& file;
    uint64_t offset = 0;
    uint64_t length = 0;
};
// Looks at what surrounds the data of a chunk: its size, the index of a sharded one, the header of a zstd
// frame. Says where in the file the elements are stored unpacked, if they are. Errors: damaged
// (file.truncated, integrity.crc, meta.inconsistent), those of the file.
Result<std::optional<uint64_t>> checkZarrChunk(const ZarrArray& array, const ZarrStoredChunk& stored);
// Gives the elements of a whole chunk, as stored, in row-major order: chunkBytes() bytes. Takes memory for a
// row of the smaller chunks of a sharded one. Errors: as above; limit.
Status unpackZarrChunk(const ZarrArray& array, const ZarrStoredChunk& stored, const StopToken& stop,
                       const BytesSink& sink);

}  // namespace shardscope
