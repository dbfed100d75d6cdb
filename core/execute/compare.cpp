#include "execute/compare.h"

#include <algorithm>
#include <map>
#include <mutex>

#include <fmt/format.h>

#include "execute/destination.h"
#include "storage/digest.h"

namespace shardscope {
namespace {

// Tiles of both sides wait for each other in the processor's cache.
constexpr uint64_t kComparedTile = uint64_t{1} << 20;

using Elements = std::unique_ptr<ElementReader>;

constexpr size_t wholeBlocks(size_t bytes) {
    return (bytes + kIoAlignment - 1) / kIoAlignment * kIoAlignment;
}

// Elements in another dtype, as a conversion would write them.
class CastElements final : public ElementReader {
  public:
    CastElements(Elements from, DType to) : from_(std::move(from)) {
        dtype_ = to;
        elements_ = from_->elements();
    }
    uint64_t goodTileBytes(uint64_t preferred, uint64_t largest) const override {
        return from_->goodTileBytes(preferred, largest);
    }
    size_t readBufferBytes(int64_t a, int64_t b) const override {
        return storedBytes(a, b) + from_->readBufferBytes(a, b) + kIoAlignment;
    }
    size_t preferredAlignment(int64_t, int64_t) const override { return 0; }
    Status readTile(int64_t a, int64_t b, std::span<std::byte> tile,
                    std::span<std::byte> buffer) const override {
        const std::span<std::byte> stored = buffer.first(bytesOfElements(from_->dtype(), b - a));
        SHARDSCOPE_TRY(from_->readTile(a, b, stored, buffer.subspan(storedBytes(a, b))));
        castElements(from_->dtype(), stored.data(), dtype_, tile.data(), static_cast<size_t>(b - a));
        return {};
    }

  private:
    size_t storedBytes(int64_t a, int64_t b) const {
        return wholeBlocks(bytesOfElements(from_->dtype(), b - a));
    }

    const Elements from_;
};

Result<Elements> openSide(SourceContext& context, const ComparedSide& side, TensorId t, WorkerMemory& kept,
                          TensorReader::Strided strided) {
    const DType dtype = side.catalog().dtype(t);
    const TensorSource from = side.spec ? side.spec->sources[t] : TensorSource{t, nullptr};
    const DType stored = from.dtypeIn(side.reader->catalog(), dtype);
    if (stored != dtype && !castSupported(stored, dtype))
        return makeError(ErrorCode::impossible,
                         fmt::format("{} cannot be cast to {}", dtypeName(stored), dtypeName(dtype)))
            .ofTensor(side.catalog().name(t));
    SHARDSCOPE_ASSIGN(Elements elements, openElements(context, from, stored, kept, strided));
    if (stored == dtype) return elements;
    return Elements(std::make_unique<CastElements>(std::move(elements), dtype));
}

class PairWork final : public TensorTask {
  public:
    PairWork(Elements a, Elements b, const TileSizes& sizes, Progress* progress, ValueFigures& found)
        : a_(std::move(a)),
          b_(std::move(b)),
          dtype_(a_->dtype()),
          perCell_(digestCellElements(dtype_)),
          grid_(tileGrid(a_->elements(), dtype_, dtype_,
                         std::max(a_->goodTileBytes(sizes.preferred, sizes.largest),
                                  b_->goodTileBytes(sizes.preferred, sizes.largest)))),
          progress_(progress),
          found_(found) {}

    int64_t tileCount() const override { return grid_.tiles(); }

    Status runTile(int64_t tile, WorkerMemory& memory) override {
        const int64_t begin = grid_.begin(tile), end = grid_.end(tile);
        const size_t bytes = bytesOfElements(dtype_, end - begin);
        const size_t piece = std::max(a_->readBufferBytes(begin, end), b_->readBufferBytes(begin, end));
        if (!memory.ensure({bytes + kIoAlignment, bytes + kIoAlignment, piece + kIoAlignment, 0}))
            return makeError(ErrorCode::limit, "no memory for a tile");
        const std::span<std::byte> a = memory.tile.span(a_->preferredAlignment(begin, end), bytes);
        const std::span<std::byte> b = memory.cast.span(b_->preferredAlignment(begin, end), bytes);
        {
            const BusyTime busy(progress_, Progress::Work::read);
            SHARDSCOPE_TRY(a_->readTile(begin, end, a, memory.read.span()));
            SHARDSCOPE_TRY(b_->readTile(begin, end, b, memory.read.span()));
        }
        {
            const BusyTime busy(progress_, Progress::Work::compute);
            take(tile, figuresOf(a, b));
        }
        if (progress_) progress_->add(2 * bytes);
        return {};
    }

