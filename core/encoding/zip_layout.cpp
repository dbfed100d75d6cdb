#include <algorithm>

#include "encoding/zip.h"
#include "encoding/zip_records.h"

namespace shardscope {

using namespace zip;

namespace {

bool largeSize(uint64_t size) {
    return size >= kMax32;
}

// miniz adds the Zip64 field to a local header for a large size or a far offset, with just the parts that
// need it.
uint64_t zip64FieldSize(uint64_t size, uint64_t headerOffset) {
    const uint64_t parts = (largeSize(size) ? 16 : 0) + (largeSize(headerOffset) ? 8 : 0);
    return parts ? parts + 4 : 0;
}

uint64_t descriptorSize(uint64_t size, uint64_t headerOffset) {
    if (size == 0) return 0;
    return zip64FieldSize(size, headerOffset) ? 24 : 16;
}

uint16_t flagsOf(uint64_t size) {
    return static_cast<uint16_t>(kFlagUtf8 | (size ? kFlagDescriptor : 0));
}

uint32_t clip32(uint64_t value) {
    return static_cast<uint32_t>(std::min<uint64_t>(value, kMax32));
}
uint16_t clip16(uint64_t value) {
    return static_cast<uint16_t>(std::min<uint64_t>(value, kMax16));
}

}  // namespace

ZipLayout::ZipLayout(std::string prefix, uint64_t alignment)
    : prefix_(std::move(prefix)), alignment_(alignment) {}

size_t ZipLayout::addRecord(std::string_view name, uint64_t size, uint64_t alignment) {
    if (alignment == 0) alignment = alignment_;
    Record record;
    record.name = prefix_ + "/" + std::string(name);
    record.size = size;
    record.headerOffset = cursor_;
    const uint64_t unpadded =
        cursor_ + kLocalHeaderSize + record.name.size() + zip64FieldSize(size, cursor_) + 4;
    record.padding = static_cast<uint16_t>((alignment - unpadded % alignment) % alignment);
    record.dataOffset = unpadded + record.padding;
    cursor_ = record.dataOffset + size + descriptorSize(size, record.headerOffset);
    records_.push_back(std::move(record));
    return records_.size() - 1;
}

uint64_t ZipLayout::totalSize() const {
    uint64_t size = cursor_ + kZip64EndRecordSize + kZip64LocatorSize + kEndRecordSize;
    for (const Record& r : records_) {
        size += kCentralHeaderSize + r.name.size() + zip64FieldSize(r.size, r.headerOffset);
    }
    return size;
}

std::string ZipLayout::header(size_t index) const {
    const Record& r = records_[index];
    std::string out;
    put(out, kLocalHeader);
    put<uint16_t>(out, 0);  // version needed
    put(out, flagsOf(r.size));
    put<uint16_t>(out, 0);  // stored
    put<uint32_t>(out, 0);  // time and date
    put<uint32_t>(out, 0);  // CRC and sizes follow the data
    put<uint32_t>(out, 0);
    put<uint32_t>(out, 0);
    put(out, static_cast<uint16_t>(r.name.size()));
    const uint64_t zip64 = zip64FieldSize(r.size, r.headerOffset);
    put(out, static_cast<uint16_t>(zip64 + 4 + r.padding));
    out += r.name;
    if (zip64) {
        put(out, kZip64Field);
        put(out, static_cast<uint16_t>(zip64 - 4));
        if (largeSize(r.size)) {
            put(out, r.size);
            put<uint64_t>(out, 0);  // compressed size: not known yet when this is written
        }
        if (largeSize(r.headerOffset)) put(out, r.headerOffset);
    }
    out += "FB";
    put(out, r.padding);
    out.append(r.padding, 'Z');
    return out;
}

std::string ZipLayout::descriptor(size_t index, uint32_t crc32) const {
    const Record& r = records_[index];
    std::string out;
    if (r.size == 0) return out;
    put(out, kDescriptor);
    put(out, crc32);
    if (zip64FieldSize(r.size, r.headerOffset)) {
        put(out, r.size);
        put(out, r.size);
    } else {
        put(out, static_cast<uint32_t>(r.size));
        put(out, static_cast<uint32_t>(r.size));
    }
    return out;
}

std::string ZipLayout::directory(const std::vector<uint32_t>& crcs) const {
    std::string out;
    for (size_t i = 0; i < records_.size(); ++i) {
        const Record& r = records_[i];
        put(out, kCentralHeader);
        put<uint16_t>(out, 0);  // made by
        put<uint16_t>(out, 0);  // version needed
        put(out, flagsOf(r.size));
        put<uint16_t>(out, 0);
        put<uint32_t>(out, 0);
        put(out, crcs[i]);
        put(out, clip32(r.size));
        put(out, clip32(r.size));
        put(out, static_cast<uint16_t>(r.name.size()));
        const uint64_t zip64 = zip64FieldSize(r.size, r.headerOffset);
        put(out, static_cast<uint16_t>(zip64));
        put<uint16_t>(out, 0);  // comment
        put<uint16_t>(out, 0);  // disk
        put<uint16_t>(out, 0);  // attributes
        put<uint32_t>(out, 0);
        put(out, clip32(r.headerOffset));
        out += r.name;
        if (zip64) {
            put(out, kZip64Field);
            put(out, static_cast<uint16_t>(zip64 - 4));
            if (largeSize(r.size)) {
                put(out, r.size);
                put(out, r.size);
            }
            if (largeSize(r.headerOffset)) put(out, r.headerOffset);
        }
    }
    const uint64_t size = out.size();
    const uint64_t count = records_.size();
    put(out, kZip64EndRecord);
    put<uint64_t>(out, kZip64EndRecordSize - 12);
    put<uint16_t>(out, 0x031e);  // made by
    put<uint16_t>(out, 0x002d);  // needed: 4.5
    put<uint32_t>(out, 0);
    put<uint32_t>(out, 0);
    put(out, count);
    put(out, count);
    put(out, size);
    put(out, cursor_);
    put(out, kZip64Locator);
    put<uint32_t>(out, 0);
    put(out, cursor_ + size);
    put<uint32_t>(out, 1);
    put(out, kEndRecord);
    put<uint16_t>(out, 0);
    put<uint16_t>(out, 0);
    put(out, clip16(count));
    put(out, clip16(count));
    put(out, clip32(size));
    put(out, clip32(cursor_));
    put<uint16_t>(out, 0);
    return out;
}

}  // namespace shardscope
