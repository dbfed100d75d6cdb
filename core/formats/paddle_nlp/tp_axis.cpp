#include "formats/paddle_nlp/tp_axis.h"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/names.h"
#include "base/option_words.h"
#include "base/rule.h"
#include "base/units.h"

namespace shardscope::paddle_nlp {

// The text of resources/paddlenlp/tensor_parallel.json, which the build embeds.
extern const std::string_view kFamilyRules;

namespace {

constexpr size_t kListedTensors = 8;  // tensors in one message

std::vector<NamePattern> patternsOf(const nlohmann::json& list) {
    std::vector<NamePattern> out;
    for (const auto& text : list) {
        auto pattern = NamePattern::parse(text.get<std::string>());
        if (pattern.ok()) out.push_back(std::move(pattern).value());
    }
    return out;
}

bool isExpert(std::string_view name) {
    return name.find(".experts.") != std::string_view::npos;
}

class Conclusion {
  public:
    Conclusion(const std::vector<TpQuestion>& questions, uint32_t degree, const ModelSizes& config,
               const std::vector<TpRule>& stated)
        : questions_(questions), degree_(degree), config_(config), stated_(stated) {}

    Result<std::vector<TpAnswer>> run() {
        findHidden();
        answers_.resize(questions_.size());
        for (size_t i = 0; i < questions_.size(); ++i) {
            SHARDSCOPE_ASSIGN(const bool done, byStatement(i));
            if (!done) SHARDSCOPE_TRY(conclude(i));
        }
        agreeAcrossLayers();
        std::vector<size_t> open;
        for (size_t i = 0; i < questions_.size(); ++i) {
            if (answers_[i].axis == TpAnswer::kUnknown) open.push_back(i);
        }
        if (open.empty()) return std::move(answers_);
        return ambiguous(open);
    }

  private:
    // The width of the model: of norms, which every rank holds whole.
    void findHidden() {
        std::map<int64_t, size_t> widths;
        for (const TpQuestion& q : questions_) {
            const FamilyRule* rule = familyRuleOf(q.name);
            if (q.local.size() == 1 && rule && rule->family == "norms") ++widths[q.local[0]];
        }
        size_t most = 0;
        for (const auto& [width, count] : widths) {
            if (count > most) {
                most = count;
                hidden_ = width;
            }
        }
        if (config_.hidden > 0) hidden_ = config_.hidden;
    }

    void answer(size_t i, int axis, std::string why) {
        answers_[i].axis = axis;
        answers_[i].why = std::move(why);
    }

    Result<bool> byStatement(size_t i) {
        const TpQuestion& q = questions_[i];
        answers_[i].rule = familyRuleOf(q.name);
        for (const TpRule& rule : stated_) {
            if (!rule.pattern.matches(q.name)) continue;
            if (rule.axis >= static_cast<int>(q.local.size())) {
                return makeError(
                           ErrorCode::usage,
                           fmt::format(
                               "{} '{}' names dimension {} of '{}', which has the shape {} on each rank",
                               option("tp-dim"), rule.text, rule.axis, q.name, formatDims(q.local)))
                    .ofTensor(q.name);
            }
            answer(i, rule.axis, fmt::format("as {} '{}' states", commandOption("tp-dim"), rule.text));
            return true;
        }
        return false;
    }

    Status conclude(size_t i) {
        const TpQuestion& q = questions_[i];
        if (q.whole) return byWhole(i);
        if (q.local.empty()) {
            answer(i, TpAnswer::kReplicated, "a scalar");
            return {};
        }
        if (q.distributed == false) {
            answer(i, TpAnswer::kReplicated, "not distributed, as model_meta.json says");
            return {};
        }
        const bool cut = q.distributed == true;
        const FamilyRule* rule = answers_[i].rule;
        if (!cut && q.content == TpQuestion::Content::same) {
            // A vocabulary that does not divide, or fewer key-value heads than ranks, is not cut where it
            // usually is.
            answer(i, TpAnswer::kReplicated, "equal on all ranks");
            return {};
        }
        // One of a mixture is cut in some setups; in others each rank has experts of its own, under the same
        // names. Only sizes tell.
        if (isExpert(q.name)) {
            if (const int axis = axisOfConfig(q); axis >= 0 && !wholeByConfig(q))
                answer(i, axis, "an expert, and by the sizes in config.json");
            return {};
        }
        if (rule) {
            const int axis = axisOfRule(*rule, q);
            if (axis != TpAnswer::kUnknown && (axis != TpAnswer::kReplicated || !cut)) {
                answer(i, axis, fmt::format("as is known of {}", rule->family));
                return {};
            }
        }
        if (!cut && q.content != TpQuestion::Content::differs) return {};
        const std::string_view reason =
            cut ? "distributed, as model_meta.json says" : "different on the ranks";
        if (q.local.size() == 1) {
            answer(i, 0, fmt::format("{}, and it has one dimension", reason));
            return {};
        }
        if (const int axis = axisOfConfig(q); axis >= 0) {
            answer(i, axis, fmt::format("{}, and by the sizes in config.json", reason));
        } else if (const int other = axisOfHidden(q); other >= 0) {
            answer(i, other, fmt::format("{}, and the other dimension is the width of the norms", reason));
        }
        return {};
    }

