// Quantized weights of a checkpoint (model/quantized.h): found with what its config.json says, computed, kept
// whole. Private to this room, but for what views show.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "model/quantized.h"

namespace shardscope {

// Opens the config.json beside the checkpoint where the names and dtypes of tensors suggest such weights.
std::vector<QuantizedWeight> quantizedOf(const Checkpoint& checkpoint);

// Those of which a part is missing or does not fit, as notes for `validate` (rule quant.part, errors).
std::vector<Note> quantizedNotes(const Checkpoint& checkpoint);

// What a checkpoint holds of each scheme.
struct QuantizedShare {
    std::string scheme, title;
    uint64_t weights = 0, tensors = 0, bytes = 0;
};
std::vector<QuantizedShare> sharesOf(const Catalog& catalog, const std::vector<QuantizedWeight>& weights);

struct Dequantized {
    DType dtype = DType::bfloat16;
    std::map<std::string, std::string, std::less<>> left;  // parts that stay, and why
};

// The dtype of --dequantize. Errors: usage.
Result<DType> dequantizedDtype(const std::string& text);
// The checkpoint with its quantized weights in this dtype; those with a part that is missing or does not fit
// stay parts, which checkQuantized() refuses. Reads their small parts. Errors: unsupported (there are none,
// or none of a documented scheme), those of reading.
Result<Checkpoint> dequantized(const Checkpoint& checkpoint, DType dtype, const StopToken& stop);

// Parts of a quantized weight go together or not at all. What the target would take of one without the
// others, or changed, goes to `impossible`. Parts whose new names no longer belong together go to `notes`.
void checkQuantized(const Checkpoint& checkpoint, const TargetSpec& spec,
                    std::vector<PlanLeftOut>& impossible, std::vector<PlanLeftOut>& notes);

// A config.json without what it says of quantization; empty where it says nothing or cannot be read.
std::string configWithoutQuantization(const std::string& text);

}  // namespace shardscope
