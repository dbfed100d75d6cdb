// Detects by names and first bytes which layout of Megatron a directory has. Private to this format.
//
// Source: megatron/core/dist_checkpointing/core.py (metadata.json) and serialization.py (metadata.json is
// written last) of megatron-core 0.8 to 0.19; megatron/training/checkpointing.py (_get_checkpoint_format,
// get_checkpoint_name); nemo/utils/model_utils.py (inject_model_parallel_rank) and
// nemo/collections/nlp/parts/nlp_overrides.py of NeMo 1.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/format.h"

namespace shardscope::megatron {

inline constexpr const char* kMetadataJson = "metadata.json";
inline constexpr const char* kCommon = "common.pt";
inline constexpr const char* kModelFile = "model_optim_rng.pt";
inline constexpr const char* kOptimizerFile = "distrib_optim.pt";

inline constexpr const char* kNemoFile = "model_weights.ckpt";
inline constexpr const char* kNemoConfig = "model_config.yaml";

// Parses mp_rank_TT, mp_rank_TT_PPP and mp_rank_TT_PPP_EEE. A single number after TT is the pipeline or the
// expert rank. With several stages NeMo 1 writes tp_rank_TT_pp_rank_PPP.
struct RankDirectory {
    std::string name;
    uint32_t tp = 0;
    // The numbers after TT.
    std::vector<uint32_t> others;
};
std::optional<RankDirectory> parseRankDirectory(std::string_view name);

struct Place {
    enum class Kind : uint8_t { none, torchDist, zarr, legacy };
    Kind kind = Kind::none;
    std::string why;         // as Probe::reason
    bool committed = false;  // metadata.json exists
    bool commonFile = true;  // metadata.json says that common.pt belongs to the checkpoint
    std::vector<RankDirectory> ranks;
    const char* modelFile = kModelFile;  // file name in each rank directory
    bool nemo() const { return std::string_view(modelFile) == kNemoFile; }
};
Place findPlace(const Source& source);

// Names of the source's subdirectories that are zarr arrays.
std::vector<std::string> zarrArrays(const Source& source);

}  // namespace shardscope::megatron
