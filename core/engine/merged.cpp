#include "engine/merged.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/option_words.h"
#include "base/regular_expression.h"
#include "base/text.h"
#include "engine/model_config.h"
#include "formats/open_files.h"
#include "model/coverage.h"
#include "storage/named_path.h"

namespace shardscope {
namespace {

using Json = nlohmann::ordered_json;  // the first pattern that matches counts

constexpr const char* kAdapterConfig = "adapter_config.json";
constexpr int64_t kMostRank = 1 << 20;
constexpr size_t kMostPatterns = 4096;  // each may be tried on each module

std::string shown(std::string_view name) {
    return fmt::format("'{}'", printable(name, kNameInMessage));
}

bool mergesInto(DType dtype) {
    return dtype == DType::float16 || dtype == DType::bfloat16 || dtype == DType::float32;
}

// ------------------------------------------------------------------ how it is scaled

struct Scaling {
    std::string file;
    std::optional<int64_t> rank;  // Megatron's configuration may leave it to the shapes
    double alpha = 0;
    bool rootOfRank = false, fanInFanOut = false, dora = false;
    std::vector<std::pair<RegularExpression, int64_t>> ranks;
    std::vector<std::pair<RegularExpression, double>> alphas;

    int64_t rankOf(std::string_view module, int64_t stored) const {
        for (const auto& [pattern, value] : ranks)
            if (pattern.matchesWhole(module)) return value;
        return rank.value_or(stored);
    }
    double alphaOf(std::string_view module) const {
        for (const auto& [pattern, value] : alphas)
            if (pattern.matchesWhole(module)) return value;
        return alpha;
    }
};

Error wrongConfig(const std::string& file, std::string_view what) {
    return damaged(fmt::format("the adapter's configuration {}", what)).inFile(file);
}

// Whether a field asks for something: not null, false, 0 or empty.
bool asks(const Json& config, const char* key) {
    const auto found = config.find(key);
    if (found == config.end() || found->is_null()) return false;
    if (found->is_boolean()) return found->get<bool>();
    if (found->is_number()) return found->get<double>() != 0;
    return !found->empty() && !(found->is_string() && found->get_ref<const std::string&>().empty());
}

// Kinds of adapter that are not W + scaling * B @ A.
Status checkKind(const Json& config, const std::string& file) {
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
        {"target_parameters", "is for parameters instead of layers (target_parameters)"},
        {"trainable_token_indices", "trains single tokens (trainable_token_indices)"},
        {"lora_bias", "has biases of its own (lora_bias)"}};
    for (const auto& [key, what] : kOthers)
        if (asks(config, key)) return refuse(what);
    // These take a part of the base's weights away before they train.
    const auto start = config.find("init_lora_weights");
    if (start == config.end() || !start->is_string()) return {};
    const std::string how = start->get<std::string>();
    for (const char* other : {"pissa", "olora", "corda", "loftq", "lora_ga"})
        if (how.starts_with(other))
            return refuse(fmt::format("begins with {} (init_lora_weights): it belongs to a changed base",
                                      printable(how, kNameInMessage)));
    return {};
}

template <class Number>
Status takePatterns(const Json& config, const char* key, const std::string& file,
                    std::vector<std::pair<RegularExpression, Number>>& patterns) {
    const auto found = config.find(key);
    if (found == config.end() || found->is_null()) return {};
    if (!found->is_object() || found->size() > kMostPatterns)
        return wrongConfig(
            file, fmt::format("has a {} that is not an object of at most {} entries", key, kMostPatterns));
    for (const auto& [pattern, value] : found->items()) {
        if (std::is_integral_v<Number> ? !value.is_number_integer() : !value.is_number())
            return wrongConfig(file, fmt::format("has a {} with something else than numbers", key));
        auto expression = RegularExpression::parse("(?:.*[.])?(?:" + pattern + ")");
        if (!expression.ok()) return std::move(expression).error().inFile(file);
        patterns.emplace_back(*std::move(expression), value.template get<Number>());
    }
    return {};
}

Result<Scaling> scalingIn(const std::string& file, const std::string& text) {
    const Json config = parseConfig(file, text).is_object() ? Json::parse(text, nullptr, false) : Json();
    if (!config.is_object()) return wrongConfig(file, "is not a JSON object");
    SHARDSCOPE_TRY(checkKind(config, file));
    Scaling scaling;
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
    return scaling;
}

// Beside the adapter, or above it: a trainer's checkpoint has it beside the directory of the tensors.
Result<Scaling> scalingOf(const Checkpoint& adapter) {
    const auto files = adapter.fileSystem ? adapter.fileSystem : systemFileSystem();
    const std::string own = directoryOf(adapter);
    for (const std::string& place : {own, adapter.root, splitPath(own).first}) {
        if (place.empty()) continue;
        const auto directory = files->openDirectory(place);
        if (!directory.ok()) continue;
        const std::string text = smallFile(**directory, kAdapterConfig, kMostConfig);
        if (!text.empty()) return scalingIn(joinPath(place, kAdapterConfig), text);
    }
    // Megatron-Bridge and NeMo 2: the section `peft` of run_config.yaml.
    const auto stated = statedConfig(adapter, "");
    if (const auto alpha = numberIn(stated->values, "peft.alpha")) {
        Scaling scaling;
        scaling.file = stated->file;
        scaling.alpha = static_cast<double>(*alpha);
        scaling.rank = numberIn(stated->values, "peft.dim");
        return scaling;
    }
    return makeError(ErrorCode::usage, "no adapter_config.json beside the adapter says how it is scaled")
        .inFile(own)
        .withHint(R"(put one there: {"peft_type": "LORA", "r": RANK, "lora_alpha": ALPHA})");
}

// ------------------------------------------------------------------ names

enum class AdapterPart : uint8_t {
    down,
    up,
    magnitude,
    whole,      // takes the place of a tensor
    baseLayer,  // the weight or bias of a layer below an adapter: PEFT loads what an adapter brings
    baseOwn,    // other things of the base
    refused,
};

// What a tensor of an adapter is, by its name.
struct AdapterName {
    AdapterPart part = AdapterPart::whole;
    std::string weight;   // that it is for, without what PEFT puts before it
    std::string adapter;  // "default", as PEFT calls it in memory; empty in its files
    bool embedding = false;
};

using Parts = std::vector<std::string_view>;

Parts partsOf(std::string_view name) {
    Parts parts;
    for (size_t from = 0; from <= name.size();) {
        const size_t dot = std::min(name.find('.', from), name.size());
        parts.push_back(name.substr(from, dot - from));
        from = dot + 1;
    }
    return parts;
}

std::string joined(const Parts& parts, size_t first, size_t last) {
    std::string text;
    for (size_t i = first; i < last; ++i)
        text += (text.empty() ? "" : ".") + std::string(parts[i]);
    return text;
}

AdapterName nameOf(std::string_view name) {
    Parts parts = partsOf(name);
    for (size_t i = 0; i + 2 < parts.size(); ++i) {
        if (parts[i] != "base_model" || parts[i + 1] != "model") continue;
        parts.erase(parts.begin(), parts.begin() + static_cast<std::ptrdiff_t>(i) + 2);
        break;
    }
    AdapterName result;
    const bool weight = parts.back() == "weight";
    for (size_t i = 0; i < parts.size(); ++i) {
        const std::string_view part = parts[i];
        if (part == "adapter" && i + 3 == parts.size() && weight &&
            (parts[i + 1] == "linear_in" || parts[i + 1] == "linear_out")) {
            result.part = parts[i + 1] == "linear_in" ? AdapterPart::down : AdapterPart::up;
            result.weight = joined(parts, 0, i) + ".weight";
            return result;
        }
        const bool down = part == "lora_A" || part == "lora_embedding_A";
        const bool up = part == "lora_B" || part == "lora_embedding_B";
        const bool magnitude = part == "lora_magnitude_vector";
        if (down || up || magnitude) {
            result.embedding = part.starts_with("lora_embedding");
            const size_t end = parts.size() - (weight ? 1 : 0);
            const bool bias = parts.back() == "bias", nested = i > 0 && parts[i - 1] == "base_layer";
            if (bias || nested || i == 0 || end > i + 2) break;
            result.part = down ? AdapterPart::down : up ? AdapterPart::up : AdapterPart::magnitude;
            result.weight = joined(parts, 0, i) + ".weight";
            result.adapter = joined(parts, i + 1, end);
            return result;
        }
        if (part == "modules_to_save") {
            // "X.modules_to_save.default.weight" in memory
            if (i + 2 >= parts.size()) break;
            result.weight = joined(parts, 0, i) + "." + joined(parts, i + 2, parts.size());
            return result;
        }
        if (part == "original_module" || part == "base_layer") {
            const bool layer = part == "base_layer" && i + 2 == parts.size();
            result.part = layer ? AdapterPart::baseLayer : AdapterPart::baseOwn;
            result.weight = joined(parts, 0, i) + "." + joined(parts, i + 1, parts.size());
            return result;
        }
        if (part.starts_with("trainable_tokens")) break;
        if (i + 1 == parts.size()) {
            result.weight = joined(parts, 0, parts.size());
            return result;
        }
    }
    result.part = AdapterPart::refused;
    return result;
}

// How names of the adapter become names of the base: without some first parts, with others before them.
struct Respelling {
    size_t drop = 0;
    std::string prefix;
    std::string operator()(const std::string& name) const {
        std::string_view rest = name;
        for (size_t i = 0; i < drop && rest.find('.') != rest.npos; ++i)
            rest.remove_prefix(rest.find('.') + 1);
        return prefix + std::string(rest);
    }
};

const std::string* missingIn(const Catalog& base, const std::vector<std::string>& wanted,
                             const Respelling& spell) {
    for (const std::string& name : wanted)
        if (base.find(spell(name)) == kNone) return &name;
    return nullptr;
}

// Frameworks put a prefix before all names, of the model or of the adapter.
Result<Respelling> respellingFor(const Catalog& base, const std::vector<std::string>& wanted,
                                 const std::string& path) {
    const std::string* const missing = missingIn(base, wanted, {});
    if (!missing) return Respelling();
    std::vector<Respelling> fitting;
    constexpr size_t kMostDropped = 3, kMostPrefixes = 32;
    for (size_t drop = 0; drop <= kMostDropped && fitting.empty(); ++drop) {
        const std::string rest = Respelling{drop, {}}(*missing);
        size_t tried = 0;
        for (TensorId t = 0; t < base.tensorCount() && tried < kMostPrefixes; ++t) {
            const std::string_view name = base.name(t);
            if (!name.ends_with(rest)) continue;
            const std::string_view prefix = name.substr(0, name.size() - rest.size());
            if (!prefix.empty() && !prefix.ends_with('.')) continue;
            ++tried;
            Respelling spell{drop, std::string(prefix)};
            if (!missingIn(base, wanted, spell)) fitting.push_back(std::move(spell));
        }
    }
    if (fitting.size() == 1) return fitting.front();
    if (fitting.size() > 1)
        return makeError(ErrorCode::impossible,
                         fmt::format("{} of the adapter may be {} or {} of the checkpoint", shown(*missing),
                                     shown(fitting[0](*missing)), shown(fitting[1](*missing))))
            .inFile(path)
            .withHint("convert the checkpoint with " + option("rename") + " first, so that one is left");
    return makeError(ErrorCode::impossible,
                     fmt::format("the checkpoint has no {}, for which the adapter is", shown(*missing)))
        .inFile(path)
        .withHint(
            "an adapter is merged under the names of the model that it was trained with: convert one "
            "of both with " +
            option("map") + " first");
}

// ------------------------------------------------------------------ weights

struct Factors {
    TensorId down = kNone, up = kNone, magnitude = kNone;
    bool embedding = false;
};

// The dimensions behind the first, as one number.
int64_t columnsOf(DimSpan shape) {
    return elementCount(shape.subspan(1));
}

class MergeMaker {
  public:
    MergeMaker(const Checkpoint& base, AdapterMerge& merge, Scaling scaling)
        : base_(base.catalog()),
          adapter_(merge.adapter.catalog()),
          path_(merge.adapter.path),
          merge_(merge),
          scaling_(std::move(scaling)),
          taken_(base_.tensorCount(), false) {}

