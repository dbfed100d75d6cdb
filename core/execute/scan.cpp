#include "execute/scan.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <new>
#include <set>

#include <fmt/format.h>

#include "base/checked.h"
#include "base/units.h"
#include "execute/destination.h"
#include "execute/read_plan.h"
#include "execute/region_reading.h"
#include "execute/tensor_reader.h"

namespace shardscope {

TileSizes tileSizes(const Resources& resources, uint64_t target) {
    const uint64_t limit = resources.memory->limit();
    TileSizes sizes;
    sizes.preferred =
        target ? target : std::min(uint64_t{8} << 20, limit / (uint64_t{3} * workerCount(resources)));
    sizes.preferred = std::max(sizes.preferred / kDigestCellBytes, uint64_t{1}) * kDigestCellBytes;
    sizes.largest =
        target ? sizes.preferred : std::max(sizes.preferred, std::min(uint64_t{64} << 20, limit / 8));
    return sizes;
}

TileGrid tileGrid(int64_t elements, DType from, DType to, uint64_t tileBytes) {
    uint64_t cells = std::max<uint64_t>(tileBytes / kDigestCellBytes, 1);
    if (dtypeBits(from) > dtypeBits(to))
        cells = std::max<uint64_t>(cells * dtypeBits(to) / dtypeBits(from), 1);
    return {elements, static_cast<int64_t>(cells) * digestCellElements(to)};
}

TileGrid tileGrid(const ElementReader& source, DType dtype, const TileSizes& sizes) {
    return tileGrid(source.elements(), source.dtype(), dtype,
                    source.goodTileBytes(sizes.preferred, sizes.largest));
}

namespace {

using Visit = std::function<Status(const TileView&)>;

class ScanWork final : public TensorTask {
  public:
    ScanWork(std::unique_ptr<TensorReader> source, const TileSizes& sizes, Progress* progress, Visit visit,
             std::function<Status(TensorId)> finished)
        : source_(std::move(source)),
          grid_(tileGrid(*source_, source_->dtype(), sizes)),
          progress_(progress),
          visit_(std::move(visit)),
          finished_(std::move(finished)) {}

    int64_t tileCount() const override { return grid_.tiles(); }

    Status runTile(int64_t tile, WorkerMemory& memory) override {
        const int64_t a = grid_.begin(tile), b = grid_.end(tile);
        const size_t bytes = bytesOfElements(source_->dtype(), b - a);
        const size_t piece = source_->readBufferBytes(a, b);
        if (!memory.ensure({bytes + kIoAlignment, 0, piece ? piece + kIoAlignment : 0, 0})) {
            return makeError(ErrorCode::limit, "no memory for a tile");
        }
        const std::span<std::byte> view = memory.tile.span(source_->preferredAlignment(a, b), bytes);
        {
            const BusyTime busy(progress_, Progress::Work::read);
            SHARDSCOPE_TRY(source_->readTile(a, b, view, memory.read.span()));
        }
        {
            const BusyTime busy(progress_, Progress::Work::compute);
            SHARDSCOPE_TRY(visit_({source_->tensor(), a, b - a, view}));
        }
        if (progress_) progress_->add(bytes);
        return {};
    }

    Status finish() override { return finished_ ? finished_(source_->tensor()) : Status(); }

