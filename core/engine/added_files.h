// Files of a destination that are not its format's: a record, or copies of files of the source. Private to
// this room.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace shardscope {

// One file, in memory or copied from another.
struct AddedFile {
    std::string name;  // relative to the destination
    std::string bytes;
    std::shared_ptr<const ReadFile> copied;  // in place of `bytes`
    uint64_t size() const { return copied ? copied->size() : bytes.size(); }
};

// A layout that writes these, too; they are staged, verified and published with the rest.
std::unique_ptr<TargetLayout> withFiles(std::unique_ptr<TargetLayout> layout, std::vector<AddedFile> added);

// What transformers needs beside the weights: configuration, tokenizer, generation and processor files.
// `wanted`: "auto" = those of the checkpoint (its own directory, or huggingface/ in it), where it has a
// config.json; "none"; else a directory. `from` becomes the directory. Errors: usage where that has no
// config.json; io, permission.
Result<std::vector<AddedFile>> findAssets(const Checkpoint& checkpoint, const std::string& wanted,
                                          std::string& from);

}  // namespace shardscope
