#include "formats/paddle_nlp/fused.h"

#include <algorithm>

#include <fmt/format.h>

namespace shardscope::paddle_nlp {

Result<FusedChoice> FusedChoice::parse(const std::string& variant) {
    FusedChoice choice;
    std::string_view text = variant;
    if (text.empty()) return choice;
    constexpr std::string_view kFused = "fused-qkv=";
    if (!text.starts_with(kFused)) {
        return makeError(ErrorCode::usage, fmt::format("'{}' is not a variant of this format", text))
            .withHint(
                "fused-qkv=auto, or fused-qkv=PATTERN,... for the tensors that hold several projections");
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

bool FusedChoice::names(std::string_view name) const {
    return std::any_of(patterns_.begin(), patterns_.end(),
                       [&](const NamePattern& p) { return p.matches(name); });
}

bool FusedChoice::wants(std::string_view name) const {
    return automatic_ || names(name);
}

std::vector<Draft> splitFused(const Draft& draft, const Layout& layout) {
    const auto axis = static_cast<size_t>(std::max(layout.axis, 0));
    if (layout.fusedParts < 2 || layout.axis < 0 || draft.flat || draft.lengths == layout.global)
        return {draft};
    const int64_t width = draft.lengths[axis] / layout.fusedParts;
    const int64_t before = draft.offsets[axis] / layout.fusedParts;
    std::vector<Draft> out;
    for (int64_t part = 0; part < layout.fusedParts; ++part) {
        Draft d = draft;
        d.offsets[axis] = part * (layout.global[axis] / layout.fusedParts) + before;
        d.lengths[axis] = width;
        d.arrayOffsets.assign(d.lengths.size(), 0);
        d.arrayOffsets[axis] = part * width;
        d.arrayLengths = d.lengths;
        out.push_back(std::move(d));
    }
    return out;
}

}  // namespace shardscope::paddle_nlp
