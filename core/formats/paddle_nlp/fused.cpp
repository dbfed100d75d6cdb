#include "formats/paddle_nlp/fused.h"

#include <algorithm>

#include <fmt/format.h>

#include "formats/rank_cut.h"

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

std::vector<PlannedChunk> splitFused(const PlannedChunk& planned, const Layout& layout) {
    if (layout.fusedParts < 2 || layout.axis < 0 || planned.lengths == layout.global) return {planned};
    const auto axis = static_cast<size_t>(layout.axis);
    const std::vector<int64_t> parts(static_cast<size_t>(layout.fusedParts),
                                     layout.global[axis] / layout.fusedParts);
    const RankCut cut = RankCut::share(layout.axis, parts, planned.offsets[axis], planned.lengths[axis]);
    std::vector<PlannedChunk> out;
    for (CutBox& box :
         planned.flat ? cut.boxes(planned.lengths, *planned.flat) : cut.boxes(planned.lengths)) {
        PlannedChunk& d = out.emplace_back(planned);
        d.offsets = std::move(box.offsets);
        d.lengths = box.lengths;
        if (planned.flat) {
            d.flat = box.flat;
            d.first = planned.first - planned.flat->start + box.first;
            d.arrayStrides = std::move(box.strides);
            if (out.size() > 1) d.padding.clear();  // looked at once
        } else {
            d.arrayOffsets = std::move(box.from);
            d.arrayLengths = std::move(box.lengths);
        }
    }
    return out.empty() ? std::vector{planned} : out;
}

}  // namespace shardscope::paddle_nlp
