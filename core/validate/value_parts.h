// A reading of all values in parts (execute/part_reading.h): what each part reads, and what all of them have
// found. A validation takes that instead of reading again (ValidateOptions::parts).
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "execute/part_reading.h"
#include "validate/value_scan.h"

namespace shardscope {

class ValueParts {
  public:
    // Asks where every chunk is, so that all parts agree on what there is to read. Errors: cancelled.
    static Result<std::unique_ptr<ValueParts>> open(const Reader& reader, const Resources& resources);

    // What parts are to read; this object must outlive it. The caller adds records and words. Tensors with
    // unusual strides are not among its items: the process that finishes reads them.
    PartReading reading() const;
    // What all parts have found. Errors: damaged, io.
    Status take(const FinishedReading& found);

    // kNone for a chunk or a storage that is not an item.
    uint32_t itemOf(ChunkId chunk) const;
    uint32_t itemOf(const std::string& storage, uint64_t offset) const;
    uint64_t segmentBytes() const { return segmentBytes_; }
    // Null where a part could not read it.
    const SeenSegment* find(uint32_t item, uint64_t segment) const;

  private:
    // The bytes of a chunk, or the storage for whose checksum it stands.
    struct Item {
        ChunkId chunk = kNone;
        bool storage = false;
        uint64_t bytes = 0;
    };

    explicit ValueParts(const Reader& reader) : reader_(reader) {}
    Result<uint64_t> read(std::span<const TileSpan> spans, uint64_t segmentBytes, const Resources& resources,
                          const KeepFound& keep) const;

    const Reader& reader_;
    std::vector<Item> items_;  // in the order of chunks
    std::map<ChunkId, uint32_t> chunks_;
    std::map<std::pair<std::string, uint64_t>, uint32_t> storages_;  // by file and offset
    std::map<ChunkId, bool> replicas_;                               // whose pieces have digests
    uint64_t segmentBytes_ = 0;
    std::map<std::pair<uint32_t, uint64_t>, SeenSegment> found_;
};

}  // namespace shardscope
