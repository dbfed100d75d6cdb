#include "formats/tensor_parallel/layout.h"

#include <algorithm>
#include <array>
#include <optional>
#include <span>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/names.h"
#include "base/option_words.h"
#include "base/regular_expression.h"
#include "base/text.h"
#include "base/units.h"
#include "encoding/json_value.h"
#include "formats/named_file_layout.h"
#include "formats/tensor_parallel/cuts.h"
#include "model/value_view.h"

namespace shardscope::tensor_parallel {

namespace {

// ------------------------------------------------------------------ what loaders expect

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

// The text of params.json for the model of a config.json, or of a params.json. Errors: unsupported, with what
// Meta's implementation does not have.
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

// Errors: impossible or unsupported, with the tensor where it is about one, if vLLM would not load `target`.
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
                         fmt::format("its shape is {}; vLLM keeps {} for a 'vocab_size' of {}",
                                     formatDims(target.shape(t)), counted(rows, "row"), vocabulary))
            .ofTensor(target.name(t));
    }
    return {};
}

// The same of Meta's Llama. `columns`: Llama 2's way to cut the embedding.
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
        return makeError(
                   ErrorCode::impossible,
                   fmt::format("the heads of Meta's Llama do not divide among {}", counted(ranks, "rank")))
            .withHint("it gives each rank whole heads of keys: write for fewer ranks");
    const auto vocabulary = sizeOf(params["vocab_size"]);
    if (ranks > 1 && !columns && vocabulary && (*vocabulary == 32000 || *vocabulary == 32016))
        return refused("Llama 2 and Code Llama shard the embedding along its columns, Llama 3 along its rows")
            .withHint(fmt::format("{} writes Llama 2's way", option("to", std::string(kMetaLlama2))));
    return {};
}

// ------------------------------------------------------------------ files of ranks

constexpr uint32_t kMostRanksWritten = 4096;

class RankFileLayout final : public NamedFileLayout {
  public:
    RankFileLayout(const Catalog& target, const WriteOptions& options)
        : NamedFileLayout(target),
          stop_(options.stop),
          config_(options.modelConfig),
          vllm_(options.variant == kVllm),
          columns_(options.variant == kMetaLlama2),
          maxFileSize_(options.maxFileSize) {
        needsCrc = !vllm_;
    }

    Status plan() {
        const uint32_t ranks = std::max<uint32_t>(1, target_.rankCount());
        SHARDSCOPE_TRY(vllm_ ? checkVllm(target_, config_) : checkMeta(target_, config_, columns_, ranks));
        for (uint32_t rank = 0; rank < ranks; ++rank) {
            SHARDSCOPE_TRY(stop_.poll());
            SHARDSCOPE_TRY(addRank(rank, ranks));
        }
        if (!vllm_) {
            SHARDSCOPE_ASSIGN(std::string params, paramsJson(config_, columns_));
            addText("params.json", std::move(params));
        }
        return {};
    }

  private:
    Error otherParts(TensorId t) const {
        return makeError(ErrorCode::impossible, "its parts are not those of tensor-parallel ranks")
            .ofTensor(target_.name(t))
            .withHint(fmt::format("{} alone says how many ranks there are", option("mesh", "tp=N")));
    }

    // The rank's shards, in one file or in several.
    Status addRank(uint32_t rank, uint32_t ranks) {
        const Cuts cuts(modelSizesOf(jsonValue(config_)).value_or(ModelSizes{}), {}, true);
        std::vector<Entry> entries;
        uint64_t bytes = 0;
        uint32_t part = 0;
        for (TensorId t = 0; t < target_.tensorCount(); ++t) {
            auto cut = cuts.ofWhole(target_.name(t), target_.shape(t), ranks, rank, columns_);
            if (!cut.ok()) return std::move(cut).error().ofTensor(target_.name(t));
            SHARDSCOPE_ASSIGN(Entry entry, shardOf(t, rank, *cut));
            if (vllm_ && maxFileSize_ > 0 && bytes > 0 &&
                entry.bytes > maxFileSize_ - std::min(bytes, maxFileSize_)) {
                SHARDSCOPE_TRY(addFile(rank, part++, std::move(entries)));
                entries.clear();
                bytes = 0;
            }
            bytes += entry.bytes;
            entries.push_back(std::move(entry));
        }
        return addFile(rank, part, std::move(entries));
    }

