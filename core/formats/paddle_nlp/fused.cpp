#include "formats/paddle_nlp/fused.h"

#include <algorithm>

#include <fmt/format.h>

#include "model/coverage.h"

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

namespace {

// A range of the flattened [a_r | b_r]: in each of the boxes that it is made of, each part's columns are a
// box of the array at the rank's own strides.
std::vector<PlannedChunk> splitFlat(const PlannedChunk& planned, const Layout& layout, size_t axis) {
    const int64_t width = planned.lengths[axis] / layout.fusedParts;
    const int64_t before = planned.offsets[axis] / layout.fusedParts;
    const Dims strides = rowMajorStrides(planned.lengths);
    const Dims origin(planned.lengths.size(), 0);
    std::vector<PlannedChunk> out;
    for (const Box& box : flatRangeBoxes(origin, planned.lengths, *planned.flat)) {
        for (int64_t part = 0; part < layout.fusedParts; ++part) {
            Dims columns = origin, lengths = planned.lengths;
            columns[axis] = part * width;
            lengths[axis] = width;
            const auto mine = intersect(box.offsets, box.lengths, columns, lengths);
            if (!mine || boxIsEmpty(mine->lengths)) continue;
            PlannedChunk d = planned;
            d.flat.reset();
            d.lengths = mine->lengths;
            d.first = planned.first - planned.flat->start;
            for (size_t k = 0; k < d.lengths.size(); ++k) {
                d.first += mine->offsets[k] * strides[k];
                d.offsets[k] = planned.offsets[k] + mine->offsets[k];
            }
            d.offsets[axis] = part * (layout.global[axis] / layout.fusedParts) + before +
                              mine->offsets[axis] - part * width;
            d.arrayStrides = strides;
            if (!out.empty()) d.padding.clear();  // looked at once
            out.push_back(std::move(d));
        }
    }
    if (out.empty()) return {planned};
    return out;
}

}  // namespace

std::vector<PlannedChunk> splitFused(const PlannedChunk& planned, const Layout& layout) {
    const auto axis = static_cast<size_t>(std::max(layout.axis, 0));
    if (layout.fusedParts < 2 || layout.axis < 0 || planned.lengths == layout.global) return {planned};
    if (planned.flat) return splitFlat(planned, layout, axis);
    const int64_t width = planned.lengths[axis] / layout.fusedParts;
    const int64_t before = planned.offsets[axis] / layout.fusedParts;
    std::vector<PlannedChunk> out;
    for (int64_t part = 0; part < layout.fusedParts; ++part) {
        PlannedChunk d = planned;
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
