// Reading zip archives (zip.h): end records and central directory first, then headers and contents of single
// entries.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>
#include <unordered_set>

#include <fmt/format.h>
#include <zlib.h>

#include "base/checked.h"
#include "base/rule.h"
#include "base/units.h"
#include "encoding/pickle_text.h"
#include "encoding/zip.h"
#include "encoding/zip_records.h"
#include "storage/digest.h"

namespace shardscope {

using namespace zip;

namespace {

constexpr uint64_t kTailBytes = 4096;  // holds end records and directory of an archive with one tensor
constexpr uint64_t kMaxComment = UINT16_MAX;
constexpr uint64_t kMaxInflation = 1032;  // deflate's own limit
constexpr size_t kBlockBytes = size_t{256} << 10;

std::span<std::byte> asBytes(std::string& s) {
    return std::as_writable_bytes(std::span(s));
}

// What the end records say.
struct End {
    uint64_t entries = 0;
    uint64_t directorySize = 0;
    uint64_t directoryOffset = 0;
    uint64_t directoryEnd = 0;  // where the first end record begins
};

class Opener {
  public:
    Opener(ZipArchive& archive, const ZipLimits& limits) : a_(archive), limits_(limits) {}

    Status open() {
        if (a_.length < kEndRecordSize) {
            return damaged(fmt::format("it has {}, too few for a zip archive", counted(a_.length, "byte")),
                           a_.offset)
                .inFile(a_.file->path());
        }
        SHARDSCOPE_TRY(readTail(kTailBytes));
        SHARDSCOPE_TRY(readEnd());
        SHARDSCOPE_TRY(readDirectory());
        SHARDSCOPE_TRY(indexNames());
        return checkPlaces();
    }

  private:
    Error bad(uint64_t at, std::string message) const {
        return damaged(std::move(message), a_.offset + at).inFile(a_.file->path());
    }

    Status readTail(uint64_t bytes) {
        bytes = std::min(bytes, a_.length);
        auto tail = std::make_shared<std::string>(bytes, '\0');
        SHARDSCOPE_TRY(a_.file->readAt(a_.offset + a_.length - bytes, asBytes(*tail)));
        a_.tail = std::move(tail);
        return {};
    }

    // Bytes of the end of the archive, from the tail.
    Result<std::string> bytesAt(uint64_t at, uint64_t count) const {
        std::string bytes(count, '\0');
        SHARDSCOPE_TRY(a_.read(at, asBytes(bytes)));
        return bytes;
    }

    // The one end record whose comment reaches the end of the archive.
    Result<uint64_t> findEndRecord() {
        const auto isEnd = [&](uint64_t inTail) {
            const std::string& tail = *a_.tail;
            return get<uint32_t>(tail.data() + inTail) == kEndRecord &&
                   inTail + kEndRecordSize + get<uint16_t>(tail.data() + inTail + 20) == tail.size();
        };
        if (isEnd(a_.tail->size() - kEndRecordSize)) return a_.length - kEndRecordSize;
        SHARDSCOPE_TRY(readTail(kEndRecordSize + kMaxComment));
        std::optional<uint64_t> found;
        for (uint64_t i = 0; i + kEndRecordSize <= a_.tail->size(); ++i) {
            if (!isEnd(i)) continue;
            const uint64_t at = a_.length - a_.tail->size() + i;
            if (found) return bad(at, "the archive has two end records");
            found = at;
        }
        if (!found) {
            return bad(a_.length - std::min(a_.length, kEndRecordSize),
                       "the archive has no end-of-directory record at its end: it is truncated, or something "
                       "was added to it")
                .withHint("the file was probably not written or copied completely");
        }
        a_.warnings.push_back("the archive ends with a comment");
        return *found;
    }

