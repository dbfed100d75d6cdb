// Opens the two layouts of this format, hybrid and unified, and parses the format's options.
#pragma once

#include <memory>
#include <string>

#include "formats/format.h"
#include "formats/tp_rule.h"

namespace shardscope::paddle_nlp {

// --master-weights: where weights come from if the optimizer state has fp32 master weights.
enum class MasterWeights : uint8_t {
    whereNeeded,  // stored weights; where none is stored, the master cast to the weight's dtype
    use,          // the cast master wherever there is one
    ignore        // stored weights only
};

// The parsed options of this format.
inline constexpr const char* kMasterWeights = "--master-weights";
struct StatedByUser {
    std::vector<TpRule> tpRules;  // the first rule that matches a name applies
    MasterWeights masterWeights = MasterWeights::whereNeeded;
};
// Errors: usage.
Result<StatedByUser> statedByUser(const OpenOptions& options);

Result<std::unique_ptr<Reader>> openHybrid(const Source& source, const OpenOptions& options);

// The text of a JSON file of the directory. Errors: limit, and those of reading.
Result<std::string> metadataText(const Source& source, const OpenOptions& options,
                                 const DirectoryEntry& entry);

// Unified checkpoint: safetensors files with whole tensors, or of each rank (ignore_merge_optimizer).
Probe probeUnified(const Source& source);
Result<std::unique_ptr<Reader>> openUnified(const Source& source, const OpenOptions& options);

}  // namespace shardscope::paddle_nlp
