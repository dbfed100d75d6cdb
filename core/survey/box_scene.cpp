#include "survey/box_scene.h"

#include <algorithm>
#include <array>

#include "model/coverage.h"

namespace shardscope {

namespace {

// A box on the plane of a view; false when a fixed index does not meet it or it is empty.
bool project(DimSpan offsets, DimSpan lengths, DimSpan shape, const BoxView& view, BoxShape& out) {
    for (size_t d = 0; d < shape.size(); ++d) {
        if (lengths[d] <= 0) return false;
        if (static_cast<int>(d) == view.down || static_cast<int>(d) == view.across || view.index[d] < 0)
            continue;
        if (view.index[d] < offsets[d] || view.index[d] >= offsets[d] + lengths[d]) return false;
    }
    const auto span = [&](int dim, int64_t& from, int64_t& to) {
        from = 0;
        to = 1;
        if (dim < 0) return;
        const auto d = static_cast<size_t>(dim);
        // What leaves the tensor is cut off; the chunk's state says so.
        from = std::clamp<int64_t>(offsets[d], 0, shape[d]);
        to = std::clamp<int64_t>(offsets[d] + lengths[d], from, shape[d]);
    };
    span(view.across, out.left, out.right);
    span(view.down, out.top, out.bottom);
    return out.right > out.left && out.bottom > out.top;
}

std::array<int64_t, 4> placeOf(const BoxShape& s) {
    return {s.top, s.left, s.bottom, s.right};
}

bool sameBox(const ChunkInfo& a, const ChunkInfo& b) {
    return std::ranges::equal(a.offsets, b.offsets) && std::ranges::equal(a.lengths, b.lengths) &&
           a.flat == b.flat;
}

}  // namespace

BoxView defaultView(DimSpan shape) {
    BoxView view;
    view.index.assign(shape.size(), -1);
    if (!shape.empty()) view.across = static_cast<int>(shape.size()) - 1;
    if (shape.size() > 1) view.down = static_cast<int>(shape.size()) - 2;
    return view;
}

size_t BoxScene::shapeOf(ChunkId chunk) const {
    for (size_t i = 0; i < shapes.size() && shapes[i].kind == BoxShape::Kind::chunk; ++i) {
        for (uint32_t m = 0; m < shapes[i].count; ++m) {
            if (members[shapes[i].first + m] == chunk) return i;
        }
    }
    return shapes.size();
}

std::shared_ptr<const BoxScene> makeBoxScene(std::shared_ptr<const Checkpoint> checkpoint,
                                             std::shared_ptr<const Facts> facts, TensorId tensor,
                                             const BoxView& view, const StopToken& stop) {
    auto scene = std::make_shared<BoxScene>();
    const Catalog& catalog = checkpoint->catalog();
    const DimSpan shape = catalog.shape(tensor);
    scene->tensor = tensor;
    scene->view = view;
    if (view.across >= 0) scene->width = std::max<int64_t>(1, shape[static_cast<size_t>(view.across)]);
    if (view.down >= 0) scene->height = std::max<int64_t>(1, shape[static_cast<size_t>(view.down)]);

    struct Part {
        BoxShape shape;
        ChunkId chunk;
    };
    std::vector<Part> parts;
    bool overlapping = false;
    for (ChunkId c = catalog.firstChunk(tensor); c < catalog.endChunk(tensor); ++c) {
        if (c % 4096 == 0 && stop.stopRequested()) return nullptr;
        const ChunkInfo chunk = catalog.chunk(tensor, c);
        BoxShape part;
        part.rank = chunk.rank;
        part.health = facts ? facts->chunkHealth[c] : Health::ok;
        overlapping = overlapping || part.health == Health::overlap;
        if (chunk.elements() == 0) {
            ++scene->emptyChunks;
            continue;
        }
        bool drawn = false;
        if (chunk.flat) {
            for (const Box& box : flatRangeBoxes(chunk.offsets, chunk.lengths, *chunk.flat)) {
                if (!project(box.offsets, box.lengths, shape, view, part)) continue;
                parts.push_back({part, c});
                drawn = true;
            }
        } else if (project(chunk.offsets, chunk.lengths, shape, view, part)) {
            parts.push_back({part, c});
            drawn = true;
        }
        scene->hiddenChunks += !drawn;
    }
    // Chunks in the same place are one shape with depth.
    std::stable_sort(parts.begin(), parts.end(),
                     [](const Part& a, const Part& b) { return placeOf(a.shape) < placeOf(b.shape); });
    for (size_t i = 0; i < parts.size();) {
        BoxShape merged = parts[i].shape;
        merged.first = static_cast<uint32_t>(scene->members.size());
        merged.replicas = true;
        const ChunkInfo first = catalog.chunk(tensor, parts[i].chunk);
        size_t end = i;
        for (; end < parts.size() && placeOf(parts[end].shape) == placeOf(merged); ++end) {
            merged.health = std::max(merged.health, parts[end].shape.health);
            merged.replicas = merged.replicas && sameBox(first, catalog.chunk(tensor, parts[end].chunk));
            scene->members.push_back(parts[end].chunk);
        }
        merged.count = static_cast<uint32_t>(end - i);
        merged.replicas = merged.replicas && merged.count > 1;
        scene->shapes.push_back(merged);
        i = end;
    }
    if (overlapping) {
        if (stop.stopRequested()) return nullptr;
        for (const auto& [a, b] : checkCoverage(catalog, tensor, 1000, 1).overlaps) {
            const ChunkInfo x = catalog.chunk(tensor, a), y = catalog.chunk(tensor, b);
            const auto common = intersect(x.offsets, x.lengths, y.offsets, y.lengths);
            BoxShape both;
            both.kind = BoxShape::Kind::overlap;
            both.health = Health::overlap;
            // Flat stretches are already drawn as what they are; their boxes meet in more than they share.
            if (!common || x.flat || y.flat || !project(common->offsets, common->lengths, shape, view, both))
                continue;
            both.first = static_cast<uint32_t>(scene->members.size());
            both.count = 2;
            scene->members.push_back(a);
            scene->members.push_back(b);
            scene->shapes.push_back(both);
        }
    }
    if (facts && tensor < facts->gaps.size()) {
        for (const Box& box : facts->gaps[tensor]) {
            BoxShape gap;
            gap.kind = BoxShape::Kind::gap;
            gap.health = Health::gap;
            if (project(box.offsets, box.lengths, shape, view, gap)) scene->shapes.push_back(gap);
        }
    }
    scene->checkpoint = std::move(checkpoint);
    scene->facts = std::move(facts);
    return scene;
}

std::vector<BoxShape> ghostShapes(const std::vector<PlacedBox>& boxes, DimSpan shape, const BoxView& view) {
    std::vector<BoxShape> shapes;
    for (const PlacedBox& placed : boxes) {
        BoxShape ghost;
        ghost.kind = BoxShape::Kind::ghost;
        ghost.rank = placed.rank;
        if (project(placed.box.offsets, placed.box.lengths, shape, view, ghost)) shapes.push_back(ghost);
    }
    return shapes;
}

}  // namespace shardscope