    Status readEnd() {
        SHARDSCOPE_ASSIGN(const uint64_t at, findEndRecord());
        SHARDSCOPE_ASSIGN(const std::string end, bytesAt(at, kEndRecordSize));
        const char* e = end.data();
        const uint16_t disk = get<uint16_t>(e + 4), directoryDisk = get<uint16_t>(e + 6);
        const uint16_t entriesHere = get<uint16_t>(e + 8), entries = get<uint16_t>(e + 10);
        const uint32_t size = get<uint32_t>(e + 12), offset = get<uint32_t>(e + 16);
        if (disk != 0 || directoryDisk != 0 || entriesHere != entries) {
            return unsupported("the archive is split over several files")
                .at(a_.offset + at)
                .inFile(a_.file->path());
        }
        end_ = {entries, size, offset, at};

        bool zip64 = false;
        if (at >= kZip64LocatorSize + kZip64EndRecordSize) {
            SHARDSCOPE_ASSIGN(const std::string locator, bytesAt(at - kZip64LocatorSize, kZip64LocatorSize));
            zip64 = get<uint32_t>(locator.data()) == kZip64Locator;
            if (zip64) SHARDSCOPE_TRY(readZip64End(at - kZip64LocatorSize, locator, entries, size, offset));
        }
        if (!zip64 && (entries == kMax16 || size == kMax32 || offset == kMax32)) {
            return bad(at, "the end record refers to a Zip64 record that is not there");
        }
        if (!rangeFits(end_.directoryOffset, end_.directorySize, end_.directoryEnd) ||
            end_.directoryOffset + end_.directorySize != end_.directoryEnd) {
            return bad(
                at,
                fmt::format(
                    "the directory should have {} at byte {} and end at byte {}, where the end records begin",
                    counted(end_.directorySize, "byte"), countText(end_.directoryOffset),
                    countText(end_.directoryEnd)));
        }
        if (end_.entries > limits_.entries) {
            return makeError(ErrorCode::limit,
                             fmt::format("the archive has {}, more than the {} that are read",
                                         counted(end_.entries, "entry"), countText(limits_.entries)))
                .inFile(a_.file->path());
        }
        if (end_.entries > end_.directorySize / kCentralHeaderSize) {
            return bad(at, fmt::format("a directory of {} has no room for {}",
                                       counted(end_.directorySize, "byte"), counted(end_.entries, "entry")));
        }
        a_.directoryOffset = end_.directoryOffset;
        return {};
    }

    Status readZip64End(uint64_t locatorAt, const std::string& locator, uint16_t entries, uint32_t size,
                        uint32_t offset) {
        const uint64_t at = get<uint64_t>(locator.data() + 8);
        if (get<uint32_t>(locator.data() + 4) != 0 || get<uint32_t>(locator.data() + 16) > 1) {
            return unsupported("the archive is split over several files")
                .at(a_.offset + locatorAt)
                .inFile(a_.file->path());
        }
        if (!rangeFits(at, kZip64EndRecordSize, locatorAt)) {
            return bad(
                locatorAt,
                fmt::format("the Zip64 end record should be at byte {}, outside the archive", countText(at)));
        }
        SHARDSCOPE_ASSIGN(const std::string record, bytesAt(at, kZip64EndRecordSize));
        const char* r = record.data();
        if (get<uint32_t>(r) != kZip64EndRecord)
            return bad(at, "there is no Zip64 end record where the locator says");
        const uint64_t recordSize = get<uint64_t>(r + 4);
        if (recordSize < kZip64EndRecordSize - 12 || recordSize != locatorAt - at - 12) {
            return bad(at, fmt::format("the Zip64 end record says that it has {}, it has {}",
                                       counted(recordSize, "byte"), countText(locatorAt - at - 12)));
        }
        const uint64_t entriesHere = get<uint64_t>(r + 24);
        if (get<uint32_t>(r + 16) != 0 || get<uint32_t>(r + 20) != 0 ||
            entriesHere != get<uint64_t>(r + 32)) {
            return unsupported("the archive is split over several files")
                .at(a_.offset + at)
                .inFile(a_.file->path());
        }
        end_ = {entriesHere, get<uint64_t>(r + 40), get<uint64_t>(r + 48), at};
        const auto agrees = [](uint64_t small, uint64_t most, uint64_t large) {
            return small == most || small == large;
        };
        if (!agrees(entries, kMax16, end_.entries) || !agrees(size, kMax32, end_.directorySize) ||
            !agrees(offset, kMax32, end_.directoryOffset)) {
            return bad(at, "the Zip64 end record and the end record contradict each other");
        }
        return {};
    }