    Status make() {
        SHARDSCOPE_TRY(sort());
        std::vector<std::string> wanted;
        for (const auto& [name, factors] : factors_)
            wanted.push_back(name);
        for (const auto& [name, tensor] : whole_)
            wanted.push_back(name);
        if (factors_.empty())
            return unsupported("no tensor of the adapter has a name of LoRA, such as 'lora_A'").inFile(path_);
        SHARDSCOPE_ASSIGN(spell_, respellingFor(base_, wanted, path_));
        merge_.words = fmt::format("{} {}", scaling_.fanInFanOut, scaling_.rootOfRank);
        for (const auto& [name, factors] : factors_)
            SHARDSCOPE_TRY(addProduct(name, factors));
        for (const auto& [name, tensor] : whole_) {
            if (!factors_.contains(name)) SHARDSCOPE_TRY(addWhole(name, tensor));
        }
        addAliases();
        return {};
    }

  private:
    Error impossible(std::string message, TensorId tensor) const {
        return makeError(ErrorCode::impossible, std::move(message))
            .inFile(path_)
            .ofTensor(std::string(adapter_.name(tensor)));
    }

    // Says of each tensor of the adapter what it is.
    Status sort() {
        size_t optimizer = 0, own = 0;
        std::string adapterName;
        for (TensorId t = 0; t < adapter_.tensorCount(); ++t) {
            if (adapter_.role(t) == Role::optimizer || adapter_.role(t) == Role::other) {
                ++optimizer;
                continue;
            }
            const AdapterName name = nameOf(adapter_.name(t));
            const bool quantized = name.part == AdapterPart::baseLayer && !mergesInto(adapter_.dtype(t));
            if (name.part == AdapterPart::baseOwn || quantized) {
                ++own;
                continue;
            }
            if (name.part == AdapterPart::refused)
                return unsupported(fmt::format("{} of the adapter is not merged: biases of "
                                               "LoRA, adapters of parameters and of single tokens are not",
                                               shown(adapter_.name(t))))
                    .inFile(path_);
            if (!checkCoverage(adapter_, t).whole())
                return impossible("the adapter does not hold it whole", t);
            if (!mergesInto(adapter_.dtype(t)))
                return impossible(fmt::format("an adapter of {} is not merged", dtypeName(adapter_.dtype(t))),
                                  t);
            if (!name.adapter.empty() && !adapterName.empty() && name.adapter != adapterName)
                return impossible(fmt::format("it holds several adapters, {} and {}", shown(adapterName),
                                              shown(name.adapter)),
                                  t);
            if (!name.adapter.empty()) adapterName = name.adapter;
            SHARDSCOPE_TRY(take(name, t));
        }
        if (optimizer > 0)
            merge_.notes.push_back(
                {path_, fmt::format("{} tensors of the adapter's optimizer are not merged", optimizer)});
        if (own > 0)
            merge_.notes.push_back({path_, fmt::format("{} weights of its base that the adapter's checkpoint "
                                                       "holds are taken from the source",
                                                       own)});
        return {};
    }

