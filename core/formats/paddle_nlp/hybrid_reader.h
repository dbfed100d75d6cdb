// The reader of a hybrid-parallel checkpoint: each chunk is an array in a rank's file, or a part of one.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "encoding/paddle_file.h"
#include "formats/format.h"

namespace shardscope::paddle_nlp {

// Zeros that must follow the last element of a flattened parameter.
struct Padding {
    uint32_t file = kNone;
    PaddleArray array;
    int64_t first = 0;  // element of the array
    std::string path;
};

struct ChunkPlace {
    FileId file = kNone;
    bool present = false;  // else the chunk's file is missing or broken
    PaddleArray array;
    int64_t first = 0;  // the chunk's first element in the array, for a stretch of it
    bool stretch = false;
    Dims offsets, lengths;  // or a box in the array; empty = all of it
    Dims strides;           // or the chunk's elements from `first` at these strides in the array
    std::optional<DType> storedAs;
    std::vector<Padding> padding;
};

struct PlacedFile {
    FileId id = kNone;
    std::string path;
    uint64_t size = 0;
    std::optional<Error> why;  // it cannot be read
};

std::unique_ptr<Reader> makeHybridReader(const Source& source, const OpenOptions& options, Catalog catalog,
                                         std::vector<ChunkPlace> places, std::vector<PlacedFile> files);

}  // namespace shardscope::paddle_nlp