    Status readDirectory() {
        constexpr uint64_t kMaxDirectory = uint64_t{1} << 30;
        if (end_.directorySize > kMaxDirectory) {
            return makeError(ErrorCode::limit,
                             fmt::format("the directory has {}, more than the {} that are read",
                                         counted(end_.directorySize, "byte"), countText(kMaxDirectory)))
                .inFile(a_.file->path());
        }
        SHARDSCOPE_ASSIGN(const std::string directory, bytesAt(end_.directoryOffset, end_.directorySize));
        a_.entries.reserve(end_.entries);
        size_t at = 0;
        while (at < directory.size()) {
            if (a_.entries.size() == end_.entries) {
                return bad(end_.directoryOffset + at, fmt::format("the directory continues after its {}",
                                                                  counted(end_.entries, "entry")));
            }
            SHARDSCOPE_TRY(readCentralHeader(directory, at));
        }
        if (a_.entries.size() != end_.entries) {
            return bad(end_.directoryOffset + at,
                       fmt::format("the directory has {} instead of {}", counted(a_.entries.size(), "entry"),
                                   countText(end_.entries)));
        }
        return {};
    }

    Status readCentralHeader(const std::string& directory, size_t& at) {
        const uint64_t place = end_.directoryOffset + at;
        const char* h = directory.data() + at;
        if (directory.size() - at < kCentralHeaderSize || get<uint32_t>(h) != kCentralHeader) {
            return bad(place, "there is no directory entry where one should be");
        }
        const size_t nameSize = get<uint16_t>(h + 28), extraSize = get<uint16_t>(h + 30),
                     commentSize = get<uint16_t>(h + 32);
        if (directory.size() - at - kCentralHeaderSize < nameSize + extraSize + commentSize) {
            return bad(place, "a directory entry is longer than the directory");
        }
        ZipEntry entry;
        entry.flags = get<uint16_t>(h + 8);
        entry.method = get<uint16_t>(h + 10);
        entry.crc32 = get<uint32_t>(h + 16);
        entry.compressedSize = get<uint32_t>(h + 20);
        entry.size = get<uint32_t>(h + 24);
        uint32_t disk = get<uint16_t>(h + 34);
        entry.headerOffset = get<uint32_t>(h + 42);
        entry.name.assign(h + kCentralHeaderSize, nameSize);
        SHARDSCOPE_TRY(readZip64Field({h + kCentralHeaderSize + nameSize, extraSize}, place, entry, disk));
        SHARDSCOPE_TRY(checkName(entry.name, entry.size, place));
        if (disk != 0)
            return unsupported("the archive is split over several files")
                .at(a_.offset + place)
                .inFile(a_.file->path());
        constexpr uint16_t kRefused = kFlagEncrypted | kFlagPatch | kFlagStrongEncryption | kFlagMaskedHeader;
        if (entry.flags & kRefused) {
            return unsupported(fmt::format("the entry '{}' is encrypted or a patch",
                                           printable(entry.name, kNameInMessage)))
                .at(a_.offset + place)
                .inFile(a_.file->path());
        }
        if (entry.method != 0 && entry.method != 8) {
            return unsupported(fmt::format("the entry '{}' is compressed by method {}; only stored and "
                                           "deflated entries are read",
                                           printable(entry.name, kNameInMessage), entry.method))
                .at(a_.offset + place)
                .inFile(a_.file->path());
        }
        if (entry.method == 0 && entry.compressedSize != entry.size) {
            return bad(place, fmt::format("the entry '{}' is stored, but its sizes {} and {} differ",
                                          printable(entry.name, kNameInMessage),
                                          countText(entry.compressedSize), countText(entry.size)));
        }
        if (!rangeFits(entry.headerOffset, kLocalHeaderSize + nameSize, end_.directoryOffset) ||
            entry.compressedSize > end_.directoryOffset - entry.headerOffset - kLocalHeaderSize - nameSize) {
            return bad(
                place,
                fmt::format("the entry '{}' ({} at byte {}) reaches into the directory at byte {}",
                            printable(entry.name, kNameInMessage), counted(entry.compressedSize, "byte"),
                            countText(entry.headerOffset), countText(end_.directoryOffset)));
        }
        at += kCentralHeaderSize + nameSize + extraSize + commentSize;
        a_.entries.push_back(std::move(entry));
        return {};
    }

