#include "engine/transformers.h"

#include <fmt/format.h>

#include "base/option_words.h"
#include "base/text.h"
#include "base/units.h"
#include "engine/model_config.h"
#include "engine/recipe_fit.h"
#include "engine/transformers_model.h"
#include "expectation/model_size.h"

namespace shardscope {
namespace {

constexpr size_t kMostReasons = 8;

// The config.json that the result gets.
StatedConfig copiedConfig(const PreparedConversion& prepared) {
    const std::string& from = prepared.plan.assetsFrom;
    const auto place =
        sourceFor(from, IoMode::automatic,
                  from.starts_with(prepared.source.path) ? prepared.source.fileSystem : nullptr);
    if (!place.ok() || !place->directory) return {};
    StatedConfig config = readConfig(*place->directory);
    return config.file == "config.json" ? std::move(config) : StatedConfig();
}

size_t optimizerTensors(const Catalog& target) {
    size_t count = 0;
    for (TensorId t = 0; t < target.tensorCount(); ++t)
        count += target.role(t) == Role::optimizer ? 1 : 0;
    return count;
}

}  // namespace

bool isForTransformers(const PreparedConversion& prepared) {
    return prepared.format->info().name == "safetensors" && !prepared.singleFile;
}

std::vector<std::string> whyUnloadable(const PreparedConversion& prepared) {
    std::vector<std::string> why;
    const Catalog& target = prepared.spec->target;
    if (const size_t state = optimizerTensors(target))
        why.push_back(fmt::format("{} of its {} tensors are optimizer state", countText(state),
                                  countText(target.tensorCount())));
    if (prepared.plan.assets.empty()) {
        why.push_back(
            fmt::format("no config.json is in the checkpoint, and {} names none", option("assets", "DIR")));
        return why;
    }
    const StatedConfig config = copiedConfig(prepared);
    const std::string modelType = modelTypeOf(config);
    if (modelType.empty()) {
        why.push_back(
            fmt::format("the config.json of {} does not say 'model_type'", prepared.plan.assetsFrom));
        return why;
    }
    if (const auto unknown = unknownToFamily(target, config); !unknown.empty())
        why.push_back(fmt::format("{} of its names are not those of '{}', such as '{}'",
                                  countText(unknown.size()), modelType,
                                  printable(unknown.front(), kNameInMessage)));
    // Another tower may have more layers than the text model, and a model of its own other rows.
    const bool towers = config.values.is_object() &&
                        (config.values.contains("vision_config") || config.values.contains("audio_config"));
    for (const Note& note : modelSizeNotes(modelSizeOf(config.values), config.file, target,
                                           towers ? Counted::atLeast : Counted::exactly)) {
        if (why.size() < kMostReasons)
            why.push_back(
                note.tensor.empty()
                    ? note.message
                    : fmt::format("'{}': {}", printable(note.tensor, kNameInMessage), note.message));
    }
    if (!why.empty()) return why;
    nlohmann::json stated = config.values;
    if (prepared.source.dequantized && stated.is_object()) {
        stated.erase("quantization_config");
        stated.erase("compression_config");
    }
    return modelGaps(stated, modelType, target);
}

}  // namespace shardscope
