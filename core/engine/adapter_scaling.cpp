#include "engine/adapter_scaling.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "base/units.h"
#include "engine/model_config.h"
#include "storage/named_path.h"
#include "storage/open_files.h"

namespace shardscope {
namespace {

using OrderedJson = nlohmann::ordered_json;  // the first pattern that matches counts

constexpr const char* kAdapterConfig = "adapter_config.json";
constexpr size_t kMostPatterns = 4096;  // each may be tried on each module

Error wrongConfig(const std::string& file, std::string_view what) {
    return damaged(fmt::format("the adapter's configuration {}", what)).inFile(file);
}

// Whether a field asks for something: not null, false, 0 or empty.
bool asks(const OrderedJson& config, const char* key) {
    const auto found = config.find(key);
    if (found == config.end() || found->is_null()) return false;
    if (found->is_boolean()) return found->get<bool>();
    if (found->is_number()) return found->get<double>() != 0;
    return !found->empty() && !(found->is_string() && found->get_ref<const std::string&>().empty());
}

// Kinds of adapter that are not W + scaling * B @ A.
Status checkKind(const OrderedJson& config, const std::string& file) {
    const auto refuse = [&](const std::string& what) {
        return unsupported(fmt::format("the adapter {}, which is not merged", what))
            .inFile(file)
            .withHint("merge_and_unload() of peft may know it");
    };
    if (const auto type = config.find("peft_type"); type != config.end() && *type != "LORA")
        return refuse(fmt::format("is of the kind {}", printable(type->dump(), kNameInMessage)));
    constexpr std::pair<const char*, const char*> kOthers[] = {
        {"use_qalora", "uses QALoRA (use_qalora)"},
        {"use_bdlora", "uses BD-LoRA (use_bdlora)"},
        {"arrow_config", "uses Arrow (arrow_config)"},
        {"kasa_config", "uses KaSA (kasa_config)"},
        {"monteclora_config", "uses MonteCLoRA (monteclora_config)"},
        {"alora_invocation_tokens", "is an activated LoRA (alora_invocation_tokens)"},
        {"layer_replication", "repeats layers (layer_replication)"},
        {"trainable_token_indices", "trains single tokens (trainable_token_indices)"},
        {"lora_bias", "has biases of its own (lora_bias)"}};
    for (const auto& [key, what] : kOthers)
        if (asks(config, key)) return refuse(what);
    // Kinds that came later call themselves so, too.
    constexpr std::array<std::string_view, 9> kKnown{"use_rslora",     "use_dora",        "loftq_config",
                                                     "eva_config",     "corda_config",    "lora_ga_config",
                                                     "runtime_config", "megatron_config", "velora_config"};
    for (const auto& [key, value] : config.items())
        if ((key.starts_with("use_") || key.ends_with("_config")) && !std::ranges::count(kKnown, key) &&
            asks(config, key.c_str()))
            return refuse(fmt::format("is of a kind that is not known ({})", printable(key, kNameInMessage)));
    // These take a part of the base's weights away before they train.
    const auto start = config.find("init_lora_weights");
    if (start == config.end() || !start->is_string()) return {};
    std::string how = start->get<std::string>();
    std::ranges::transform(
        how, how.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 'a' - 'A') : c; });
    for (const char* other : {"pissa", "olora", "corda", "loftq", "lora_ga"})
        if (how.starts_with(other))
            return refuse(fmt::format("begins with {} (init_lora_weights): it belongs to a changed base",
                                      printable(how, kNameInMessage)));
    return {};
}

template <class Number>
Status takePatterns(const OrderedJson& config, const char* key, const std::string& file,
                    std::vector<std::pair<RegularExpression, Number>>& patterns) {
    const auto found = config.find(key);
    if (found == config.end() || found->is_null()) return {};
    if (!found->is_object() || found->size() > kMostPatterns)
        return wrongConfig(file, fmt::format("has a {} that is not an object of at most {}", key,
                                             counted(kMostPatterns, "entry")));
    for (const auto& [pattern, value] : found->items()) {
        if (std::is_integral_v<Number> ? !value.is_number_integer() : !value.is_number())
            return wrongConfig(file, fmt::format("has a {} with something else than numbers", key));
        auto expression = RegularExpression::parse("(?:.*[.])?(?:" + pattern + ")");
        if (!expression.ok()) return std::move(expression).error().inFile(file);
        patterns.emplace_back(*std::move(expression), value.template get<Number>());
    }
    return {};
}

