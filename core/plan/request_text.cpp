#include "plan/request_text.h"

#include <fmt/format.h>

#include "base/numbers.h"

namespace shardscope {

namespace {

Error malformed(std::string_view text, std::string_view form) {
    return makeError(ErrorCode::usage, fmt::format("'{}' is not {}", text, form));
}

}  // namespace

// The part after the last colon says which axis cuts which dimension.
Result<ShardRule> parseShardRule(std::string_view text) {
    const size_t colon = text.rfind(':');
    if (colon == std::string_view::npos || colon == 0) return malformed(text, "GLOB:AXIS=DIM,...");
    ShardRule rule;
    rule.pattern = text.substr(0, colon);
    std::string_view rest = text.substr(colon + 1);
    while (!rest.empty()) {
        const std::string_view part = rest.substr(0, rest.find(','));
        rest = part.size() == rest.size() ? std::string_view{} : rest.substr(part.size() + 1);
        const size_t equals = part.find('=');
        const auto dim = equals == part.npos ? std::nullopt : parseNumber<int>(part.substr(equals + 1));
        if (!dim) return malformed(part, "AXIS=DIM");
        rule.axisDims.emplace_back(std::string(part.substr(0, equals)), *dim);
    }
    if (rule.axisDims.empty()) return makeError(ErrorCode::usage, fmt::format("'{}' names no axis", text));
    return rule;
}

Result<StageRule> parseStageRule(std::string_view text) {
    const auto rule = parseShardRule(text);
    if (!rule.ok() || rule->axisDims.size() != 1 || rule->axisDims[0].second < 0)
        return malformed(text, "GLOB:AXIS=COORDINATE");
    return StageRule{rule->pattern, rule->axisDims[0].first, static_cast<uint32_t>(rule->axisDims[0].second)};
}

Result<CastRule> parseCastRule(std::string_view text) {
    const size_t equals = text.rfind('=');
    const auto dtype =
        equals == std::string_view::npos ? std::nullopt : dtypeFromName(text.substr(equals + 1));
    if (!dtype) return malformed(text, "GLOB=DTYPE");
    return CastRule{std::string(text.substr(0, equals)), *dtype};
}

Result<RenameRule> parseRenameRule(std::string_view text) {
    const size_t equals = text.find('=');
    if (equals == std::string_view::npos) return malformed(text, "FROM=TO");
    return RenameRule{std::string(text.substr(0, equals)), std::string(text.substr(equals + 1))};
}

std::string formatShardRule(const ShardRule& rule) {
    std::string text = rule.pattern;
    for (size_t i = 0; i < rule.axisDims.size(); ++i)
        text += fmt::format("{}{}={}", i ? ',' : ':', rule.axisDims[i].first, rule.axisDims[i].second);
    return text;
}

std::string formatStageRule(const StageRule& rule) {
    return fmt::format("{}:{}={}", rule.pattern, rule.axis, rule.coordinate);
}

std::string formatCastRule(const CastRule& rule) {
    return fmt::format("{}={}", rule.pattern, dtypeName(rule.dtype));
}

std::string formatRenameRule(const RenameRule& rule) {
    return fmt::format("{}={}", rule.from, rule.to);
}

}  // namespace shardscope
