// Which files a tag holds, by their names. Private to this format.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/format.h"

namespace shardscope::deepspeed {

// "pp_rank" in the names is the place in the ZeRO partition: a data-parallel rank. `mp` is the combined rank
// of pipeline and tensor parallelism: pp * tp degree + tp.
struct FileName {
    enum class Kind : uint8_t { model, zeroModel, zeroOptimizer, expertOptimizer, layer, expert };
    Kind kind = Kind::model;
    uint32_t dp = 0;     // of zeroModel and zeroOptimizer; of expertOptimizer the expert-parallel rank
    uint32_t mp = 0;     // of layer the tensor-parallel rank
    uint32_t layer = 0;  // of layer and expert
    uint32_t expert = 0;
    bool bf16 = false;
};
std::optional<FileName> parseFileName(std::string_view name);

struct TagFile {
    FileName about;
    std::string name;  // with the tag's directory
    uint64_t size = 0;
};

// Where the files of a checkpoint are below the source.
struct Tag {
    std::string prefix;  // "global_step3/", empty when the source is the tag's directory
    bool universal = false;
    std::vector<TagFile> files;
    std::vector<DirectoryEntry> others;  // with the tag's directory
};
// What `latest` or `latest_universal` in a directory says; empty where there is none.
std::string trackedTag(const Directory& directory, const std::string& tracker);

// The tag of a directory: itself, or what `latest` or `latest_universal` in it names. nullopt when there is
// none.
std::optional<Tag> findTag(const Source& source);

}  // namespace shardscope::deepspeed