    // The Zip64 field holds, in this order, those of size, compressed size, offset and disk that do not fit
    // their fields.
    Status readZip64Field(std::string_view extra, uint64_t place, ZipEntry& entry, uint32_t& disk) {
        const bool wanted = entry.size == kMax32 || entry.compressedSize == kMax32 ||
                            entry.headerOffset == kMax32 || disk == kMax16;
        bool found = false;
        while (extra.size() >= 4) {
            const uint16_t id = get<uint16_t>(extra.data()), size = get<uint16_t>(extra.data() + 2);
            extra.remove_prefix(4);
            if (size > extra.size()) return bad(place, "an extra field is longer than its entry");
            std::string_view field = extra.substr(0, size);
            extra.remove_prefix(size);
            if (id != kZip64Field) continue;
            if (found) return bad(place, "a directory entry has two Zip64 fields");
            found = true;
            bool enough = true;
            const auto take = [&](uint64_t& value) {
                if (value != kMax32) return;
                if (field.size() < 8) {
                    enough = false;
                    return;
                }
                value = get<uint64_t>(field.data());
                field.remove_prefix(8);
            };
            take(entry.size);
            take(entry.compressedSize);
            take(entry.headerOffset);
            if (disk == kMax16 && field.size() >= 4) {
                disk = get<uint32_t>(field.data());
                field.remove_prefix(4);
            }
            if (!enough) return bad(place, "the Zip64 field is shorter than needed");
            if (!field.empty())
                return bad(place, "the Zip64 field states sizes that the directory entry states as well");
        }
        if (!extra.empty()) return bad(place, "bytes are left after the extra fields");
        if (wanted && !found)
            return bad(place, "a directory entry refers to a Zip64 field that is not there");
        return {};
    }

    Status checkName(std::string_view name, uint64_t size, uint64_t place) const {
        const auto refuse = [&](std::string_view why) -> Error {
            Error error =
                bad(place, fmt::format("the entry name '{}' {}", printable(name, kNameInMessage), why));
            error.code = ErrorCode::unsafe;
            error.location.rule = rule::securityPath;
            return error;
        };
        if (name.empty()) return refuse("is empty");
        if (!pickle_text::isUtf8(name)) return refuse("is not UTF-8");
        if (name.find('\0') != name.npos || name.find('\\') != name.npos)
            return refuse("has a zero byte or a backslash");
        if (name.size() > 1 && name[1] == ':') return refuse("begins with a drive letter");
        std::string_view rest = name;
        while (true) {
            const size_t slash = rest.find('/');
            const std::string_view part = rest.substr(0, slash);
            if (part.empty() || part == "." || part == "..") return refuse("is not a plain relative path");
            if (slash == rest.npos) return {};
            rest.remove_prefix(slash + 1);
            if (rest.empty() && size == 0) return {};  // a folder, as common archivers add them
            if (rest.empty()) return refuse("is a folder");
        }
    }

