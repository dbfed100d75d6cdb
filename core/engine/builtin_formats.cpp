// The one list of formats. A new format is one line here.
#include <algorithm>

#include "engine/engine.h"
#include "formats/colossalai/colossalai.h"
#include "formats/dcp/dcp.h"
#include "formats/deepspeed/deepspeed.h"
#include "formats/index/index.h"
#include "formats/megatron/megatron.h"
#include "formats/olmo/olmo.h"
#include "formats/orbax/orbax.h"
#include "formats/paddle_dist/paddle_dist.h"
#include "formats/paddle_nlp/paddle_nlp.h"
#include "formats/safetensors/safetensors.h"
#include "formats/tensor_parallel/tensor_parallel.h"
#include "formats/torch_checkpointing/torch_checkpointing.h"
#include "formats/torch_ranks/torch_ranks.h"
#include "formats/torch_save/torch_save.h"

namespace shardscope {

const std::vector<const Format*>& builtinFormats() {
    static const std::vector<const Format*> formats = {
        &megatronFormat(),  // before DCP, which its torch_dist is underneath
        &dcpFormat(),
        &orbaxFormat(),
        &deepspeedFormat(),  // before formats of files that trainers write next to `latest`
        &paddleFormat(),     // before safetensors, which its data files may be
        &paddleNlpFormat(),  // before ColossalAI, whose optimizer files have names like those of the unified
                             // checkpoint
        &colossalaiFormat(),
        &torchCheckpointingFormat(),  // before the files of ranks, which its own are, too
        &torchRanksFormat(),          // before OLMo, whose oldest files have names like those of scripts
        &olmoFormat(),
        &tensorParallelFormat(),  // before the formats whose files they are
        &safetensorsFormat(),
        &torchSaveFormat(),
        &indexFormat(),
    };
    return formats;
}

const Format* findFormat(std::string_view name) {
    for (const Format* format : builtinFormats()) {
        if (format->info().name == name || std::ranges::count(format->info().synonyms, name)) return format;
    }
    return nullptr;
}

const std::vector<FormatOption>& formatOptions() {
    static const std::vector<FormatOption> options = [] {
        std::vector<FormatOption> all;
        for (const Format* format : builtinFormats()) {
            for (const FormatOption& option : format->options())
                if (!std::ranges::count(all, option.name, &FormatOption::name)) all.push_back(option);
        }
        return all;
    }();
    return options;
}

bool isCheckpointSuffix(std::string_view suffix) {
    return std::ranges::any_of(builtinFormats(), [&](const Format* format) {
        return std::ranges::count(format->info().suffixes, suffix) > 0;
    });
}

}  // namespace shardscope