    Status take(const AdapterName& name, TensorId t) {
        if (name.part == AdapterPart::whole || name.part == AdapterPart::baseLayer) {
            if (!whole_.emplace(name.weight, t).second)
                return impossible(fmt::format("another tensor is for {}, too", shown(name.weight)), t);
            return {};
        }
        Factors& factors = factors_[name.weight];
        TensorId& place = name.part == AdapterPart::down ? factors.down
                          : name.part == AdapterPart::up ? factors.up
                                                         : factors.magnitude;
        if (place != kNone)
            return impossible(fmt::format("another tensor is for {}, too", shown(name.weight)), t);
        place = t;
        factors.embedding |= name.embedding;
        return {};
    }

    Status checkBase(TensorId weight, TensorId from) const {
        if (mergesInto(base_.dtype(weight)) && base_.special(weight) == kNone) return {};
        Error error = impossible(fmt::format("{} is {}, into which nothing is merged",
                                             shown(base_.name(weight)), dtypeName(base_.dtype(weight))),
                                 from);
        return std::move(error).withHint(option("dequantize", "bf16") + " computes quantized weights first");
    }

    Status addProduct(const std::string& name, const Factors& factors) {
        if (factors.down == kNone || factors.up == kNone) {
            const TensorId there = factors.down != kNone ? factors.down
                                   : factors.up != kNone ? factors.up
                                                         : factors.magnitude;
            return impossible("its other matrix is missing in the adapter", there);
        }
        MergedTensor merged;
        merged.base = unaliased(base_.find(spell_(name)));
        SHARDSCOPE_TRY(checkBase(merged.base, factors.down));
        merged.dtype = base_.dtype(merged.base);
        const auto brought = whole_.find(name);
        if (brought != whole_.end()) SHARDSCOPE_TRY(replace(brought->second, merged));
        merged.down = factors.down;
        merged.up = factors.up;
        SHARDSCOPE_TRY(fit(factors, merged));
        SHARDSCOPE_TRY(takeMagnitude(factors, merged));
        const std::string module = name.substr(0, name.rfind('.'));
        const int64_t rank = scaling_.rankOf(module, merged.rank);
        if (rank != merged.rank)
            return impossible(fmt::format("it is of rank {}, {} says {}", merged.rank, scaling_.file, rank),
                              factors.down);
        const double alpha = scaling_.alphaOf(module);
        merged.scaling = static_cast<float>(
            alpha / (scaling_.rootOfRank ? std::sqrt(static_cast<double>(rank)) : static_cast<double>(rank)));
        const uint64_t elements =
            static_cast<uint64_t>(adapter_.elements(merged.down) + adapter_.elements(merged.up));
        merge_.held = std::max(merge_.held, elements * sizeof(float));
        return add(
            merged,
            fmt::format(
                "merged: {} + {} * {} of {}, {} (rank {}){}",
                merged.replacement == kNone ? std::string("W") : shown(adapter_.name(merged.replacement)),
                merged.scaling, merged.transposed ? "(B @ A) transposed" : "B @ A",
                shown(adapter_.name(merged.down)), shown(adapter_.name(merged.up)), merged.rank,
                merged.magnitude == kNone ? std::string()
                                          : fmt::format(", with the magnitudes {} of DoRA",
                                                        shown(adapter_.name(merged.magnitude)))));
    }

