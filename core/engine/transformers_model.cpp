#include "engine/transformers_model.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/numbers.h"
#include "base/option_words.h"
#include "base/text.h"
#include "engine/model_config.h"
#include "model/region.h"

namespace shardscope {
namespace {

constexpr int64_t kMostLayersOfModel = 4096;

enum class Biases : uint8_t { none, configured, ofQkv };

// Models whose layers are alike: attention with q, k, v and o, and a gated MLP.
struct DenseModel {
    std::string_view type;
    Biases biases = Biases::none;
    bool tied = false;     // where the configuration does not say it
    bool qkNorms = false;  // of each head
    std::array<std::string_view, 4> norms{"input_layernorm", "post_attention_layernorm", "", ""};
};
constexpr std::array<std::string_view, 4> kFourNorms{
    "input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"};
constexpr DenseModel kDenseModels[] = {
    {"llama", Biases::configured},
    {"mistral"},
    {"qwen2", Biases::ofQkv},
    {"qwen3", Biases::configured, false, true},
    {"gemma", Biases::configured, true},
    {"gemma2", Biases::configured, true, false, kFourNorms},
    {"gemma3_text", Biases::configured, true, true, kFourNorms},
    {"olmo2", Biases::configured, false, false, {"post_attention_layernorm", "post_feedforward_layernorm"}},
    {"granite", Biases::configured},
};

std::string inQuotes(std::string_view name) {
    return fmt::format("'{}'", printable(name, kNameInMessage));
}

// Of the configuration, or of the text model inside it.
std::optional<int64_t> statedNumber(const nlohmann::json& config, const std::string& key) {
    const auto number = numberIn(config, key);
    return number ? number : numberIn(config, "text_config." + key);
}

bool isTrue(const nlohmann::json& config, const std::string& key) {
    return statedNumber(config, key).value_or(0) != 0;
}

const DenseModel* denseModel(std::string_view type) {
    const auto found = std::ranges::find(kDenseModels, type, &DenseModel::type);
    return found == std::end(kDenseModels) ? nullptr : &*found;
}

bool containsPart(std::string_view name, std::initializer_list<std::string_view> marks) {
    return std::ranges::any_of(marks, [&](std::string_view mark) { return name.find(mark) != name.npos; });
}

class Gaps {
  public:
    Gaps(const nlohmann::json& config, const std::string& type, const Catalog& target)
        : config_(config), type_(type), target_(target), dense_(denseModel(type)) {}

    std::vector<std::string> find() && {
        adapter();
        const bool plain = quantization();
        if (!why_.empty()) return std::move(why_);
        head();
        if (dense_ && plain) {
            tensors();
        } else {
            layers();
        }
        return std::move(why_);
    }

  private:
    template <class Is>
    size_t count(Is&& is, std::string_view& first) const {
        size_t found = 0;
        for (TensorId t = 0; t < target_.tensorCount(); ++t) {
            if (!is(t)) continue;
            if (found++ == 0) first = target_.name(t);
        }
        return found;
    }

    void adapter() {
        std::string_view first;
        const size_t found = count(
            [&](TensorId t) {
                return containsPart(target_.name(t),
                                    {".lora_A.", ".lora_B.", ".base_layer.", ".lora_embedding_A",
                                     ".modules_to_save.", ".lora_magnitude_vector"});
            },
            first);
        if (found > 0)
            why_.push_back(fmt::format(
                "{} of its tensors are of an adapter that is not merged, such as {}: convert the base "
                "({}, {}) and then merge it ({})",
                found, inQuotes(first), option("exclude", "*.lora_*"), option("rename", "[.]base_layer="),
                option("adapter", "SOURCE")));
    }