    Status byWhole(size_t i) {
        const TpQuestion& q = questions_[i];
        int axis = TpAnswer::kReplicated;
        bool fits = q.whole->size() == q.local.size();
        for (size_t d = 0; fits && d < q.local.size(); ++d) {
            if (q.local[d] == (*q.whole)[d]) continue;
            fits = axis == TpAnswer::kReplicated && q.local[d] <= INT64_MAX / degree_ &&
                   q.local[d] * degree_ == (*q.whole)[d];
            axis = static_cast<int>(d);
        }
        if (!fits) {
            return damaged(
                       fmt::format("its optimizer state has the shape {} on each of {}, the whole weight {}",
                                   formatDims(q.local), counted(degree_, "rank"), formatDims(*q.whole)))
                .ofTensor(q.name)
                .byRule(rule::metaInconsistent);
        }
        answer(i, axis, "by the shape of the whole weight");
        return {};
    }

    int axisOfRule(const FamilyRule& rule, const TpQuestion& q) const {
        const int last = static_cast<int>(q.local.size()) - 1;
        switch (rule.cut) {
            case FamilyRule::Cut::none:
                return TpAnswer::kReplicated;
            case FamilyRule::Cut::first:
                return 0;
            case FamilyRule::Cut::last:
                return last;
            case FamilyRule::Cut::head:
                break;
        }
        if (q.local.size() != 2) return TpAnswer::kUnknown;
        if (const int axis = axisOfConfig(q); axis >= 0) return axis;
        if (const int axis = axisOfHidden(q); axis >= 0) return axis;
        // Square on each rank. It is [hidden, vocabulary] unless it is tied to the embedding.
        return last;
    }

    // Sizes of whole dimensions.
    std::set<int64_t> sizesOfConfig() const {
        std::set<int64_t> sizes;
        for (int64_t size : {config_.hidden, config_.intermediate, config_.vocabulary, config_.positions,
                             config_.intermediate * 2, config_.expert, config_.expert * 2}) {
            if (size > 0) sizes.insert(size);
        }
        if (config_.headSize > 0 && config_.heads > 0 && config_.heads < (1 << 20) &&
            config_.headSize < (1 << 20)) {
            const int64_t keyValue = config_.keyHeads < (1 << 20) ? config_.keyHeads : config_.heads;
            sizes.insert(config_.heads * config_.headSize);
            sizes.insert(keyValue * config_.headSize);
            sizes.insert((config_.heads + 2 * keyValue) * config_.headSize);
        }
        return sizes;
    }

    // Whether what each rank holds may be a whole already.
    bool wholeByConfig(const TpQuestion& q) const {
        const std::set<int64_t> sizes = sizesOfConfig();
        return std::all_of(q.local.begin(), q.local.end(),
                           [&](int64_t size) { return sizes.contains(size); });
    }

    // The only dimension by which all sizes of the whole are such as config.json knows.
    int axisOfConfig(const TpQuestion& q) const {
        const std::set<int64_t> sizes = sizesOfConfig();
        int found = TpAnswer::kUnknown;
        for (size_t cut = 0; cut < q.local.size(); ++cut) {
            bool known = true;
            for (size_t d = 0; d < q.local.size() && known; ++d) {
                const int64_t size = d != cut                           ? q.local[d]
                                     : q.local[d] > INT64_MAX / degree_ ? 0
                                                                        : q.local[d] * degree_;
                known = sizes.contains(size);
            }
            if (!known) continue;
            if (found != TpAnswer::kUnknown) return TpAnswer::kUnknown;
            found = static_cast<int>(cut);
        }
        return found;
    }