    Status takeMagnitude(const Factors& factors, MergedTensor& merged) const {
        const bool there = factors.magnitude != kNone;
        if (there != scaling_.dora)
            return impossible(
                there ? fmt::format("{} does not say that it is one of DoRA (use_dora)", scaling_.file)
                      : std::string("it is one of DoRA (use_dora), and its "
                                    "lora_magnitude_vector is missing in the adapter"),
                there ? factors.magnitude : factors.down);
        if (!there) return {};
        if (factors.embedding || base_.shape(merged.base).size() != 2)
            return unsupported("DoRA of embeddings and convolutions is not merged")
                .inFile(path_)
                .ofTensor(std::string(adapter_.name(factors.magnitude)));
        const int64_t outputs = base_.shape(merged.base)[merged.transposed ? 1 : 0];
        if (adapter_.elements(factors.magnitude) != outputs)
            return impossible(
                fmt::format("it has {} elements for {} outputs of {}", adapter_.elements(factors.magnitude),
                            outputs, shown(base_.name(merged.base))),
                factors.magnitude);
        merged.magnitude = factors.magnitude;
        return {};
    }

    // Which way round the matrices are.
    Status fit(const Factors& factors, MergedTensor& merged) const {
        const DimSpan weight = base_.shape(merged.base), down = adapter_.shape(merged.down),
                      up = adapter_.shape(merged.up);
        const auto others = [&] {
            return impossible(
                fmt::format("A is {}, B is {}: they do not make up the {} of {}", formatDims(down),
                            formatDims(up), formatDims(weight), shown(base_.name(merged.base))),
                merged.down);
        };
        if (weight.size() < 2 || down.size() < 2 || up.size() < 2 || down[0] < 1 || down[0] > kMostRank ||
            up[1] != down[0] || columnsOf(up) != down[0])
            return others();
        merged.rank = down[0];
        const bool plain = weight[0] == up[0] && std::ranges::equal(weight.subspan(1), down.subspan(1));
        const bool turned =
            weight.size() == 2 && down.size() == 2 && weight[0] == down[1] && weight[1] == up[0];
        const bool asksTurned = factors.embedding || scaling_.fanInFanOut;
        if (!plain && !turned) return others();
        if (factors.embedding && !turned) return others();
        merged.transposed = plain && turned ? asksTurned : turned;
        return {};
    }

