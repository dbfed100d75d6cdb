// Digests as a reading in parts: the cells of a tile, or one stream over a whole tensor.
#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "execute/part_reading.h"
#include "execute/scan.h"
#include "execute/span_work.h"

namespace shardscope {
namespace {

std::unique_ptr<StreamDigest> makeStream(DigestKind kind) {
    return kind == DigestKind::sha256 ? makeSha256() : makeCrc32();
}

using TakeDigest = std::function<Status(TensorId tensor, std::string digest)>;

// Tensors in parallel, tiles of one in order.
Status streamDigests(SourceContext& context, const std::vector<TensorId>& tensors, DigestKind kind,
                     const TakeDigest& take) {
    const Catalog& catalog = context.reader.catalog();
    std::mutex mutex;
    std::map<TensorId, std::unique_ptr<StreamDigest>> open;
    ScanOptions options;
    options.ordered = true;
    return scanSource(context, tensors, options,
                      [&](const TileView& tile) -> Status {
                          StreamDigest* digest = nullptr;
                          {
                              std::lock_guard lock(mutex);
                              auto& slot = open[tile.tensor];
                              if (!slot) slot = makeStream(kind);
                              digest = slot.get();
                          }
                          digest->update(tile.bytes);
                          if (tile.firstElement + tile.elements < catalog.elements(tile.tensor)) return {};
                          std::string hex = digest->hex();
                          std::lock_guard lock(mutex);
                          open.erase(tile.tensor);
                          return take(tile.tensor, std::move(hex));
                      },
                      {});
}

Status readCells(SourceContext& context, std::span<const TileSpan> spans, uint64_t tileBytes,
                 const KeepFound& keep) {
    const Catalog& catalog = context.reader.catalog();
    return runSpans(context.resources, spans, [&](const TileSpan& span, WorkerMemory& kept) {
        const DType dtype = catalog.dtype(span.tensor);
        const TileGrid grid = tileGrid(catalog.elements(span.tensor), dtype, dtype, tileBytes);
        const auto visit = [&keep, dtype, grid](const TileView& tile) {
            return keep(tile.tensor, tile.firstElement / grid.tileElements,
                        cellBytes(cellDigests(dtype, tile.bytes, nullptr)));
        };
        return scanWork(context, span.tensor, {tileBytes, tileBytes}, kept, visit);
    });
}

// Names of one tensor are read once: that of the first.
TensorId readAs(const Catalog& catalog, const std::set<TensorId>& wanted, TensorId t) {
    const TensorId first = catalog.aliasOf(t);
    return first != kNone && wanted.contains(first) ? first : t;
}

}  // namespace

PartReading digestReading(const Reader& reader, const std::vector<TensorId>& tensors, DigestKind kind) {
    const Catalog& catalog = reader.catalog();
    PartReading reading;
    reading.reader = &reader;
    const std::set<TensorId> wanted(tensors.begin(), tensors.end());
    std::set<FileId> files;
    for (const TensorId t : wanted) {
        if (readAs(catalog, wanted, t) != t) continue;
        reading.items.push_back(
            {t, catalog.elements(t), catalog.dtype(t), catalog.dtype(t), kind != DigestKind::tile});
        for (ChunkId c = catalog.firstChunk(t); c < catalog.endChunk(t); ++c) {
            if (const FileId file = catalog.chunk(c).file; file < catalog.files().size()) files.insert(file);
        }
    }
    reading.files.assign(files.begin(), files.end());
    reading.read = [&reader, kind](std::span<const TileSpan> spans, uint64_t tileBytes,
                                   const Resources& resources, const KeepFound& keep) -> Result<uint64_t> {
        SourceContext context(reader, resources, FillGaps::refuse, systemFileSystem());
        if (kind == DigestKind::tile) {
            SHARDSCOPE_TRY(readCells(context, spans, tileBytes, keep));
        } else {
            std::vector<TensorId> whole;
            for (const TileSpan& span : spans)
                whole.push_back(span.tensor);
            SHARDSCOPE_TRY(streamDigests(context, whole, kind, [&](TensorId t, std::string digest) {
                return keep(t, 0, std::move(digest));
            }));
        }
        return context.bytesRead.load();
    };
    return reading;
}

Result<DigestTexts> finishDigests(const Reader& reader, const std::vector<TensorId>& tensors, DigestKind kind,
                                  const FinishedReading& found) {
    const Catalog& catalog = reader.catalog();
    std::map<TensorId, std::string> texts;
    std::map<TensorId, std::vector<Digest128>> cells;
    const std::set<TensorId> wanted(tensors.begin(), tensors.end());
    for (const TensorId t : wanted) {
        if (readAs(catalog, wanted, t) != t) continue;
        if (kind == DigestKind::tile)
            cells[t].resize(cellCount(catalog, t));
        else if (catalog.elements(t) == 0)
            texts[t] = makeStream(kind)->hex();
    }
    SHARDSCOPE_TRY(found.forEach([&](uint32_t item, int64_t tile, std::string_view data) {
        if (kind != DigestKind::tile) {
            if (!wanted.contains(item)) return false;
            texts[item] = data;
            return true;
        }
        const auto at = cells.find(item);
        if (at == cells.end() || tile < 0) return false;
        const DType dtype = catalog.dtype(item);
        const TileGrid grid = tileGrid(catalog.elements(item), dtype, dtype, found.tileBytes());
        if (tile >= grid.tiles()) return false;
        const auto first = static_cast<size_t>(grid.begin(tile) / digestCellElements(dtype));
        const std::vector<Digest128> here = cellsFrom(data);
        if (here.empty() || here.size() > at->second.size() - first) return false;
        std::ranges::copy(here, at->second.begin() + static_cast<ptrdiff_t>(first));
        return true;
    }));
    for (const auto& [t, all] : cells)
        texts[t] = tensorDigest(catalog.dtype(t), catalog.shape(t), all).hex();
    DigestTexts digests;
    for (const TensorId t : tensors)
        digests.emplace_back(t, texts[readAs(catalog, wanted, t)]);
    return digests;
}

Result<DigestTexts> digestTexts(const Reader& reader, const std::vector<TensorId>& tensors, DigestKind kind,
                                const Resources& resources) {
    DigestTexts digests;
    if (kind == DigestKind::tile) {
        SHARDSCOPE_ASSIGN(const auto tiles, digestTensors(reader, tensors, {}, resources));
        for (const TensorDigest& d : tiles)
            digests.emplace_back(d.tensor, d.digest.hex());
        return digests;
    }
    const Catalog& catalog = reader.catalog();
    SourceContext context(reader, resources, FillGaps::refuse, systemFileSystem());
    if (resources.progress) resources.progress->begin(Progress::Phase::read, bytesOf(catalog, tensors));
    SHARDSCOPE_TRY(streamDigests(context, tensors, kind, [&](TensorId t, std::string digest) -> Status {
        digests.emplace_back(t, std::move(digest));
        return {};
    }));
    // Tensors without elements have no tiles; their digest is that of nothing.
    for (const TensorId t : tensors) {
        if (catalog.elements(t) == 0) digests.emplace_back(t, makeStream(kind)->hex());
    }
    return digests;
}

}  // namespace shardscope
