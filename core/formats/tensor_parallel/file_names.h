// Finds the files of tensor-parallel ranks in a directory, by name. Private to this format.
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
    bool common = false;  // content that all ranks share
    // The name without the rank's digits, and where these are: all ranks have a file of each such name.
    std::string others;
    size_t digitsAt = 0, digits = 0;
    uint32_t index = kNone;  // where it was read; kNone = it was not
};
struct RankFiles {
    const char* writer = "";  // "vLLM"; empty = no rank files
    uint32_t world = 0;       // number of tensor-parallel ranks by the names
    uint32_t stages = 1;      // pipeline stages, each with its own files
    const char* mark = "";    // a file that is written last; empty = none
    std::vector<RankFile> files;
    uint32_t parts = 1;  // of each rank, by their numbers
    // The files of ranks that are not there: how many, and the first thousand.
    struct Missing {
        std::vector<RankFile> files;
        uint64_t count = 0;
    };
    Missing missing() const;

  private:
    // The expected file name of a rank.
    std::string nameOf(uint32_t rank, uint32_t part) const;
};
RankFiles findRankFiles(const Source& source);

}  // namespace shardscope::tensor_parallel