    Status addWhole(const std::string& name, TensorId t) {
        MergedTensor merged;
        merged.base = unaliased(base_.find(spell_(name)));
        SHARDSCOPE_TRY(checkBase(merged.base, t));
        merged.dtype = base_.dtype(merged.base);
        SHARDSCOPE_TRY(replace(t, merged));
        return add(merged, fmt::format("from the adapter: {}", shown(adapter_.name(t))));
    }

    Status replace(TensorId by, MergedTensor& merged) const {
        merged.replacement = by;
        if (std::ranges::equal(base_.shape(merged.base), adapter_.shape(by))) return {};
        return impossible(fmt::format("its shape is {}, that of {} is {}", formatDims(adapter_.shape(by)),
                                      shown(base_.name(merged.base)), formatDims(base_.shape(merged.base))),
                          by);
    }

    Status add(const MergedTensor& merged, std::string how) {
        if (taken_[merged.base])
            return impossible(fmt::format("another tensor is for {}, too", shown(base_.name(merged.base))),
                              merged.down == kNone ? merged.replacement : merged.down);
        taken_[merged.base] = true;
        merge_.words += fmt::format("\n{} {} {} {}", base_.name(merged.base), merged.scaling,
                                    merged.transposed, merged.magnitude != kNone);
        merge_.tensors.push_back(merged);
        merge_.how.push_back(std::move(how));
        return {};
    }

