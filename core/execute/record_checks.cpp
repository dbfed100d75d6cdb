#include "execute/record_checks.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "base/option_words.h"
#include "base/rule.h"
#include "base/units.h"
#include "storage/digest.h"

namespace shardscope {

namespace {

constexpr size_t kMostPieces = 4096;          // of one record, while it is not whole
constexpr size_t kPiece = size_t{256} << 10;  // read and looked at in one go: it is in the cache then
constexpr uint64_t kBlock = uint64_t{4} << 20;

}  // namespace

uint64_t RecordChecks::hashOf(const Key& key) {
    return std::hash<std::string>()(key.first) ^ (key.second + 1) * 0x9E3779B97F4A7C15U;
}

RecordChecks::Key RecordChecks::keyOf(const Extent& extent) {
    return {extent.checksum->storageIn(extent.file->path()), extent.checksum->offset};
}

// What of [begin, end) has not been seen, as far as that is one range; false where all of it has.
bool RecordChecks::cut(const Record& record, uint64_t& begin, uint64_t& end) {
    auto after = record.pieces.upper_bound(begin);
    if (after != record.pieces.begin()) begin = std::max(begin, std::prev(after)->second.end);
    if (after != record.pieces.end()) end = std::min(end, after->first);
    return begin < end;
}

Status RecordChecks::judge(const Record& record, uint32_t crc) {
    const StoredChecksum& stored = *record.extent.checksum;
    if (crc == stored.crc32) return {};
    std::string message = fmt::format(
        "the checksum (CRC-32) of its record is stored as {:08x}, its bytes have {:08x}: they were altered",
        stored.crc32, crc);
    return wrong(damaged(std::move(message), stored.offset), rule::integrityCrc, record.extent,
                 record.tensor);
}

Status RecordChecks::sawPages(const Extent& extent, DType dtype, std::span<const std::byte> bytes,
                              const BytesAt& at, std::string_view tensor) {
    const ZeroPages pages = zeroPages(dtype, bytes, at);
    if (pages.count == 0) return {};
    std::lock_guard lock(mutex_);
    return wrong(damaged(fmt::format("{}: {}", kLostPages, lostPagesText(pages)), pages.first),
                 rule::valueZero, extent, tensor);
}

Status RecordChecks::wrong(Error error, const char* rule, const Extent& extent, std::string_view tensor) {
    if (lists_) {
        report_.wrong.push_back({std::string(tensor), std::move(error.message), rule});
        return {};
    }
    return std::move(error)
        .inFile(extent.file->path())
        .ofTensor(tensor)
        .byRule(rule)
        .withHint(fmt::format("'shardscope validate --level values' finds all of them; {} converts them as "
                              "they are and lists them",
                              option("skip-damaged")));
}

Status RecordChecks::saw(const Extent& extent, uint64_t offset, std::span<const std::byte> bytes,
                         std::string_view tensor) {
    if (!extent.checksum || bytes.empty()) return {};
    const StoredChecksum& stored = *extent.checksum;
    uint64_t begin = std::max(offset, stored.offset) - stored.offset;
    uint64_t end = std::min(offset + bytes.size(), stored.offset + stored.length);
    if (end <= stored.offset + begin) return {};
    end -= stored.offset;
    const Key key = keyOf(extent);
    {
        std::lock_guard lock(mutex_);
        if (done_.contains(hashOf(key))) return {};
        const auto [it, fresh] = open_.try_emplace(key);
        if (fresh) it->second = {extent, std::string(tensor), {}, false};
        if (it->second.scattered || !cut(it->second, begin, end)) return {};
    }
    return add(extent, begin, end,
               crc32Of(bytes.subspan(static_cast<size_t>(stored.offset + begin - offset),
                                     static_cast<size_t>(end - begin))));
}

// Whether all of these bytes are inside the record and none has been seen.
bool RecordChecks::isNew(const Extent& extent, uint64_t offset, uint64_t size, std::string_view tensor) {
    const StoredChecksum& stored = *extent.checksum;
    if (offset < stored.offset || offset + size > stored.offset + stored.length) return false;
    const Key key = keyOf(extent);
    std::lock_guard lock(mutex_);
    if (done_.contains(hashOf(key))) return false;
    const auto [it, fresh] = open_.try_emplace(key);
    if (fresh) it->second = {extent, std::string(tensor), {}, false};
    uint64_t begin = offset - stored.offset, end = begin + size;
    return !it->second.scattered && cut(it->second, begin, end) && end - begin == size;
}

Status RecordChecks::read(const Extent& extent, uint64_t offset, std::span<std::byte> bytes,
                          std::string_view tensor) {
    if (bytes.empty() || !isNew(extent, offset, bytes.size(), tensor)) {
        SHARDSCOPE_TRY(extent.file->readBulk(offset, bytes));
        return saw(extent, offset, bytes, tensor);
    }
    uint32_t crc = 0;
    for (size_t done = 0; done < bytes.size();) {
        std::span<std::byte> piece = bytes.subspan(done, std::min(kPiece, bytes.size() - done));
        if (extent.file->readCached(offset + done, piece) < piece.size()) {
            piece = bytes.subspan(done);
            SHARDSCOPE_TRY(extent.file->readBulk(offset + done, piece));
        }
        const BusyTime busy(Progress::Work::compute);
        crc = crc32Continue(crc, piece);
        done += piece.size();
    }
    const uint64_t begin = offset - extent.checksum->offset;
    return add(extent, begin, begin + bytes.size(), crc);
}

// Bytes [begin, end) of a record have this checksum.
Status RecordChecks::add(const Extent& extent, uint64_t begin, uint64_t end, uint32_t crc) {
    const StoredChecksum& stored = *extent.checksum;
    const Key key = keyOf(extent);
    std::lock_guard lock(mutex_);
    const auto found = open_.find(key);
    if (found == open_.end()) return {};
    Record& record = found->second;
    uint64_t first = begin, last = end;
    // Another thread has seen the same in the meantime.
    if (!cut(record, first, last) || first != begin || last != end) return {};
    auto at = record.pieces.emplace(begin, Piece{end, crc}).first;
    if (at != record.pieces.begin() && std::prev(at)->second.end == begin) {
        const auto before = std::prev(at);
        before->second.crc = crc32Combine(before->second.crc, crc, end - begin);
        before->second.end = end;
        record.pieces.erase(at);
        at = before;
    }
    if (const auto next = std::next(at); next != record.pieces.end() && next->first == at->second.end) {
        at->second.crc = crc32Combine(at->second.crc, next->second.crc, next->second.end - next->first);
        at->second.end = next->second.end;
        record.pieces.erase(next);
    }
    if (at->first == 0 && at->second.end == stored.length) {
        const uint32_t whole = at->second.crc;
        const Record done = std::move(record);
        open_.erase(found);
        done_.insert(hashOf(key));
        ++report_.checked;
        return judge(done, whole);
    }
    if (record.pieces.size() > kMostPieces) {
        record.scattered = true;
        record.pieces.clear();
    }
    return {};
}

bool RecordChecks::isNearlyWhole(const Record& record) {
    constexpr uint64_t kShare = 8;
    uint64_t seen = 0;
    for (const auto& [begin, piece] : record.pieces)
        seen += piece.end - begin;
    const uint64_t length = record.extent.checksum->length;
    return length - seen <= length / kShare;
}

Status RecordChecks::complete(const StopToken& stop, bool all) {
    std::vector<Key> keys;
    for (const auto& [key, record] : open_)
        if (!record.scattered && (all || isNearlyWhole(record))) keys.push_back(key);
    std::vector<std::byte> block(keys.empty() ? 0 : static_cast<size_t>(kBlock));
    for (const Key& key : keys) {
        const Extent extent = open_.at(key).extent;
        const std::string tensor = open_.at(key).tensor;
        const StoredChecksum& stored = *extent.checksum;
        for (uint64_t at = 0; at < stored.length && open_.contains(key);) {
            SHARDSCOPE_TRY(stop.poll());
            uint64_t begin = at, end = std::min(stored.length, at + kBlock);
            if (!cut(open_.at(key), begin, end)) {
                at = std::max(at + 1, begin);
                continue;
            }
            const std::span<std::byte> bytes(block.data(), static_cast<size_t>(end - begin));
            SHARDSCOPE_TRY(extent.file->readBulk(stored.offset + begin, bytes));
            SHARDSCOPE_TRY(saw(extent, stored.offset + begin, bytes, tensor));
            at = end;
        }
    }
    return {};
}

ChecksumReport RecordChecks::report() const {
    ChecksumReport report = report_;
    report.unchecked = open_.size();
    return report;
}

std::string ChecksumReport::text() const {
    std::string text;
    if (unchecked > 0)
        text = fmt::format("stored checksums were not checked: of {} of {}, of which only parts are read",
                           countText(unchecked), counted(checked + unchecked, "record"));
    if (shared)
        text += fmt::format("{}not counted is what other processes, or an earlier run, have read",
                            text.empty() ? "stored checksums were not checked here of all records: " : "; ");
    return text;
}

}  // namespace shardscope
