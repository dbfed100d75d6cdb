#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <span>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/checked.h"
#include "base/option_words.h"
#include "base/regular_expression.h"
#include "base/text.h"
#include "encoding/json_value.h"
#include "formats/tensor_parallel/layout.h"
#include "formats/tp_rule.h"
#include "model/value_view.h"

namespace shardscope::tensor_parallel {

namespace {

using Json = nlohmann::json;

constexpr int64_t kRowsOfVllm = 64;  // the vocabulary is padded to multiples of this
constexpr int64_t kMostLayers = 1 << 20, kMostWidth = int64_t{1} << 40;
constexpr int64_t kMostMultiple = 4096;

Error refused(std::string message) {
    return unsupported(std::move(message));
}

std::optional<int64_t> sizeOf(ValueView value) {
    const auto size = value.integer();
    return size && *size > 0 && *size <= kMostWidth ? size : std::nullopt;
}

Result<int64_t> neededSize(ValueView json, const char* name) {
    if (const auto size = sizeOf(json[name])) return *size;
    return refused(fmt::format("no config.json states '{}'", name))
        .withHint(fmt::format("put the model's config.json beside the source, or name its directory with {}",
                              option("assets", "DIR")));
}

// Names of one layer and of the model. A layer's first two names are of what each layer has.
Status checkNames(const Catalog& target, const char* program, std::span<const char* const> perLayer,
                  std::span<const char* const> others, std::string_view layerPrefix, int64_t layers) {
    std::string pattern;
    for (const char* name : others)
        pattern += fmt::format("{}{}", pattern.empty() ? "" : "|", name);
    std::string each;
    for (const char* name : perLayer)
        each += fmt::format("{}{}", each.empty() ? "" : "|", name);
    SHARDSCOPE_ASSIGN(
        const RegularExpression known,
        RegularExpression::parse(fmt::format("{}|{}[0-9]+[.](?:{})", pattern, layerPrefix, each)));
    for (TensorId t = 0; t < target.tensorCount(); ++t) {
        if (!known.matchesWhole(target.name(t)))
            return makeError(ErrorCode::impossible,
                             fmt::format("{} does not load a tensor of this name", program))
                .ofTensor(target.name(t))
                .withHint(
                    "the names must be those that it gives a dense Llama; 'shardscope recipes --for' "
                    "lists the recipes that fit the source");
    }
    if (layers > kMostLayers) return makeError(ErrorCode::limit, "more layers than a model has");
    return {};
}

Status needsAll(const Catalog& target, const std::vector<std::string>& names, const char* program) {
    for (const std::string& name : names) {
        if (target.find(name) == kNone)
            return makeError(ErrorCode::impossible,
                             fmt::format("{} needs it, and the source lacks it", program))
                .ofTensor(name);
    }
    return {};
}

// The one entry of `architectures` that vLLM goes by; empty where there is none, or more.
std::string vllmClassOf(ValueView config) {
    const std::vector<ValueView> classes = config["architectures"].items();
    return classes.size() == 1 ? classes[0].textOr({}) : std::string();
}
bool isKnownToVllm(std::string_view architecture) {
    return isAmong(architecture,
                   {"LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"});
}

void addOfLayers(int64_t layers, const char* prefix, std::initializer_list<const char*> names,
                 std::vector<std::string>& out) {
    for (int64_t layer = 0; layer < layers; ++layer) {
        for (const char* name : names)
            out.push_back(fmt::format("{}{}.{}", prefix, layer, name));
    }
}

// Rounds as Meta's FeedForward does.
int64_t widthOf(int64_t dim, double multiplier, int64_t multiple) {
    const auto third = static_cast<int64_t>(static_cast<double>(2 * (4 * dim)) / 3);
    const auto hidden = static_cast<int64_t>(multiplier * static_cast<double>(third));
    return (hidden + multiple - 1) / multiple * multiple;
}

// multiple_of and ffn_dim_multiplier that give this width.
Status addWidth(int64_t dim, int64_t width, Json& params) {
    for (int64_t multiple = kMostMultiple; multiple > 0; multiple /= 2) {
        if (widthOf(dim, 1.0, multiple) != width) continue;
        params["multiple_of"] = multiple;
        return {};
    }
    int64_t multiple = kMostMultiple;
    while (width % multiple != 0)
        multiple /= 2;
    const auto third = static_cast<int64_t>(static_cast<double>(2 * (4 * dim)) / 3);
    if (third < 1) return refused("'hidden_size' is too small for a Llama");
    const double aim =
        static_cast<double>(width) - static_cast<double>(multiple) / 2 + (multiple == 1 ? 1 : 0);
    const double multiplier = aim / static_cast<double>(third);
    if (widthOf(dim, multiplier, multiple) != width)
        return refused(fmt::format("no ffn_dim_multiplier gives an 'intermediate_size' of {}", width));
    params["multiple_of"] = multiple;
    params["ffn_dim_multiplier"] = multiplier;
    return {};
}

// The rotary settings, which newer configurations have in an object of their own.
Status addRope(ValueView config, bool llama2, Json& params) {
    ValueView rope = config["rope_parameters"];
    if (!rope.isMapping()) rope = config["rope_scaling"];
    double theta = config["rope_theta"].number().value_or(rope["rope_theta"].number().value_or(10000));
    if (!llama2 || theta != 10000) params["rope_theta"] = theta;
    std::string type = rope["rope_type"].textOr({});
    if (type.empty()) type = rope["type"].textOr({});
    if (type.empty() || type == "default") return {};
    const bool known = type == "llama3" && rope["factor"].number() == 8 &&
                       rope["low_freq_factor"].number() == 1 && rope["high_freq_factor"].number() == 4 &&
                       rope["original_max_position_embeddings"].number() == 8192;
    if (!known || llama2)
        return refused(
            fmt::format("params.json cannot state the scaled rotary positions ('{}') of this model: "
                        "Meta's use_scaled_rope is Llama 3.1's alone",
                        printable(type, kNameInMessage)));
    params["use_scaled_rope"] = true;
    return {};
}

}  // namespace

std::vector<std::string> namesNeeded(std::string_view writer, const std::string& config) {
    const Value document = jsonValue(config);
    const ValueView json = document;
    std::vector<std::string> names;
    const bool vllm = writer == "vLLM";
    const int64_t layers = sizeOf(json[vllm ? "num_hidden_layers" : "n_layers"]).value_or(0);
    if (layers < 1 || layers > kMostLayers) return names;
    if (vllm && isKnownToVllm(vllmClassOf(json)) && !json["quantization_config"].isMapping()) {
        names = {"lm_head.weight", "model.norm.weight"};
        if (!json["tie_word_embeddings"].isTrue()) names.emplace_back("model.embed_tokens.weight");
        addOfLayers(layers, "model.layers.",
                    {"self_attn.qkv_proj.weight", "self_attn.o_proj.weight", "mlp.gate_up_proj.weight",
                     "mlp.down_proj.weight", "input_layernorm.weight", "post_attention_layernorm.weight"},
                    names);
    } else if (writer == "Meta") {
        names = {"tok_embeddings.weight", "norm.weight"};
        if (!json["tied_embeddings"].isTrue()) names.emplace_back("output.weight");
        addOfLayers(layers, "layers.",
                    {"attention.wq.weight", "attention.wk.weight", "attention.wv.weight",
                     "attention.wo.weight", "feed_forward.w1.weight", "feed_forward.w2.weight",
                     "feed_forward.w3.weight", "attention_norm.weight", "ffn_norm.weight"},
                    names);
    }
    return names;
}

Status checkVllm(const Catalog& target, const std::string& config) {
    const Value document = jsonValue(config);
    const ValueView json = document;
    const std::string architecture = vllmClassOf(json);
    if (!isKnownToVllm(architecture))
        return refused(architecture.empty()
                           ? std::string(
                                 "no config.json states the one entry of 'architectures' that vLLM goes by")
                           : fmt::format("how vLLM keeps a {} in memory is not known here",
                                         printable(architecture, kNameInMessage)))
            .withHint(
                "known are Llama, Mistral, Qwen 2 and Qwen 3 without experts; vLLM itself loads what "
                "--to hf writes");
    if (json["quantization_config"].isMapping())
        return refused("how vLLM keeps quantized weights in memory depends on its kernels")
            .withHint(fmt::format("{} makes plain weights of them", option("dequantize", "bf16")));
    SHARDSCOPE_ASSIGN(const int64_t layers, neededSize(json, "num_hidden_layers"));
    SHARDSCOPE_ASSIGN(const int64_t vocabulary, neededSize(json, "vocab_size"));
    static constexpr std::array kLayer{
        "self_attn[.](?:qkv|o)_proj[.](?:weight|bias)", "self_attn[.][qk]_norm[.]weight",
        "self_attn[.]attn[.]_(?:q|k|v|prob)_scale", "mlp[.](?:gate_up|down)_proj[.](?:weight|bias)",
        "(?:input|post_attention)_layernorm[.]weight"};
    static constexpr std::array kOthers{"model[.]embed_tokens[.]weight", "model[.]norm[.]weight",
                                        "lm_head[.]weight"};
    SHARDSCOPE_TRY(checkNames(target, "vLLM", kLayer, kOthers, "model[.]layers[.]", layers));
    const bool tied = json["tie_word_embeddings"].isTrue();
    SHARDSCOPE_TRY(needsAll(target, namesNeeded("vLLM", config), "vLLM"));
    const TensorId embedding = target.find("model.embed_tokens.weight");
    if (tied && embedding != kNone)
        return makeError(ErrorCode::impossible,
                         "config.json ties it to lm_head.weight, the name that vLLM keeps")
            .ofTensor("model.embed_tokens.weight");
    const int64_t rows = (vocabulary + kRowsOfVllm - 1) / kRowsOfVllm * kRowsOfVllm;
    for (const TensorId t : {embedding, target.find("lm_head.weight")}) {
        if (t == kNone || (target.shape(t).size() == 2 && target.shape(t)[0] == rows)) continue;
        return makeError(ErrorCode::impossible,
                         fmt::format("its shape is {}; vLLM keeps {} rows for a 'vocab_size' of {}",
                                     formatDims(target.shape(t)), rows, vocabulary))
            .ofTensor(target.name(t));
    }
    return {};
}

Status checkMeta(const Catalog& target, const std::string& config, bool columns, uint32_t ranks) {
    SHARDSCOPE_ASSIGN(const std::string text, paramsJson(config, columns));
    const Value document = jsonValue(text);
    const ValueView params = document;
    SHARDSCOPE_ASSIGN(const int64_t layers, neededSize(params, "n_layers"));
    static constexpr std::array kLayer{"attention[.]w[qkvo][.]weight", "feed_forward[.]w[123][.]weight",
                                       "attention_norm[.]weight", "ffn_norm[.]weight"};
    static constexpr std::array kOthers{"tok_embeddings[.]weight", "norm[.]weight", "output[.]weight",
                                        "rope[.]freqs"};
    SHARDSCOPE_TRY(checkNames(target, "Meta's Llama", kLayer, kOthers, "layers[.]", layers));
    SHARDSCOPE_TRY(needsAll(target, namesNeeded("Meta", text), "Meta's Llama"));
    SHARDSCOPE_ASSIGN(const int64_t heads, neededSize(params, "n_heads"));
    if (heads % ranks != 0 || sizeOf(params["n_kv_heads"]).value_or(heads) % ranks != 0)
        return makeError(ErrorCode::impossible,
                         fmt::format("the heads of Meta's Llama do not divide among {} ranks", ranks))
            .withHint("it gives each rank whole heads of keys: write for fewer ranks");
    const auto vocabulary = sizeOf(params["vocab_size"]);
    if (ranks > 1 && !columns && vocabulary && (*vocabulary == 32000 || *vocabulary == 32016))
        return refused("Llama 2 and Code Llama shard the embedding along its columns, Llama 3 along its rows")
            .withHint(fmt::format("{} writes Llama 2's way", option("to", std::string(kMetaLlama2))));
    return {};
}

Result<std::string> paramsJson(const std::string& config, bool llama2) {
    const Value document = jsonValue(config);
    const ValueView json = document;
    if (sizeOf(json["dim"]) && sizeOf(json["n_layers"])) return dumpJson(Json::parse(config));
    if (const std::string type = json["model_type"].textOr({}); type != "llama")
        return refused(type.empty() ? std::string("no config.json says what model it is")
                                    : fmt::format("Meta's files hold Llama, this is '{}'",
                                                  printable(type, kNameInMessage)))
            .withHint("put the model's config.json beside the source, or name its directory with " +
                      option("assets", "DIR"));
    SHARDSCOPE_ASSIGN(const int64_t dim, neededSize(json, "hidden_size"));
    SHARDSCOPE_ASSIGN(const int64_t heads, neededSize(json, "num_attention_heads"));
    SHARDSCOPE_ASSIGN(const int64_t layers, neededSize(json, "num_hidden_layers"));
    SHARDSCOPE_ASSIGN(const int64_t width, neededSize(json, "intermediate_size"));
    SHARDSCOPE_ASSIGN(const int64_t vocabulary, neededSize(json, "vocab_size"));
    const int64_t headSize = sizeOf(json["head_dim"]).value_or(dim % heads == 0 ? dim / heads : 0);
    if (headSize < 1 || dim % heads != 0 || headSize != dim / heads)
        return refused("Meta's Llama has heads of hidden_size / num_attention_heads, this model has others");
    if (json["attention_bias"].isTrue() || json["mlp_bias"].isTrue())
        return refused("Meta's Llama has no biases, this model has some");
    if (const std::string act = json["hidden_act"].textOr({}); !act.empty() && act != "silu")
        return refused(fmt::format("Meta's Llama has silu, this model '{}'", printable(act, kNameInMessage)));
    Json params{{"dim", dim},
                {"n_layers", layers},
                {"n_heads", heads},
                {"n_kv_heads", sizeOf(json["num_key_value_heads"]).value_or(heads)},
                {"vocab_size", vocabulary},
                {"norm_eps", json["rms_norm_eps"].number().value_or(1e-6)}};
    SHARDSCOPE_TRY(addWidth(dim, width, params));
    SHARDSCOPE_TRY(addRope(json, llama2, params));
    return dumpJson(params) + '\n';
}

}  // namespace shardscope::tensor_parallel
