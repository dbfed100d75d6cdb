// The two layouts of this format.
#pragma once

#include <memory>
#include <string>

#include "formats/format.h"
#include "formats/paddle_nlp/tp_axis.h"

namespace shardscope::paddle_nlp {

// Where weights come from in checkpoints that keep fp32 master weights in their optimizer state.
enum class MasterWeights : uint8_t {
    whereNeeded,  // weights as stored; the master, cast to the weight's dtype, where no weight is stored
    use,          // the master, cast, wherever there is one
    ignore        // weights as stored, or not at all
};

// The options of this format.
inline constexpr const char* kMasterWeights = "--master-weights";
struct StatedByUser {
    std::vector<TpRule> tpRules;  // the first that matches a name counts
    MasterWeights masterWeights = MasterWeights::whereNeeded;
};
// Errors: usage.
Result<StatedByUser> statedByUser(const OpenOptions& options);

Result<std::unique_ptr<Reader>> openHybrid(const Source& source, const OpenOptions& options);

// A JSON file of the directory, whole. Errors: limit, and those of reading.
Result<std::string> metadataText(const Source& source, const OpenOptions& options,
                                 const DirectoryEntry& entry);

// Unified checkpoint: safetensors files with whole tensors, or of each rank (ignore_merge_optimizer).
Probe probeUnified(const Source& source);
Result<std::unique_ptr<Reader>> openUnified(const Source& source, const OpenOptions& options);

}  // namespace shardscope::paddle_nlp
