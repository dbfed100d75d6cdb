// Which structured name ("llama.layers.0.mlp.up_proj.weight") the optimizer's static names ("linear_2.w_0")
// stand for. Static names are counted anew in each pipeline stage, so that is a question of each (tp, pp)
// pair of its own.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "formats/paddle_nlp/names.h"
#include "formats/paddle_nlp/rank_files.h"

namespace shardscope::paddle_nlp {

// The ranks that share a tensor-parallel rank and a pipeline stage (and a group of experts).
struct Group {
    uint32_t tp = 0, pp = 0, moe = 0;
    std::vector<const RankFile*> weights;    // that can be read
    std::vector<const RankFile*> optimizer;  // likewise, by sharding rank
    const GroupMeta* meta = nullptr;
};

struct NameMap {
    enum class Source : uint8_t { none, meta, table, replayed };
    Source source = Source::none;
    std::map<std::string, std::string, std::less<>> structured;  // by static name
    std::map<std::string, std::string, std::less<>>
        tied;  // structured name -> the one that it is a second name of
    StaticNames statics;
    std::vector<Note> notes;
};

// `degree` is that of sharding, `tp` that of tensor parallelism. Never fails: what cannot be told is noted,
// with the names.
NameMap findNames(const Group& group, uint32_t degree, uint32_t tp);

}  // namespace shardscope::paddle_nlp
