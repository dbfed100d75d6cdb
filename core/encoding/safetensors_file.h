// A safetensors file laid out as the reference implementation does it: widest dtypes first, then by name. The
// header is compact JSON, padded with spaces to 8 bytes.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "model/dtype.h"
#include "model/region.h"

namespace shardscope::safetensors {

// As a string of JSON, with its quotes.
std::string jsonText(std::string_view text);

struct FileEntry {
    std::string name;  // UTF-8
    DType dtype = DType::float32;
    Dims shape;
    uint64_t bytes = 0;
    uint64_t offset = 0;  // in the file; set by layOutFile()
};

struct FileLayout {
    std::string head;  // the length and the header
    uint64_t size = 0;
};

// Errors: impossible for a dtype that the format lacks, limit for a header that readers refuse.
Result<FileLayout> layOutFile(std::vector<FileEntry>& entries,
                              const std::vector<std::pair<std::string, std::string>>& metadata);

}  // namespace shardscope::safetensors