Status takeParameters(const OrderedJson& config, AdapterScaling& scaling) {
    const auto found = config.find("target_parameters");
    if (found == config.end() || found->is_null()) return {};
    bool texts = found->is_array() && found->size() <= kMostPatterns;
    for (const OrderedJson& one : texts ? *found : OrderedJson::array()) {
        texts = texts && one.is_string();
        if (texts) scaling.parameters.push_back(one.get<std::string>());
    }
    if (texts) return {};
    return wrongConfig(scaling.file, fmt::format("has target_parameters that are not a list of at most {}",
                                                 counted(kMostPatterns, "text")));
}

Result<AdapterScaling> scalingIn(const std::string& file, const std::string& text) {
    const OrderedJson config =
        parseConfig(file, text).is_object() ? OrderedJson::parse(text, nullptr, false) : OrderedJson();
    if (!config.is_object()) return wrongConfig(file, "is not a JSON object");
    SHARDSCOPE_TRY(checkKind(config, file));
    AdapterScaling scaling;
    scaling.file = file;
    const auto rank = config.find("r"), alpha = config.find("lora_alpha");
    if (rank == config.end() || !rank->is_number_integer() || alpha == config.end() || !alpha->is_number())
        return wrongConfig(file, "lacks r and lora_alpha, the numbers by which it is scaled");
    scaling.rank = rank->get<int64_t>();
    scaling.alpha = alpha->get<double>();
    scaling.rootOfRank = asks(config, "use_rslora");
    scaling.fanInFanOut = asks(config, "fan_in_fan_out");
    scaling.dora = asks(config, "use_dora");
    SHARDSCOPE_TRY(takePatterns(config, "rank_pattern", file, scaling.ranks));
    SHARDSCOPE_TRY(takePatterns(config, "alpha_pattern", file, scaling.alphas));
    SHARDSCOPE_TRY(takeParameters(config, scaling));
    return scaling;
}

}  // namespace

int64_t AdapterScaling::rankOf(std::string_view name, int64_t stored) const {
    for (const auto& [pattern, value] : ranks)
        if (pattern.matchesWhole(name)) return value;
    return rank.value_or(stored);
}

float AdapterScaling::scalingOf(std::string_view name, int64_t by) const {
    double numerator = alpha;
    for (const auto& [pattern, value] : alphas) {
        if (!pattern.matchesWhole(name)) continue;
        numerator = value;
        break;
    }
    const auto divisor = static_cast<double>(by);
    return static_cast<float>(numerator / (rootOfRank ? std::sqrt(divisor) : divisor));
}

// Beside the adapter, or above it: a trainer's checkpoint has it beside the directory of the tensors.
Result<AdapterScaling> adapterScaling(const Checkpoint& adapter) {
    const auto files = adapter.fileSystem ? adapter.fileSystem : systemFileSystem();
    const std::string own = directoryOf(adapter);
    for (const std::string& place : {own, adapter.root, splitPath(own).first}) {
        if (place.empty()) continue;
        const auto directory = files->openDirectory(place);
        if (!directory.ok()) continue;
        const std::string text = smallFile(**directory, kAdapterConfig, kMostConfig);
        if (!text.empty()) return scalingIn(joinPath(place, kAdapterConfig), text);
    }
    // Megatron-Bridge and NeMo 2: the section `peft` of run_config.yaml. ms-swift: args.json.
    const auto stated = statedConfig(adapter, "");
    AdapterScaling scaling;
    scaling.file = stated->file;
    scaling.saysDora = false;
    std::optional<int64_t> alpha = numberIn(stated->values, "peft.alpha");
    // Experts may have a lower rank than others; each is scaled through its own.
    if (numberIn(stated->values, "peft.normalize_moe_lora").value_or(0) == 0)
        scaling.rank = numberIn(stated->values, "peft.dim");
    if (!alpha) {
        alpha = numberIn(stated->values, "lora_alpha");
        scaling.rank = numberIn(stated->values, "lora_rank");
        scaling.rootOfRank = numberIn(stated->values, "use_rslora").value_or(0) != 0;
    }
    if (numberIn(stated->values, "gated_linear_unit").value_or(1) != 0)
        scaling.tensorParallel = numberIn(stated->values, "tensor_model_parallel_size").value_or(1);
    if (alpha) {
        scaling.alpha = static_cast<double>(*alpha);
        return scaling;
    }
    return makeError(ErrorCode::usage, "no adapter_config.json beside the adapter says how it is scaled")
        .inFile(own)
        .withHint(R"(put one there: {"peft_type": "LORA", "r": RANK, "lora_alpha": ALPHA})");
}

}  // namespace shardscope
