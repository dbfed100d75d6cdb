// Levanter checkpoints: one zarr array for each leaf of a tree, in nested directories or one OCDBT database.
// The file metadata.json is written last. Private to this format.
//
// Source: levanter/checkpoint.py, tensorstore_serialization.py and, since 2026, checkpoint_manifest.py.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/format.h"

namespace shardscope::orbax {

inline constexpr std::string_view kLevanterMark = "metadata.json";      // written last
inline constexpr std::string_view kLevanterManifest = "manifest.json";  // lists the arrays

Probe probeLevanter(const Source& source);

// Whether Levanter deletes this checkpoint after the next one, by the text of metadata.json. nullopt if
// Levanter did not write the text.
std::optional<bool> isTemporaryCheckpoint(std::string_view mark);

// Paths of the arrays below the checkpoint's directory.
struct NestedArrays {
    std::vector<std::string> described;    // with a .zarray or zarr.json
    std::vector<std::string> undescribed;  // directories with chunks and no description
};
// Errors: those of filesBelow().
Result<NestedArrays> findNestedArrays(const Directory& directory);

struct ListedArray {
    std::string path;
    Dims shape;
};
// Parses manifest.json. Errors: damaged (meta.inconsistent).
Result<std::vector<ListedArray>> parseManifest(std::string_view json);

// The name of an array, by its path.
std::string dotted(std::string path);

}  // namespace shardscope::orbax
