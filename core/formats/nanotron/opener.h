// Puts the files of a nanotron checkpoint together. Private to this format.
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
    std::vector<Shard> shards;  // one of a name without ranks is held by all
};
using Parameters = std::map<std::string, Parameter, std::less<>>;

// A file of a rank that has been read.
struct RankFile {
    std::string path;
    RankName name;
    uint32_t rank = 0;
    uint32_t index = kNone;  // of the assembly
};

// Adds the states of an optimizer, which numbers them and says the name of each number, and the fp32 masters
// that its gradient accumulator keeps. `config`: optimizer_config.json, which says which elements of a
// parameter ZeRO gave to which rank.
void addOptimizer(TensorAssembly& assembly, const Parameters& parameters, const std::vector<RankFile>& files,
                  std::string_view config);

}  // namespace shardscope::nanotron
