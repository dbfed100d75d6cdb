#include "engine/adapter.h"

#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/option_words.h"
#include "base/text.h"

namespace shardscope {

// Source: peft, tuners/lora/config.py (LoraConfig), utils/constants.py (names of the files).
Result<std::vector<AddedFile>> adapterFiles(const Catalog& target, const TargetRequest::Adapter& adapter,
                                            TargetLayout& layout) {
    if (!adapter.missing.empty()) return makeError(ErrorCode::usage, adapter.missing);
    constexpr std::string_view kDown = ".lora_A.weight";
    int64_t rank = 0;
    std::set<std::string> modules;
    for (TensorId t = 0; t < target.tensorCount(); ++t) {
        std::string_view name = target.name(t);
        if (!name.ends_with(kDown) || target.shape(t).empty()) continue;
        name.remove_suffix(kDown.size());
        modules.emplace(name.substr(name.rfind('.') + 1));
        if (rank != 0 && rank != target.shape(t)[0])
            return makeError(ErrorCode::impossible,
                             fmt::format("the adapter has ranks of {} and {}", rank, target.shape(t)[0]))
                .ofTensor(std::string(target.name(t)));
        rank = target.shape(t)[0];
    }
    if (layout.files.size() != 1)
        return makeError(ErrorCode::usage, fmt::format("PEFT takes an adapter of one file, this would be {}",
                                                       layout.files.size()))
            .withHint("leave " + option("max-file-size") + " out");
    layout.files[0].path = "adapter_model.safetensors";
    const nlohmann::json config{{"peft_type", "LORA"},
                                {"task_type", "CAUSAL_LM"},
                                {"r", rank},
                                {"lora_alpha", adapter.alpha},
                                {"target_modules", modules},
                                {"base_model_name_or_path", nullptr},
                                {"bias", "none"},
                                {"lora_dropout", 0.0},
                                {"fan_in_fan_out", false},
                                {"inference_mode", true}};
    return std::vector<AddedFile>{{"adapter_config.json", config.dump(2) + "\n", nullptr}};
}

}  // namespace shardscope
