// Trees of Flax in MessagePack: the file `checkpoint` of Orbax up to 0.5, where arrays are elsewhere, and the
// files that flax.training.checkpoints wrote without Orbax, which hold all; and EasyLM's streams, which have
// the leaves one behind the other, each with its path.
//
// Source: flax/serialization.py; google/orbax 3ff7b24a, orbax/checkpoint/msgpack_utils.py; young-geng/EasyLM,
// EasyLM/checkpoint.py (StreamingCheckpointer); google-research/t5x, t5x/checkpoints.py (arrays that are
// elsewhere are specs of TensorStore).
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
    // One of: an array that is stored elsewhere under a name, ...
    std::optional<std::string> elsewhere;
    // ... a tensor, ...
    struct Tensor {
        DType dtype = DType::float32;
        Dims shape;
        // Of the row-major order of the whole; one for an array below 2^30 bytes.
        struct Part {
            FlatRange elements;
            uint64_t offset = 0, length = 0;  // in the file
        };
        std::vector<Part> parts;
        std::vector<std::byte> value;  // of a number that the file does not hold as an array
    };
    std::optional<Tensor> tensor;
    // ... or an object.
    Value object;
};

struct FlaxTree {
    std::vector<FlaxLeaf> leaves;
    bool t5x = false;  // of T5X: paths are those below "optimizer", and the version is an object
    std::vector<Note> notes;
};

// Whether these are the first bytes of such a file: a map whose first key is a text.
bool isFlaxStart(std::string_view head);

// Whether these are the first bytes of a stream: a pair of a list of texts and bytes.
bool isStreamStart(std::string_view head);

// Errors: those of readMsgpack(); damaged for arrays that are not what they say.
Result<FlaxTree> readFlax(const ReadFile& file, const StopToken& stop);
// Errors: as above. A stream that ends behind a leaf cannot be told from one that has no more.
Result<FlaxTree> readFlaxStream(const ReadFile& file, const StopToken& stop);

}  // namespace shardscope::orbax
