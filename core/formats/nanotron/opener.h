// Opens the files of a nanotron checkpoint as one. Private to this format.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "formats/format.h"
#include "formats/nanotron/names.h"
#include "formats/rank_cut.h"
#include "formats/tensor_assembly.h"

namespace shardscope::nanotron {

// Errors: limit, those of listing; damaged files are notes.
Result<std::unique_ptr<Reader>> openCheckpoint(const Source& source, const OpenOptions& options);

// What a rank holds of a parameter.
struct Shard {
    RankOf of;
    RankCut cut;
    Dims local;
};
struct Parameter {
    Dims whole;
    std::vector<Shard> shards;  // a shard whose name has no ranks belongs to all ranks
};
using Parameters = std::map<std::string, Parameter, std::less<>>;

// A file of a rank that has been read.
struct RankFile {
    std::string path;
    RankName name;
    uint32_t rank = 0;
    uint32_t index = kNone;  // in the assembly
};

// Adds the optimizer's states, which its files number and map to names, and the fp32 master weights of its
// gradient accumulator. `config`: text of optimizer_config.json, which states the ZeRO ranges of each rank.
void addOptimizer(TensorAssembly& assembly, const Parameters& parameters, const std::vector<RankFile>& files,
                  std::string_view config);

}  // namespace shardscope::nanotron
