#include "engine/transformers_model.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/numbers.h"
#include "base/option_words.h"
#include "base/regular_expression.h"
#include "base/text.h"
#include "base/units.h"
#include "engine/model_config.h"
#include "engine/model_table.h"
#include "model/region.h"

namespace shardscope {
namespace {

std::string inQuotes(std::string_view name) {
    return fmt::format("'{}'", printable(name, kNameInMessage));
}

// Of the configuration, or of the text model inside it.
std::optional<int64_t> statedNumber(const nlohmann::json& config, const std::string& key) {
    const auto number = numberIn(config, key);
    return number ? number : numberIn(config, "text_config." + key);
}

class Gaps {
  public:
    Gaps(const nlohmann::json& config, const std::string& type, const Catalog& target)
        : config_(config), type_(type), target_(target) {}

    ModelGaps find() && {
        adapter();
        severalModels();
        const bool plain = quantization();
        if (!why_.empty()) return {false, std::move(why_)};
        const std::string named = classNamed(config_);
        const auto wanted = plain ? wantedOfModel(config_, type_, named, target_) : std::nullopt;
        const bool known = wanted && compare(*wanted);
        std::vector<std::string> differs = std::exchange(why_, {});
        if (!known || !differs.empty()) head();
        why_.insert(why_.end(), differs.begin(), differs.end());
        if (known) return {true, std::move(why_)};
        layers();
        partners();
        ends();
        return {false, std::move(why_)};
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
            why_.push_back(
                fmt::format("it has {} of an adapter that is not merged, such as {}: convert the base ({}, "
                            "{}) and then merge it ({})",
                            counted(found, "tensor"), inQuotes(first), option("exclude", "*.lora_*"),
                            option("rename", "[.]base_layer="), option("adapter", "SOURCE")));
    }

    // An average beside the model, actor and critic, student and teacher: most names are there twice, behind
    // other first parts.
    void severalModels() {
        std::set<std::string_view> whole, names;
        for (TensorId t = 0; t < target_.tensorCount(); ++t)
            whole.insert(target_.name(t));
        const std::string_view common = commonParts(whole);
        for (const std::string_view name : whole)
            names.insert(name.substr(common.size()));
        // Lists of modules may be alike, too: a model is more than a few of all tensors.
        const auto mostOf = [&](size_t part, size_t all) {
            return part > 2 && part * 5 >= whole.size() && part * 10 >= all * 9;
        };
        std::map<std::string_view, std::vector<std::string_view>> below;  // by first part
        std::map<std::string_view, size_t> inside;  // names that are there without their first part, too
        for (const std::string_view name : names) {
            const size_t dot = name.find('.');
            if (dot == name.npos) continue;
            below[name.substr(0, dot + 1)].push_back(name.substr(dot + 1));
            inside[name.substr(0, dot + 1)] += names.contains(name.substr(dot + 1)) ? 1 : 0;
        }
        const auto say = [&](std::string_view one, std::string_view other) {
            why_.push_back(fmt::format("it holds two models, such as {} and {}: convert one of them ({}, {})",
                                       inQuotes(one), inQuotes(other), option("select", "PREFIX.*"),
                                       option("rename", "^PREFIX[.]=")));
        };
        for (const auto& [prefix, count] : inside)
            if (mostOf(count, below[prefix].size()))
                return say(below[prefix].front(), std::string(prefix) + std::string(below[prefix].front()));
        for (auto one = below.begin(); one != below.end(); ++one) {
            for (auto other = std::next(one); other != below.end(); ++other) {
                const bool fewer = one->second.size() < other->second.size();
                const auto &few = fewer ? one->second : other->second,
                           &many = fewer ? other->second : one->second;
                const auto same = static_cast<size_t>(std::ranges::count_if(
                    few, [&](std::string_view rest) { return std::ranges::binary_search(many, rest); }));
                if (isTower(one->first) && isTower(other->first)) continue;
                if (mostOf(same, few.size()))
                    return say(fmt::format("{}{}{}", common, one->first, one->second.front()),
                               fmt::format("{}{}{}", common, other->first, other->second.front()));
            }
        }
    }

    // "state_dict." where all names begin so.
    static std::string_view commonParts(const std::set<std::string_view>& names) {
        if (names.empty()) return {};
        const std::string_view first = *names.begin(), last = *names.rbegin();
        const auto end = std::ranges::mismatch(first, last).in1 - first.begin();
        const size_t dot = first.substr(0, static_cast<size_t>(end)).rfind('.');
        return dot == first.npos ? std::string_view() : first.substr(0, dot + 1);
    }

    // Parts of one model that may be alike: two encoders, an encoder and a decoder.
    static bool isTower(std::string_view part) {
        return containsPart(part, {"encoder", "decoder", "text", "vision", "visual", "image", "audio",
                                   "video", "language", "query", "question", "ctx", "context", "towers"});
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
                fmt::format("it has {} of quantized weights, such as {}, and its config.json has no "
                            "'quantization_config': {} makes plain weights",
                            counted(found, "tensor"), inQuotes(first), option("dequantize", "bf16")));
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

