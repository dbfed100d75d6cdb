// A tensor that is put together from parts of other tensors: their rows and columns split, joined, reordered.
//
// Everything that a recipe does to the order of a tensor is one of five operations: reshape, permute, narrow,
// concatenate, repeat. Every result of them is a list of pieces. A piece is a box of the new tensor. Its
// elements are at constant strides in a source tensor's row-major order, or are all one number. The boxes
// stand in a finer index space than the tensor's own shape: one dimension may be factored into several. Its
// row-major order is the same. So the rotary permutation of a projection with 64 heads is one piece, not
// thousands.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "model/catalog.h"
#include "model/region.h"

namespace shardscope {

// Element (i0, i1, ...) of the box is element start + i0 * strides[0] + i1 * strides[1] + ... of the source's
// row-major order. Strides are never negative; 0 repeats an element. A piece without a source has `fill` for
// every element.
struct ViewPiece {
    TensorId source = kNone;
    Box box;  // in TensorView::dims()
    int64_t start = 0;
    Dims strides;
    double fill = 0;
    bool operator==(const ViewPiece&) const = default;
};

// Arithmetic with `operand` on every element of a view after it was read, in float32 (float64 for a float64
// tensor). The result is rounded to the tensor's dtype, to nearest, ties to even. Float dtypes only.
struct ValueChange {
    enum class Kind : uint8_t { multiply, divide, add };
    Kind kind = Kind::multiply;
    double operand = 1;  // a number of float32
    // Whether every element keeps its bits, or its significant ones: powers of two change exponents only.
    bool exact() const;
    bool operator==(const ValueChange&) const = default;
};

class TensorView {
  public:
    // All of a tensor of the source catalog, as it is.
    static TensorView whole(TensorId source, DimSpan shape);
    // One number everywhere, in the dtype of what it is joined with.
    static TensorView constant(DimSpan shape, double value);

    const Dims& shape() const { return shape_; }
    // The finer index space: same elements in the same row-major order.
    const Dims& dims() const { return dims_; }
    // Together they cover every element once. None when the tensor is empty.
    const std::vector<ViewPiece>& pieces() const { return pieces_; }
    // Applied in order to every element.
    const std::vector<ValueChange>& changes() const { return changes_; }
    // The one source tensor when this is it, element for element in its own order (the shape may be another);
    // else kNone.
    TensorId sameOrderAs(const Catalog& source) const;
    // Source tensors, each once, in order; pieces without a source have none.
    std::vector<TensorId> sources() const;
    // This view of other tensors of the same shapes: others[t] in place of source t.
    TensorView ofOthers(std::span<const TensorId> others) const;

    // All of these leave this view as it is. Errors: usage, a sentence without names; limit when the result
    // would be cut into more than kMaxPieces.
    Result<TensorView> reshaped(DimSpan shape) const;
    Result<TensorView> permuted(std::span<const int> order) const;  // result dimension i = dimension order[i]
    Result<TensorView> narrowed(int dim, int64_t start, int64_t length) const;
    // Repeats dimension `dim`, of length 1, `count` times.
    Result<TensorView> repeated(int dim, int64_t count) const;
    // Parts whose values change in different ways do not fit together.
    static Result<TensorView> concatenated(std::span<const TensorView> parts, int dim);
    TensorView changed(ValueChange change) const;

    static constexpr size_t kMaxPieces = 1 << 20;

  private:
    size_t groupBegin(size_t group) const;
    void splitDim(size_t d, int64_t inner);
    Status mergeDims(size_t d);
    Status flatten(size_t group);
    void squeeze(size_t group);
    bool bound(size_t begin, size_t end, int64_t inner);
    static Status alignGroup(std::vector<TensorView>& views, size_t group);

    Dims shape_;
    std::vector<size_t> groups_;  // how many of dims_ make up each dimension of shape_; at least 1
    Dims dims_;
    std::vector<ViewPiece> pieces_;
    std::vector<ValueChange> changes_;
};

}  // namespace shardscope
