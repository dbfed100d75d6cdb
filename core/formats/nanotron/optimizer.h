// What nanotron's files say of a checkpoint, and the states of its optimizer. Private to this format.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "formats/nanotron/names.h"
#include "formats/rank_cut.h"
#include "formats/tensor_assembly.h"

namespace shardscope::nanotron {

// The shard of a parameter that rank `of` holds; along an axis without a rank, all ranks hold it.
struct Shard {
    RankOf of;
    RankCut cut;
    Dims local;  // shape of the shard
};
struct Parameter {
    Dims whole;                 // global shape
    std::vector<Shard> shards;  // of the files of all ranks
};
using Parameters = std::map<std::string, Parameter, std::less<>>;

// One file of a rank, and where the assembly holds it.
struct RankFile {
    std::string path;
    RankName name;
    uint32_t rank = 0;
    uint32_t index = kNone;  // in TensorAssembly::files(); kNone = not read
};

// Adds the optimizer states, whose files number the parameters and name each number, and the fp32 master
// weights of the gradient accumulator. `config`: text of optimizer_config.json, which states the flat range
// of each parameter that ZeRO gave to each rank.
void addOptimizer(TensorAssembly& assembly, const Parameters& parameters, const std::vector<RankFile>& files,
                  std::string_view config);

}  // namespace shardscope::nanotron