    // An output layer that is no tensor must be tied to the embedding. A model that classifies has another
    // one.
    void head() {
        bool embedding = false, head = false, score = false;
        for (TensorId t = 0; t < target_.tensorCount(); ++t) {
            const std::string_view name = target_.name(t);
            embedding |= containsPart(name, {"embed_tokens.weight", "embed_in.weight", "wte.weight"});
            head |=
                containsPart(name, {"lm_head", "embed_out", "output.weight", "output_layer", "head.weight"});
            score |= containsPart(name, {"score.", "classifier.", "classification_head."});
        }
        const std::string named = classNamed(config_);
        if (embedding && named.ends_with("Classification")) {
            if (!score)
                why_.push_back(
                    fmt::format("it has no layer that classifies ('score.weight'), which a '{}' "
                                "of its config.json has",
                                printable(named, kNameInMessage)));
            return;
        }
        if (!embedding || head) return;
        const auto tied = statedNumber(config_, "tie_word_embeddings");
        if (!tied || *tied != 0 || !named.ends_with("ForCausalLM")) return;
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
                if (kinds[names] > 1) continue;
                for (const auto& [other, times] : kinds) {
                    const bool inside = other.size() > names.size() && std::ranges::includes(other, names) &&
                                        (other.size() - names.size()) * 4 <= other.size();
                    if (!inside) continue;
                    std::vector<std::string> lacks;
                    std::ranges::set_difference(other, names, std::back_inserter(lacks));
                    const bool first = number == group.begin()->first;
                    if (first &&
                        (type_.starts_with("rwkv") || std::ranges::all_of(lacks, [](const std::string& name) {
                             return containsPart(name, {"norm"});
                         })))
                        break;
                    add(fmt::format("it lacks {}, which other layers have",
                                    inQuotes(fmt::format("{}{}.{}", prefix, number, lacks.front()))));
                    break;
                }
            }
        }
    }

    // Of models that are not known: what no module is without.
    void partners() {
        constexpr std::pair<std::string_view, std::string_view> kPartners[] = {
            {"v_proj.weight", "k_proj.weight"},
            {"k_proj.weight", "q_proj.weight"},
            {"gate_proj.weight", "up_proj.weight"},
            {"up_proj.weight", "down_proj.weight"},
            {"k_norm.weight", "q_norm.weight"},
            {"v_proj.bias", "q_proj.bias"},
            {"w1.weight", "w2.weight"},
            {"w2.weight", "w3.weight"},
            {"w3.weight", "w1.weight"},
            {"experts.gate_up_proj", "experts.down_proj"},
            {"experts.down_proj", "experts.gate_up_proj"}};
        for (TensorId t = 0; t < target_.tensorCount(); ++t) {
            const std::string_view name = target_.name(t);
            for (const auto& [one, other] : kPartners) {
                if (!name.ends_with("." + std::string(one))) continue;
                const std::string wanted =
                    std::string(name.substr(0, name.size() - one.size())) + std::string(other);
                if (target_.find(wanted) == kNone)
                    add(fmt::format("it has {} and lacks {}", inQuotes(name), inQuotes(wanted)));
            }
            constexpr std::string_view kValues = "self_attn.v_proj.weight";
            if (!name.ends_with(kValues)) continue;
            const std::string module(name.substr(0, name.size() - std::string_view("v_proj.weight").size()));
            if (std::ranges::none_of(std::array{"o_proj.weight", "out_proj.weight", "dense.weight"},
                                     [&](const char* out) { return target_.find(module + out) != kNone; }))
                add(fmt::format("it has {} and lacks {}", inQuotes(name),
                                inQuotes(module + "o_proj.weight")));
        }
    }

    // Of language models that are not known: what stands before and behind the layers, and what stands beside
    // the model while it is trained.
    void ends() {
        const std::string named = classNamed(config_);
        const bool causal = named.ends_with("ForCausalLM");
        if (!causal && !named.ends_with("ForConditionalGeneration")) return;
        const auto hidden = statedNumber(config_, "hidden_size");
        bool layers = false, normed = false, embedding = false, norm = false;
        for (TensorId t = 0; t < target_.tensorCount(); ++t) {
            const std::string_view name = target_.name(t);
            if (containsPart(name, {"v_head.", "value_head.", "reward_head."}) ||
                name.starts_with("score.") || name.ends_with("_ema"))
                add(fmt::format("{} is not of a '{}', of which its config.json speaks", inQuotes(name),
                                printable(named, kNameInMessage)));
            const bool inside = containsPart(name, {"layers.", ".h.", "blocks."});
            layers |= inside;
            normed |= inside && containsPart(name, {"input_layernorm.weight"});
            if (inside) continue;
            norm |= containsPart(name, {"norm", "ln_f"});
            embedding |= containsPart(name, {"embed", "wte"});
            if (causal && hidden && name.ends_with("embed_tokens.weight") && target_.shape(t).size() == 2 &&
                target_.shape(t)[1] != *hidden && !config_.contains("word_embed_proj_dim"))
                add(fmt::format("the shape of {} is {}, its config.json says a hidden size of {}",
                                inQuotes(name), formatDims(target_.shape(t)), *hidden));
        }
        if (!causal) return;
        if (layers && !embedding) add("it has no embedding of tokens");
        if (normed && !norm) add("it has no norm behind its layers");
    }

