#include "engine/merged.h"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "base/option_words.h"
#include "base/text.h"
#include "base/units.h"
#include "engine/adapter_parameters.h"
#include "engine/adapter_scaling.h"
#include "engine/model_config.h"
#include "engine/quantized.h"
#include "engine/transformers_model.h"
#include "execute/executor.h"
#include "model/coverage.h"
#include "storage/named_path.h"

namespace shardscope {
namespace {

constexpr int64_t kMostRank = 1 << 20;
constexpr size_t kMostNested = 16;

std::string shown(std::string_view name) {
    return fmt::format("'{}'", printable(name, kNameInMessage));
}

bool mergesInto(DType dtype) {
    return dtype == DType::float16 || dtype == DType::bfloat16 || dtype == DType::float32;
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
    size_t nested = 0;  // PEFT wraps a module once for each of its parameters: how far inside this pair is
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

bool isLora(std::string_view part) {
    return part == "lora_A" || part == "lora_B" || part == "lora_embedding_A" || part == "lora_embedding_B" ||
           part == "lora_magnitude_vector";
}

AdapterName nameOf(std::string_view name) {
    Parts parts = partsOf(name);
    for (size_t i = 0; i + 2 < parts.size(); ++i) {
        if (parts[i] != "base_model" || parts[i + 1] != "model") continue;
        parts.erase(parts.begin(), parts.begin() + static_cast<std::ptrdiff_t>(i) + 2);
        break;
    }
    AdapterName result;
    for (auto lora = std::ranges::find_if(parts, isLora);
         lora != parts.end() && lora != parts.begin() && *std::prev(lora) == "base_layer"; ++result.nested)
        lora = parts.erase(std::prev(lora));
    const bool weight = parts.back() == "weight";
    for (size_t i = 0; i < parts.size(); ++i) {
        const std::string_view part = parts[i];
        if (part == "adapter" && i + 2 == parts.size() && parts[i + 1] == "weight_magnitude") {
            result.part = AdapterPart::magnitude;
            result.weight = joined(parts, 0, i) + ".weight";
            return result;
        }
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
            if (parts.back() == "bias" || i == 0 || end > i + 2 || result.nested > kMostNested) break;
            if (result.nested > 0 && (magnitude || result.embedding)) break;
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

const std::string* missingIn(const BaseNames& base, const std::vector<std::string>& wanted,
                             const Respelling& spell) {
    for (const std::string& name : wanted)
        if (!base.has(spell(name))) return &name;
    return nullptr;
}

// Frameworks put a prefix before all names, of the model or of the adapter.
Result<Respelling> respellingFor(const BaseNames& base, const std::vector<std::string>& wanted,
                                 const std::string& path) {
    const std::string* const missing = missingIn(base, wanted, {});
    if (!missing) return Respelling();
    std::vector<Respelling> fitting;
    constexpr size_t kMostDropped = 3, kMostPrefixes = 32;
    for (size_t drop = 0; drop <= kMostDropped && fitting.empty(); ++drop) {
        const std::string rest = Respelling{drop, {}}(*missing);
        size_t tried = 0;
        base.forEach([&](std::string_view name) {
            if (!name.ends_with(rest)) return true;
            const std::string_view prefix = name.substr(0, name.size() - rest.size());
            if (!prefix.empty() && !prefix.ends_with('.')) return true;
            Respelling spell{drop, std::string(prefix)};
            if (!missingIn(base, wanted, spell)) fitting.push_back(std::move(spell));
            return ++tried < kMostPrefixes;
        });
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

// Those of a module's parameters.
struct ModuleParameters {
    std::vector<std::string> names;
    std::vector<Factors> pairs;
};

bool isWeightOf(std::string_view name, std::initializer_list<std::string_view> modules) {
    constexpr std::string_view kWeight = ".weight";
    if (!name.ends_with(kWeight)) return false;
    name.remove_suffix(kWeight.size());
    return std::ranges::count(modules, name.substr(name.rfind('.') + 1)) > 0;
}
bool isEmbedding(std::string_view name) {
    return isWeightOf(name,
                      {"embed_tokens", "wte", "shared", "word_embeddings", "embed_in", "tok_embeddings"});
}
bool isHead(std::string_view name) {
    return isWeightOf(name, {"lm_head", "embed_out", "output_layer", "output"});
}

// The dimensions behind the first, as one number.
int64_t columnsOf(DimSpan shape) {
    return elementCount(shape.subspan(1));
}

class MergeMaker {
  public:
    MergeMaker(const Checkpoint& base, AdapterMerge& merge, AdapterScaling scaling)
        : checkpoint_(base),
          base_(base.catalog()),
          names_(base_, !scaling.parameters.empty()),
          adapter_(merge.adapter.catalog()),
          path_(merge.adapter.path),
          merge_(merge),
          scaling_(std::move(scaling)),
          quantized_(quantizedOf(base)),
          quantizedBy_(quantizedByTensor(base_, quantized_)),
          taken_(base_.tensorCount(), false) {}

    Status make() {
        SHARDSCOPE_TRY(sort());
        SHARDSCOPE_TRY(takeParameters());
        std::vector<std::string> wanted;
        for (const auto& [name, factors] : factors_)
            wanted.push_back(name);
        for (const auto& [module, one] : parameters_)
            for (const std::string& parameter : one.names)
                wanted.push_back(module + "." + parameter);
        for (const auto& [name, tensor] : whole_)
            wanted.push_back(name);
        if (factors_.empty() && parameters_.empty())
            return unsupported("no tensor of the adapter has a name of LoRA, such as 'lora_A'").inFile(path_);
        SHARDSCOPE_TRY(checkTies());
        std::erase_if(wanted, [&](const std::string& name) { return tiedHead_ == name; });
        auto spell = respellingFor(names_, wanted, path_);
        if (!spell.ok()) {
            SHARDSCOPE_TRY(checkStoredAsParts(wanted));
            return std::move(spell).error();
        }
        spell_ = *std::move(spell);
        merge_.words = fmt::format("{} {}", scaling_.fanInFanOut, scaling_.rootOfRank);
        for (const auto& [name, factors] : factors_)
            SHARDSCOPE_TRY(addProduct(name, factors));
        for (const auto& [module, one] : parameters_)
            SHARDSCOPE_TRY(addParameters(module, one));
        for (const auto& [name, tensor] : whole_) {
            if (!factors_.contains(name)) SHARDSCOPE_TRY(addWhole(name, tensor));
        }
        addAliases();
        return {};
    }

  private:
    Error impossible(std::string message, TensorId tensor) const {
        Error error = makeError(ErrorCode::impossible, std::move(message)).inFile(path_);
        if (tensor == kNone) return error;
        return std::move(error).ofTensor(std::string(adapter_.name(tensor)));
    }

    // Whether the base has one tensor for its embedding and its output layer.
    bool tied() const {
        bool embedding = false;
        for (TensorId t = 0; t < base_.tensorCount(); ++t) {
            if (isHead(base_.name(t)))
                return base_.aliasOf(t) != kNone && isEmbedding(base_.name(base_.aliasOf(t)));
            embedding |= isEmbedding(base_.name(t));
        }
        const auto config = statedConfig(checkpoint_, "");
        const std::string named = classNamed(config->values);
        return embedding && numberIn(config->values, "tie_word_embeddings").value_or(1) != 0 &&
               !named.ends_with("Classification") && !named.ends_with("Model");
    }

    // PEFT trains a copy of a tied embedding, or of the output layer, by itself: the two differ then.
    Status checkTies() {
        TensorId embedding = kNone, head = kNone;
        std::string headName;
        for (const auto& [name, tensor] : whole_) {
            if (factors_.contains(name)) continue;
            if (isEmbedding(name)) embedding = tensor;
            if (!isHead(name)) continue;
            head = tensor;
            headName = name;
        }
        for (const auto& [name, factors] : factors_)
            if (isHead(name)) head = factors.down;
        if ((embedding == kNone && head == kNone) || !tied()) return {};
        if (embedding != kNone && !headName.empty()) {
            const JobResources resources(1, uint64_t{64} << 20, nullptr, {});
            SHARDSCOPE_ASSIGN(const auto both,
                              digestTensors(*merge_.adapter.reader, {embedding, head}, {}, resources));
            if (both[0].digest == both[1].digest) {
                tiedHead_ = headName;
                whole_.erase(headName);
                return {};
            }
        }
        return makeError(ErrorCode::impossible,
                         "the model has one tensor for its embedding and its output layer, and the adapter "
                         "trained one of them by itself: they differ after the merge")
            .inFile(path_)
            .ofTensor(std::string(adapter_.name(embedding != kNone ? embedding : head)))
            .withHint(
                "merge_and_unload() of peft makes two tensors; save that with "
                "tie_word_embeddings=false");
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
                                               "LoRA and adapters of single tokens are not",
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
            scaling_.dora |= name.part == AdapterPart::magnitude && !scaling_.saysDora;
        }
        if (optimizer > 0)
            merge_.notes.push_back({path_, fmt::format("not merged: {} of the adapter's optimizer",
                                                       counted(optimizer, "tensor"))});
        if (own > 0)
            merge_.notes.push_back(
                {path_,
                 fmt::format("taken from the source: {} of its base that the adapter's checkpoint holds, too",
                             counted(own, "weight"))});
        return {};
    }

    Status take(const AdapterName& name, TensorId t) {
        if (name.part == AdapterPart::whole || name.part == AdapterPart::baseLayer) {
            if (!whole_.emplace(name.weight, t).second)
                return impossible(fmt::format("another tensor is for {}, too", shown(name.weight)), t);
            return {};
        }
        Factors& factors = name.nested == 0 ? factors_[name.weight] : nested_[name.weight][name.nested];
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
        if (quantizedBy_[weight] != kNone) return isQuantized(quantized_[quantizedBy_[weight]], from);
        if (mergesInto(base_.dtype(weight)) && base_.special(weight) == kNone) return {};
        return impossible(fmt::format("{} is {}, into which nothing is merged", shown(base_.name(weight)),
                                      dtypeName(base_.dtype(weight))),
                          from);
    }

    Error isQuantized(const QuantizedWeight& weight, TensorId from) const {
        std::string why;
        if (checkpoint_.dequantized) {
            const auto& left = checkpoint_.dequantized->left;
            const auto found = left.find(base_.name(weight.tensors().front()));
            if (found != left.end()) why = found->second;
        }
        Error error = impossible(
            fmt::format("{} is quantized ({}), into which nothing is merged{}{}", shown(weight.name),
                        schemeText(weight), why.empty() ? "" : ", and cannot be computed: ", why),
            from);
        if (!why.empty()) return error;
        return std::move(error).withHint(option("dequantize", "bf16") + " computes quantized weights first");
    }

    // Whether the base lacks a name because it has the parts of a quantized weight in its place.
    Status checkStoredAsParts(const std::vector<std::string>& wanted) const {
        constexpr size_t kMostDropped = 3;
        std::set<std::string, std::less<>> ends;
        for (const std::string& name : wanted)
            for (size_t drop = 0; drop <= kMostDropped; ++drop)
                ends.insert(Respelling{drop, {}}(name));
        for (const QuantizedWeight& weight : quantized_) {
            for (size_t drop = 0; drop <= kMostDropped; ++drop) {
                const std::string end = Respelling{drop, {}}(weight.name);
                const bool telling = drop == 0 || std::ranges::count(end, '.') > 1;
                if (telling && ends.contains(end)) return isQuantized(weight, kNone);
            }
        }
        return {};
    }

    Status checkPair(const Factors& factors) const {
        if (factors.down != kNone && factors.up != kNone) return {};
        const TensorId there = factors.down != kNone ? factors.down
                               : factors.up != kNone ? factors.up
                                                     : factors.magnitude;
        return impossible("its other matrix is missing in the adapter", there);
    }

    // Pairs that are for parameters by their own names (target_parameters). PEFT names the module alone, and
    // "base_layer" once more for each further parameter of it.
    Status takeParameters() {
        if (scaling_.parameters.empty() && nested_.empty()) return {};
        std::set<std::string> ends;
        const auto addEnd = [&](std::string_view name) {
            const size_t last = name.rfind('.'), before = last == 0 ? last : name.rfind('.', last - 1);
            ends.emplace(before == name.npos ? name : name.substr(before + 1));
            return true;
        };
        names_.forEach(addEnd);
        for (const QuantizedWeight& weight : quantized_)
            addEnd(weight.name);
        const auto has = [&](const std::string& end) { return ends.contains(end); };
        for (auto at = factors_.begin(); at != factors_.end();) {
            const std::string module = at->first.substr(0, at->first.rfind('.'));
            ModuleParameters one{targetedParameters(scaling_.parameters, module, has), {at->second}};
            const auto deeper = nested_.find(at->first);
            if (one.names.empty() && deeper == nested_.end()) {
                ++at;
                continue;
            }
            if (deeper != nested_.end()) {
                for (const auto& [depth, factors] : deeper->second)
                    one.pairs.push_back(factors);
                nested_.erase(deeper);
            }
            for (const Factors& factors : one.pairs) {
                SHARDSCOPE_TRY(checkPair(factors));
                if (factors.magnitude != kNone || factors.embedding)
                    return impossible("DoRA and embeddings are not for single parameters", factors.down);
            }
            if (one.names.empty())
                return impossible(
                    "no target_parameters of the adapter's configuration name a parameter of "
                    "its module that the checkpoint has",
                    at->second.down);
            parameters_.emplace(module, std::move(one));
            at = factors_.erase(at);
        }
        if (nested_.empty()) return {};
        const Factors& alone = nested_.begin()->second.begin()->second;
        return impossible("its module has another parameter with an adapter, which is missing",
                          alone.down != kNone ? alone.down : alone.up);
    }

    Status addParameters(const std::string& module, const ModuleParameters& one) {
        std::vector<std::pair<std::string, Dims>> parameters;
        std::vector<StackedParameter> stacks;
        std::vector<ParameterPair> pairs;
        for (const std::string& name : one.names) {
            stacks.push_back(names_.parameter(spell_(module + "." + name)));
            parameters.emplace_back(module + "." + name, stacks.back().shape);
        }
        for (const Factors& factors : one.pairs)
            pairs.push_back({factors.down, factors.up});
        SHARDSCOPE_ASSIGN(const auto found, pairParameters(adapter_, scaling_, parameters, pairs));
        for (size_t i = 0; i < found.size(); ++i) {
            MergedTensor merged;
            merged.down = pairs[found[i].pair].down;
            merged.up = pairs[found[i].pair].up;
            merged.rank = found[i].rank;
            merged.experts = found[i].experts;
            merged.transposed = found[i].transposed;
            merged.scaling = scaling_.scalingOf(parameters[i].first, merged.rank);
            hold(merged);
            for (const StackedParameter::Place& place : stacks[i].places) {
                merged.base = unaliased(place.base);
                merged.firstRow = place.firstRow;
                SHARDSCOPE_TRY(checkBase(merged.base, merged.down));
                merged.dtype = base_.dtype(merged.base);
                SHARDSCOPE_TRY(
                    add(merged, fmt::format("{}, for {}", productWords(merged), shown(parameters[i].first))));
            }
        }
        return {};
    }

    void hold(const MergedTensor& merged) {
        const auto elements =
            static_cast<uint64_t>(adapter_.elements(merged.down) + adapter_.elements(merged.up));
        merge_.held = std::max(merge_.held, elements * sizeof(float));
    }

    std::string productWords(const MergedTensor& merged) const {
        return fmt::format(
            "merged: {} + {} * {} of {}, {} (rank {}){}",
            merged.replacement == kNone ? std::string("W") : shown(adapter_.name(merged.replacement)),
            merged.scaling, merged.transposed ? "(B @ A) transposed" : "B @ A",
            shown(adapter_.name(merged.down)), shown(adapter_.name(merged.up)), merged.rank,
            merged.magnitude == kNone
                ? std::string()
                : fmt::format(", with the magnitudes {} of DoRA", shown(adapter_.name(merged.magnitude))));
    }

    Status addProduct(const std::string& name, const Factors& factors) {
        SHARDSCOPE_TRY(checkPair(factors));
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
        merged.scaling = scaling_.scalingOf(module, rank);
        hold(merged);
        return add(merged, productWords(merged));
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
        // Megatron-Bridge, peft/dora_layers.py (sharded_state_dict): each rank's rows, unlike those of
        // weights.
        if (scaling_.tensorParallel > 1 &&
            adapter_.name(factors.magnitude).ends_with("linear_fc1.adapter.weight_magnitude"))
            return unsupported(fmt::format("its magnitudes are in the order of {}, "
                                           "gate and up of each in turn",
                                           counted(scaling_.tensorParallel, "tensor-parallel rank")))
                .inFile(path_)
                .ofTensor(std::string(adapter_.name(factors.magnitude)))
                .withHint("make it one of PEFT first, with " + option("map", "llama-peft-from-megatron"));
        if (factors.embedding || base_.shape(merged.base).size() != 2)
            return unsupported("DoRA of embeddings and convolutions is not merged")
                .inFile(path_)
                .ofTensor(std::string(adapter_.name(factors.magnitude)));
        const int64_t outputs = base_.shape(merged.base)[merged.transposed ? 1 : 0];
        if (adapter_.elements(factors.magnitude) != outputs)
            return impossible(fmt::format("it has {} for {} outputs of {}",
                                          counted(adapter_.elements(factors.magnitude), "element"),
                                          counted(outputs, "output"), shown(base_.name(merged.base))),
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
        if (base_.find(spell_(name)) == kNone)
            return impossible("the checkpoint holds its experts by themselves", t);
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
        merge_.words +=
            fmt::format("\n{} {} {} {} {} {}", base_.name(merged.base), merged.scaling, merged.transposed,
                        merged.magnitude != kNone, merged.experts, merged.firstRow);
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

    const Checkpoint& checkpoint_;
    const Catalog& base_;
    const BaseNames names_;
    const Catalog& adapter_;
    const std::string& path_;
    AdapterMerge& merge_;
    AdapterScaling scaling_;
    const std::vector<QuantizedWeight> quantized_;  // of the base
    const std::vector<uint32_t> quantizedBy_;       // index into that of each of its tensors
    std::vector<bool> taken_;                       // of the base
    Respelling spell_;
    std::map<std::string, Factors> factors_;
    std::map<std::string, std::map<size_t, Factors>> nested_;  // by the same names, and how far inside
    std::map<std::string, ModuleParameters> parameters_;       // by module
    std::map<std::string, TensorId> whole_;
    std::string tiedHead_;  // of the adapter: the same as its embedding, and no tensor of the base
};

// Source tensors that are wanted in another dtype together with merged ones.
Result<std::vector<bool>> castTogether(const Catalog& base, const AdapterMerge& merge,
                                       const TargetSpec& wanted) {
    std::vector<bool> cast(base.tensorCount(), false), kept(base.tensorCount(), false);
    std::map<TensorId, DType> merged;
    for (const MergedTensor& tensor : merge.tensors)
        merged.emplace(tensor.base, tensor.dtype);
    const auto dtypeOf = [&](TensorId t) {
        const auto found = merged.find(t);
        return found == merged.end() ? base.dtype(t) : found->second;
    };
    for (TensorId w = 0; w < wanted.target.tensorCount(); ++w) {
        const std::vector<TensorId> from = wanted.sources[w].tensors();
        const bool touches = std::ranges::any_of(from, [&](TensorId t) { return merged.contains(t); });
        const bool changes = touches && wanted.target.dtype(w) != dtypeOf(from.front());
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
    SHARDSCOPE_ASSIGN(AdapterScaling scaling, adapterScaling(merge.adapter));
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
