// The one list of formats. A new format is one line here.
#include <algorithm>

#include "engine/engine.h"
#include "formats/colossalai/colossalai.h"
#include "formats/dcp/dcp.h"
#include "formats/deepspeed/deepspeed.h"
#include "formats/index/index.h"
#include "formats/megatron/megatron.h"
#include "formats/nanotron/nanotron.h"
#include "formats/olmo/olmo.h"
#include "formats/orbax/orbax.h"
#include "formats/paddle_dist/paddle_dist.h"
#include "formats/paddle_nlp/paddle_nlp.h"
#include "formats/safetensors/safetensors.h"
#include "formats/tensor_parallel/tensor_parallel.h"
#include "formats/torch_checkpointing/torch_checkpointing.h"
#include "formats/torch_ranks/torch_ranks.h"
#include "formats/torch_save/torch_save.h"
#include "formats/xla_fsdp/xla_fsdp.h"

namespace shardscope {

namespace {

bool comesBefore(const Format* one, const Format* two) {
    return std::ranges::count(one->info().before, two->info().name, &FormatInfo::Precedence::over) > 0;
}

// Each before those that it says it comes before, else as they are listed.
std::vector<const Format*> inOrder(std::vector<const Format*> listed) {
    std::vector<const Format*> ordered;
    while (!listed.empty()) {
        const auto waits = [&](const Format* one) {
            return std::ranges::any_of(listed, [&](const Format* other) { return comesBefore(other, one); });
        };
        auto next = std::ranges::find_if_not(listed, waits);
        if (next == listed.end()) next = listed.begin();  // they go round in a circle: genuine_test says so
        ordered.push_back(*next);
        listed.erase(next);
    }
    return ordered;
}

}  // namespace

const std::vector<const Format*>& builtinFormats() {
    static const std::vector<const Format*> formats = inOrder({
        &megatronFormat(),
        &dcpFormat(),
        &orbaxFormat(),
        &levanterFormat(),
        &deepspeedFormat(),
        &paddleFormat(),
        &paddleNlpFormat(),
        &colossalaiFormat(),
        &torchCheckpointingFormat(),
        &torchRanksFormat(),
        &olmoFormat(),
        &nanotronFormat(),
        &xlaFsdpFormat(),
        &tensorParallelFormat(),
        &safetensorsFormat(),
        &torchSaveFormat(),
        &indexFormat(),
    });
    return formats;
}

const Format* findFormat(std::string_view name) {
    for (const Format* format : builtinFormats()) {
        if (format->info().name == name || std::ranges::count(format->info().synonyms, name)) return format;
    }
    return nullptr;
}

const FormatInfo::Model* modelAsked(std::string_view name, std::string_view variant) {
    const Format* format = findFormat(name);
    if (!format) return nullptr;
    const auto found = std::ranges::find_if(format->info().models, [&](const FormatInfo::Model& model) {
        return model.synonym == name || (!model.variant.empty() && model.variant == variant);
    });
    return found == format->info().models.end() ? nullptr : &*found;
}

bool writesModelsAlone(const FormatInfo& format) {
    return !format.models.empty() && !format.models.front().variant.empty();
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
