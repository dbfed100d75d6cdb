#include "engine/transformers.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "base/numbers.h"
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

// Names beside those of files: in memory one tensor has several.
bool isTied(std::string_view name, const nlohmann::json& config) {
    return containsPart(name, {"encoder.embed_tokens.", "decoder.embed_tokens."}) ||
           (numberIn(config, "tie_word_embeddings").value_or(1) != 0 &&
            containsPart(name, {"proj_out.weight", "decoder.weight", "decoder.bias"}));
}

bool hasTowers(const nlohmann::json& config) {
    return config.is_object() && (config.contains("vision_config") || config.contains("audio_config"));
}

// Where the directory of the configuration has the weights of that model, names say what is missing.
void compareWithModel(const PreparedConversion& prepared, const nlohmann::json& config,
                      std::vector<std::string>& why) {
    const std::string& from = prepared.plan.assetsFrom;
    if (from.starts_with(prepared.source.path) || !config.is_object()) return;
    const auto model = openCheckpoint(from);
    if (!model.ok() || model->format->info().name != "safetensors") return;
    const Catalog &has = model->catalog(), &target = prepared.spec->target;
    for (TensorId t = 0; t < has.tensorCount(); ++t)
        if (dtypeBits(has.dtype(t)) <= 8 && !has.name(t).ends_with("_scale_inv") &&
            !dtypeIsFloat(has.dtype(t)))
            return;  // quantized in another way than the result
    const auto differing = [&](const Catalog& one, const Catalog& other, std::string_view& first) {
        size_t count = 0;
        for (TensorId t = 0; t < one.tensorCount(); ++t) {
            // GPT-NeoX calls its output layer otherwise in memory.
            const std::string_view head = one.name(t) == "lm_head.weight"     ? "embed_out.weight"
                                          : one.name(t) == "embed_out.weight" ? "lm_head.weight"
                                                                              : one.name(t);
            if (other.find(one.name(t)) != kNone || other.find(head) != kNone ||
                mayDiffer(one.name(t), config) || (&one == &target && isTied(one.name(t), config)))
                continue;
            if (count++ == 0) first = one.name(t);
        }
        return count;
    };
    std::string_view first;
    if (!hasTowers(config) && target.tensorCount() > 0 &&
        differing(target, has, first) == target.tensorCount()) {
        for (TensorId t = 0; t < has.tensorCount(); ++t)
            if (first.ends_with("." + std::string(has.name(t)))) {
                why.push_back(fmt::format(
                    "'{}' stands before the names of the model in {}",
                    printable(first.substr(0, first.size() - has.name(t).size()), kNameInMessage), from));
                return;
            }
    }
    // Models of several parts have other names in memory than in files, and transformers loads both.
    if (2 * differing(target, has, first) > target.tensorCount()) return;
    if (const size_t count = differing(has, target, first))
        why.push_back(fmt::format("it lacks {} of the {} of the model in {}, such as '{}'", countText(count),
                                  counted(has.tensorCount(), "tensor"), from,
                                  printable(first, kNameInMessage)));
    if (const size_t count = differing(target, has, first))
        why.push_back(fmt::format("the model of {} does not have {} of its tensors, such as '{}'", from,
                                  countText(count), printable(first, kNameInMessage)));
    for (TensorId t = 0; t < target.tensorCount() && why.empty(); ++t) {
        const TensorId same = has.find(target.name(t));
        // A vocabulary may have grown; how many rows there are then says the configuration.
        if (same == kNone || containsPart(target.name(t), {"embed", "lm_head", "wte", "wpe", "shared"}) ||
            std::ranges::equal(has.shape(same), target.shape(t)))
            continue;
        why.push_back(fmt::format("the shape of '{}' is {}, in the model of {} it is {}",
                                  printable(target.name(t), kNameInMessage), formatDims(target.shape(t)),
                                  from, formatDims(has.shape(same))));
    }
}

// sentence-transformers keeps modules that follow the model beside it ("2_Dense"), which may have weights.
void addModulesBeside(const PreparedConversion& prepared, std::vector<std::string>& why) {
    const auto place = sourceFor(prepared.source.path, IoMode::automatic, prepared.source.fileSystem);
    if (!place.ok() || !place->directory || !place->hasFile("modules.json")) return;
    for (const DirectoryEntry& entry : place->entries) {
        if (entry.kind != DirectoryEntry::Kind::directory) continue;
        const bool weights = std::ranges::any_of(
            std::array{"/model.safetensors", "/pytorch_model.bin"},
            [&](const char* file) { return place->directory->stat(entry.name + file).ok(); });
        if (!weights) continue;
        why.push_back(
            fmt::format("its modules.json has modules with weights of their own, such as '{}', "
                        "which would be left behind",
                        printable(entry.name, kNameInMessage)));
        return;
    }
}

}  // namespace

bool isForTransformers(const PreparedConversion& prepared) {
    return prepared.format->info().name == "safetensors" && !prepared.singleFile;
}

std::vector<std::string> whyUnloadable(const PreparedConversion& prepared) {
    std::vector<std::string> why;
    const Catalog& target = prepared.spec->target;
    if (const size_t state = optimizerTensors(target))
        why.push_back(fmt::format("it has optimizer state: {} of {}", countText(state),
                                  counted(target.tensorCount(), "tensor")));
    addModulesBeside(prepared, why);
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
    nlohmann::json stated = config.values;
    if (prepared.source.dequantized && stated.is_object()) {
        stated.erase("quantization_config");
        stated.erase("compression_config");
    }
    ModelGaps gaps = modelGaps(stated, modelType, target);
    auto unknown = gaps.known ? std::vector<std::string>() : unknownToFamily(target, config);
    if (classNamed(config.values).ends_with("Classification"))
        std::erase_if(unknown, [](const std::string& name) { return name.starts_with("score."); });
    // Recipes know the text model alone.
    if (!unknown.empty() && !hasTowers(config.values))
        why.push_back(fmt::format("a '{}' does not have {} of its names, such as '{}'", modelType,
                                  countText(unknown.size()), printable(unknown.front(), kNameInMessage)));
    // Another tower may have more layers than the text model, and a model of its own other rows.
    const bool towers = hasTowers(config.values);
    for (const Note& note : modelSizeNotes(modelSizeOf(config.values), config.file, target,
                                           towers ? Counted::atLeast : Counted::exactly)) {
        if (why.size() < kMostReasons)
            why.push_back(
                note.tensor.empty()
                    ? note.message
                    : fmt::format("'{}': {}", printable(note.tensor, kNameInMessage), note.message));
    }
    if (why.empty() && !gaps.known) compareWithModel(prepared, config.values, why);
    return why.empty() ? std::move(gaps.why) : std::move(why);
}

}  // namespace shardscope
