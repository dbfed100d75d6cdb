// The checkpoints in tests/data/genuine that real frameworks wrote, and what is known of them: expected.json
// has the truth, shown.json what is shown otherwise (tests/data/README.md).
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
    nlohmann::json shown;          // what shown.json says of it; an object
    std::string openPath() const;  // ckpt/, or what is to be opened inside it
    std::string variant() const { return shown.value("variant", ""); }  // to open it with
    bool damaged() const { return expected.contains("findings"); }
    std::string id() const { return family + "/" + name; }
};

// All cases of a family, sorted by name. Aborts when there are none.
std::vector<GenuineCase> genuineCases(const std::string& family);
// Those of every family. Files that are checkpoints of their own are cases of their own.
const std::vector<GenuineCase>& allGenuineCases();
// For what takes long: of each family the smallest case of each kind, which is a layout (as expected.json
// names it), one rank or several, and the damage that was done.
std::vector<GenuineCase> genuineSamples();

// A Source over a path of the machine's file system, as the engine makes it.
Source sourceOf(const std::string& path);

}  // namespace shardscope::test
