// The one list of formats. A new format is one line here.
#include "engine/engine.h"
#include "formats/colossalai/colossalai.h"
#include "formats/dcp/dcp.h"
#include "formats/index/index.h"
#include "formats/olmo/olmo.h"
#include "formats/paddle_dist/paddle_dist.h"
#include "formats/paddle_nlp/paddle_nlp.h"
#include "formats/safetensors/safetensors.h"
#include "formats/torch_ranks/torch_ranks.h"
#include "formats/torch_save/torch_save.h"

namespace shardscope {

const std::vector<const Format*>& builtinFormats() {
    static const std::vector<const Format*> formats = {
        &dcpFormat(),
        &paddleFormat(),     // before safetensors, which its data files may be
        &paddleNlpFormat(),  // before ColossalAI, whose optimizer files have names like those of the unified
                             // checkpoint
        &colossalaiFormat(),
        &torchRanksFormat(),  // before OLMo, whose oldest files have names like those of scripts
        &olmoFormat(),
        &safetensorsFormat(),
        &torchSaveFormat(),
        &indexFormat(),
    };
    return formats;
}

const Format* findFormat(std::string_view name) {
    // Names that people type for the same thing.
    if (name == "torch_save" || name == "torch.save" || name == "pt") name = "torch";
    if (name == "torch_ranks" || name == "verl") name = "torch-ranks";
    if (name == "distcp" || name == "pytorch-dcp") name = "dcp";
    if (name == "hf" || name == "huggingface") name = "safetensors";
    if (name == "paddle_dist" || name == "paddle_save" || name == "paddlepaddle") name = "paddle";
    if (name == "paddle_nlp" || name == "paddle_hybrid") name = "paddlenlp";
    for (const Format* format : builtinFormats()) {
        if (format->info().name == name) return format;
    }
    return nullptr;
}

}  // namespace shardscope
