#include "plan/step_views.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/checked.h"
#include "base/units.h"

namespace shardscope {
namespace {

Result<int64_t> valueOf(const StepNumber& number) {
    if (!number.missing.empty()) return makeError(ErrorCode::usage, number.missing);
    return number.value;
}

Result<int64_t> positive(const std::optional<StepNumber>& number, std::string_view what) {
    if (!number) return makeError(ErrorCode::usage, fmt::format("it does not say '{}'", what));
    SHARDSCOPE_ASSIGN(const int64_t value, valueOf(*number));
    if (value <= 0 || value > kMaxDim)
        return makeError(ErrorCode::usage, fmt::format("{} = {} is not a count", what, value));
    return value;
}

Result<size_t> dimOf(const TensorView& view, int dim) {
    const auto rank = static_cast<int>(view.shape().size());
    const int d = dim < 0 ? dim + rank : dim;
    if (d < 0 || d >= rank) return makeError(ErrorCode::usage, fmt::format("it has no dimension {}", dim));
    return static_cast<size_t>(d);
}

// Dimension d in the given factors.
Result<TensorView> factored(const TensorView& view, size_t d, DimSpan factors) {
    Dims shape(view.shape().begin(), view.shape().begin() + static_cast<ptrdiff_t>(d));
    shape.insert(shape.end(), factors.begin(), factors.end());
    shape.insert(shape.end(), view.shape().begin() + static_cast<ptrdiff_t>(d) + 1, view.shape().end());
    return view.reshaped(shape);
}

// Dimensions d .. d + count - 1 as one.
Result<TensorView> joined(const TensorView& view, size_t d, size_t count) {
    Dims shape(view.shape().begin(), view.shape().begin() + static_cast<ptrdiff_t>(d));
    shape.push_back(elementCount(DimSpan(view.shape()).subspan(d, count)));
    shape.insert(shape.end(), view.shape().begin() + static_cast<ptrdiff_t>(d + count), view.shape().end());
    return view.reshaped(shape);
}

Result<TensorView> swapped(const TensorView& view, size_t d) {
    std::vector<int> order(view.shape().size());
    for (size_t i = 0; i < order.size(); ++i)
        order[i] = static_cast<int>(i);
    std::swap(order[d], order[d + 1]);
    return view.permuted(order);
}

Result<TensorView> transposed(const RecipeStep& step, const TensorView& view) {
    std::vector<int> order = step.order;
    if (order.empty()) {
        for (size_t i = view.shape().size(); i-- > 0;)
            order.push_back(static_cast<int>(i));
    }
    return view.permuted(order);
}

Result<TensorView> reshapedTo(const RecipeStep& step, const TensorView& view) {
    Dims shape;
    std::optional<size_t> open;
    int64_t known = 1;
    for (const StepNumber& number : step.sizes) {
        SHARDSCOPE_ASSIGN(int64_t size, valueOf(number));
        if (size == -1 && !open) {
            open = shape.size();
            size = 1;
        }
        if (size < 0 || size > kMaxDim || !checkedMul(known, size, known))
            return makeError(ErrorCode::usage, fmt::format("{} is not a size", size));
        shape.push_back(size);
    }
    const int64_t elements = elementCount(view.shape());
    if (open && known > 0 && elements % known == 0) shape[*open] = elements / known;
    return view.reshaped(shape);
}

Result<TensorView> rotated(const RecipeStep& step, const TensorView& view) {
    SHARDSCOPE_ASSIGN(const size_t d, dimOf(view, step.dim));
    const int64_t length = view.shape()[d];
    int64_t headDim = 0;
    if (step.headDim) {
        SHARDSCOPE_ASSIGN(headDim, positive(step.headDim, "head_dim"));
    } else {
        SHARDSCOPE_ASSIGN(const int64_t heads, positive(step.heads, "heads"));
        if (length % heads != 0)
            return makeError(ErrorCode::usage,
                             fmt::format("{} cannot be {}", counted(length, "row"), counted(heads, "head")));
        headDim = length / heads;
    }
    if (headDim % 2 != 0 || headDim == 0 || length % headDim != 0) {
        return makeError(ErrorCode::usage, fmt::format("{} cannot be heads of {}, in pairs",
                                                       counted(length, "row"), counted(headDim, "row")));
    }
    const int64_t pairs = headDim / 2;
    const Dims factors = step.toHalf ? Dims{length / headDim, pairs, 2} : Dims{length / headDim, 2, pairs};
    SHARDSCOPE_ASSIGN(const TensorView cut, factored(view, d, factors));
    SHARDSCOPE_ASSIGN(const TensorView turned, swapped(cut, d + 1));
    return joined(turned, d, 3);
}

// [a1 b1 | a2 b2] -> [a1 a2 b1 b2], for ranks 1, 2 and parts a, b.
Result<TensorView> ranksJoined(const RecipeStep& step, const TensorView& view) {
    SHARDSCOPE_ASSIGN(const size_t d, dimOf(view, step.dim));
    SHARDSCOPE_ASSIGN(const int64_t ranks, positive(step.ranks, "ranks"));
    const int64_t length = view.shape()[d];
    Dims parts;
    int64_t total = 0;
    for (const StepNumber& number : step.sizes) {
        SHARDSCOPE_ASSIGN(const int64_t size, positive(number, "a part"));
        parts.push_back(size);
        total += size;
    }
    // One number says how many parts of the same size there are.
    if (parts.size() == 1) {
        const int64_t count = parts[0];
        if (count > 1024 || length % count != 0)
            return makeError(ErrorCode::usage,
                             fmt::format("{} cannot be {}", counted(length, "row"), counted(count, "part")));
        parts.assign(static_cast<size_t>(count), length / count);
        total = length;
    }
    if (total != length) {
        return makeError(ErrorCode::usage, fmt::format("its {} cannot be parts of {} rows",
                                                       counted(length, "row"), fmt::join(parts, " + ")));
    }
    for (const int64_t part : parts) {
        if (part % ranks != 0) {
            return makeError(ErrorCode::usage, fmt::format("a part of {} does not divide among {}",
                                                           counted(part, "row"), counted(ranks, "rank")));
        }
    }
    SHARDSCOPE_ASSIGN(const TensorView cut, factored(view, d, Dims{ranks, length / ranks}));
    std::vector<TensorView> found;
    int64_t at = 0;
    for (const int64_t part : parts) {
        SHARDSCOPE_ASSIGN(const TensorView slice, cut.narrowed(static_cast<int>(d) + 1, at, part / ranks));
        SHARDSCOPE_ASSIGN(TensorView whole, joined(slice, d, 2));
        found.push_back(std::move(whole));
        at += part / ranks;
    }
    return TensorView::concatenated(found, static_cast<int>(d));
}

struct QkvSizes {
    int64_t heads = 0, kvHeads = 0;
};

Result<QkvSizes> qkvSizes(const RecipeStep& step) {
    QkvSizes sizes;
    SHARDSCOPE_ASSIGN(sizes.heads, positive(step.heads, "heads"));
    sizes.kvHeads = sizes.heads;
    if (step.kvHeads) {
        SHARDSCOPE_ASSIGN(sizes.kvHeads, positive(step.kvHeads, "kv_heads"));
    }
    if (sizes.heads % sizes.kvHeads != 0) {
        return makeError(ErrorCode::usage,
                         fmt::format("{} cannot share {}", counted(sizes.heads, "query head"),
                                     counted(sizes.kvHeads, "key-value head")));
    }
    return sizes;
}

Result<std::vector<TensorView>> unfused(const RecipeStep& step, const TensorView& view) {
    SHARDSCOPE_ASSIGN(const size_t d, dimOf(view, step.dim));
    SHARDSCOPE_ASSIGN(const QkvSizes sizes, qkvSizes(step));
    const int64_t length = view.shape()[d], slots = sizes.heads + 2 * sizes.kvHeads;
    if (length % slots != 0) {
        return makeError(
            ErrorCode::usage,
            fmt::format("{} cannot be {} and twice {} of one size", counted(length, "row"),
                        counted(sizes.heads, "query head"), counted(sizes.kvHeads, "key-value head")));
    }
    const int64_t headDim = length / slots, group = sizes.heads / sizes.kvHeads;
    const bool grouped = step.layout == RecipeStep::Layout::grouped;
    SHARDSCOPE_ASSIGN(
        const TensorView cut,
        factored(view, d, grouped ? Dims{sizes.kvHeads, group + 2, headDim} : Dims{1, slots, headDim}));
    const Dims counts = grouped ? Dims{group, 1, 1} : Dims{sizes.heads, sizes.kvHeads, sizes.kvHeads};
    std::vector<TensorView> parts;
    int64_t at = 0;
    for (const int64_t count : counts) {
        SHARDSCOPE_ASSIGN(const TensorView slice, cut.narrowed(static_cast<int>(d) + 1, at, count));
        SHARDSCOPE_ASSIGN(TensorView part, joined(slice, d, 3));
        parts.push_back(std::move(part));
        at += count;
    }
    return parts;
}

Result<TensorView> fused(const RecipeStep& step, std::span<const TensorView> parts) {
    SHARDSCOPE_ASSIGN(const size_t d, dimOf(parts[0], step.dim));
    SHARDSCOPE_ASSIGN(const QkvSizes sizes, qkvSizes(step));
    if (parts[0].shape()[d] % sizes.heads != 0) {
        return makeError(ErrorCode::usage,
                         fmt::format("{} cannot be {} of one size", counted(parts[0].shape()[d], "row"),
                                     counted(sizes.heads, "head")));
    }
    const int64_t headDim = parts[0].shape()[d] / sizes.heads, group = sizes.heads / sizes.kvHeads;
    const bool grouped = step.layout == RecipeStep::Layout::grouped;
    const int64_t outer = grouped ? sizes.kvHeads : 1;
    const Dims counts = grouped ? Dims{group, 1, 1} : Dims{sizes.heads, sizes.kvHeads, sizes.kvHeads};
    std::vector<TensorView> cut;
    for (size_t i = 0; i < parts.size(); ++i) {
        const int64_t rows = outer * counts[i] * headDim;
        if (parts[i].shape().size() <= d || parts[i].shape()[d] != rows) {
            return makeError(ErrorCode::usage, fmt::format("part {} is {}, not {} along dimension {}", i + 1,
                                                           formatDims(parts[i].shape()), rows, d));
        }
        SHARDSCOPE_ASSIGN(TensorView part, factored(parts[i], d, Dims{outer, counts[i], headDim}));
        cut.push_back(std::move(part));
    }
    SHARDSCOPE_ASSIGN(const TensorView whole, TensorView::concatenated(cut, static_cast<int>(d) + 1));
    return joined(whole, d, 3);
}

Result<std::vector<TensorView>> splitInto(const RecipeStep& step, const TensorView& view) {
    SHARDSCOPE_ASSIGN(const size_t d, dimOf(view, step.dim));
    const int64_t length = view.shape()[d];
    const auto count = static_cast<int64_t>(step.to.size());
    Dims sizes;
    int64_t total = 0;
    for (const StepNumber& number : step.sizes) {
        SHARDSCOPE_ASSIGN(const int64_t size, positive(number, "a size"));
        sizes.push_back(size);
        total += size;
    }
    if (sizes.empty()) {
        if (length % count != 0)
            return makeError(ErrorCode::usage, fmt::format("dimension {} has {}, which is not {}", d,
                                                           countText(length), counted(count, "equal part")));
        sizes.assign(step.to.size(), length / count);
        total = length;
    }
    if (total != length) {
        return makeError(ErrorCode::usage,
                         fmt::format("dimension {} has {}, the sizes {} make {}", d, countText(length),
                                     fmt::join(sizes, " + "), countText(total)));
    }
    std::vector<TensorView> parts;
    int64_t at = 0;
    for (const int64_t size : sizes) {
        SHARDSCOPE_ASSIGN(TensorView part, view.narrowed(static_cast<int>(d), at, size));
        parts.push_back(std::move(part));
        at += size;
    }
    return parts;
}

// A step that names more is not one that anybody means.
constexpr int64_t kMostIndices = int64_t{1} << 16;

Result<int64_t> valueOr(const std::optional<StepNumber>& number, int64_t standard) {
    return number ? valueOf(*number) : Result<int64_t>(standard);
}

// The view at one index of dimension d, which goes.
Result<TensorView> atIndex(const TensorView& view, size_t d, int64_t index) {
    SHARDSCOPE_ASSIGN(const TensorView row, view.narrowed(static_cast<int>(d), index, 1));
    return factored(row, d, {});
}

Result<std::vector<TensorView>> unstacked(const RecipeStep& step, const TensorView& view) {
    SHARDSCOPE_ASSIGN(const size_t d, dimOf(view, step.dim));
    const int64_t count = view.shape()[d];
    if (count > kMostIndices) {
        return makeError(ErrorCode::usage, fmt::format("dimension {} has {}, which is more than {}", d,
                                                       countText(count), counted(kMostIndices, "tensor")));
    }
    std::vector<TensorView> parts;
    for (int64_t i = 0; i < count; ++i) {
        SHARDSCOPE_ASSIGN(TensorView part, atIndex(view, d, i));
        parts.push_back(std::move(part));
    }
    return parts;
}

Result<TensorView> stacked(const RecipeStep& step, std::span<const TensorView> parts) {
    const auto rank = static_cast<int>(parts[0].shape().size()) + 1;
    const int d = step.dim < 0 ? step.dim + rank : step.dim;
    if (d < 0 || d >= rank) {
        return makeError(ErrorCode::usage,
                         fmt::format("a stack of it has no dimension {}, it has {}", step.dim, rank));
    }
    std::vector<TensorView> rows;
    for (const TensorView& part : parts) {
        if (part.shape() != parts[0].shape()) {
            return makeError(ErrorCode::usage,
                             fmt::format("{} and {} cannot be stacked: their shapes differ",
                                         formatDims(parts[0].shape()), formatDims(part.shape())));
        }
        Dims shape = part.shape();
        shape.insert(shape.begin() + d, 1);
        SHARDSCOPE_ASSIGN(TensorView row, part.reshaped(shape));
        rows.push_back(std::move(row));
    }
    return TensorView::concatenated(rows, d);
}

Result<TensorView> selected(const RecipeStep& step, const TensorView& view) {
    SHARDSCOPE_ASSIGN(const size_t d, dimOf(view, step.dim));
    SHARDSCOPE_ASSIGN(const int64_t given, valueOf(*step.index));
    const int64_t length = view.shape()[d], index = given < 0 ? given + length : given;
    if (index < 0 || index >= length) {
        return makeError(ErrorCode::usage,
                         fmt::format("dimension {} has {}, there is no index {}", d, length, given));
    }
    return atIndex(view, d, index);
}

Result<TensorView> sliced(const RecipeStep& step, const TensorView& view) {
    SHARDSCOPE_ASSIGN(const size_t d, dimOf(view, step.dim));
    SHARDSCOPE_ASSIGN(const int64_t start, valueOr(step.start, 0));
    SHARDSCOPE_ASSIGN(const int64_t length, positive(step.length, "length"));
    if (start < 0 || length > view.shape()[d] || start > view.shape()[d] - length) {
        return makeError(ErrorCode::usage,
                         fmt::format("dimension {} has {}, which does not hold {} from {} on", d,
                                     view.shape()[d], length, start));
    }
    return view.narrowed(static_cast<int>(d), start, length);
}

Result<TensorView> padded(const RecipeStep& step, const TensorView& view) {
    SHARDSCOPE_ASSIGN(const size_t d, dimOf(view, step.dim));
    SHARDSCOPE_ASSIGN(const int64_t length, positive(step.length, "length"));
    const int64_t have = view.shape()[d], more = length - have;
    if (more < 0) {
        return makeError(ErrorCode::usage,
                         fmt::format("dimension {} has {} already, more than {}", d, have, length));
    }
    if (more == 0) return view;
    Dims shape = view.shape();
    shape[d] = more;
    TensorView rows = TensorView::constant(shape, step.fill);
    if (step.row) {
        SHARDSCOPE_ASSIGN(const int64_t given, valueOf(*step.row));
        const int64_t row = given < 0 ? given + have : given;
        if (row < 0 || row >= have) {
            return makeError(ErrorCode::usage,
                             fmt::format("dimension {} has {}, there is no row {}", d, have, given));
        }
        SHARDSCOPE_ASSIGN(const TensorView one, view.narrowed(static_cast<int>(d), row, 1));
        SHARDSCOPE_ASSIGN(rows, one.repeated(static_cast<int>(d), more));
    }
    return TensorView::concatenated(std::vector{view, std::move(rows)}, static_cast<int>(d));
}

Result<TensorView> computed(const RecipeStep& step, const TensorView& view) {
    SHARDSCOPE_ASSIGN(const int64_t number, valueOf(*step.operand));
    double operand = static_cast<double>(number);
    if (step.root && number < 0)
        return makeError(ErrorCode::usage, fmt::format("{} has no square root", number));
    if (step.root) operand = std::sqrt(operand);
    if (step.change == ValueChange::Kind::divide || step.inverse) {
        if (operand == 0) return makeError(ErrorCode::usage, "nothing can be divided by 0");
    }
    if (step.inverse) operand = 1 / operand;
    auto rounded = static_cast<float>(operand);
    if (step.rounded == DType::bfloat16) {
        // The upper half of a float32, to nearest, ties to even.
        const auto bits = std::bit_cast<uint32_t>(rounded);
        rounded = std::bit_cast<float>((bits + 0x7fff + ((bits >> 16) & 1)) & 0xffff0000);
    }
    return view.changed({step.change, static_cast<double>(rounded)});
}

}  // namespace

Result<std::vector<TensorView>> stepViews(const RecipeStep& step, std::span<const TensorView> parts) {
    using Kind = RecipeStep::Kind;
    const auto one = [](Result<TensorView> view) -> Result<std::vector<TensorView>> {
        if (!view.ok()) return std::move(view).error();
        return std::vector<TensorView>{std::move(view).value()};
    };
    switch (step.kind) {
        case Kind::transpose:
            return one(transposed(step, parts[0]));
        case Kind::reshape:
            return one(reshapedTo(step, parts[0]));
        case Kind::rope:
            return one(rotated(step, parts[0]));
        case Kind::split:
            return splitInto(step, parts[0]);
        case Kind::concatenate: {
            SHARDSCOPE_ASSIGN(const size_t d, dimOf(parts[0], step.dim));
            return one(TensorView::concatenated(parts, static_cast<int>(d)));
        }
        case Kind::unstack:
            return unstacked(step, parts[0]);
        case Kind::stack:
            return one(stacked(step, parts));
        case Kind::select:
            return one(selected(step, parts[0]));
        case Kind::slice:
            return one(sliced(step, parts[0]));
        case Kind::pad:
            return one(padded(step, parts[0]));
        case Kind::fusedQkv:
            if (step.layout == RecipeStep::Layout::ranks) return one(ranksJoined(step, parts[0]));
            return step.from.size() > 1 ? one(fused(step, parts)) : unfused(step, parts[0]);
        case Kind::compute:
            return one(computed(step, parts[0]));
        case Kind::rename:
        case Kind::copy:
            break;
    }
    return makeError(ErrorCode::internal, "a step that makes nothing");
}

}  // namespace shardscope