    TensorId unaliased(TensorId t) const { return base_.aliasOf(t) == kNone ? t : base_.aliasOf(t); }

    // One storage has one value: PEFT merges into it, and so into all its names.
    void addAliases() {
        std::map<TensorId, size_t> by;
        for (size_t i = 0; i < merge_.tensors.size(); ++i)
            by.emplace(merge_.tensors[i].base, i);
        for (TensorId t = 0; t < base_.tensorCount(); ++t) {
            const auto found = base_.aliasOf(t) == kNone ? by.end() : by.find(base_.aliasOf(t));
            if (found == by.end()) continue;
            MergedTensor merged = merge_.tensors[found->second];
            merged.base = t;
            merge_.tensors.push_back(merged);
            merge_.how.push_back(merge_.how[found->second]);
            merge_.notes.push_back(
                {std::string(base_.name(t)),
                 fmt::format("it is {}, so the adapter changes both", shown(base_.name(base_.aliasOf(t))))});
        }
    }

    const Catalog& base_;
    const Catalog& adapter_;
    const std::string& path_;
    AdapterMerge& merge_;
    const Scaling scaling_;
    std::vector<bool> taken_;  // of the base
    Respelling spell_;
    std::map<std::string, Factors> factors_;
    std::map<std::string, TensorId> whole_;
};

// Source tensors that are wanted in another dtype together with merged ones.
Result<std::vector<bool>> castTogether(const Catalog& base, const AdapterMerge& merge,
                                       const TargetSpec& wanted) {
    std::vector<bool> merged(base.tensorCount(), false), cast(base.tensorCount(), false),
        kept(base.tensorCount(), false);
    for (const MergedTensor& tensor : merge.tensors)
        merged[tensor.base] = true;
    for (TensorId w = 0; w < wanted.target.tensorCount(); ++w) {
        const std::vector<TensorId> from = wanted.sources[w].tensors();
        const bool touches = std::ranges::any_of(from, [&](TensorId t) { return merged[t]; });
        const bool changes = touches && wanted.target.dtype(w) != base.dtype(from.front());
        for (const TensorId t : from)
            (changes ? cast : kept)[t] = true;
    }
    for (TensorId t = 0; t < base.tensorCount(); ++t) {
        if (cast[t] && kept[t])
            return makeError(ErrorCode::impossible,
                             fmt::format("parts of it go to tensors of different dtypes, and an adapter is "
                                         "merged in one: one rule of {} for all of them",
                                         option("dtype")))
                .ofTensor(std::string(base.name(t)));
    }
    return cast;
}

}  // namespace