    Status indexNames() {
        a_.byName.resize(a_.entries.size());
        std::iota(a_.byName.begin(), a_.byName.end(), 0U);
        std::sort(a_.byName.begin(), a_.byName.end(),
                  [&](uint32_t x, uint32_t y) { return a_.entries[x].name < a_.entries[y].name; });
        for (size_t i = 1; i < a_.byName.size(); ++i) {
            const ZipEntry& entry = a_.entries[a_.byName[i]];
            if (entry.name == a_.entries[a_.byName[i - 1]].name) {
                return bad(entry.headerOffset, fmt::format("the archive has two entries named '{}'",
                                                           printable(entry.name, kNameInMessage)));
            }
        }
        // torch takes names for equal that differ in the case of letters only, so which one it reads is
        // chance.
        std::unordered_set<std::string> folded;
        for (const ZipEntry& entry : a_.entries) {
            if (std::none_of(entry.name.begin(), entry.name.end(),
                             [](char c) { return c >= 'A' && c <= 'Z'; }))
                continue;
            std::string lower(entry.name);
            for (char& c : lower)
                c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
            if (!folded.insert(lower).second || a_.find(lower)) {
                return bad(entry.headerOffset, fmt::format("the archive has two entries named '{}' but for "
                                                           "upper and lower case",
                                                           printable(entry.name, kNameInMessage)));
            }
        }
        return {};
    }

    // Records in file order: the first at 0, none reaching into the next.
    Status checkPlaces() {
        std::vector<uint32_t> order(a_.entries.size());
        std::iota(order.begin(), order.end(), 0U);
        std::sort(order.begin(), order.end(), [&](uint32_t x, uint32_t y) {
            return a_.entries[x].headerOffset < a_.entries[y].headerOffset;
        });
        uint64_t end = a_.directoryOffset;
        for (size_t i = order.size(); i-- > 0;) {
            ZipEntry& entry = a_.entries[order[i]];
            entry.endOffset = end;
            const uint64_t least =
                entry.headerOffset + kLocalHeaderSize + entry.name.size() + entry.compressedSize;
            if (least > end) {
                return bad(entry.headerOffset,
                           fmt::format("the entry '{}' overlaps what follows at byte {}",
                                       printable(entry.name, kNameInMessage), countText(end)));
            }
            end = entry.headerOffset;
        }
        if (end != 0)
            return bad(0, fmt::format("the archive has {} before its first entry", counted(end, "byte")));
        return {};
    }

