// Maps the optimizer's static names ("linear_2.w_0") to structured names
// ("llama.layers.0.mlp.up_proj.weight"). Each pipeline stage numbers static names anew, so each (tp, pp) pair
// has its own map.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "formats/paddle_nlp/names.h"
#include "formats/paddle_nlp/rank_files.h"

namespace shardscope::paddle_nlp {

// The files of one tensor-parallel rank, pipeline stage and expert-parallel rank.
struct Group {
    RankPlace at;                            // but for the sharding rank
    std::vector<const RankFile*> weights;    // readable files
    std::vector<const RankFile*> optimizer;  // readable files, by sharding rank
    const GroupMeta* meta = nullptr;
};

struct NameMap {
    enum class Source : uint8_t { none, meta, table, replayed };
    Source source = Source::none;
    std::map<std::string, std::string, std::less<>> structured;  // by static name
    std::map<std::string, std::string, std::less<>> tied;        // alias -> structured name of the tensor
    StaticNames statics;
    std::vector<Note> notes;
};

// `degree`: of sharding; `tp`: of tensor parallelism. Never fails: adds notes that name the unresolved names.
NameMap findNames(const Group& group, uint32_t degree, uint32_t tp);

}  // namespace shardscope::paddle_nlp