    // Whether all weights are plain floats that the configuration does not call otherwise.
    bool quantization() {
        const auto settings = config_.find("quantization_config");
        const bool has = settings != config_.end() && settings->is_object();
        const bool said = has || config_.contains("compression_config");
        std::string_view first;
        const size_t found = count(
            [&](TensorId t) {
                const std::string_view name = target_.name(t);
                const bool small = dtypeBits(target_.dtype(t)) <= 8 && target_.shape(t).size() > 1 &&
                                   target_.role(t) == Role::parameter;
                const bool part = name.ends_with(".SCB") || name.ends_with("_scale_inv") ||
                                  name.ends_with(".qweight") || name.ends_with(".weight_scale") ||
                                  name.ends_with("_blocks") || name.ends_with(".absmax") ||
                                  name.ends_with("weight_packed");
                return part || (small && !dtypeIsFloat(target_.dtype(t)));
            },
            first);
        if (!said && found > 0) {
            why_.push_back(
                fmt::format("{} of its tensors are of quantized weights, such as {}, and its "
                            "config.json has no 'quantization_config': {} makes plain weights",
                            found, inQuotes(first), option("dequantize", "bf16")));
        }
        if (!said) return found == 0;
        std::string method;
        if (has && settings->contains("quant_method") && (*settings)["quant_method"].is_string())
            method = (*settings)["quant_method"].get<std::string>();
        constexpr std::array kStored{"fp8", "mxfp4", "gptq", "awq"};
        const size_t any = count(
            [&](TensorId t) { return dtypeBits(target_.dtype(t)) <= 8 || !dtypeIsFloat(target_.dtype(t)); },
            first);
        if (any == 0 && target_.tensorCount() > 0 && std::ranges::count(kStored, method))
            why_.push_back(
                fmt::format("its config.json says that the weights are quantized ({}), and they are "
                            "plain: take that 'quantization_config' out of a copy and name it with {}",
                            method, option("assets", "DIR")));
        return false;
    }

    // An output layer that is no tensor must be tied to the embedding.
    void head() {
        bool embedding = false, head = false;
        for (TensorId t = 0; t < target_.tensorCount(); ++t) {
            const std::string_view name = target_.name(t);
            embedding |= containsPart(name, {"embed_tokens.weight", "embed_in.weight", "wte.weight"});
            head |=
                containsPart(name, {"lm_head", "embed_out", "output.weight", "output_layer", "head.weight"});
        }
        if (!embedding || head) return;
        const auto tied = statedNumber(config_, "tie_word_embeddings");
        if (tied ? *tied != 0 : !dense_ || dense_->tied) return;
        const auto classes = config_.find("architectures");
        if (classes != config_.end() && classes->is_array() && !classes->empty()) {
            const auto& first = classes->front();
            if (!first.is_string() || !first.get<std::string>().ends_with("ForCausalLM")) return;
        } else if (!dense_) {
            return;
        }
        why_.push_back(
            "it has no output layer ('lm_head.weight'), and its config.json does not tie that to the "
            "embedding (tie_word_embeddings)");
    }

    // Of models that are not known: a layer alone that has fewer tensors than another one has. The first one
    // may: ModernBERT's has no norm before its attention, RWKV's takes no values from one before it.
    void layers() {
        std::map<std::string, std::map<int64_t, std::set<std::string>>> all;
        for (TensorId t = 0; t < target_.tensorCount(); ++t) {
            const std::string_view name = target_.name(t);
            for (const std::string_view mark : {"layers.", "h.", "blocks."}) {
                const size_t at = name.starts_with(mark) ? 0 : name.find("." + std::string(mark));
                if (at == name.npos) continue;
                const size_t from = at + mark.size() + (at == 0 && name.starts_with(mark) ? 0 : 1);
                const size_t dot = name.find('.', from);
                const auto number =
                    parseNumber<int64_t>(name.substr(from, dot == name.npos ? dot : dot - from));
                if (dot == name.npos || !number) continue;
                all[std::string(name.substr(0, from))][*number].emplace(name.substr(dot + 1));
                break;
            }
        }
        for (const auto& [prefix, group] : all) {
            std::map<std::set<std::string>, size_t> kinds;
            for (const auto& [number, names] : group)
                ++kinds[names];
            for (const auto& [number, names] : group) {
                if (kinds[names] > 1 || number == group.begin()->first) continue;
                for (const auto& [other, times] : kinds) {
                    const bool inside = other.size() > names.size() && std::ranges::includes(other, names) &&
                                        (other.size() - names.size()) * 4 <= other.size();
                    if (!inside) continue;
                    std::vector<std::string> lacks;
                    std::ranges::set_difference(other, names, std::back_inserter(lacks));
                    add(fmt::format("it lacks {}, which other layers have",
                                    inQuotes(fmt::format("{}{}.{}", prefix, number, lacks.front()))));
                    break;
                }
            }
        }
    }