Result<AdapterMerge> adapterMerge(const Checkpoint& base, const std::string& path, const StopToken& stop) {
    SHARDSCOPE_TRY(needData(base, option("adapter")));
    CheckpointOptions options;
    options.open.stop = stop;
    options.fileSystem = base.fileSystem;
    AdapterMerge merge;
    SHARDSCOPE_ASSIGN(merge.adapter, openCheckpoint(path, options));
    SHARDSCOPE_TRY(needData(merge.adapter, option("adapter")));
    SHARDSCOPE_TRY(checkComplete(merge.adapter.catalog(), merge.adapter.path, false));
    SHARDSCOPE_ASSIGN(Scaling scaling, scalingOf(merge.adapter));
    SHARDSCOPE_TRY(MergeMaker(base, merge, std::move(scaling)).make());
    return merge;
}

Result<Checkpoint> mergedCheckpoint(const Checkpoint& base, const AdapterMerge& merge,
                                    const TargetSpec* wanted, const StopToken& stop) {
    const Catalog& catalog = base.catalog();
    std::vector<MergedTensor> tensors = merge.tensors;
    if (wanted) {
        SHARDSCOPE_ASSIGN(std::vector<bool> cast, castTogether(catalog, merge, *wanted));
        for (MergedTensor& tensor : tensors) {
            if (cast[tensor.base]) tensor.dtype = DType::float32;
            cast[tensor.base] = false;
        }
        for (TensorId t = 0; t < catalog.tensorCount(); ++t) {
            if (!cast[t] || !mergesInto(catalog.dtype(t))) continue;
            MergedTensor only;
            only.base = t;
            tensors.push_back(only);
        }
    }
    auto computed = std::make_shared<ComputedTensors>(base.computed ? *base.computed : ComputedTensors());
    for (size_t i = 0; i < merge.tensors.size(); ++i) {
        const MergedTensor& tensor = merge.tensors[i];
        ComputedTensor& one = (*computed)[std::string(catalog.name(tensor.base))];
        if (one.how.empty()) one.stored = catalog.bytes(tensor.base);
        one.how += (one.how.empty() ? "" : "; ") + merge.how[i];
        const Catalog& adapter = merge.adapter.catalog();
        for (const TensorId t : {tensor.down, tensor.up, tensor.magnitude, tensor.replacement})
            one.stored += t == kNone ? 0 : adapter.bytes(t);
    }
    Checkpoint result = base;
    SHARDSCOPE_ASSIGN(result.reader, mergedReader(base.reader, directoryOf(base), merge.adapter.reader,
                                                  std::move(tensors), stop));
    result.computed = std::move(computed);
    return result;
}

void checkMerged(const TargetSpec& spec, std::vector<PlanLeftOut>& impossible) {
    for (TensorId t = 0; t < spec.target.tensorCount(); ++t) {
        if (spec.target.role(t) != Role::optimizer) continue;
        impossible.push_back(
            {std::string(spec.target.name(t)),
             fmt::format("the state of the optimizer belongs to the weights before {}: {} leaves it behind",
                         option("adapter"), option("weights-only"))});
        break;
    }
    if (spec.fromMasters.empty()) return;
    impossible.push_back(
        {spec.fromMasters.front().name,
         fmt::format("its fp32 master in the optimizer's state lacks the adapter: {} takes the weights",
                     option("master-weights", "ignore"))});
}

}  // namespace shardscope
