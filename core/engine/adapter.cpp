#include "engine/adapter.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

#include <fmt/format.h>

#include "base/option_words.h"
#include "base/text.h"
#include "engine/adapter_scaling.h"
#include "execute/executor.h"

namespace shardscope {
namespace {

constexpr std::string_view kDownName = ".lora_A.weight";

// The name as a regular expression of PEFT or of a recipe.
std::string asExpression(std::string_view name) {
    std::string out;
    for (const char c : name) {
        const bool plain =
            (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
        if (!plain) out += '\\';
        out += c;
    }
    return out;
}

// As PEFT calls a module: without what it puts before all names.
std::string_view moduleName(std::string_view module) {
    constexpr std::string_view kPrefix = "base_model.model.";
    const size_t at = module.find(kPrefix);
    return at == module.npos ? module : module.substr(at + kPrefix.size());
}

}  // namespace

// Sources: peft, tuners/lora/config.py (LoraConfig), utils/constants.py (names of the files), utils/other.py
// (get_pattern_key).
Result<std::vector<AddedFile>> adapterFiles(const Catalog& target, const TargetRequest::Adapter& adapter,
                                            TargetLayout& layout) {
    if (!adapter.missing.empty()) return makeError(ErrorCode::usage, adapter.missing);
    std::map<std::string, int64_t> ranks;  // by module
    std::map<int64_t, size_t> count;
    std::set<std::string> modules;
    bool magnitudes = false;
    for (TensorId t = 0; t < target.tensorCount(); ++t) {
        std::string_view name = target.name(t);
        magnitudes = magnitudes || name.ends_with(".lora_magnitude_vector");
        if (!name.ends_with(kDownName) || target.shape(t).empty()) continue;
        name.remove_suffix(kDownName.size());
        modules.emplace(name.substr(name.rfind('.') + 1));
        ranks.emplace(moduleName(name), target.shape(t)[0]);
        ++count[target.shape(t)[0]];
    }
    const auto most = std::ranges::max_element(count, {}, [](const auto& one) { return one.second; });
    const int64_t rank = most == count.end() ? 0 : most->first;
    nlohmann::json pattern = nlohmann::json::object();
    for (const auto& [module, own] : ranks)
        if (own != rank) pattern[asExpression(module)] = own;
    if (layout.files.size() != 1)
        return makeError(ErrorCode::usage, fmt::format("PEFT takes an adapter of one file, this would be {}",
                                                       layout.files.size()))
            .withHint("leave " + option("max-file-size") + " out");
    layout.files[0].path = "adapter_model.safetensors";
    const nlohmann::json config{
        {"peft_type", "LORA"},     {"task_type", "CAUSAL_LM"},    {"r", rank},
        {"rank_pattern", pattern}, {"lora_alpha", adapter.alpha}, {"use_rslora", adapter.rootOfRank},
        {"use_dora", magnitudes},  {"target_modules", modules},   {"base_model_name_or_path", nullptr},
        {"bias", "none"},          {"lora_dropout", 0.0},         {"fan_in_fan_out", false},
        {"inference_mode", true}};
    return std::vector<AddedFile>{{"adapter_config.json", config.dump(2) + "\n", nullptr}};
}

namespace {

bool ofExperts(std::string_view name) {
    return name.find(".experts.") != name.npos;
}

// The layer of Megatron that a module is a part of: "qkv", "fc1"; empty where it is a layer by itself.
std::string_view sharedLayer(std::string_view module) {
    constexpr std::array<std::pair<std::string_view, std::string_view>, 7> kShared{{{"q_proj", "qkv"},
                                                                                    {"k_proj", "qkv"},
                                                                                    {"v_proj", "qkv"},
                                                                                    {"gate_proj", "fc1"},
                                                                                    {"up_proj", "fc1"},
                                                                                    {"w1", "fc1"},
                                                                                    {"w3", "fc1"}}};
    const std::string_view last = module.substr(module.rfind('.') + 1);
    const auto found = std::ranges::find(kShared, last, &decltype(kShared)::value_type::first);
    return found == kShared.end() ? std::string_view() : found->second;
}

// Modules that Megatron keeps as one have one A there.
Status checkShared(const Checkpoint& source, const AdapterTarget& target) {
    std::vector<TensorId> tensors;
    std::vector<std::string> keys;
    for (TensorId t = 0; t < source.catalog().tensorCount(); ++t) {
        std::string_view name = source.catalog().name(t);
        if (!name.ends_with(kDownName)) continue;
        name.remove_suffix(kDownName.size());
        const std::string_view layer = sharedLayer(name);
        if (layer.empty() || !(ofExperts(name) ? target.fusedExperts : target.fused)) continue;
        tensors.push_back(t);
        keys.push_back(std::string(name.substr(0, name.rfind('.') + 1)) + std::string(layer));
    }
    if (tensors.empty()) return {};
    const JobResources resources(1, uint64_t{64} << 20, nullptr, {});
    SHARDSCOPE_ASSIGN(const auto digests, digestTensors(*source.reader, tensors, {}, resources));
    std::map<std::string, Digest128> first;
    for (size_t i = 0; i < tensors.size(); ++i) {
        const auto [at, fresh] = first.emplace(keys[i], digests[i].digest);
        if (!fresh && at->second != digests[i].digest)
            return makeError(
                       ErrorCode::impossible,
                       "its values are not those of the other parts, with which it is to share one matrix")
                .ofTensor(std::string(source.catalog().name(tensors[i])))
                .withHint(ofExperts(source.catalog().name(tensors[i]))
                              ? "merge it into the weights with " + option("adapter") +
                                    ", and convert those: gate and up of an expert share one in Megatron"
                              : "without fused=1 or swift=1 each part keeps its own");
    }
    return {};
}

// Megatron-Bridge has DoRA of whole layers.
Status checkMagnitudes(const Checkpoint& source, const AdapterTarget& target) {
    constexpr std::string_view kMagnitude = ".lora_magnitude_vector";
    const Catalog& catalog = source.catalog();
    for (TensorId t = 0; t < catalog.tensorCount(); ++t) {
        std::string_view name = catalog.name(t);
        if (!name.ends_with(kMagnitude)) continue;
        name.remove_suffix(kMagnitude.size());
        const bool part = !sharedLayer(name).empty();
        if (!ofExperts(name) && (target.dora || (!target.fused && !part))) continue;
        const bool experts = ofExperts(name), swift = !experts && target.fused;
        return unsupported(experts ? "Megatron has no DoRA of experts"
                           : swift ? "ms-swift has no DoRA"
                                   : "Megatron-Bridge has DoRA of whole layers: q, k and v, gate and up, "
                                     "share one lora_A there")
            .inFile(source.path)
            .ofTensor(std::string(catalog.name(t)))
            .withHint(experts || swift
                          ? "merge it into the weights with " + option("adapter") + ", and convert those"
                          : "fused=1 makes one adapter of parts that have one lora_A");
    }
    return {};
}

}  // namespace

Result<EvenAdapter> evenAdapter(const Checkpoint& source, const AdapterTarget& target) {
    EvenAdapter even;
    SHARDSCOPE_TRY(checkMagnitudes(source, target));
    if (target.fused || target.fusedExperts) SHARDSCOPE_TRY(checkShared(source, target));
    auto stated = adapterScaling(source);
    // Who has no configuration knows himself how it is scaled.
    if (!stated.ok() && stated.error().code == ErrorCode::usage) return even;
    if (!stated.ok()) return std::move(stated).error();
    if (!stated->parameters.empty())
        return unsupported("adapters of single parameters (target_parameters) are not written for Megatron")
            .inFile(stated->file)
            .withHint("merge it into the weights with " + option("adapter") + ", and convert those");
    struct Module {
        std::string name;
        int64_t rank;
        double scaling;
    };
    std::vector<Module> modules;
    int64_t rank = 0;
    double scaling = 0;
    for (TensorId t = 0; t < source.catalog().tensorCount(); ++t) {
        std::string_view name = source.catalog().name(t);
        const DimSpan shape = source.catalog().shape(t);
        if (!name.ends_with(kDownName) || shape.size() != 2 || shape[0] < 1) continue;
        name.remove_suffix(kDownName.size());
        modules.push_back({std::string(name), shape[0], stated->scalingOf(moduleName(name), shape[0])});
        rank = std::max(rank, shape[0]);
        scaling = std::max(scaling, modules.back().scaling);
    }
    std::map<int64_t, std::string> divided;
    std::string padded;
    for (const Module& module : modules) {
        if (module.rank != rank) padded += (padded.empty() ? "" : "|") + asExpression(module.name);
        const double times = module.scaling > 0 ? scaling / module.scaling : 0;
        constexpr double kLargest = 1 << 20, kSame = 1e-5;
        if (!(times < kLargest) || times < 1 || std::abs(times - std::round(times)) > kSame * times)
            return makeError(
                       ErrorCode::impossible,
                       fmt::format("it is scaled by {:g}, another module by {:g}: Megatron has one scaling "
                                   "for all, and this is not a whole number of times smaller",
                                   module.scaling, scaling))
                .inFile(stated->file)
                .ofTensor(module.name)
                .withHint("merge it into the weights with " + option("adapter") + ", and convert those");
        std::string& same = divided[std::llround(times)];
        same += (same.empty() ? "" : "|") + asExpression(module.name);
    }
    const auto step = [&](const char* kind, const std::string& names, const char* matrix) {
        even.steps.push_back(
            {{"step", kind}, {"tensors", fmt::format("(?:{})[.]lora_{}[.]weight", names, matrix)}});
        return std::ref(even.steps.back());
    };
    if (!padded.empty()) {
        for (const auto& [matrix, dim] : {std::pair{"A", 0}, std::pair{"B", 1}}) {
            nlohmann::json& pad = step("pad", padded, matrix);
            pad["length"] = rank;
            pad["dim"] = dim;
        }
    }
    for (const auto& [times, names] : divided) {
        if (times == 1) continue;
        step("compute", names, "B").get()["divide"] = times;
    }
    if (!modules.empty())
        even.scaling = fmt::format("{:g} for rank {} ({}): Megatron's configuration must say so",
                                   scaling * static_cast<double>(rank), rank, stated->file);
    return even;
}

}  // namespace shardscope
