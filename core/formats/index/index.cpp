#include "formats/index/index.h"

#include <cstring>
#include <ctime>
#include <memory>

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <zstd.h>

#include "base/units.h"
#include "encoding/pickle.h"
#include "formats/catalog_reader.h"
#include "storage/digest.h"

namespace shardscope {
namespace {

constexpr std::string_view kMagic = "SSINDEX\n";
constexpr uint32_t kVersion = 1;
constexpr size_t kHeaderBytes = 40;
constexpr int kCompression = 9;
// What a payload may unpack to. Columns of regular chunks pack some 600 times smaller (a million of them into
// 22 KiB), so that a bomb cannot be told by its ratio alone.
constexpr uint64_t kLeastRoom = uint64_t{512} << 20;
constexpr uint64_t kMostRatio = 4096;

struct Header {
    uint32_t version = 0;
    uint64_t size = 0;
    Digest128 digest;
};

template <class T>
void putLittle(std::string& out, T value) {
    for (size_t i = 0; i < sizeof value; ++i)
        out += static_cast<char>(value >> (8 * i) & 0xff);
}

template <class T>
T getLittle(const std::byte* from) {
    T value = 0;
    for (size_t i = 0; i < sizeof value; ++i)
        value |= static_cast<T>(std::to_integer<uint8_t>(from[i])) << (8 * i);
    return value;
}

bool startsLikeAnIndex(const ReadFile& file) {
    char head[kMagic.size()];
    return file.size() >= kMagic.size() && file.readAt(0, std::as_writable_bytes(std::span(head))).ok() &&
           std::string_view(head, sizeof head) == kMagic;
}

std::string originText(const IndexOrigin& origin) {
    std::string text = "an index of ";
    if (!origin.host.empty()) text += origin.host + ":";
    text += origin.path.empty() ? "a checkpoint" : origin.path;
    const auto made = static_cast<std::time_t>(origin.madeAt);
    std::tm utc{};
    // A time that is not a time is left out.
    if (origin.madeAt > 0 && origin.madeAt < (int64_t{1} << 36) && gmtime_r(&made, &utc))
        text += fmt::format(", made {:%Y-%m-%d %H:%M} UTC", utc);
    return text;
}

class IndexReader final : public CatalogReader {
  public:
    IndexReader(IndexContents contents, std::string path)
        : CatalogReader(std::move(contents.catalog), {}),
          values_(std::move(contents.values)),
          path_(std::move(path)),
          from_(originText(contents.origin)) {}

    std::string dataElsewhere() const override { return from_; }

  private:
    Result<Extent> extentOf(const ChunkInfo&) const override { return notHere(); }
    Status checkState(const FileInfo&) const override { return notHere(); }
    Result<std::shared_ptr<const ReadFile>> openPresent(const FileInfo&) const override { return notHere(); }

    Result<Value> valueOf(ObjectId object) const override {
        const IndexContents::StoredValue& stored = values_[object];
        if (stored.pickle.empty()) {
            Error error = notHere();
            error.message =
                fmt::format("the value of {} is not in the index ({})", catalog().objects()[object].name,
                            stored.reason.empty() ? "it was not written to it" : stored.reason);
            return error;
        }
        PickleLimits limits;
        limits.textBytes = std::max<uint64_t>(limits.textBytes, stored.pickle.size());
        auto pickle = decodePickle(std::as_bytes(std::span(stored.pickle)), limits);
        if (!pickle.ok()) return std::move(pickle).error().inFile(path_);
        return makeValue(std::move(pickle->graph), pickle->root);
    }

    Error notHere() const {
        return unsupported(fmt::format("the data is not here: this is {}", from_))
            .inFile(path_)
            .withHint("open the checkpoint itself, where it is");
    }

