#include "formats/rank_cut.h"

#include <numeric>

#include "model/coverage.h"

namespace shardscope {

namespace {

Dims shapeOfShard(const RankCut& cut, DimSpan shape) {
    Dims local(shape.begin(), shape.end());
    if (cut.axis < 0) return local;
    int64_t& length = local[static_cast<size_t>(cut.axis)];
    length = 0;
    for (const CutPart& part : cut.parts)
        length += part.length;
    return local;
}

int64_t placeOf(DimSpan from, DimSpan strides) {
    return std::inner_product(from.begin(), from.end(), strides.begin(), int64_t{0});
}

// Elements [start, stop) of the row-major order of a part of the shard.
void addRange(const CutBox& part, FlatRange range, DimSpan local, std::vector<CutBox>& out) {
    if (range.start >= range.stop) return;
    const Dims strides = rowMajorStrides(local);
    const int64_t first = positionOf(range.start, local, part.from, part.lengths);
    const int64_t last = positionOf(range.stop - 1, local, part.from, part.lengths);
    if (last - first == range.stop - 1 - range.start) {
        CutBox& box = out.emplace_back(part);
        if (range.stop - range.start < elementCount(part.lengths)) box.flat = range;
        box.first = first;
        return;
    }
    for (const Box& piece : flatRangeBoxes(part.from, part.lengths, range)) {
        CutBox& box = out.emplace_back(part);
        for (size_t d = 0; d < local.size(); ++d)
            box.offsets[d] += piece.offsets[d] - part.from[d];
        box.from = piece.offsets;
        box.lengths = piece.lengths;
        box.first = placeOf(box.from, strides);
        box.strides = strides;
    }
}

}  // namespace

StoredPart CutBox::in(uint32_t file, uint32_t tensor, int64_t start) const {
    if (strides.empty()) {
        const int64_t count = flat ? flat->stop - flat->start : elementCount(lengths);
        return StoredPart::range(file, tensor, start + first, count);
    }
    StoredPart part = StoredPart::whole(file, tensor);
    part.lengths = lengths;
    part.firstElement = start + first;
    part.strides = strides;
    return part;
}

RankCut RankCut::share(int axis, std::span<const int64_t> parts, int64_t offset, int64_t length) {
    RankCut cut{axis, {}};
    const int64_t whole = std::accumulate(parts.begin(), parts.end(), int64_t{0});
    const auto shareOf = [&](int64_t part, int64_t of) {
        return whole == 0 ? 0 : static_cast<int64_t>(static_cast<__int128>(part) * of / whole);
    };
    int64_t before = 0, from = 0;
    for (const int64_t part : parts) {
        const CutPart& mine =
            cut.parts.emplace_back(CutPart{from, shareOf(part, length), before + shareOf(part, offset)});
        from += mine.length;
        before += part;
    }
    return cut;
}

std::vector<CutBox> RankCut::boxes(DimSpan shape) const {
    const Dims zeros(shape.size(), 0);
    if (axis < 0) return {{zeros, zeros, Dims(shape.begin(), shape.end())}};
    std::vector<CutBox> out;
    if (parts.empty()) return out;
    const Dims local = shapeOfShard(*this, shape), strides = rowMajorStrides(local);
    const auto d = static_cast<size_t>(axis);
    const bool behind = elementCount(DimSpan(local).first(d)) == 1;
    for (const CutPart& part : parts) {
        CutBox& box = out.emplace_back(CutBox{zeros, zeros, local});
        box.from[d] = part.from;
        box.offsets[d] = part.offset;
        box.lengths[d] = part.length;
        box.first = placeOf(box.from, strides);
        if (!behind && box.lengths != local) box.strides = strides;
    }
    return out;
}

std::vector<CutBox> RankCut::boxes(DimSpan shape, FlatRange range) const {
    std::vector<CutBox> out;
    const Dims local = axis < 0 || !parts.empty() ? shapeOfShard(*this, shape) : Dims();
    for (CutBox& part : boxes(shape)) {
        part.strides.clear();
        const FlatRange mine{elementsBefore(range.start, local, part.from, part.lengths),
                             elementsBefore(range.stop, local, part.from, part.lengths)};
        addRange(part, mine, local, out);
    }
    return out;
}

TensorInfo infoOf(const Catalog& catalog, TensorId t) {
    const DimSpan shape = catalog.shape(t);
    return {std::string(catalog.name(t)),     catalog.path(t), catalog.dtype(t),
            Dims(shape.begin(), shape.end()), catalog.role(t), catalog.aliasOf(t)};
}

Result<Catalog> withChunks(const Catalog& target, Mesh mesh, const AddChunks& addChunks) {
    CatalogBuilder builder(target.format(), target.variant(), target.writer());
    const auto ranks = static_cast<uint32_t>(mesh.ranks());
    if (ranks > 1) builder.setMesh(std::move(mesh));
    builder.setRankCount(ranks);
    for (TensorId t = 0; t < target.tensorCount(); ++t) {
        const TensorInfo info = infoOf(target, t);
        SHARDSCOPE_TRY(builder.addTensor(info));
        SHARDSCOPE_TRY(addChunks(t, info, builder));
    }
    for (const ObjectInfo& object : target.objects())
        builder.addObject(object);
    return std::move(builder).finish();
}

}  // namespace shardscope
