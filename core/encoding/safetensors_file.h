// Safetensors files, with headers in compact JSON.
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

enum class FileOrder : uint8_t {
    reference,  // as the reference implementation: widest dtypes first, then by name; a header of words
    // Entries of whole pages of 4 KiB come first, so that each begins with one. The others follow by falling
    // width, which keeps every element aligned. The header has whole pages. File systems can share such
    // blocks, and direct I/O needs no copy.
    paged,
};
constexpr uint64_t kPage = 4096;

// Errors: impossible for a dtype that the format lacks, limit for a header that readers refuse. The shape of
// a 4-bit entry is in pairs of elements, which only `paged` takes.
Result<FileLayout> layOutFile(std::vector<FileEntry>& entries,
                              const std::vector<std::pair<std::string, std::string>>& metadata,
                              FileOrder how = FileOrder::reference);

}  // namespace shardscope::safetensors
