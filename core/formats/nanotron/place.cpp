#include "formats/nanotron/place.h"

#include <algorithm>
#include <optional>

#include "base/numbers.h"
#include "base/rule.h"
#include "encoding/json_value.h"
#include "model/value_view.h"

namespace shardscope::nanotron {

namespace {

Error wrong(const char* message) {
    return damaged(message).byRule(rule::metaInconsistent);
}

struct Slice {
    int64_t from = 0, to = 0;
};
using Slices = std::vector<Slice>;
struct SlicePair {
    Slices local, global;
};

std::vector<std::string_view> split(std::string_view text, char at) {
    std::vector<std::string_view> parts;
    while (true) {
        const size_t end = text.find(at);
        parts.push_back(text.substr(0, end));
        if (end == text.npos) return parts;
        text.remove_prefix(end + 1);
    }
}

std::string_view trimmed(std::string_view text, std::string_view what = " ()[]") {
    const size_t first = text.find_first_not_of(what);
    if (first == text.npos) return {};
    return text.substr(first, text.find_last_not_of(what) - first + 1);
}

// "(48, 16)", "(16,)", "(np.int64(48), 16)".
std::optional<Dims> parseShape(std::string_view text) {
    Dims shape;
    if (trimmed(text).empty()) return shape;
    for (std::string_view part : split(trimmed(text, " "), ',')) {
        part = trimmed(part);
        if (part.empty()) continue;
        if (part.starts_with("np.int")) part = trimmed(part.substr(part.find('(') + 1));
        const auto size = parseNumber<int64_t>(part, 0, kMaxDim);
        if (!size || shape.size() == static_cast<size_t>(kMaxRank)) return std::nullopt;
        shape.push_back(*size);
    }
    return shape;
}

std::optional<Slice> checkedSlice(std::optional<int64_t> from, std::optional<int64_t> to, int64_t size) {
    const Slice slice{from.value_or(0), to.value_or(size)};
    if (slice.from < 0 || slice.from > slice.to || slice.to > size) return std::nullopt;
    return slice;
}

// "0,24,None|None,None,None"
std::optional<Slices> parseSlices(std::string_view text, DimSpan shape) {
    Slices slices;
    if (text.empty() && shape.empty()) return slices;
    for (const std::string_view part : split(text, '|')) {
        const auto bounds = split(part, ',');
        if (slices.size() == shape.size() || bounds.size() != 3 || (bounds[2] != "None" && bounds[2] != "1"))
            return std::nullopt;
        std::optional<int64_t> ends[2];
        for (size_t i = 0; i < 2; ++i) {
            if (bounds[i] == "None") continue;
            ends[i] = parseNumber<int64_t>(bounds[i]);
            if (!ends[i]) return std::nullopt;
        }
        const auto slice = checkedSlice(ends[0], ends[1], shape[slices.size()]);
        if (!slice) return std::nullopt;
        slices.push_back(*slice);
    }
    return slices.size() == shape.size() ? std::optional(slices) : std::nullopt;
}

// [[0, 24], [0, 16]]
std::optional<Slices> slicesOf(ValueView list, DimSpan shape) {
    const std::vector<ValueView> parts = list.items();
    if (!list.isList() || parts.size() != shape.size()) return std::nullopt;
    Slices slices;
    for (const ValueView part : parts) {
        const std::vector<ValueView> ends = part.items();
        if (ends.size() < 2 || !ends[0].integer() || !ends[1].integer()) return std::nullopt;
        if (ends.size() > 2 && !ends[2].is(ValueKind::none) && ends[2].integer() != 1) return std::nullopt;
        const auto slice = checkedSlice(ends[0].integer(), ends[1].integer(), shape[slices.size()]);
        if (!slice) return std::nullopt;
        slices.push_back(*slice);
    }
    return slices;
}

std::optional<std::vector<SlicePair>> parseJsonPairs(std::string_view text, DimSpan local, DimSpan global) {
    const Value list = jsonValue(text);
    if (!ValueView(list).isList()) return std::nullopt;
    std::vector<SlicePair> pairs;
    for (const ValueView pair : ValueView(list).items()) {
        auto from = slicesOf(pair["local_slices"], local), to = slicesOf(pair["global_slices"], global);
        if (!from || !to) return std::nullopt;
        pairs.push_back({*std::move(from), *std::move(to)});
    }
    return pairs;
}

std::optional<std::vector<SlicePair>> parsePairs(std::string_view text, DimSpan local, DimSpan global) {
    if (text.starts_with('[')) return parseJsonPairs(text, local, global);
    std::vector<SlicePair> pairs;
    for (const std::string_view part : split(text, ';')) {
        const auto sides = split(part, '#');
        if (sides.size() != 2) return std::nullopt;
        auto from = parseSlices(sides[0], local), to = parseSlices(sides[1], global);
        if (!from || !to) return std::nullopt;
        pairs.push_back({*std::move(from), *std::move(to)});
    }
    return pairs;
}

}  // namespace

Result<Place> parsePlace(std::string_view shape, std::string_view text, DimSpan stored) {
    const auto whole = parseShape(shape);
    if (!whole) return wrong("its unsharded_shape is not a shape");
    if (whole->size() != stored.size()) return wrong("it has other dimensions than its unsharded_shape");
    const auto pairs = parsePairs(text, stored, *whole);
    if (!pairs) return wrong("its local_global_slices_pairs are not ranges of it and of the whole");
    Place place{*whole, {}};
    int& axis = place.cut.axis;
    for (size_t d = 0; d < stored.size(); ++d) {
        const bool along = pairs->size() > 1 && std::ranges::any_of(*pairs, [&](const SlicePair& pair) {
                               return pair.local[d].from != 0 || pair.local[d].to != stored[d];
                           });
        if (stored[d] == (*whole)[d] && !along) continue;
        if (axis >= 0) return unsupported("more than one dimension of it is sharded, which is not read");
        axis = static_cast<int>(d);
    }
    int64_t held = 0;
    for (const auto& [local, global] : *pairs) {
        for (size_t d = 0; d < stored.size(); ++d) {
            const bool cut = static_cast<int>(d) == axis;
            if (local[d].to - local[d].from != global[d].to - global[d].from ||
                (!cut && (local[d].from != 0 || local[d].to != stored[d])))
                return wrong("its local ranges are not as long as its global ones");
        }
        if (axis < 0) continue;
        const auto d = static_cast<size_t>(axis);
        if (local[d].from != held) return wrong("its local ranges are not one behind the other");
        held = local[d].to;
        place.cut.parts.push_back({local[d].from, local[d].to - local[d].from, global[d].from});
    }
    if (axis >= 0 && held != stored[static_cast<size_t>(axis)])
        return wrong("its local ranges are not all of it");
    return place;
}

}  // namespace shardscope::nanotron
