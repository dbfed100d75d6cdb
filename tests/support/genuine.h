// The checkpoints in tests/data/genuine that real frameworks wrote, and their expected.json.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/result.h"
#include "formats/format.h"

namespace shardscope::test {

struct GenuineCase {
    std::string family;  // "dcp", "torch_save", "safetensors"
    std::string name;    // "t2.15.0-fsdp2-tp"
    std::string path;    // of ckpt/
    nlohmann::json expected;
    std::string openPath() const;  // ckpt/, or the one file inside it that expected.json names
    bool damaged() const { return expected.contains("findings"); }
};

// All cases of a family, sorted by name. Aborts when there are none.
std::vector<GenuineCase> genuineCases(const std::string& family);

// A Source over a path of the machine's file system, as the engine makes it.
Source sourceOf(const std::string& path);

}  // namespace shardscope::test
