#include "execute/journal.h"

#include <cstring>
#include <type_traits>

#include <xxhash.h>

#include "base/checked.h"

namespace shardscope {
namespace {

constexpr uint64_t kMagic = 0x316c6e6a64726873;  // "shrdjnl1"
constexpr size_t kFrame = sizeof(uint32_t) + sizeof(uint64_t);
constexpr uint64_t kMaxRecord = uint64_t{64} << 20;

template <class T>
void put(std::string& out, T value) {
    static_assert(std::is_trivially_copyable_v<T>);
    out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

// Takes values off the front; remembers whether they were there.
class Taker {
  public:
    explicit Taker(std::string_view bytes) : bytes_(bytes) {}
    template <class T>
    T take() {
        T value{};
        if (bytes_.size() < sizeof value) {
            good_ = false;
            return value;
        }
        std::memcpy(&value, bytes_.data(), sizeof value);
        bytes_.remove_prefix(sizeof value);
        return value;
    }
    template <class T>
    std::vector<T> takeMany(uint64_t count) {
        if (count > bytes_.size() / sizeof(T)) {
            good_ = false;
            return {};
        }
        std::vector<T> values(count);
        if (count > 0) std::memcpy(values.data(), bytes_.data(), count * sizeof(T));
        bytes_.remove_prefix(count * sizeof(T));
        return values;
    }
    bool finished() const { return good_ && bytes_.empty(); }

  private:
    std::string_view bytes_;
    bool good_ = true;
};

void frame(std::string& out, const std::string& payload) {
    put(out, static_cast<uint32_t>(payload.size()));
    put(out, static_cast<uint64_t>(XXH3_64bits(payload.data(), payload.size())));
    out += payload;
}

std::string encodeHeader(const JournalHeader& header) {
    std::string payload;
    put(payload, kMagic);
    put(payload, header.plan);
    put(payload, header.source);
    put(payload, header.tiles.preferred);
    put(payload, header.tiles.largest);
    return payload;
}

std::optional<JournalHeader> decodeHeader(std::string_view payload) {
    Taker taker(payload);
    JournalHeader header;
    const bool known = taker.take<uint64_t>() == kMagic;
    header.plan = taker.take<Digest128>();
    header.source = taker.take<Digest128>();
    header.tiles.preferred = taker.take<uint64_t>();
    header.tiles.largest = taker.take<uint64_t>();
    if (!known || !taker.finished() || header.tiles.preferred < kDigestCellBytes) return std::nullopt;
    return header;
}

std::string encodeTile(const JournalTile& tile) {
    std::string payload;
    put(payload, tile.tensor);
    put(payload, static_cast<uint32_t>(tile.crcs.size()));
    put(payload, tile.tile);
    put(payload, tile.counts);
    put(payload, static_cast<uint64_t>(tile.cells.size()));
    for (const Digest128& cell : tile.cells)
        put(payload, cell);
    for (uint32_t crc : tile.crcs)
        put(payload, crc);
    return payload;
}

}  // namespace

std::optional<JournalTile> decodeTile(std::string_view payload) {
    Taker taker(payload);
    JournalTile tile;
    tile.tensor = taker.take<TensorId>();
    const auto crcs = taker.take<uint32_t>();
    tile.tile = taker.take<int64_t>();
    tile.counts = taker.take<ValueCounts>();
    const auto cells = taker.take<uint64_t>();
    tile.cells = taker.takeMany<Digest128>(cells);
    tile.crcs = taker.takeMany<uint32_t>(crcs);
    if (!taker.finished()) return std::nullopt;
    return tile;
}

std::string encodeFindings(const std::vector<JournalFinding>& findings) {
    std::string bytes;
    for (const JournalFinding& finding : findings) {
        std::string payload;
        put(payload, finding.item);
        put(payload, finding.tile);
        frame(bytes, payload + finding.data);
    }
    return bytes;
}

std::optional<JournalFinding> decodeFinding(std::string_view payload) {
    JournalFinding finding;
    constexpr size_t kHead = sizeof finding.item + sizeof finding.tile;
    if (payload.size() < kHead) return std::nullopt;
    Taker taker(payload);
    finding.item = taker.take<uint32_t>();
    finding.tile = taker.take<int64_t>();
    finding.data = payload.substr(kHead);
    return finding;
}

std::string encodeTiles(const std::vector<JournalTile>& tiles) {
    std::string bytes;
    for (const JournalTile& tile : tiles)
        frame(bytes, encodeTile(tile));
    return bytes;
}

Result<std::vector<JournalTile>> decodeTiles(std::string_view bytes) {
    std::vector<JournalTile> tiles;
    while (!bytes.empty()) {
        uint32_t length = 0;
        uint64_t hash = 0;
        if (bytes.size() < kFrame) return damaged("a result ends in the middle of a record");
        std::memcpy(&length, bytes.data(), sizeof length);
        std::memcpy(&hash, bytes.data() + sizeof length, sizeof hash);
        bytes.remove_prefix(kFrame);
        if (length > bytes.size()) return damaged("a result ends in the middle of a record");
        const std::string_view payload = bytes.substr(0, length);
        auto tile = decodeTile(payload);
        if (XXH3_64bits(payload.data(), payload.size()) != hash || !tile)
            return damaged("a record of a result does not fit its checksum");
        tiles.push_back(std::move(*tile));
        bytes.remove_prefix(length);
    }
    return tiles;
}

Result<std::optional<JournalEnd>> readRecords(const ReadFile& file,
                                              const std::function<bool(const JournalHeader&)>& accept,
                                              const TakeRecord& take) {
    std::optional<JournalEnd> end;
    std::string payload;
    const uint64_t size = file.size();
    for (uint64_t at = 0; rangeFits(at, kFrame, size);) {
        std::byte head[kFrame];
        SHARDSCOPE_TRY(file.readAt(at, head));
        uint32_t length = 0;
        uint64_t hash = 0;
        std::memcpy(&length, head, sizeof length);
        std::memcpy(&hash, head + sizeof length, sizeof hash);
        if (length > kMaxRecord || !rangeFits(at + kFrame, length, size)) break;
        payload.resize(length);
        SHARDSCOPE_TRY(file.readAt(at + kFrame, std::as_writable_bytes(std::span(payload))));
        if (XXH3_64bits(payload.data(), payload.size()) != hash) break;
        if (!end) {
            const auto header = decodeHeader(payload);
            if (!header) break;
            end = JournalEnd{*header, 0};
            if (!accept(*header)) break;
        } else if (!take(payload)) {
            break;
        }
        at += kFrame + length;
        end->validBytes = at;
    }
    return end;
}

Result<std::optional<JournalContent>> readJournal(const ReadFile& file) {
    JournalContent content;
    SHARDSCOPE_ASSIGN(const auto end, readRecords(
                                          file, [](const JournalHeader&) { return true; },
                                          [&](std::string_view record) {
                                              auto tile = decodeTile(record);
                                              if (tile) content.tiles.push_back(std::move(*tile));
                                              return tile.has_value();
                                          }));
    if (!end) return std::optional<JournalContent>();
    content.header = end->header;
    content.validBytes = end->validBytes;
    return std::optional(std::move(content));
}

Result<std::unique_ptr<JournalWriter>> JournalWriter::start(std::shared_ptr<WriteFile> file,
                                                            const JournalHeader& header, uint64_t offset) {
    SHARDSCOPE_TRY(file->allocate(offset));
    std::unique_ptr<JournalWriter> writer(new JournalWriter(std::move(file), offset));
    if (offset == 0) {
        std::string bytes;
        frame(bytes, encodeHeader(header));
        SHARDSCOPE_TRY(writer->file_->writeAt(0, std::as_bytes(std::span(bytes))));
        writer->offset_ = bytes.size();
    }
    return writer;
}

Status JournalWriter::append(std::string_view records) {
    SHARDSCOPE_TRY(file_->writeAt(offset_, std::as_bytes(std::span(records))));
    SHARDSCOPE_TRY(file_->sync());
    offset_ += records.size();
    return {};
}

}  // namespace shardscope