    int axisOfHidden(const TpQuestion& q) const {
        if (hidden_ == 0 || q.local.size() != 2 || (q.local[0] == hidden_) == (q.local[1] == hidden_))
            return TpAnswer::kUnknown;
        return q.local[0] == hidden_ ? 1 : 0;
    }

    // What is known of a parameter in one layer holds for the others.
    void agreeAcrossLayers() {
        struct Known {
            int axis = TpAnswer::kUnknown;
            bool agreed = true;
            size_t first = 0;
        };
        std::map<std::pair<std::string, size_t>, Known> layers;
        for (size_t i = 0; i < questions_.size(); ++i) {
            if (answers_[i].axis == TpAnswer::kUnknown) continue;
            const auto [it, fresh] =
                layers.try_emplace({withoutNumbers(questions_[i].name), questions_[i].local.size()});
            if (fresh) it->second = {answers_[i].axis, true, i};
            it->second.agreed = it->second.agreed && it->second.axis == answers_[i].axis;
        }
        for (size_t i = 0; i < questions_.size(); ++i) {
            if (answers_[i].axis != TpAnswer::kUnknown) continue;
            const auto it = layers.find({withoutNumbers(questions_[i].name), questions_[i].local.size()});
            if (it == layers.end() || !it->second.agreed) continue;
            // That another layer's is replicated says nothing of one that differs.
            if (it->second.axis == TpAnswer::kReplicated && questions_[i].distributed == true) continue;
            answer(i, it->second.axis,
                   fmt::format("as in other layers, such as '{}'", questions_[it->second.first].name));
        }
    }

    Error ambiguous(const std::vector<size_t>& open) const {
        std::string names;
        for (size_t k = 0; k < open.size() && k < kListedTensors; ++k) {
            const TpQuestion& q = questions_[open[k]];
            names += fmt::format("{}'{}' {}", k ? ", " : "", q.name, formatDims(q.local));
        }
        if (open.size() > kListedTensors)
            names += fmt::format(" and {} more", countText(open.size() - kListedTensors));
        const bool experts =
            std::any_of(open.begin(), open.end(), [&](size_t i) { return isExpert(questions_[i].name); });
        return makeError(
                   ErrorCode::impossible,
                   fmt::format(
                       "along which dimension {} shard {} (shape on each rank: {}) is neither in these files "
                       "nor to be concluded from them{}",
                       counted(degree_, "tensor-parallel rank"), counted(open.size(), "tensor"), names,
                       experts ? "; experts may as well be others on each rank, under the same names, which "
                                 "cannot be converted"
                               : ""))
            .ofTensor(questions_[open[0]].name)
            .withHint(fmt::format("state it: {} '{}=0' (or =1, or =none where each rank holds the whole)",
                                  option("tp-dim"), questions_[open[0]].name));
    }

    const std::vector<TpQuestion>& questions_;
    const int64_t degree_;
    const ModelSizes& config_;
    const std::vector<TpRule>& stated_;
    std::vector<TpAnswer> answers_;
    int64_t hidden_ = 0;
};

std::vector<FamilyRule> readFamilyRules() {
    std::vector<FamilyRule> rules;
    const nlohmann::json json = nlohmann::json::parse(kFamilyRules);
    for (const auto& entry : json.at("rules")) {
        FamilyRule rule;
        const std::string cut = entry.at("cut");
        rule.cut = cut == "first"  ? FamilyRule::Cut::first
                   : cut == "last" ? FamilyRule::Cut::last
                   : cut == "head" ? FamilyRule::Cut::head
                                   : FamilyRule::Cut::none;
        rule.parts = entry.value("parts", 1);
        rule.heads = entry.value("heads", false);
        rule.family = entry.at("of");
        rule.patterns = patternsOf(entry.at("tensors"));
        if (entry.contains("except")) rule.exceptions = patternsOf(entry.at("except"));
        rules.push_back(std::move(rule));
    }
    return rules;
}

}  // namespace

const std::vector<FamilyRule>& familyRules() {
    static const std::vector<FamilyRule> rules = readFamilyRules();
    return rules;
}

const FamilyRule* familyRuleOf(std::string_view name) {
    for (const FamilyRule& rule : familyRules()) {
        if (anyMatches(rule.patterns, name) && !anyMatches(rule.exceptions, name)) return &rule;
    }
    return nullptr;
}

Result<std::vector<TpAnswer>> concludeTpAxes(const std::vector<TpQuestion>& questions, uint32_t degree,
                                             const ModelSizes& config, const std::vector<TpRule>& stated) {
    return Conclusion(questions, degree, config, stated).run();
}

}  // namespace shardscope::paddle_nlp
