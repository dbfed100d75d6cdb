// Parses the JSON files of an item: the tree of its leaves, and its string leaves.
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
    std::string name;  // keys joined with "."; also the name of its array
    Path path;
    Kind kind = Kind::array;
};

struct Tree {
    std::vector<Leaf> leaves;
    // Chunks of nothing but the fill value are stored, too; so an absent chunk is missing.
    bool storesFill = false;
    bool writeShapes = false;  // true since Orbax 0.12
};

// Parses `_METADATA`. Errors: damaged (rule meta.inconsistent).
Result<Tree> parseTree(std::string_view json);
// Parses `_strings.json`: text by name. Errors: as parseTree().
Result<std::map<std::string, std::string, std::less<>>> parseStrings(std::string_view json);

// Parses a file of `array_metadatas`: by name the shape of an array's chunks. Errors: as parseTree().
Result<std::map<std::string, Dims, std::less<>>> parseArrayMetadatas(std::string_view json);

// What is known from `_CHECKPOINT_METADATA`. Unknown contents are ignored, never an error.
struct StepMetadata {
    std::map<std::string, std::string, std::less<>> handlers;  // by item
    bool unfinished = false;  // states when the save began, not when it ended
};
StepMetadata parseStepMetadata(std::string_view json);

}  // namespace shardscope::orbax
