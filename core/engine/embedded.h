// Files of resources/ that are part of the program (cmake/EmbedFiles.cmake). Private to this room.
#pragma once

#include <string_view>
#include <vector>

namespace shardscope {

struct EmbeddedFile {
    std::string_view name;  // within resources/: "recipes/fused-qkv.json"
    std::string_view text;
};
const std::vector<EmbeddedFile>& embeddedFiles();
// Empty = there is none.
inline std::string_view embeddedText(std::string_view name) {
    for (const EmbeddedFile& file : embeddedFiles())
        if (file.name == name) return file.text;
    return {};
}

}  // namespace shardscope