    Status finish() override { return {}; }

  private:
    // Of each digest cell of a tile.
    std::vector<ValueFigures> figuresOf(std::span<const std::byte> a, std::span<const std::byte> b) const {
        const size_t cellBytes = bytesOfElements(dtype_, perCell_);
        std::vector<ValueFigures> cells;
        for (size_t at = 0; at < a.size(); at += cellBytes) {
            const size_t length = std::min(cellBytes, a.size() - at);
            addFigures(dtype_, a.subspan(at, length), b.subspan(at, length), cells.emplace_back());
        }
        return cells;
    }

    // Adds the cells up in their order, whichever tile is done first and however large tiles are.
    void take(int64_t tile, std::vector<ValueFigures> cells) {
        const std::lock_guard lock(mutex_);
        early_.emplace(tile, std::move(cells));
        for (auto next = early_.begin(); next != early_.end() && next->first == next_;
             next = early_.begin()) {
            for (const ValueFigures& cell : next->second)
                found_.add(cell);
            early_.erase(next);
            ++next_;
        }
    }

    const Elements a_, b_;
    const DType dtype_;
    const int64_t perCell_;
    const TileGrid grid_;
    Progress* const progress_;
    std::mutex mutex_;  // guards what follows
    ValueFigures& found_;
    int64_t next_ = 0;                                    // tile
    std::map<int64_t, std::vector<ValueFigures>> early_;  // tiles that are done before the next one
};

// Of several names of one tensor the first, by which it is read.
TensorId firstName(const Catalog& catalog, TensorId t) {
    const TensorId first = catalog.aliasOf(t);
    return first == kNone ? t : first;
}

}  // namespace

Result<std::vector<ValueFigures>> compareTensors(const ComparedSide& a, const ComparedSide& b,
                                                 const std::vector<std::pair<TensorId, TensorId>>& pairs,
                                                 const Resources& given) {
    const BoundedResources resources(given);
    const auto system = systemFileSystem();
    SourceContext contextA(*a.reader, resources, FillGaps::refuse, system);
    SourceContext contextB(*b.reader, contextA);
    // Several names of one tensor on both sides are read once.
    std::map<std::pair<TensorId, TensorId>, size_t> places;
    std::vector<std::pair<TensorId, TensorId>> read;
    std::vector<size_t> place;
    uint64_t bytes = 0;
    for (const auto& [ta, tb] : pairs) {
        const auto [it, fresh] =
            places.emplace(std::pair(firstName(a.catalog(), ta), firstName(b.catalog(), tb)), read.size());
        place.push_back(it->second);
        if (!fresh) continue;
        read.emplace_back(ta, tb);
        bytes += a.catalog().bytes(ta) + b.catalog().bytes(tb);
    }
    if (resources.progress) resources.progress->begin(Progress::Phase::read, bytes);
    TileSizes sizes = tileSizes(resources);
    sizes.preferred = std::min(sizes.preferred, kComparedTile);
    std::vector<ValueFigures> found(read.size());
    TileRun run;
    run.tensors = read.size();
    run.threads = workerCount(resources);
    run.memory = resources.memory;
    run.stop = resources.stop;
    run.prepare = [&](size_t i, WorkerMemory& kept) -> Result<std::unique_ptr<TensorTask>> {
        if (resources.progress) resources.progress->setTensor(a.catalog().name(read[i].first));
        const BusyTime busy(resources.progress, Progress::Work::read);
        // The second does not wait for memory while the first holds some.
        SHARDSCOPE_ASSIGN(Elements x,
                          openSide(contextA, a, read[i].first, kept, TensorReader::Strided::held));
        SHARDSCOPE_ASSIGN(Elements y,
                          openSide(contextB, b, read[i].second, kept, TensorReader::Strided::scratch));
        if (x->elements() != y->elements() || x->dtype() != y->dtype())
            return makeError(ErrorCode::internal, "tensors of other shapes or dtypes are not compared")
                .ofTensor(a.catalog().name(read[i].first));
        return std::unique_ptr<TensorTask>(
            std::make_unique<PairWork>(std::move(x), std::move(y), sizes, resources.progress, found[i]));
    };
    SHARDSCOPE_TRY(runTiles(run));
    std::vector<ValueFigures> figures;
    for (const size_t i : place)
        figures.push_back(found[i]);
    return figures;
}

}  // namespace shardscope
