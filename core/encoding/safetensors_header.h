// The header of a .safetensors file: 8 bytes little-endian length, JSON, then the tensors' bytes without
// holes (https://github.com/huggingface/safetensors, README "Format").
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "encoding/strict_json.h"
#include "model/dtype.h"
#include "model/region.h"
#include "storage/file_system.h"

namespace shardscope::safetensors {

constexpr std::string_view kMetadataName = "__metadata__";
constexpr std::string_view kShardingInfoKey = "DCP_SHARDING_INFO";
constexpr std::string_view kVersionKey = "DCP_VERSION";

struct HeaderTensor {
    DType dtype = DType::float32;
    uint32_t rank = 0;
    uint64_t firstDim = 0;  // in Header::dims
    uint64_t begin = 0;     // in the data part
    uint64_t end = 0;
};

struct Header {
    uint64_t dataStart = 0;  // file offset of the data part
    uint64_t dataEnd = 0;    // file offset where the last tensor ends, as declared
    uint64_t fileSize = 0;   // when it was read; below dataEnd in a truncated file
    bool leadingSpace = false;
    NameSet names;  // of `tensors`, in the order of the header
    std::vector<HeaderTensor> tensors;
    std::vector<int64_t> dims;  // as torch counts them: the last dimension of F4 is halved
    std::vector<std::pair<std::string, std::string>> metadata;  // of __metadata__

    DimSpan shape(size_t tensor) const {
        return DimSpan(dims).subspan(tensors[tensor].firstDim, tensors[tensor].rank);
    }
    const std::string* metadataValue(std::string_view key) const;
};

// Reads and checks the header of an open file by every rule of the format but one. The file may be shorter
// than the header declares (see dataEnd). Errors: damaged, limit, unsupported (an unknown dtype), io; with
// file and offset.
Result<Header> readHeader(const ReadFile& file, uint64_t maxHeader);

// The same on bytes in memory: `json` is the header text, `fileSize` that of the whole file.
Result<Header> parseHeader(std::string_view json, uint64_t fileSize);

// What the first bytes of something that is not a safetensors file look like; empty when they look like
// nothing known.
std::string looksLike(std::string_view head);

// The format's name of a dtype; empty when it has none.
std::string_view storedDTypeName(DType dtype);

}  // namespace shardscope::safetensors
