#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <unordered_map>

#include <fmt/format.h>

#include "base/option_words.h"
#include "engine/element.h"
#include "engine/engine.h"
#include "engine/mapped.h"
#include "model/coverage.h"

namespace shardscope {
namespace {

constexpr uint64_t kSlabBytes = uint64_t{8} << 20;

// Calls visit(box) for boxes of at most kSlabBytes that follow each other in row-major order and together
// make the tensor.
Status forEachSlab(DimSpan shape, unsigned itemBytes, const std::function<Status(const Box&)>& visit) {
    if (elementCount(shape) == 0) return {};
    // The first dimension whose inner slices are small enough is cut in steps; all before it go one by one.
    size_t cut = 0;
    int64_t inner = elementCount(shape);
    while (cut < shape.size()) {
        inner /= shape[cut];
        if (static_cast<uint64_t>(inner) * itemBytes <= kSlabBytes) break;
        ++cut;
    }
    Box box{Dims(shape.size(), 0), Dims(shape.begin(), shape.end())};
    if (shape.empty()) return visit(box);
    const int64_t step =
        std::max<int64_t>(1, static_cast<int64_t>(kSlabBytes / (static_cast<uint64_t>(inner) * itemBytes)));
    for (size_t i = 0; i < cut; ++i)
        box.lengths[i] = 1;
    for (;;) {
        for (int64_t at = 0; at < shape[cut]; at += step) {
            box.offsets[cut] = at;
            box.lengths[cut] = std::min(step, shape[cut] - at);
            SHARDSCOPE_TRY(visit(box));
        }
        size_t i = cut;
        while (i-- > 0) {
            if (++box.offsets[i] < shape[i]) break;
            box.offsets[i] = 0;
        }
        if (i == static_cast<size_t>(-1)) return {};
    }
}

std::string placementText(const Catalog& catalog, TensorId t) {
    const std::vector<ChunkId> chunks = coveringChunks(catalog, t);
    if (chunks.size() == 1) {
        const uint32_t rank = catalog.chunk(t, chunks[0]).rank;
        return rank == kNone ? "one chunk" : fmt::format("one chunk on rank {}", rank);
    }
    Dims parts(catalog.shape(t).size(), 0);
    for (size_t d = 0; d < parts.size(); ++d) {
        std::vector<int64_t> starts;
        for (ChunkId c : chunks)
            starts.push_back(catalog.chunk(t, c).offsets[d]);
        std::sort(starts.begin(), starts.end());
        parts[d] = std::unique(starts.begin(), starts.end()) - starts.begin();
    }
    return fmt::format("{} chunks, sharded {}", chunks.size(), formatDims(parts));
}

bool samePlacement(const Catalog& a, TensorId ta, const Catalog& b, TensorId tb) {
    const auto boxes = [](const Catalog& catalog, TensorId t) {
        std::vector<std::tuple<Dims, Dims, uint32_t>> out;
        for (ChunkId c : coveringChunks(catalog, t)) {
            const ChunkInfo chunk = catalog.chunk(t, c);
            out.emplace_back(Dims(chunk.offsets.begin(), chunk.offsets.end()),
                             Dims(chunk.lengths.begin(), chunk.lengths.end()), chunk.rank);
        }
        std::sort(out.begin(), out.end());
        return out;
    };
    return boxes(a, ta) == boxes(b, tb);
}

// The first of the two checkpoints, as it is or through a recipe.
struct FirstSide {
    const Checkpoint& checkpoint;
    std::shared_ptr<const TargetSpec> mapped;

    const Catalog& catalog() const { return mapped ? mapped->target : checkpoint.catalog(); }
    Result<std::vector<Digest128>> digests(const std::vector<TensorId>& tensors,
                                           const Resources& resources) const {
        return mapped ? digestPlanned(*checkpoint.reader, *mapped, tensors, resources)
                      : digestsOf(*checkpoint.reader, tensors, resources);
    }
    // Reads boxes of forEachSlab(), each of which is one range of the tensor's row-major order.
    using ReadBox = std::function<Result<std::vector<std::byte>>(const Box& box)>;
    Result<ReadBox> open(TensorId t, const Resources& resources) const {
        if (!mapped)
            return ReadBox([this, t, &resources](const Box& box) {
                return readRegion(*checkpoint.reader, t, box, 2 * kSlabBytes, resources);
            });
        SHARDSCOPE_ASSIGN(std::shared_ptr<PlannedTensor> planned,
                          openPlanned(*checkpoint.reader, *mapped, t, resources));
        return ReadBox([this, t, planned](const Box& box) {
            const int64_t begin = positionOf(0, mapped->target.shape(t), box.offsets, box.lengths);
            return planned->read(begin, begin + elementCount(box.lengths));
        });
    }

