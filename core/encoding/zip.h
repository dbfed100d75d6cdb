// Zip archives as torch writes them: read strictly from the central directory, and written with torch's exact
// layout. That is stored records, sizes only in descriptor and directory, "FB" padding that aligns every
// record, always Zip64 end records. Source: third_party/miniz and caffe2/serialize/inline_container.cc of
// PyTorch; docs/formats/torch_save.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "storage/file_system.h"

namespace shardscope {

struct ZipEntry {
    std::string name;
    uint16_t method = 0;  // 0 stored, 8 deflated
    uint16_t flags = 0;
    uint32_t crc32 = 0;
    uint64_t compressedSize = 0;
    uint64_t size = 0;
    uint64_t headerOffset = 0;  // of the local header, relative to the start of the archive
    uint64_t endOffset = 0;     // where the next record or the directory begins; this one must end before
};

// A zip archive inside bytes [offset, offset + length) of a file.
struct ZipArchive {
    std::shared_ptr<const ReadFile> file;
    uint64_t offset = 0;
    uint64_t length = 0;
    std::vector<ZipEntry> entries;      // in directory order
    uint64_t directoryOffset = 0;       // relative to the start of the archive
    std::vector<std::string> warnings;  // tolerated oddities

    const ZipEntry* find(std::string_view name) const;  // exact match

    // Reads bytes of the archive (relative to its start) that the caller knows to be inside it.
    Status read(uint64_t at, std::span<std::byte> buffer) const;

    std::vector<uint32_t> byName;  // indices of entries, sorted by name
    // The last bytes, read once, and the first ones where a reader asks for them: all there is in small
    // archives.
    std::shared_ptr<const std::string> tail, head;
    Status readHead(uint64_t bytes);
};

struct ZipLimits {
    uint64_t entries = 4'000'000;
    uint64_t inflatedBytes = uint64_t{2} << 30;
};

// Reads the end records and the central directory. Strict where readers of zip files differ. There is one end
// record at the very end, and nothing before the first record. Names are unique and plain; records do not
// overlap. One read for a small archive. Errors: damaged / unsupported / limit, with the offset in the file.
Result<ZipArchive> openZip(std::shared_ptr<const ReadFile> file, uint64_t offset, uint64_t length,
                           const ZipLimits& limits = {});

// Checks the entry's local header and data descriptor and returns where its data starts in the file.
Result<uint64_t> zipDataOffset(const ZipArchive& archive, const ZipEntry& entry);

// Whether the entry states a checksum: torch can be told to write none, and then says 0.
inline bool zipHasCrc(const ZipEntry& entry) {
    return entry.crc32 != 0 || entry.size == 0;
}

// The whole content of a small entry, inflated where needed and checked against its CRC. Errors: damaged
// (integrity.crc), limit.
Result<std::string> readZipEntry(const ZipArchive& archive, const ZipEntry& entry, uint64_t maxBytes);

// Hands out the content of an entry of any size piece by piece, inflated, and checks size and CRC at the end.
// Errors: as readZipEntry, and those of `sink`.
Status streamZipEntry(const ZipArchive& archive, const ZipEntry& entry, uint64_t maxBytes,
                      const std::function<Status(std::span<const std::byte>)>& sink);

// Lays out an archive: records are added in order with their sizes, bytes are produced when CRCs are known.
class ZipLayout {
  public:
    // `alignment` of every record's data, relative to the start of the archive (torch: 64).
    explicit ZipLayout(std::string prefix, uint64_t alignment = 64);

    // Adds the record `<prefix>/<name>`; returns its index. `alignment` 0 = the archive's own.
    size_t addRecord(std::string_view name, uint64_t size, uint64_t alignment = 0);
    uint64_t headerOffset(size_t record) const { return records_[record].headerOffset; }
    uint64_t dataOffset(size_t record) const { return records_[record].dataOffset; }
    uint64_t dataSize(size_t record) const { return records_[record].size; }
    size_t recordCount() const { return records_.size(); }
    uint64_t directoryOffset() const { return cursor_; }
    uint64_t totalSize() const;  // of the archive with what was added so far

    std::string header(size_t record) const;  // local header with padding: [headerOffset, dataOffset)
    std::string descriptor(size_t record,
                           uint32_t crc32) const;  // follows the data; empty for an empty record
    std::string directory(const std::vector<uint32_t>& crcs) const;  // central directory and end records

  private:
    struct Record {
        std::string name;
        uint64_t size, headerOffset, dataOffset;
        uint16_t padding;  // bytes inside the FB field
    };
    std::string prefix_;
    uint64_t alignment_;
    uint64_t cursor_ = 0;
    std::vector<Record> records_;
};

}  // namespace shardscope
