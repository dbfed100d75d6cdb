// Parses the names of a tag's files. Finds the tag of a directory. Private to this format.
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

// "pp_rank" in a name is the index of the ZeRO partition: a data-parallel rank. `mp` is the model-parallel
// rank: pp * tp degree + tp.
struct FileName {
    enum class Kind : uint8_t { model, zeroModel, zeroOptimizer, expertOptimizer, layer, expert };
    Kind kind = Kind::model;
    uint32_t dp = 0;     // for zeroModel and zeroOptimizer; expertOptimizer: the expert-parallel rank
    uint32_t mp = 0;     // for layer: the tensor-parallel rank
    uint32_t layer = 0;  // for layer and expert
    uint32_t expert = 0;
    bool bf16 = false;
};
std::optional<FileName> parseFileName(std::string_view name);

struct TagFile {
    FileName about;
    std::string name;  // with Tag::prefix
    uint64_t size = 0;
};

// Where the files of a checkpoint are below the source.
struct Tag {
    std::string prefix;  // "global_step3/", empty when the source is the tag's directory
    bool universal = false;
    bool untracked = false;  // no tracker names it: DeepSpeed would not find it
    std::vector<TagFile> files;
    std::vector<DirectoryEntry> others;  // with Tag::prefix
};
// The tag that the tracker file (`latest` or `latest_universal`) names; empty if there is none or the name is
// unsafe.
std::string trackedTag(const Directory& directory, const std::string& tracker);

// The tag of a directory: the directory itself, the tag that its tracker names, or the only
// one in a step of transformers' Trainer. nullopt if there is none.
std::optional<Tag> findTag(const Source& source);

}  // namespace shardscope::deepspeed
