#include "validate/value_parts.h"

#include <atomic>
#include <set>

#include "base/checked.h"
#include "validate/value_bytes.h"

namespace shardscope {

Result<std::unique_ptr<ValueParts>> ValueParts::open(const Reader& reader, const Resources& resources) {
    constexpr size_t kChunks = 64;  // for one step of a worker
    const Catalog& catalog = reader.catalog();
    const size_t count = catalog.chunkCount();
    struct Located {
        uint64_t bytes = 0;
        std::string storage;  // empty where the chunk has a checksum of its own, or none
        uint64_t offset = 0, length = 0;
    };
    std::vector<Located> located(count);
    SHARDSCOPE_TRY(resources.pool->parallelFor(
        (count + kChunks - 1) / kChunks, resources.stop, [&](size_t block) -> Status {
            for (size_t i = block * kChunks; i < std::min(count, (block + 1) * kChunks); ++i) {
                const auto c = static_cast<ChunkId>(i);
                const ChunkInfo chunk = catalog.chunk(c);
                if (!holdsValues(catalog, c)) continue;
                const FileInfo& file = catalog.files()[chunk.file];
                if (file.state != FileInfo::State::present ||
                    !rangeFits(chunk.offset, chunk.length, file.size))
                    continue;
                auto extent = reader.locate(c);
                if (!extent.ok()) {
                    if (extent.error().code == ErrorCode::cancelled) return std::move(extent).error();
                    continue;
                }
                const ChunkBytes bytes = bytesOfChunk(catalog, chunk, std::move(extent).value());
                Located& here = located[i];
                here.bytes = bytes.length;
                if (!bytes.extent.checksum || bytes.ownChecksum || !bytes.storageFits()) continue;
                here.storage = bytes.extent.checksum->storageIn(bytes.extent.file->path());
                here.offset = bytes.extent.checksum->offset;
                here.length = bytes.extent.checksum->length;
            }
            return {};
        }));
    std::unique_ptr<ValueParts> parts(new ValueParts(reader));
    for (ChunkId c = 0; c < count; ++c) {
        const Located& here = located[c];
        const auto id = [&] { return static_cast<uint32_t>(parts->items_.size()); };
        if (here.bytes > 0) {
            parts->chunks_.emplace(c, id());
            parts->items_.push_back({c, false, here.bytes});
        }
        if (!here.storage.empty() && parts->storages_.try_emplace({here.storage, here.offset}, id()).second)
            parts->items_.push_back({c, true, here.length});
    }
    for (const auto& [first, later] : replicaPairs(catalog))
        parts->replicas_[first] = parts->replicas_[later] = true;
    return parts;
}

PartReading ValueParts::reading() const {
    PartReading reading;
    reading.reader = &reader_;
    std::set<FileId> files;
    for (uint32_t id = 0; id < items_.size(); ++id) {
        reading.items.push_back({id, static_cast<int64_t>(items_[id].bytes), DType::uint8, DType::uint8});
        files.insert(reader_.catalog().chunk(items_[id].chunk).file);
    }
    reading.files.assign(files.begin(), files.end());
    reading.read = [this](std::span<const TileSpan> spans, uint64_t segmentBytes, const Resources& resources,
                          const KeepFound& keep) { return read(spans, segmentBytes, resources, keep); };
    return reading;
}

Result<uint64_t> ValueParts::read(std::span<const TileSpan> spans, uint64_t segmentBytes,
                                  const Resources& resources, const KeepFound& keep) const {
    SegmentReader reader(resources);
    std::atomic<uint64_t> bytesRead{0};
    const auto readSpan = [&](size_t s) -> Status {
        const TileSpan& span = spans[s];
        const Item& item = items_[span.tensor];
        auto extent = reader_.locate(item.chunk);
        if (!extent.ok() && extent.error().code == ErrorCode::cancelled) return std::move(extent).error();
        const Catalog& catalog = reader_.catalog();
        const TensorId tensor = catalog.tensorOf(item.chunk);
        std::optional<ChunkBytes> bytes;
        if (extent.ok()) bytes = bytesOfChunk(catalog, catalog.chunk(item.chunk), std::move(extent).value());
        if (bytes && item.storage) {
            if (!bytes->storageFits() || bytes->extent.checksum->length != item.bytes) {
                bytes.reset();
            } else {
                bytes->extent.offset = bytes->extent.checksum->offset;
                bytes->dtype = DType::uint8;
            }
        } else if (bytes && bytes->length != item.bytes) {
            bytes.reset();
        }
        return resources.pool->parallelFor(
            static_cast<size_t>(span.count), resources.stop, [&](size_t i) -> Status {
                const int64_t segment = span.first + static_cast<int64_t>(i);
                const uint64_t begin = static_cast<uint64_t>(segment) * segmentBytes;
                const uint64_t end = std::min(item.bytes, begin + segmentBytes);
                // What cannot be read is left to the process that finishes, which says so.
                std::string found;
                if (bytes) {
                    const auto seen = reader.read(bytes->extent, begin, end, bytes->dtype,
                                                  {.checksum = item.storage || bytes->ownChecksum,
                                                   .pieces = !item.storage && replicas_.contains(item.chunk),
                                                   .signs = !item.storage && isMoment(catalog, tensor)});
                    if (seen.ok()) {
                        found = packSegment(*seen);
                        bytesRead += end - begin;
                    } else if (seen.error().code == ErrorCode::cancelled ||
                               seen.error().code == ErrorCode::limit) {
                        return seen.error();
                    }
                }
                return keep(span.tensor, segment, std::move(found));
            });
    };
    SHARDSCOPE_TRY(resources.pool->parallelFor(spans.size(), resources.stop, readSpan));
    return bytesRead.load();
}

Status ValueParts::take(const FinishedReading& found) {
    segmentBytes_ = found.tileBytes();
    return found.forEach([&](uint32_t item, int64_t tile, std::string_view data) {
        if (item >= items_.size() || tile < 0 ||
            static_cast<uint64_t>(tile) >= (items_[item].bytes + segmentBytes_ - 1) / segmentBytes_)
            return false;
        if (data.empty()) return true;
        auto segment = unpackSegment(data);
        if (segment) found_[{item, static_cast<uint64_t>(tile)}] = std::move(*segment);
        return segment.has_value();
    });
}

uint32_t ValueParts::itemOf(ChunkId chunk) const {
    const auto found = chunks_.find(chunk);
    return found == chunks_.end() ? kNone : found->second;
}

uint32_t ValueParts::itemOf(const std::string& storage, uint64_t offset) const {
    const auto found = storages_.find({storage, offset});
    return found == storages_.end() ? kNone : found->second;
}

const SeenSegment* ValueParts::find(uint32_t item, uint64_t segment) const {
    const auto found = found_.find({item, segment});
    return found == found_.end() ? nullptr : &found->second;
}

}  // namespace shardscope
