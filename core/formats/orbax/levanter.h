// Checkpoints of Levanter: the leaves of a tree as zarr arrays, in nested directories or in one database, and
// a mark that is written last. Private to this format.
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

// Whether Levanter deletes it after the next one; nothing where the mark is not one of Levanter.
std::optional<bool> isTemporaryCheckpoint(std::string_view mark);

// Arrays in directories below the checkpoint's own, by their paths.
struct NestedArrays {
    std::vector<std::string> described;    // with a .zarray or zarr.json
    std::vector<std::string> undescribed;  // with chunks alone
};
// Errors: those of filesBelow().
Result<NestedArrays> findNestedArrays(const Directory& directory);

struct ListedArray {
    std::string path;
    Dims shape;
};
// manifest.json. Errors: damaged (meta.inconsistent).
Result<std::vector<ListedArray>> parseManifest(std::string_view json);

}  // namespace shardscope::orbax
