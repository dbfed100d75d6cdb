// A zarr v2 array: what its `.zarray` file says, and which file holds each of its chunks. Knows nothing of
// the checkpoint that the array is in.
//
// Source: the zarr v2 specification (zarr-specs, docs/v2/v2.0.rst); the dtypes that Megatron-Core 0.5 to 0.15
// and TensorStore add to it ("bfloat16"), megatron/core/dist_checkpointing/strategies/zarr.py.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "model/dtype.h"
#include "model/region.h"

namespace shardscope {

inline constexpr std::string_view kZarrayName = ".zarray";

// An array without compressor and filters, in row-major order. Every chunk file has the bytes of a whole
// chunk, those at the edge of the array too.
struct ZarrArray {
    Dims shape;
    Dims chunk;  // of the same rank, each at least 1
    DType dtype = DType::float32;
    bool bigEndian = false;
    bool zeroFilled = false;  // a chunk that has no file holds zeros; else nothing says what it holds

    uint64_t chunkBytes() const;
    // How many chunks there are along each dimension.
    Dims grid() const;
    // "1.0.3" of a chunk's place in the grid, "0" of a scalar.
    std::string chunkName(DimSpan place) const;
    // The place in the grid that the name of a chunk file says; nullopt for any other name.
    std::optional<Dims> chunkPlace(std::string_view name) const;
};

// Errors: damaged (rule meta.inconsistent); unsupported for compressors, filters, column-major order,
// chunks in directories of their own and dtypes that are not known; limit.
Result<ZarrArray> parseZarray(std::string_view json);

}  // namespace shardscope
