#include "plan/view.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/checked.h"
#include "base/units.h"

namespace shardscope {
namespace {

Error tooManyPieces() {
    return makeError(ErrorCode::limit, fmt::format("the tensor would be split into more than {}",
                                                   counted(TensorView::kMaxPieces, "part")));
}

// Whether the elements can be counted at all.
bool countable(DimSpan shape) {
    int64_t elements = 0;
    return checkedProduct(shape, elements);
}

Status checkDim(int dim, DimSpan shape) {
    if (dim >= 0 && static_cast<size_t>(dim) < shape.size()) return {};
    return makeError(ErrorCode::usage, fmt::format("{} has no dimension {}", formatDims(shape), dim));
}

template <class T>
void insertAt(std::vector<T>& values, size_t at, T value) {
    values.insert(values.begin() + static_cast<ptrdiff_t>(at), value);
}

template <class T>
void eraseAt(std::vector<T>& values, size_t at) {
    values.erase(values.begin() + static_cast<ptrdiff_t>(at));
}

}  // namespace

TensorView TensorView::whole(TensorId source, DimSpan shape) {
    TensorView view;
    view.shape_.assign(shape.begin(), shape.end());
    view.dims_ = view.shape_;
    view.groups_.assign(shape.size(), 1);
    if (elementCount(shape) > 0)
        view.pieces_.push_back(
            {source, {Dims(shape.size(), 0), view.shape_}, 0, rowMajorStrides(view.shape_)});
    return view;
}

TensorView TensorView::constant(DimSpan shape, double value) {
    TensorView view = whole(kNone, shape);
    for (ViewPiece& piece : view.pieces_) {
        piece.strides.assign(shape.size(), 0);
        piece.fill = value;
    }
    return view;
}

TensorId TensorView::sameOrderAs(const Catalog& source) const {
    if (pieces_.size() != 1 || !changes_.empty()) return kNone;
    const ViewPiece& piece = pieces_.front();
    if (piece.start != 0 || piece.source >= source.tensorCount() ||
        source.elements(piece.source) != elementCount(dims_))
        return kNone;
    int64_t expected = 1;
    for (size_t d = dims_.size(); d-- > 0;) {
        if (dims_[d] != 1 && piece.strides[d] != expected) return kNone;
        expected *= dims_[d];
    }
    return piece.source;
}

std::vector<TensorId> TensorView::sources() const {
    std::set<TensorId> ids;
    for (const ViewPiece& piece : pieces_) {
        if (piece.source != kNone) ids.insert(piece.source);
    }
    return {ids.begin(), ids.end()};
}

TensorView TensorView::ofOthers(std::span<const TensorId> others) const {
    TensorView view = *this;
    for (ViewPiece& piece : view.pieces_) {
        if (piece.source != kNone) piece.source = others[piece.source];
    }
    return view;
}

// ------------------------------------------------------------------ the finer dimensions

size_t TensorView::groupBegin(size_t group) const {
    return std::accumulate(groups_.begin(), groups_.begin() + static_cast<ptrdiff_t>(group), size_t{0});
}

// Dimension d becomes two, the second of length `inner`, which divides it. A box that does not begin and end
// at multiples of `inner` becomes a head, whole rows and a tail. The caller accounts for the group.
void TensorView::splitDim(size_t d, int64_t inner) {
    std::vector<ViewPiece> pieces;
    pieces.reserve(pieces_.size());
    for (const ViewPiece& piece : pieces_) {
        const int64_t begin = piece.box.offsets[d], end = begin + piece.box.lengths[d];
        const int64_t stride = piece.strides[d];
        for (int64_t at = begin; at < end;) {
            const int64_t in = at % inner;
            const bool rows = in == 0 && end - at >= inner;
            const int64_t count = rows ? (end - at) / inner * inner : std::min(end - at, inner - in);
            ViewPiece part = piece;
            part.start += (at - begin) * stride;
            part.box.offsets[d] = at / inner;
            part.box.lengths[d] = rows ? count / inner : 1;
            part.strides[d] = stride * inner;
            insertAt(part.box.offsets, d + 1, in);
            insertAt(part.box.lengths, d + 1, rows ? inner : count);
            insertAt(part.strides, d + 1, stride);
            pieces.push_back(std::move(part));
            at += count;
        }
    }
    pieces_ = std::move(pieces);
    const int64_t outer = dims_[d] / inner;
    dims_[d] = inner;
    insertAt(dims_, d, outer);
}

// Dimensions d and d + 1 become one. A box of several rows whose elements are not at one stride becomes a box
// for each row. The caller accounts for the group.
Status TensorView::mergeDims(size_t d) {
    const int64_t inner = dims_[d + 1];
    std::vector<ViewPiece> pieces;
    for (const ViewPiece& piece : pieces_) {
        const int64_t rows = piece.box.lengths[d], columns = piece.box.lengths[d + 1];
        const int64_t first = piece.box.offsets[d] * inner + piece.box.offsets[d + 1];
        const auto merged = [&](int64_t row, int64_t length, int64_t stride) {
            ViewPiece part = piece;
            part.start += row * piece.strides[d];
            part.box.offsets[d] = first + row * inner;
            part.box.lengths[d] = length;
            part.strides[d] = stride;
            eraseAt(part.box.offsets, d + 1);
            eraseAt(part.box.lengths, d + 1);
            eraseAt(part.strides, d + 1);
            pieces.push_back(std::move(part));
        };
        if (rows == 1) {
            merged(0, columns, piece.strides[d + 1]);
        } else if (inner == 1) {
            merged(0, rows, piece.strides[d]);
        } else if (columns == inner && piece.strides[d] == piece.strides[d + 1] * inner) {
            merged(0, rows * inner, piece.strides[d + 1]);
        } else {
            if (static_cast<uint64_t>(rows) + pieces.size() > kMaxPieces) return tooManyPieces();
            for (int64_t row = 0; row < rows; ++row)
                merged(row, columns, piece.strides[d + 1]);
        }
    }
    if (pieces.size() > kMaxPieces) return tooManyPieces();
    pieces_ = std::move(pieces);
    dims_[d] *= inner;
    eraseAt(dims_, d + 1);
    return {};
}

Status TensorView::flatten(size_t group) {
    const size_t begin = groupBegin(group);
    for (; groups_[group] > 1; --groups_[group])
        SHARDSCOPE_TRY(mergeDims(begin));
    return {};
}

// Takes dimensions of length 1 out of a group, down to one dimension.
void TensorView::squeeze(size_t group) {
    const size_t begin = groupBegin(group);
    for (size_t d = begin + groups_[group]; d-- > begin && groups_[group] > 1;) {
        if (dims_[d] != 1) continue;
        eraseAt(dims_, d);
        for (ViewPiece& piece : pieces_) {
            eraseAt(piece.box.offsets, d);
            eraseAt(piece.box.lengths, d);
            eraseAt(piece.strides, d);
        }
        --groups_[group];
    }
}

// Sees to it that some trailing dimensions of [begin, end), a group without dimensions of length 1, have
// `inner` elements together; false when that would cut through a dimension.
bool TensorView::bound(size_t begin, size_t end, int64_t inner) {
    int64_t product = 1;
    for (size_t d = end; d-- > begin && product != inner;) {
        if (product * dims_[d] > inner) {
            const int64_t rest = inner / product;
            if (inner % product != 0 || dims_[d] % rest != 0) return false;
            splitDim(d, rest);
            return true;
        }
        product *= dims_[d];
    }
    return product == inner;
}

// ------------------------------------------------------------------ the operations

Result<TensorView> TensorView::reshaped(DimSpan shape) const {
    const bool fits = std::all_of(shape.begin(), shape.end(), [](int64_t n) { return n >= 0; }) &&
                      shape.size() <= kMaxRank && countable(shape) &&
                      elementCount(shape) == elementCount(shape_);
    if (!fits) {
        return makeError(ErrorCode::usage,
                         fmt::format("{} cannot be reshaped to {}", formatDims(shape_), formatDims(shape)));
    }
    if (elementCount(shape_) == 0) return whole(kNone, shape);
    TensorView view = *this;
    // All of it as one group, cut where the new dimensions begin.
    view.shape_.assign(shape.begin(), shape.end());
    view.groups_ = {dims_.size()};
    if (dims_.empty()) {
        view.dims_ = {1};
        view.groups_ = {1};
        for (ViewPiece& piece : view.pieces_) {
            piece.box = {{0}, {1}};
            piece.strides = {0};
        }
    }
    view.squeeze(0);
    for (int attempt = 0;; ++attempt) {
        bool bounded = true;
        int64_t inner = 1;
        for (size_t i = shape.size(); i-- > 1 && bounded;) {
            inner *= shape[i];
            bounded = view.bound(0, view.dims_.size(), inner);
        }
        view.groups_ = {view.dims_.size()};
        if (bounded) break;
        if (attempt > 0) return makeError(ErrorCode::internal, "a flat tensor could not be reshaped");
        SHARDSCOPE_TRY(view.flatten(0));
    }
    if (view.pieces_.size() > kMaxPieces) return tooManyPieces();
    // Hand the finer dimensions out, last first; dimensions of length 1 get one of their own.
    view.groups_.assign(shape.size(), 0);
    size_t end = view.dims_.size();
    for (size_t i = shape.size(); i-- > 0;) {
        int64_t product = 1;
        while (end > 0 && product < shape[i]) {
            product *= view.dims_[--end];
            ++view.groups_[i];
        }
        if (view.groups_[i] > 0) continue;
        view.groups_[i] = 1;
        insertAt(view.dims_, end, int64_t{1});
        for (ViewPiece& piece : view.pieces_) {
            insertAt(piece.box.offsets, end, int64_t{0});
            insertAt(piece.box.lengths, end, int64_t{1});
            insertAt(piece.strides, end, int64_t{0});
        }
    }
    // One that was there for the sake of a scalar, or stood before all others.
    while (end-- > 0) {
        eraseAt(view.dims_, end);
        for (ViewPiece& piece : view.pieces_) {
            eraseAt(piece.box.offsets, end);
            eraseAt(piece.box.lengths, end);
            eraseAt(piece.strides, end);
        }
    }
    if (view.dims_.size() > kMaxRank)
        return makeError(ErrorCode::limit, "the tensor is divided along too many dimensions");
    return view;
}

Result<TensorView> TensorView::permuted(std::span<const int> order) const {
    std::vector<bool> seen(shape_.size(), false);
    bool fits = order.size() == shape_.size();
    for (size_t i = 0; i < order.size() && fits; ++i) {
        const int d = order[i];
        fits = d >= 0 && static_cast<size_t>(d) < seen.size() && !seen[static_cast<size_t>(d)];
        if (fits) seen[static_cast<size_t>(d)] = true;
    }
    if (!fits) {
        return makeError(ErrorCode::usage,
                         fmt::format("[{}] is not an order of the {} of {}", fmt::join(order, ", "),
                                     counted(shape_.size(), "dimension"), formatDims(shape_)));
    }
    TensorView view;
    view.changes_ = changes_;
    std::vector<size_t> from;
    for (const int group : order) {
        const auto g = static_cast<size_t>(group);
        view.shape_.push_back(shape_[g]);
        view.groups_.push_back(groups_[g]);
        for (size_t i = 0, d = groupBegin(g); i < groups_[g]; ++i)
            from.push_back(d + i);
    }
    const auto pick = [&](const Dims& values) {
        Dims out;
        for (const size_t d : from)
            out.push_back(values[d]);
        return out;
    };
    view.dims_ = pick(dims_);
    for (const ViewPiece& piece : pieces_) {
        view.pieces_.push_back({piece.source,
                                {pick(piece.box.offsets), pick(piece.box.lengths)},
                                piece.start,
                                pick(piece.strides),
                                piece.fill});
    }
    return view;
}

Result<TensorView> TensorView::narrowed(int dim, int64_t start, int64_t length) const {
    SHARDSCOPE_TRY(checkDim(dim, shape_));
    const auto group = static_cast<size_t>(dim);
    if (start < 0 || length < 0 || start > shape_[group] || length > shape_[group] - start) {
        return makeError(ErrorCode::usage, fmt::format("{}:{} is not inside dimension {} of {}", start,
                                                       start + length, dim, formatDims(shape_)));
    }
    Dims shape = shape_;
    shape[group] = length;
    if (elementCount(shape) == 0) return whole(kNone, shape);
    TensorView view = *this;
    view.squeeze(group);
    const size_t d = view.groupBegin(group);
    int64_t inner = 1;
    for (size_t i = 1; i < view.groups_[group]; ++i)
        inner *= view.dims_[d + i];
    if (start % inner != 0 || length % inner != 0) {
        SHARDSCOPE_TRY(view.flatten(group));
        inner = 1;
    }
    const int64_t first = start / inner, count = length / inner;
    std::vector<ViewPiece> pieces;
    for (ViewPiece& piece : view.pieces_) {
        const int64_t a = std::max(piece.box.offsets[d], first);
        const int64_t b = std::min(piece.box.offsets[d] + piece.box.lengths[d], first + count);
        if (a >= b) continue;
        piece.start += (a - piece.box.offsets[d]) * piece.strides[d];
        piece.box.offsets[d] = a - first;
        piece.box.lengths[d] = b - a;
        pieces.push_back(std::move(piece));
    }
    view.pieces_ = std::move(pieces);
    view.dims_[d] = count;
    view.shape_ = std::move(shape);
    return view;
}

Result<TensorView> TensorView::repeated(int dim, int64_t count) const {
    SHARDSCOPE_TRY(checkDim(dim, shape_));
    const auto group = static_cast<size_t>(dim);
    Dims shape = shape_;
    shape[group] = count;
    if (shape_[group] != 1 || count < 0 || !countable(shape)) {
        return makeError(ErrorCode::usage, fmt::format("dimension {} of {} cannot be repeated {} times", dim,
                                                       formatDims(shape_), count));
    }
    if (elementCount(shape) == 0) return whole(kNone, shape);
    TensorView view = *this;
    view.squeeze(group);
    const size_t d = view.groupBegin(group);
    for (ViewPiece& piece : view.pieces_) {
        piece.box.lengths[d] = count;
        piece.strides[d] = 0;
    }
    view.dims_[d] = count;
    view.shape_ = std::move(shape);
    return view;
}

// Gives the views the same finer dimensions in a group, but for the first of them, which may differ in length
// as the group does.
Status TensorView::alignGroup(std::vector<TensorView>& views, size_t group) {
    std::set<int64_t> bounds;
    for (TensorView& view : views) {
        view.squeeze(group);
        int64_t inner = 1;
        const size_t begin = view.groupBegin(group);
        for (size_t d = begin + view.groups_[group]; --d > begin;)
            bounds.insert(inner *= view.dims_[d]);
    }
    bool aligned = true;
    for (TensorView& view : views) {
        for (const int64_t inner : bounds) {
            const size_t begin = view.groupBegin(group);
            // A view that is no longer than that keeps a first dimension of one.
            aligned = aligned && inner < view.shape_[group];
            if (!aligned) break;
            const size_t before = view.dims_.size();
            aligned = view.bound(begin, begin + view.groups_[group], inner);
            view.groups_[group] += view.dims_.size() - before;
        }
        if (!aligned) break;
    }
    if (aligned) return {};
    for (TensorView& view : views)
        SHARDSCOPE_TRY(view.flatten(group));
    return {};
}

Result<TensorView> TensorView::concatenated(std::span<const TensorView> parts, int dim) {
    if (parts.empty()) return makeError(ErrorCode::usage, "nothing to concatenate");
    SHARDSCOPE_TRY(checkDim(dim, parts[0].shape_));
    const auto along = static_cast<size_t>(dim);
    Dims shape = parts[0].shape_;
    std::vector<TensorView> views;
    for (size_t i = 0; i < parts.size(); ++i) {
        Dims expected = parts[i].shape_;
        const bool fits = expected.size() == shape.size();
        const int64_t length = fits ? expected[along] : 0;
        if (fits) expected[along] = parts[0].shape_[along];
        if (expected != parts[0].shape_) {
            return makeError(ErrorCode::usage,
                             fmt::format("{} and {} do not fit together along dimension {}",
                                         formatDims(parts[0].shape_), formatDims(parts[i].shape_), dim));
        }
        if (i > 0) shape[along] += length;
        if (elementCount(parts[i].shape_) == 0) continue;
        views.push_back(parts[i]);
        if (views.back().changes_ != views.front().changes_)
            return makeError(ErrorCode::usage, "the values of its parts are changed in different ways");
    }
    if (!countable(shape))
        return makeError(ErrorCode::limit, fmt::format("{} has too many elements", formatDims(shape)));
    if (views.empty()) return whole(kNone, shape);
    for (size_t g = 0; g < shape.size(); ++g)
        SHARDSCOPE_TRY(alignGroup(views, g));
    TensorView view = std::move(views.front());
    const size_t d = view.groupBegin(along);
    int64_t at = view.dims_[d];
    for (size_t i = 1; i < views.size(); ++i) {
        for (ViewPiece& piece : views[i].pieces_) {
            piece.box.offsets[d] += at;
            view.pieces_.push_back(std::move(piece));
        }
        at += views[i].dims_[d];
    }
    if (view.pieces_.size() > kMaxPieces) return tooManyPieces();
    view.dims_[d] = at;
    view.shape_ = std::move(shape);
    return view;
}

TensorView TensorView::changed(ValueChange change) const {
    TensorView view = *this;
    if (!pieces_.empty()) view.changes_.push_back(change);
    return view;
}

bool ValueChange::exact() const {
    if (kind == Kind::add) return operand == 0;
    int exponent = 0;
    return std::frexp(std::abs(operand), &exponent) == 0.5;
}

}  // namespace shardscope
