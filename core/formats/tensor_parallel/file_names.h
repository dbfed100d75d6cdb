// Which files of a directory are those of tensor-parallel ranks, by their names. Private to this format.
//
// Source: vllm/model_executor/model_loader/sharded_state_loader.py (model-rank-R-part-P, which SGLang has,
// too); tensorrt_llm (rankR.safetensors); meta-llama/llama (consolidated.RR.pth); DeepSeek-V3/inference/
// convert.py (modelR-mpN); the files of published models named *-TP-RRR; neuronx_distributed's trainer/
// checkpoint.py and its scripts (model/dp_rank_00_tp_rank_TT_pp_rank_PP.pt, done).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/format.h"

namespace shardscope::tensor_parallel {

struct RankFile {
    std::string name;
    uint32_t rank = 0;    // stage * world + tensor-parallel rank
    bool common = false;  // what all ranks have
};
struct RankFiles {
    const char* writer = "";  // "vLLM"; empty = there are none
    uint32_t world = 0;       // tensor-parallel ranks that the names tell of
    uint32_t stages = 1;      // of a pipeline, each with files of its own
    const char* mark = "";    // a file that is written when all others are; empty = there is none
    std::vector<RankFile> files;
    // Of a rank without a file.
    std::string nameOf(uint32_t rank) const;
};
RankFiles findRankFiles(const Source& source);

}  // namespace shardscope::tensor_parallel
