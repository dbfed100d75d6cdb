// Reads Flax trees in MessagePack. Orbax up to 0.5 has a file `checkpoint` that refers to arrays elsewhere.
// Files of flax.training.checkpoints hold the arrays themselves. EasyLM's streams are a sequence of leaves,
// each with its path.
//
// Source: flax/serialization.py; google/orbax 3ff7b24a, orbax/checkpoint/msgpack_utils.py; young-geng/EasyLM,
// EasyLM/checkpoint.py (StreamingCheckpointer); google-research/t5x, t5x/checkpoints.py (a TensorStore spec
// stands for an array that is stored elsewhere).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/stop.h"
#include "model/catalog.h"
#include "model/value.h"
#include "storage/file_system.h"

namespace shardscope::orbax {

struct FlaxLeaf {
    Path path;
    std::string name;
    // A leaf is one of three. First: the name of an array that is stored elsewhere.
    std::optional<std::string> elsewhere;
    // Second: a tensor in this file.
    struct Tensor {
        DType dtype = DType::float32;
        Dims shape;
        // A flat range of the tensor. An array below 2^30 bytes has one part.
        struct Part {
            FlatRange elements;
            uint64_t offset = 0, length = 0;  // in the file
        };
        std::vector<Part> parts;
        std::vector<std::byte> value;  // little-endian bytes of a number that is not stored as an array
    };
    std::optional<Tensor> tensor;
    // Third: an object.
    Value object;
};

struct FlaxTree {
    std::vector<FlaxLeaf> leaves;
    bool t5x = false;  // T5X: paths start below "optimizer"; the version is an object
    std::vector<Note> notes;
};

// Whether these are the first bytes of a Flax file: a map whose first key is a string.
bool isFlaxStart(std::string_view head);

// Whether these are the first bytes of an EasyLM stream: a pair of a list of strings and bytes.
bool isStreamStart(std::string_view head);

// Errors: those of readMsgpack(); damaged for an array whose bytes do not fit its shape and dtype.
Result<FlaxTree> readFlax(const ReadFile& file, const StopToken& stop);
// Errors: as readFlax(). A stream that is truncated exactly after a leaf looks complete.
Result<FlaxTree> readFlaxStream(const ReadFile& file, const StopToken& stop);

}  // namespace shardscope::orbax