    const std::vector<IndexContents::StoredValue> values_;  // by ObjectId
    const std::string path_, from_;
};

Result<Header> readHeader(const ReadFile& file) {
    std::byte bytes[kHeaderBytes];
    if (file.size() < kHeaderBytes)
        return damaged(fmt::format("the index is truncated after {}", counted(file.size(), "byte")));
    SHARDSCOPE_TRY(file.readAt(0, bytes));
    if (std::memcmp(bytes, kMagic.data(), kMagic.size()) != 0)
        return damaged("does not start as an index file does", 0);
    Header header;
    header.version = getLittle<uint32_t>(bytes + 8);
    header.size = getLittle<uint64_t>(bytes + 16);
    header.digest.low = getLittle<uint64_t>(bytes + 24);
    header.digest.high = getLittle<uint64_t>(bytes + 32);
    if (header.version != kVersion)
        return unsupported(fmt::format("the index is of version {}, this program reads version {}",
                                       header.version, kVersion))
            .withHint("read it with the release that wrote it, or make it again");
    return header;
}

Result<IndexContents> readIndex(const ReadFile& file, const OpenOptions& options) {
    SHARDSCOPE_ASSIGN(const Header header, readHeader(file));
    const uint64_t packed = file.size() - kHeaderBytes;
    if (packed > options.limits.pickleBytes || header.size > options.limits.pickleBytes ||
        header.size / kMostRatio > packed + kLeastRoom / kMostRatio) {
        return makeError(ErrorCode::limit,
                         fmt::format("it unpacks from {} to {}, more than an index is read with",
                                     counted(packed, "byte"), countText(header.size)));
    }
    const auto input = std::make_unique_for_overwrite<std::byte[]>(packed);
    SHARDSCOPE_TRY(file.readAt(kHeaderBytes, {input.get(), packed}));
    SHARDSCOPE_TRY(options.stop.poll());
    const auto payload = std::make_unique_for_overwrite<std::byte[]>(header.size);
    const size_t unpacked = ZSTD_decompress(payload.get(), header.size, input.get(), packed);
    if (ZSTD_isError(unpacked))
        return damaged(fmt::format("the index is truncated or damaged: {}", ZSTD_getErrorName(unpacked)),
                       kHeaderBytes);
    const std::span<const std::byte> bytes(payload.get(), unpacked);
    if (unpacked != header.size || cellDigest(bytes) != header.digest)
        return damaged("the index is damaged: its digest does not fit its contents", kHeaderBytes)
            .withHint("copy it again, or make it again with 'shardscope index'");
    return decodeIndexPayload(bytes, options.stop);
}

Probe probe(const Source& source) {
    if (source.entry.empty()) return {};
    const auto file = source.directory->openFile(source.entry);
    if (!file.ok() || !startsLikeAnIndex(**file)) return {};
    return {Probe::Match::certain, "starts as an index file does"};
}

Result<std::unique_ptr<Reader>> open(const Source& source, const OpenOptions& options) {
    if (source.entry.empty())
        return unsupported("an index is one file").inFile(source.display).withHint("name the file");
    SHARDSCOPE_ASSIGN(const auto file, source.directory->openFile(source.entry));
    auto contents = readIndex(*file, options);
    if (!contents.ok()) return std::move(contents).error().inFile(file->path());
    return std::unique_ptr<Reader>(std::make_unique<IndexReader>(std::move(contents).value(), file->path()));
}

}  // namespace

const Format& indexFormat() {
    static const Format format{.about = {.name = "index",
                                         .title = "Shardscope index",
                                         .suffixes = {"ssidx"},
                                         .reads = true,
                                         .generations = {"version 1, of any format"}},
                               .probe = probe,
                               .open = open};
    return format;
}

Result<std::string> encodeIndex(const Reader& reader, const IndexOrigin& origin, const StopToken& stop) {
    SHARDSCOPE_ASSIGN(const std::string payload, encodeIndexPayload(reader, origin, stop));
    const Digest128 digest = cellDigest(std::as_bytes(std::span(payload)));
    std::string out(kMagic);
    putLittle(out, kVersion);
    putLittle(out, uint32_t{0});
    putLittle(out, static_cast<uint64_t>(payload.size()));
    putLittle(out, digest.low);
    putLittle(out, digest.high);
    const size_t room = ZSTD_compressBound(payload.size());
    out.resize(kHeaderBytes + room);
    const size_t packed =
        ZSTD_compress(out.data() + kHeaderBytes, room, payload.data(), payload.size(), kCompression);
    if (ZSTD_isError(packed))
        return makeError(ErrorCode::limit,
                         fmt::format("the index cannot be packed: {}", ZSTD_getErrorName(packed)));
    out.resize(kHeaderBytes + packed);
    return out;
}

}  // namespace shardscope