  private:
    const std::unique_ptr<TensorReader> source_;
    const TileGrid grid_;
    Progress* const progress_;
    const Visit visit_;
    const std::function<Status(TensorId)> finished_;
};

Status checkIds(const Catalog& catalog, const std::vector<TensorId>& tensors) {
    for (TensorId t : tensors) {
        if (t >= catalog.tensorCount())
            return makeError(ErrorCode::internal, "a scan names a tensor that does not exist");
    }
    return {};
}

}  // namespace

Status scanSource(SourceContext& context, const std::vector<TensorId>& tensors, const ScanOptions& options,
                  const Visit& visit, const std::function<Status(TensorId)>& finished) {
    SHARDSCOPE_TRY(checkIds(context.reader.catalog(), tensors));
    const Resources& resources = context.resources;
    const TileSizes sizes = tileSizes(resources, options.tileBytes);
    const ReadPlan plan(context, tensors);
    TileRun run;
    run.tensors = tensors.size();
    run.threads = workerCount(resources);
    run.ordered = options.ordered;
    if (plan.isActive())
        run.tilesOf = [&](size_t i) {
            return context.reader.catalog().bytes(tensors[i]) / sizes.preferred + 1;
        };
    run.memory = resources.memory;
    run.stop = resources.stop;
    run.prepare = [&](size_t i, WorkerMemory& kept) -> Result<std::unique_ptr<TensorTask>> {
        if (resources.progress) resources.progress->setTensor(context.reader.catalog().name(tensors[i]));
        const BusyTime busy(resources.progress, Progress::Work::read);
        SHARDSCOPE_ASSIGN(auto source, TensorReader::prepare(context, tensors[i], &kept));
        return std::unique_ptr<TensorTask>(
            std::make_unique<ScanWork>(std::move(source), sizes, resources.progress, visit, finished));
    };
    return runTiles(run);
}

Result<std::unique_ptr<TensorTask>> scanWork(SourceContext& context, TensorId tensor, const TileSizes& sizes,
                                             WorkerMemory& kept, Visit visit,
                                             std::function<Status(TensorId)> finished) {
    SHARDSCOPE_ASSIGN(auto source, TensorReader::prepare(context, tensor, &kept));
    return std::unique_ptr<TensorTask>(std::make_unique<ScanWork>(
        std::move(source), sizes, context.resources.progress, std::move(visit), std::move(finished)));
}

size_t cellCount(const Catalog& catalog, TensorId tensor) {
    const int64_t per = digestCellElements(catalog.dtype(tensor));
    const int64_t n = catalog.elements(tensor);
    return static_cast<size_t>(n == 0 ? 0 : (n - 1) / per + 1);
}

std::vector<Digest128> cellDigests(DType dtype, std::span<const std::byte> bytes, ValueCounts* counts) {
    const auto cellBytes = bytesOfElements(dtype, digestCellElements(dtype));
    std::vector<Digest128> cells;
    for (size_t at = 0; at < bytes.size(); at += cellBytes) {
        const auto cell = bytes.subspan(at, std::min(cellBytes, bytes.size() - at));
        cells.push_back(cellDigest(cell));
        if (counts) countValues(dtype, cell, *counts);
    }
    return cells;
}

std::string cellBytes(const std::vector<Digest128>& cells) {
    return {reinterpret_cast<const char*>(cells.data()), cells.size() * sizeof(Digest128)};
}

std::vector<Digest128> cellsFrom(std::string_view bytes) {
    if (bytes.size() % sizeof(Digest128) != 0) return {};
    std::vector<Digest128> cells(bytes.size() / sizeof(Digest128));
    if (!cells.empty()) std::memcpy(cells.data(), bytes.data(), bytes.size());
    return cells;
}

void DigestCollector::add(const TileView& tile) {
    const DType dtype = catalog_.dtype(tile.tensor);
    ValueCounts counts;
    const std::vector<Digest128> cells = cellDigests(dtype, tile.bytes, counts_ ? &counts : nullptr);
    const auto firstCell = static_cast<size_t>(tile.firstElement / digestCellElements(dtype));
    std::lock_guard lock(mutex_);
    Open& open = open_[tile.tensor];
    if (open.cells.empty()) open.cells.resize(cellCount(catalog_, tile.tensor));
    std::copy(cells.begin(), cells.end(), open.cells.begin() + static_cast<ptrdiff_t>(firstCell));
    addCounts(open.counts, counts);
}

TensorDigest DigestCollector::finish(TensorId tensor) {
    Open open;
    {
        std::lock_guard lock(mutex_);
        std::swap(open, open_[tensor]);
        open_.erase(tensor);
    }
    return {tensor, tensorDigest(catalog_.dtype(tensor), catalog_.shape(tensor), open.cells), open.counts};
}

Result<std::vector<TensorDigest>> digestSource(SourceContext& context, const std::vector<TensorId>& tensors,
                                               const ScanOptions& options, bool countToo) {
    const Catalog& catalog = context.reader.catalog();
    SHARDSCOPE_TRY(checkIds(catalog, tensors));
    // Names of one tensor are read once.
    std::vector<TensorId> read;
    const std::set<TensorId> wanted(tensors.begin(), tensors.end());
    for (const TensorId t : wanted) {
        const TensorId first = catalog.aliasOf(t);
        if (first == kNone || first == t || !wanted.contains(first)) read.push_back(t);
    }
    DigestCollector collector(catalog, countToo);
    std::mutex mutex;
    std::map<TensorId, TensorDigest> done;
    const Visit visit = [&](const TileView& tile) -> Status {
        collector.add(tile);
        return {};
    };
    const auto finished = [&](TensorId t) -> Status {
        TensorDigest digest = collector.finish(t);
        std::lock_guard lock(mutex);
        done[t] = digest;
        return {};
    };
    SHARDSCOPE_TRY(scanSource(context, read, options, visit, finished));
    std::vector<TensorDigest> digests;
    for (TensorId t : tensors) {
        const auto found = done.find(t);
        TensorDigest digest = found != done.end() ? found->second : done[catalog.aliasOf(t)];
        digest.tensor = t;
        digests.push_back(digest);
    }
    return digests;
}

uint64_t bytesOf(const Catalog& catalog, const std::vector<TensorId>& tensors) {
    uint64_t total = 0;
    for (TensorId t : tensors)
        total += t < catalog.tensorCount() ? catalog.bytes(t) : 0;
    return total;
}

Status scanTensors(const Reader& reader, const std::vector<TensorId>& tensors, const ScanOptions& options,
                   const Resources& resources, const Visit& visit) {
    SourceContext context(reader, resources, options.fillGaps, systemFileSystem());
    if (resources.progress)
        resources.progress->begin(Progress::Phase::read, bytesOf(reader.catalog(), tensors));
    return scanSource(context, tensors, options, visit, {});
}

Result<std::vector<TensorDigest>> digestTensors(const Reader& reader, const std::vector<TensorId>& tensors,
                                                const ScanOptions& options, const Resources& resources) {
    SourceContext context(reader, resources, options.fillGaps, systemFileSystem());
    if (resources.progress)
        resources.progress->begin(Progress::Phase::read, bytesOf(reader.catalog(), tensors));
    return digestSource(context, tensors, options, true);
}

Result<std::vector<std::byte>> readRegion(const Reader& reader, TensorId tensor, const Box& region,
                                          uint64_t maxBytes, const Resources& resources) {
    const Catalog& catalog = reader.catalog();
    SHARDSCOPE_TRY(checkIds(catalog, {tensor}));
    const DimSpan shape = catalog.shape(tensor);
    const DType dtype = catalog.dtype(tensor);
    if (!boxInside(region.offsets, region.lengths, shape)) {
        return makeError(ErrorCode::usage,
                         fmt::format("the region {} is not inside the shape {}",
                                     formatBox(region.offsets, region.lengths), formatDims(shape)))
            .ofTensor(catalog.name(tensor));
    }
    int64_t elements = 0;
    if (!checkedProduct(region.lengths, elements))
        return makeError(ErrorCode::limit, "the region is too large");
    const std::optional<uint64_t> bytes = dtypeByteCount(dtype, static_cast<uint64_t>(elements));
    if (!bytes || *bytes > maxBytes) {
        return makeError(ErrorCode::limit,
                         fmt::format("the region {} has {} of {}, more than the {} allowed",
                                     formatBox(region.offsets, region.lengths), counted(elements, "element"),
                                     dtypeName(dtype), counted(maxBytes, "byte")))
            .ofTensor(catalog.name(tensor));
    }
    std::vector<std::byte> out(*bytes);
    const RegionRead read{tensor,         region.offsets,
                          region.lengths, Dims(shape.size(), 1),
                          out.data(),     rowMajorStrides(region.lengths)};
    auto done = readRegions(reader, {read}, FillGaps::zero, resources);
    if (!done.ok()) return std::move(done).error();
    return out;
}

}  // namespace shardscope
