// Checks the checksums that a source stores of its records (Extent::checksum) while their bytes are read
// anyway. They come in pieces, in any order, by several threads and for several tensors. Private to this
// room.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <unordered_set>

#include "execute/executor.h"
#include "execute/values.h"

namespace shardscope {

class RecordChecks {
  public:
    // `lists`: what does not fit is listed in the report instead of being an error.
    explicit RecordChecks(bool lists) : lists_(lists) {}

    // Bytes that were read from this offset of the extent's file. Errors: damaged (integrity.crc) where they
    // complete a record that does not fit its checksum.
    Status saw(const Extent& extent, uint64_t offset, std::span<const std::byte> bytes,
               std::string_view tensor);
    // Reads these bytes from the extent's file, and sees them piece by piece while each is in the cache.
    Status read(const Extent& extent, uint64_t offset, std::span<std::byte> bytes, std::string_view tensor);
    // As saw() for bytes whose record has no checksum: errors (value.zero) where whole pages were lost.
    Status sawPages(const Extent& extent, DType dtype, std::span<const std::byte> bytes, const BytesAt& at,
                    std::string_view tensor);
    // Reads what is left of records of which a part was seen. `all`: another run has read the rest, and may
    // have ended because of what it found. Else only of records that are nearly whole: what is left is the
    // padding of a buffer that many tensors share. Not while others call saw(). Errors: those of saw() and of
    // reading.
    Status complete(const StopToken& stop, bool all);
    // Not while others call saw().
    ChecksumReport report() const;

  private:
    using Key = std::pair<std::string, uint64_t>;  // storage, and where the record begins in it
    static Key keyOf(const Extent& extent);
    struct Piece {
        uint64_t end = 0;
        uint32_t crc = 0;
    };
    struct Record {
        Extent extent;
        std::string tensor;
        std::map<uint64_t, Piece> pieces;  // by offset in the record; they do not touch
        bool scattered = false;            // in too many pieces to be remembered
    };
    static uint64_t hashOf(const Key& key);
    bool isNew(const Extent& extent, uint64_t offset, uint64_t size, std::string_view tensor);
    Status add(const Extent& extent, uint64_t begin, uint64_t end, uint32_t crc);
    static bool isNearlyWhole(const Record& record);
    static bool cut(const Record& record, uint64_t& begin, uint64_t& end);
    Status judge(const Record& record, uint32_t crc);
    Status wrong(Error error, const char* rule, const Extent& extent, std::string_view tensor);

    const bool lists_;
    mutable std::mutex mutex_;
    std::map<Key, Record> open_;
    std::unordered_set<uint64_t> done_;  // hashes of keys
    ChecksumReport report_;
};

}  // namespace shardscope
