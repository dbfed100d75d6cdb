#include "formats/tp_rule.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/numbers.h"
#include "base/option_words.h"
#include "model/region.h"

namespace shardscope {

FormatOption tpDimOption() {
    return {.name = kTpDim,
            .value = "GLOB=DIM",
            .help =
                "Dimension along which tensor-parallel ranks shard these tensors, or none, where the "
                "source does not say it (repeatable, the first match counts)",
            .title = "Sharded dimensions",
            .example = "*.qkv_proj.weight=1 *.norm.weight=none",
            .repeats = true};
}

Result<TpRule> parseTpRule(const std::string& text) {
    const size_t equals = text.rfind('=');
    const auto bad = [&] {
        return makeError(ErrorCode::usage,
                         fmt::format("{} '{}' is not GLOB=DIMENSION", option("tp-dim"), text))
            .withHint(fmt::format("such as {}, or =none where each rank holds the whole tensor",
                                  option("tp-dim", "'*.proj.weight=1'")));
    };
    if (equals == text.npos || equals == 0) return bad();
    TpRule rule;
    rule.text = text;
    const std::string_view value = std::string_view(text).substr(equals + 1);
    if (value != "none") {
        const auto axis = parseNumber<decltype(rule.axis)>(value, 0, kMaxRank - 1);
        if (!axis) return bad();
        rule.axis = *axis;
    }
    SHARDSCOPE_ASSIGN(rule.pattern, NamePattern::parse(text.substr(0, equals)));
    return rule;
}

Result<std::vector<TpRule>> tpRulesOf(const OpenOptions& options) {
    std::vector<TpRule> rules;
    for (const std::string& text : options.valuesOf(kTpDim)) {
        SHARDSCOPE_ASSIGN(TpRule rule, parseTpRule(text));
        rules.push_back(std::move(rule));
    }
    return rules;
}

Result<FusedChoice> FusedChoice::parse(const std::string& variant, std::string_view what) {
    FusedChoice choice;
    std::string_view text = variant;
    if (text.empty()) return choice;
    constexpr std::string_view kFused = "fused-qkv=";
    if (!text.starts_with(kFused)) {
        return makeError(ErrorCode::usage, fmt::format("'{}' is not a variant of this format", text))
            .withHint(
                fmt::format("fused-qkv=auto, or fused-qkv=PATTERN,... for the tensors that hold {}", what));
    }
    text.remove_prefix(kFused.size());
    choice.automatic_ = text == "auto";
    while (!choice.automatic_ && !text.empty()) {
        const size_t comma = std::min(text.find(','), text.size());
        if (comma > 0) {
            SHARDSCOPE_ASSIGN(NamePattern pattern, NamePattern::parse(std::string(text.substr(0, comma))));
            choice.patterns_.push_back(std::move(pattern));
        }
        text.remove_prefix(std::min(text.size(), comma + 1));
    }
    return choice;
}

}  // namespace shardscope
