// Which of Megatron's layouts a directory has, by names and first bytes. Private to this format.
//
// Source: megatron/core/dist_checkpointing/core.py (metadata.json) and serialization.py (it is written last)
// of megatron-core 0.8 to 0.19; megatron/training/checkpointing.py (_get_checkpoint_format,
// get_checkpoint_name).
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

// mp_rank_TT, mp_rank_TT_PPP and mp_rank_TT_PPP_EEE; with one number behind TT it is a pipeline's or an
// expert's.
struct RankDirectory {
    std::string name;
    uint32_t tp = 0;
    std::vector<uint32_t> others;
};
std::optional<RankDirectory> parseRankDirectory(std::string_view name);

struct Place {
    enum class Kind : uint8_t { none, torchDist, zarr, legacy };
    Kind kind = Kind::none;
    std::string why;         // as Probe::reason
    bool committed = false;  // metadata.json is there
    bool commonFile = true;  // it says that common.pt belongs to the checkpoint
    std::vector<RankDirectory> ranks;
};
Place findPlace(const Source& source);

// Directories of the source that are zarr arrays.
std::vector<std::string> zarrArrays(const Source& source);

}  // namespace shardscope::megatron