    ZipArchive& a_;
    const ZipLimits& limits_;
    End end_;
};

Error inEntry(const ZipArchive& archive, uint64_t at, const ZipEntry& entry, std::string_view what) {
    return damaged(fmt::format("the entry '{}' {}", printable(entry.name, kNameInMessage), what),
                   archive.offset + at)
        .inFile(archive.file->path());
}

// With or without signature, sizes of 4 or of 8 bytes: writers differ.
bool descriptorMatches(std::string_view bytes, const ZipEntry& entry) {
    for (size_t start : {size_t{4}, size_t{0}}) {
        if (start && (bytes.size() < 4 || get<uint32_t>(bytes.data()) != kDescriptor)) continue;
        const char* d = bytes.data() + start;
        const size_t left = bytes.size() - start;
        if (left >= 4 && get<uint32_t>(d) != entry.crc32) continue;
        if (left >= 20 && get<uint64_t>(d + 4) == entry.compressedSize && get<uint64_t>(d + 12) == entry.size)
            return true;
        if (left >= 12 && get<uint32_t>(d + 4) == entry.compressedSize && get<uint32_t>(d + 8) == entry.size)
            return true;
    }
    return false;
}

}  // namespace

const ZipEntry* ZipArchive::find(std::string_view name) const {
    const auto it = std::lower_bound(byName.begin(), byName.end(), name,
                                     [&](uint32_t i, std::string_view n) { return entries[i].name < n; });
    return it != byName.end() && entries[*it].name == name ? &entries[*it] : nullptr;
}

Status ZipArchive::read(uint64_t at, std::span<std::byte> buffer) const {
    if (buffer.empty()) return {};
    if (tail && at >= length - tail->size() && rangeFits(at, buffer.size(), length)) {
        std::memcpy(buffer.data(), tail->data() + (at - (length - tail->size())), buffer.size());
        return {};
    }
    if (head && rangeFits(at, buffer.size(), head->size())) {
        std::memcpy(buffer.data(), head->data() + at, buffer.size());
        return {};
    }
    return file->readAt(offset + at, buffer);
}

Status ZipArchive::readHead(uint64_t bytes) {
    bytes = std::min(bytes, length);
    if (tail && bytes <= tail->size() && length == tail->size()) return {};
    auto first = std::make_shared<std::string>(bytes, '\0');
    SHARDSCOPE_TRY(file->readAt(offset, asBytes(*first)));
    head = std::move(first);
    return {};
}

Result<ZipArchive> openZip(std::shared_ptr<const ReadFile> file, uint64_t offset, uint64_t length,
                           const ZipLimits& limits) {
    if (!rangeFits(offset, length, file->size())) {
        return makeError(
                   ErrorCode::damaged,
                   fmt::format("an archive of {} at byte {} is outside the file of {}",
                               counted(length, "byte"), countText(offset), counted(file->size(), "byte")))
            .at(offset)
            .byRule(rule::fileTruncated)
            .inFile(file->path());
    }
    ZipArchive archive;
    archive.file = std::move(file);
    archive.offset = offset;
    archive.length = length;
    SHARDSCOPE_TRY(Opener(archive, limits).open());
    return archive;
}

Result<uint64_t> zipDataOffset(const ZipArchive& archive, const ZipEntry& entry) {
    // The central directory vouches for this many bytes.
    std::string header(kLocalHeaderSize + entry.name.size(), '\0');
    SHARDSCOPE_TRY(archive.read(entry.headerOffset, asBytes(header)));
    const char* h = header.data();
    const uint64_t at = entry.headerOffset;
    if (get<uint32_t>(h) != kLocalHeader)
        return inEntry(archive, at, entry, "has no local header where the directory says");
    if (get<uint16_t>(h + 26) != entry.name.size() ||
        std::string_view(header).substr(kLocalHeaderSize) != entry.name) {
        return inEntry(archive, at, entry, "has another name in its local header");
    }
    if (get<uint16_t>(h + 6) != entry.flags || get<uint16_t>(h + 8) != entry.method) {
        return inEntry(archive, at, entry, "has other flags or another method in its local header");
    }
    const uint32_t crc = get<uint32_t>(h + 14), compressed = get<uint32_t>(h + 18),
                   size = get<uint32_t>(h + 22);
    const bool follows = entry.flags & kFlagDescriptor;
    const auto fits = [&](uint32_t local, uint64_t central) {
        return local == central || (follows && local == 0) ||
               (local == kMax32 && (central >= kMax32 || follows));
    };
    if (!(crc == entry.crc32 || (follows && crc == 0)) || !fits(compressed, entry.compressedSize) ||
        !fits(size, entry.size)) {
        return inEntry(archive, at, entry, "has other sizes or another checksum in its local header");
    }
    const uint64_t data = at + header.size() + get<uint16_t>(h + 28);
    if (data > entry.endOffset || entry.compressedSize > entry.endOffset - data) {
        return inEntry(
            archive, at, entry,
            fmt::format("reaches beyond byte {}, where the next begins", countText(entry.endOffset)));
    }
    if (follows) {
        const uint64_t end = data + entry.compressedSize;
        std::string descriptor(std::min<uint64_t>(24, entry.endOffset - end), '\0');
        SHARDSCOPE_TRY(archive.read(end, asBytes(descriptor)));
        if (!descriptorMatches(descriptor, entry)) {
            return inEntry(archive, end, entry,
                           "is followed by sizes or a checksum that the directory contradicts");
        }
    }
    return archive.offset + data;
}

Status streamZipEntry(const ZipArchive& archive, const ZipEntry& entry, uint64_t maxBytes,
                      const std::function<Status(std::span<const std::byte>)>& sink) {
    if (entry.size > maxBytes) {
        return makeError(ErrorCode::limit,
                         fmt::format("the entry '{}' has {}, more than the {} that are read",
                                     printable(entry.name, kNameInMessage), counted(entry.size, "byte"),
                                     countText(maxBytes)))
            .at(archive.offset + entry.headerOffset)
            .inFile(archive.file->path());
    }
    if (entry.method == 8 && entry.size / kMaxInflation > entry.compressedSize) {
        return inEntry(archive, entry.headerOffset, entry,
                       fmt::format("cannot become {} from {}", counted(entry.size, "byte"),
                                   countText(entry.compressedSize)));
    }
    SHARDSCOPE_ASSIGN(const uint64_t start, zipDataOffset(archive, entry));
    const uint64_t first = start - archive.offset;
    std::string piece(std::min<uint64_t>(kBlockBytes, entry.compressedSize), '\0');
    uint32_t crc = 0;

    if (entry.method == 0) {
        for (uint64_t done = 0; done < entry.size;) {
            const uint64_t count = std::min<uint64_t>(piece.size(), entry.size - done);
            SHARDSCOPE_TRY(archive.read(first + done, asBytes(piece).first(count)));
            crc = crc32Continue(crc, asBytes(piece).first(count));
            SHARDSCOPE_TRY(sink(asBytes(piece).first(count)));
            done += count;
        }
    } else {
        z_stream stream{};
        if (inflateInit2(&stream, -MAX_WBITS) != Z_OK)
            return makeError(ErrorCode::internal, "zlib does not start");
        const std::unique_ptr<z_stream, int (*)(z_stream*)> owner(&stream, inflateEnd);
        std::string out(std::min<uint64_t>(kBlockBytes, std::max<uint64_t>(entry.size, 1)), '\0');
        uint64_t consumed = 0;
        uint64_t produced = 0;
        int state = Z_OK;
        while (state != Z_STREAM_END) {
            if (stream.avail_in == 0 && consumed < entry.compressedSize) {
                const uint64_t count = std::min<uint64_t>(piece.size(), entry.compressedSize - consumed);
                SHARDSCOPE_TRY(archive.read(first + consumed, asBytes(piece).first(count)));
                consumed += count;
                stream.next_in = reinterpret_cast<Bytef*>(piece.data());
                stream.avail_in = static_cast<uInt>(count);
            }
            stream.next_out = reinterpret_cast<Bytef*>(out.data());
            stream.avail_out = static_cast<uInt>(out.size());
            state = inflate(&stream, Z_NO_FLUSH);
            const size_t made = out.size() - stream.avail_out;
            if ((state != Z_OK && state != Z_STREAM_END) || made > entry.size - produced) {
                return inEntry(archive, entry.headerOffset, entry,
                               "cannot be inflated to the size that the directory states");
            }
            crc = crc32Continue(crc, asBytes(out).first(made));
            produced += made;
            if (made) SHARDSCOPE_TRY(sink(asBytes(out).first(made)));
        }
        if (produced != entry.size || stream.avail_in != 0 || consumed != entry.compressedSize) {
            return inEntry(archive, entry.headerOffset, entry,
                           "cannot be inflated to the size that the directory states");
        }
    }
    if (zipHasCrc(entry) && crc != entry.crc32) {
        return inEntry(archive, first, entry,
                       fmt::format("has the checksum {:08x} instead of {:08x}: its bytes were altered", crc,
                                   entry.crc32))
            .byRule(rule::integrityCrc);
    }
    return {};
}

Result<std::string> readZipEntry(const ZipArchive& archive, const ZipEntry& entry, uint64_t maxBytes) {
    std::string content;
    SHARDSCOPE_TRY(streamZipEntry(archive, entry, maxBytes, [&](std::span<const std::byte> piece) -> Status {
        if (content.empty()) content.reserve(entry.size);  // the ratio has been checked
        content.append(reinterpret_cast<const char*>(piece.data()), piece.size());
        return {};
    }));
    return content;
}

}  // namespace shardscope
