// The JSON files of an item: the tree of its leaves and the texts among them.
//
// Source: google/orbax 3ff7b24a, orbax/checkpoint/_src/metadata/tree.py, array_metadata.py and
// empty_values.py.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/path.h"
#include "model/region.h"

namespace shardscope::orbax {

inline constexpr std::string_view kTreeMetadata = "_METADATA";
inline constexpr std::string_view kStepMetadata = "_CHECKPOINT_METADATA";
inline constexpr std::string_view kSharding = "_sharding";
inline constexpr std::string_view kStrings = "_strings.json";
inline constexpr std::string_view kMsgpackTree = "checkpoint";
inline constexpr std::string_view kArrayMetadatas = "array_metadatas";
inline constexpr std::string_view kCommitMark = "commit_success.txt";
inline constexpr std::string_view kVersion1Mark = "orbax.checkpoint";
inline constexpr std::string_view kUnfinished = ".orbax-checkpoint-tmp";
inline constexpr std::string_view kProcessDirectory = "ocdbt.process_";

// A leaf of the tree.
struct Leaf {
    enum class Kind : uint8_t { array, text, none, emptyDict, emptyList, emptyTuple };
    std::string name;  // keys joined with "."; that of its array
    Path path;
    Kind kind = Kind::array;
};

struct Tree {
    std::vector<Leaf> leaves;
    // Chunks that hold nothing but the fill value are stored as well, so one that is not there was lost.
    bool storesFill = false;
    bool writeShapes = false;  // as since Orbax 0.12
};

// `_METADATA`. Errors: damaged (rule meta.inconsistent).
Result<Tree> parseTree(std::string_view json);
// `_strings.json`: text by name. Errors: as above.
Result<std::map<std::string, std::string, std::less<>>> parseStrings(std::string_view json);

// A file of `array_metadatas`: the shape of an array's chunks, by name. Errors: as above.
Result<std::map<std::string, Dims, std::less<>>> parseArrayMetadatas(std::string_view json);

// `_CHECKPOINT_METADATA`, as far as it is understood; never an error.
struct StepMetadata {
    std::map<std::string, std::string, std::less<>> handlers;  // by item
    bool unfinished = false;  // it has a time of beginning and none of the end
};
StepMetadata parseStepMetadata(std::string_view json);

}  // namespace shardscope::orbax