    void tensors() {
        const auto count = statedNumber(config_, "num_hidden_layers");
        if (!count || *count < 1 || *count > kMostLayersOfModel) return;
        const std::string stem = stemOfModel();
        const auto hidden = statedNumber(config_, "hidden_size"),
                   width = statedNumber(config_, "intermediate_size");
        const auto heads = statedNumber(config_, "num_attention_heads");
        auto keys = statedNumber(config_, "num_key_value_heads");
        if (!keys) keys = heads;
        auto size = statedNumber(config_, "head_dim");
        if (!size && hidden && heads && *heads > 0) size = *hidden / *heads;
        const auto times = [](std::optional<int64_t> a, std::optional<int64_t> b) -> std::optional<int64_t> {
            constexpr int64_t kLargest = int64_t{1} << 30;
            if (!a || !b || *a > kLargest || *b > kLargest || *a < 0 || *b < 0) return std::nullopt;
            return *a * *b;
        };
        const auto rows = times(heads, size), keyRows = times(keys, size);
        const bool bias = dense_->biases == Biases::configured && isTrue(config_, "attention_bias");
        const bool mlpBias = isTrue(config_, "mlp_bias");
        want(stem + "norm.weight", {hidden});
        for (int64_t layer = 0; layer < *count; ++layer) {
            const std::string at = fmt::format("{}layers.{}.", stem, layer);
            for (const std::string_view norm : dense_->norms)
                if (!norm.empty()) want(fmt::format("{}{}.weight", at, norm), {hidden});
            for (const auto& [part, out] :
                 {std::pair{"q", rows}, std::pair{"k", keyRows}, std::pair{"v", keyRows}}) {
                want(fmt::format("{}self_attn.{}_proj.weight", at, part), {out, hidden});
                if (bias || dense_->biases == Biases::ofQkv)
                    want(fmt::format("{}self_attn.{}_proj.bias", at, part), {out});
            }
            want(at + "self_attn.o_proj.weight", {hidden, rows});
            if (bias && type_ != "qwen2") want(at + "self_attn.o_proj.bias", {hidden});
            if (dense_->qkNorms)
                for (const char part : {'q', 'k'})
                    want(fmt::format("{}self_attn.{}_norm.weight", at, part), {size});
            if (type_ == "olmo2")
                for (const auto& [part, out] : {std::pair{'q', rows}, std::pair{'k', keyRows}})
                    want(fmt::format("{}self_attn.{}_norm.weight", at, part), {out});
            for (const char* part : {"gate", "up"})
                want(fmt::format("{}mlp.{}_proj.weight", at, part), {width, hidden});
            want(at + "mlp.down_proj.weight", {hidden, width});
            if (mlpBias && (type_ == "llama" || type_ == "granite"))
                for (const char* part : {"gate", "up", "down"})
                    want(fmt::format("{}mlp.{}_proj.bias", at, part), {std::nullopt});
        }
    }

    // What stands before the names of the text model: "model.".
    std::string stemOfModel() const {
        for (TensorId t = 0; t < target_.tensorCount(); ++t) {
            const std::string_view name = target_.name(t);
            for (const std::string_view mark : {"embed_tokens.weight", "layers.0.input_layernorm.weight"})
                if (name.ends_with(mark)) return std::string(name.substr(0, name.size() - mark.size()));
        }
        return "model.";
    }

    void want(const std::string& name, std::initializer_list<std::optional<int64_t>> shape) {
        const TensorId t = target_.find(name);
        if (t == kNone) {
            add(fmt::format("it lacks {}, which a '{}' has", inQuotes(name), type_));
            return;
        }
        const DimSpan stored = target_.shape(t);
        bool fits = stored.size() == shape.size();
        std::string wanted;
        size_t dim = 0;
        for (const std::optional<int64_t>& length : shape) {
            fits = fits && (!length || stored[dim] == *length);
            wanted += fmt::format("{}{}", dim++ == 0 ? "" : ", ", length ? std::to_string(*length) : "any");
        }
        if (!fits)
            add(fmt::format("the shape of {} is {}, its config.json says [{}]", inQuotes(name),
                            formatDims(stored), wanted));
    }

    void add(std::string sentence) {
        constexpr size_t kMostGaps = 4;
        if (why_.size() < kMostGaps) why_.push_back(std::move(sentence));
    }

    const nlohmann::json& config_;
    const std::string& type_;
    const Catalog& target_;
    const DenseModel* const dense_;
    std::vector<std::string> why_;
};

}  // namespace

std::vector<std::string> modelGaps(const nlohmann::json& config, const std::string& modelType,
                                   const Catalog& target) {
    if (!config.is_object()) return {};
    return Gaps(config, modelType, target).find();
}

}  // namespace shardscope