    Status addFile(uint32_t rank, uint32_t part, std::vector<Entry> entries) {
        if (vllm_)
            return addSafetensors(fmt::format("model-rank-{}-part-{}.safetensors", rank, part),
                                  std::move(entries), {{"format", "pt"}});
        addStateDict(fmt::format("consolidated.{:02}.pth", rank), entries, false);
        return {};
    }

    // What the rank holds of a tensor: chunks of the target, one behind the other.
    Result<Entry> shardOf(TensorId t, uint32_t rank, const RankCut& cut) const {
        const DimSpan whole = target_.shape(t);
        Entry shard{std::string(target_.name(t)), target_.dtype(t), Dims(whole.begin(), whole.end()), 0, {}};
        const std::vector<CutBox> boxes = cut.boxes(whole);
        for (ChunkId c = target_.firstChunk(t); c < target_.endChunk(t); ++c) {
            const ChunkInfo chunk = target_.chunk(t, c);
            if (chunk.rank != rank) continue;
            const size_t i = shard.chunks.size();
            if (chunk.flat || i >= boxes.size() || !std::ranges::equal(chunk.offsets, boxes[i].offsets) ||
                !std::ranges::equal(chunk.lengths, boxes[i].lengths))
                return otherParts(t);
            shard.chunks.push_back(c);
            shard.bytes += bytesOf(c);
        }
        if (shard.chunks.size() != boxes.size()) return otherParts(t);
        if (cut.axis != RankCut().axis) {
            int64_t& length = shard.shape[static_cast<size_t>(cut.axis)];
            length = 0;
            for (const CutPart& part : cut.parts)
                length += part.length;
        }
        return shard;
    }

    const StopToken stop_;
    const std::string config_;
    const bool vllm_, columns_;
    const uint64_t maxFileSize_;
};

Result<uint32_t> ranksOf(const std::optional<Mesh>& asked, const Catalog& source) {
    const bool own = !asked && source.format() == "tensor-parallel";
    const std::optional<Mesh>& mesh = own ? source.mesh() : asked;
    if (!mesh) return 1;
    if (mesh->axes.size() != 1 || mesh->axes[0].name != "tp")
        return makeError(ErrorCode::usage, fmt::format("these files are of tensor-parallel ranks, of which a "
                                                       "mesh {} says nothing",
                                                       formatMesh(*mesh)))
            .withHint("for example " + option("mesh", "tp=2"));
    if (mesh->axes[0].size > kMostRanksWritten)
        return makeError(ErrorCode::limit, fmt::format("more than {}", counted(kMostRanksWritten, "rank")));
    return mesh->axes[0].size;
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

Result<Catalog> place(const Catalog& target, const std::optional<Mesh>& asked, const Catalog& source,
                      const WriteOptions& options) {
    SHARDSCOPE_ASSIGN(const uint32_t ranks, ranksOf(asked, source));
    const Cuts cuts(modelSizesOf(jsonValue(options.modelConfig)).value_or(ModelSizes{}), {}, true);
    const bool columns = options.variant == kMetaLlama2;
    return withChunks(
        target, Mesh{{{"tp", ranks}}, {}},
        [&](TensorId, const TensorInfo& info, CatalogBuilder& builder) -> Status {
            for (uint32_t rank = 0; rank < ranks; ++rank) {
                const auto cut = cuts.ofWhole(info.name, info.shape, ranks, rank, columns);
                for (const CutBox& box : (cut.ok() ? *cut : RankCut{}).boxes(info.shape))
                    SHARDSCOPE_TRY(builder.addChunk({rank, kNone, 0, 0, box.offsets, box.lengths, {}}));
            }
            return {};
        });
}

std::vector<LeftOut> cannotHold(const Catalog& target, const WriteOptions&) {
    return leftOutOf(
        target, [](TensorId) { return std::string(); },
        [](const ObjectInfo&) { return std::string("files of tensor-parallel ranks hold tensors alone"); });
}

std::vector<TargetCopy> copies(const Catalog& target, const WriteOptions&) {
    std::vector<TargetCopy> apart;
    for (TensorId t = 0; t < target.tensorCount(); ++t) {
        if (target.aliasOf(t) != kNone) apart.push_back({{}, t, target.dtype(t), target.role(t), {}});
    }
    return apart;
}

Result<std::unique_ptr<TargetLayout>> layOut(const Catalog& target, const WriteOptions& options) {
    if (options.variant.empty())
        return makeError(ErrorCode::usage, "whose files of ranks to write is not said")
            .withHint("the variants are vllm, meta and meta-llama2");
    return planned<RankFileLayout>(target, options);
}

}  // namespace shardscope::tensor_parallel