    static Result<std::vector<Digest128>> digestsOf(const Reader& reader,
                                                    const std::vector<TensorId>& tensors,
                                                    const Resources& resources) {
        SHARDSCOPE_ASSIGN(const auto found, digestTensors(reader, tensors, {}, resources));
        std::unordered_map<TensorId, Digest128> byTensor;
        for (const TensorDigest& d : found)
            byTensor.emplace(d.tensor, d.digest);
        std::vector<Digest128> digests;
        for (const TensorId t : tensors)
            digests.push_back(byTensor.at(t));
        return digests;
    }
};

Result<ValueDiff> compareValues(const FirstSide& a, TensorId ta, const Checkpoint& b, TensorId tb,
                                const Resources& resources) {
    const Catalog& ca = a.catalog();
    ValueDiff diff;
    diff.name = ca.name(ta);
    const DType dtype = ca.dtype(ta);
    const unsigned item = dtypeBytes(dtype);
    double product = 0, squareA = 0, squareB = 0;
    SHARDSCOPE_ASSIGN(const FirstSide::ReadBox readA, a.open(ta, resources));
    SHARDSCOPE_TRY(forEachSlab(ca.shape(ta), item, [&](const Box& box) -> Status {
        SHARDSCOPE_TRY(resources.stop.poll());
        SHARDSCOPE_ASSIGN(const auto x, readA(box));
        SHARDSCOPE_ASSIGN(const auto y, readRegion(*b.reader, tb, box, 2 * kSlabBytes, resources));
        for (size_t i = 0; i + item <= x.size() && i + item <= y.size(); i += item) {
            const bool same = std::memcmp(&x[i], &y[i], item) == 0;
            const double valueA = elementValue(dtype, &x[i]);
            const double valueB = same ? valueA : elementValue(dtype, &y[i]);
            product += valueA * valueB;
            squareA += valueA * valueA;
            squareB += valueB * valueB;
            if (same) continue;
            ++diff.different;
            const ElementDistance distance = elementDistance(dtype, &x[i], &y[i]);
            diff.maxAbs = std::max(diff.maxAbs, distance.absolute);
            diff.maxRelative = std::max(diff.maxRelative, distance.relative);
            diff.maxUlp = std::max(diff.maxUlp, distance.ulp);
        }
        return {};
    }));
    // Magnitudes of complex elements say nothing about an angle; 0/0 is NaN.
    diff.cosine = dtypeIsComplex(dtype) ? std::numeric_limits<double>::quiet_NaN()
                                        : product / (std::sqrt(squareA) * std::sqrt(squareB));
    if (std::isfinite(diff.cosine)) diff.cosine = std::clamp(diff.cosine, -1.0, 1.0);
    return diff;
}

}  // namespace

Result<DiffReport> diffCheckpoints(const Checkpoint& a, const Checkpoint& b, const DiffOptions& options,
                                   const Resources& resources) {
    DiffReport report;
    FirstSide first{a, nullptr};
    if (!options.map.empty()) {
        SHARDSCOPE_ASSIGN(
            TargetSpec spec,
            mappedBy(a, {options.map, options.set, options.rename, MasterWeights::ignore}, resources.stop));
        first.mapped = std::make_shared<const TargetSpec>(std::move(spec));
        report.mapped = {first.mapped, &first.mapped->target};
    } else if (!options.set.empty()) {
        return makeError(ErrorCode::usage, fmt::format("{} gives values to a recipe, so it needs {}",
                                                       option("set"), option("map")));
    }
    const Catalog& ca = first.catalog();
    const Catalog& cb = b.catalog();
    SHARDSCOPE_ASSIGN(const Renamer rename,
                      Renamer::make(first.mapped ? std::vector<RenameRule>() : options.rename));
    std::vector<bool> matched(cb.tensorCount(), false);
    std::vector<std::pair<TensorId, TensorId>> same;
    for (TensorId ta = 0; ta < ca.tensorCount(); ++ta) {
        const std::string name = rename(ca.name(ta));
        const TensorId tb = cb.find(name);
        if (tb == kNone) {
            report.onlyA.push_back(name);
            continue;
        }
        matched[tb] = true;
        if (!std::ranges::equal(ca.shape(ta), cb.shape(tb))) {
            report.shape.push_back({name, formatDims(ca.shape(ta)), formatDims(cb.shape(tb))});
            continue;
        }
        if (ca.dtype(ta) != cb.dtype(tb)) {
            report.dtype.push_back(
                {name, std::string(dtypeName(ca.dtype(ta))), std::string(dtypeName(cb.dtype(tb)))});
            continue;
        }
        if (!first.mapped && !samePlacement(ca, ta, cb, tb))
            report.placement.push_back({name, placementText(ca, ta), placementText(cb, tb)});
        same.emplace_back(ta, tb);
    }
    for (TensorId tb = 0; tb < cb.tensorCount(); ++tb) {
        if (!matched[tb]) report.onlyB.emplace_back(cb.name(tb));
    }
    if (!options.values) return report;

    // Digests first: they are independent of sharding and read each side once; only tensors that differ are
    // compared element by element.
    report.valuesCompared = true;
    std::vector<TensorId> idsA, idsB;
    for (const auto& [ta, tb] : same) {
        idsA.push_back(ta);
        idsB.push_back(tb);
    }
    SHARDSCOPE_ASSIGN(const auto digestsA, first.digests(idsA, resources));
    SHARDSCOPE_ASSIGN(const auto digestsB, FirstSide::digestsOf(*b.reader, idsB, resources));
    for (size_t i = 0; i < same.size(); ++i) {
        if (digestsA[i] == digestsB[i]) continue;
        SHARDSCOPE_ASSIGN(ValueDiff diff, compareValues(first, same[i].first, b, same[i].second, resources));
        report.values.push_back(std::move(diff));
    }
    return report;
}

}  // namespace shardscope