    // With what the class itself wants, in the spelling that fits best. False where most names are of another
    // one: transformers takes those of older releases, too.
    bool compare(const WantedModel& model) {
        std::vector<RegularExpression> ignored;
        for (const std::string& pattern : model.ignored)
            if (auto parsed = RegularExpression::parse(pattern); parsed.ok())
                ignored.push_back(std::move(*parsed));
        std::optional<std::vector<std::string>> best;
        size_t fewest = 0;
        for (const auto& spelling : model.spellings) {
            size_t differ = 0, others = 0, weights = 0;
            why_.clear();
            std::unordered_set<std::string_view> names;
            for (const WantedTensor& tensor : spelling) {
                names.insert(tensor.name);
                differ += fits(tensor) ? 0 : 1;
            }
            for (TensorId t = 0; t < target_.tensorCount(); ++t) {
                const std::string_view name = target_.name(t);
                if (target_.role(t) != Role::parameter) continue;
                ++weights;
                if (names.contains(name) || mayDiffer(name, config_) ||
                    std::ranges::any_of(ignored, [&](const auto& one) { return one.matchesPart(name); }))
                    continue;
                ++others;
                add(fmt::format("a '{}' has no {}", type_, inQuotes(name)));
            }
            if (2 * others > weights || (best && differ + others >= fewest)) continue;
            fewest = differ + others;
            best = std::move(why_);
        }
        why_ = best ? std::move(*best) : std::vector<std::string>();
        return best.has_value();
    }

    bool fits(const WantedTensor& tensor) {
        const TensorId t = target_.find(tensor.name);
        if (t == kNone) {
            if (!tensor.optional)
                add(fmt::format("it lacks {}, which a '{}' has", inQuotes(tensor.name), type_));
            return tensor.optional;
        }
        const DimSpan stored = target_.shape(t);
        bool same = stored.size() == tensor.shape.size();
        std::string wanted;
        for (size_t dim = 0; dim < tensor.shape.size(); ++dim) {
            const auto length = tensor.shape[dim];
            same = same && (!length || stored[dim] == *length);
            wanted += fmt::format("{}{}", dim == 0 ? "" : ", ", length ? std::to_string(*length) : "any");
        }
        if (!same)
            add(fmt::format("the shape of {} is {}, its config.json says [{}]", inQuotes(tensor.name),
                            formatDims(stored), wanted));
        return same;
    }

    void add(std::string sentence) {
        constexpr size_t kMostGaps = 4;
        if (why_.size() < kMostGaps) why_.push_back(std::move(sentence));
    }

    const nlohmann::json& config_;
    const std::string& type_;
    const Catalog& target_;
    std::vector<std::string> why_;
};

}  // namespace

bool containsPart(std::string_view name, std::initializer_list<std::string_view> parts) {
    return std::ranges::any_of(parts, [&](std::string_view part) { return name.find(part) != name.npos; });
}

bool mayDiffer(std::string_view name, const nlohmann::json& config) {
    if (name.ends_with("_scale_inv") || name.starts_with("mtp.") ||
        containsPart(name, {"rotary_emb.inv_freq", ".attn.bias", ".attn.masked_bias", "position_ids",
                            ".mtp_layers."}) ||
        (containsPart(name, {"lm_head.weight"}) && numberIn(config, "tie_word_embeddings").value_or(1) != 0))
        return true;
    constexpr std::string_view kLayers = "model.layers.";
    const auto layers = numberIn(config, "num_hidden_layers");
    if (!name.starts_with(kLayers) || !layers) return false;
    name.remove_prefix(kLayers.size());
    const auto number = parseNumber<int64_t>(name.substr(0, name.find('.')));
    return number && *number >= *layers;
}

std::string classNamed(const nlohmann::json& config) {
    const auto classes = config.is_object() ? config.find("architectures") : config.end();
    const bool named = config.is_object() && classes != config.end() && classes->is_array() &&
                       !classes->empty() && classes->front().is_string();
    return named ? classes->front().get<std::string>() : std::string();
}

ModelGaps modelGaps(const nlohmann::json& config, const std::string& modelType, const Catalog& target) {
    if (!config.is_object()) return {};
    return Gaps(config, modelType, target).find();
}

}  // namespace shardscope
