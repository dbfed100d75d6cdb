// From the stored bytes of a chunk to its elements.
#include <algorithm>
#include <array>
#include <cstring>
#include <memory>

#include <fmt/format.h>
#include <zlib.h>
#include <zstd.h>

#include "base/checked.h"
#include "base/rule.h"
#include "base/units.h"
#include "encoding/byte_parser.h"
#include "encoding/crc32c.h"
#include "encoding/zarr_array.h"

namespace shardscope {

namespace {

constexpr uint64_t kMostChunkInMemory = uint64_t{1} << 30;
constexpr uint64_t kAbsent = UINT64_MAX;

Error wrongChunk(std::string message, uint64_t at, std::string_view rule = rule::metaInconsistent) {
    return damaged(std::move(message), at).byRule(rule);
}

Error wrongSize(uint64_t found, uint64_t wanted, uint64_t at) {
    return wrongChunk(fmt::format("the chunk has {}, its array's chunks have {}", counted(found, "byte"),
                                  countText(wanted)),
                      at, found < wanted ? rule::fileTruncated : rule::metaInconsistent);
}

Result<std::vector<std::byte>> readStored(const ReadFile& file, uint64_t offset, uint64_t length) {
    if (length > kMostChunkInMemory)
        return makeError(ErrorCode::limit, fmt::format("the chunk has {}, more than are unpacked at once",
                                                       counted(length, "byte")));
    std::vector<std::byte> bytes(static_cast<size_t>(length));
    SHARDSCOPE_TRY(file.readAt(offset, bytes));
    return bytes;
}

// gzip or zlib, which say by themselves which they are; one stream.
Result<std::vector<std::byte>> unpackGzip(std::span<const std::byte> packed, uint64_t maxPlain, uint64_t at) {
    z_stream stream{};
    constexpr int kEitherHeader = 15 + 32;
    if (inflateInit2(&stream, kEitherHeader) != Z_OK)
        return makeError(ErrorCode::limit, "there is no memory to unpack a gzip stream");
    const std::unique_ptr<z_stream, int (*)(z_stream*)> end(&stream, inflateEnd);
    std::vector<std::byte> plain, piece(size_t{256} << 10);
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(packed.data()));
    stream.avail_in = static_cast<uInt>(packed.size());
    for (int state = Z_OK; state != Z_STREAM_END;) {
        stream.next_out = reinterpret_cast<Bytef*>(piece.data());
        stream.avail_out = static_cast<uInt>(piece.size());
        state = inflate(&stream, Z_NO_FLUSH);
        const size_t made = piece.size() - stream.avail_out;
        if (state != Z_OK && state != Z_STREAM_END)
            return wrongChunk("the gzip stream is damaged or truncated",
                              at + (packed.size() - stream.avail_in),
                              state == Z_BUF_ERROR ? rule::fileTruncated : rule::metaInconsistent);
        if (made > maxPlain - plain.size())
            return wrongChunk(
                fmt::format("the gzip stream unpacks to more than {}", counted(maxPlain, "byte")), at);
        plain.insert(plain.end(), piece.begin(), piece.begin() + static_cast<ptrdiff_t>(made));
    }
    if (stream.avail_in != 0) return wrongChunk("more bytes follow the gzip stream", at);
    return plain;
}

// What a damaged zstd stream is: of a chunk every limit is its true size, so passing it is damage, too.
Error ofZstd(Error error, uint64_t at) {
    if (error.code != ErrorCode::damaged && error.code != ErrorCode::limit) return error;
    const bool truncated = error.message.ends_with("in the middle of a frame");
    return wrongChunk(std::move(error.message), at, truncated ? rule::fileTruncated : rule::metaInconsistent);
}

// Undoes the codecs of a chunk, or of one of the smaller ones.
Result<std::vector<std::byte>> undoCodecs(const ZarrArray& array, std::vector<std::byte> bytes, uint64_t at,
                                          uint64_t plainBytes) {
    for (size_t c = array.codecs.size(); c-- > 0;) {
        // What is not the last step may still have checksums and headers of its own.
        const uint64_t most = c == 0 ? plainBytes : plainBytes + plainBytes / 8 + 65536;
        switch (array.codecs[c]) {
            case ZarrArray::Codec::crc32c: {
                if (bytes.size() < 4) return wrongSize(bytes.size(), 4, at);
                const std::span<const std::byte> all(bytes);
                const auto stored = static_cast<uint32_t>(ByteParser(all.last(4)).littleEndian<4>());
                const uint32_t computed = crc32cOf(all.first(all.size() - 4));
                if (stored != computed)
                    return wrongChunk(
                        fmt::format("the checksum of the chunk (CRC-32C) is stored as {:08x}, its "
                                    "bytes have {:08x}",
                                    stored, computed),
                        at, rule::integrityCrc);
                bytes.resize(bytes.size() - 4);
                break;
            }
            case ZarrArray::Codec::zstd: {
                auto plain = unpackZstd(bytes, most);
                if (!plain.ok()) return ofZstd(std::move(plain).error(), at);
                bytes = std::move(plain).value();
                break;
            }
            case ZarrArray::Codec::gzip: {
                SHARDSCOPE_ASSIGN(bytes, unpackGzip(bytes, most, at));
                break;
            }
        }
    }
    if (bytes.size() != plainBytes) return wrongSize(bytes.size(), plainBytes, at);
    return bytes;
}

struct InnerChunk {
    uint64_t offset = 0, length = 0;  // in the file; kAbsent twice: not stored
    bool absent() const { return offset == kAbsent && length == kAbsent; }
};

// The index of a sharded chunk, each entry inside of it.
Result<std::vector<InnerChunk>> readIndex(const ZarrArray& array, const ZarrStoredChunk& stored) {
    const ZarrArray::Sharding& sharding = *array.sharding;
    if (stored.length < sharding.indexBytes)
        return wrongChunk(fmt::format("the chunk has {}, its index alone {}", counted(stored.length, "byte"),
                                      countText(sharding.indexBytes)),
                          stored.offset, rule::fileTruncated);
    const uint64_t at =
        sharding.indexAtStart ? stored.offset : stored.offset + stored.length - sharding.indexBytes;
    SHARDSCOPE_ASSIGN(const auto bytes, readStored(stored.file, at, sharding.indexBytes));
    std::span<const std::byte> rows(bytes);
    if (sharding.indexHasChecksum) {
        const auto sum = static_cast<uint32_t>(ByteParser(rows.last(4)).littleEndian<4>());
        rows = rows.first(rows.size() - 4);
        if (const uint32_t computed = crc32cOf(rows); computed != sum)
            // Of a truncated chunk other bytes stand where the index is looked for.
            return wrongChunk(
                fmt::format("the checksum of the index of the chunk (CRC-32C) is stored as {:08x}, its "
                            "bytes have {:08x}: the chunk is truncated or damaged",
                            sum, computed),
                at, sharding.indexAtStart ? rule::integrityCrc : rule::metaInconsistent);
    }
    std::vector<InnerChunk> index;
    ByteParser in(rows);
    while (!in.atEnd()) {
        InnerChunk inner;
        inner.offset = in.littleEndian<8>();
        inner.length = in.littleEndian<8>();
        if (!inner.absent()) {
            if (!rangeFits(inner.offset, inner.length, stored.length))
                return wrongChunk(fmt::format("an inner chunk takes {} from byte {} of a chunk that has {}",
                                              counted(inner.length, "byte"), countText(inner.offset),
                                              countText(stored.length)),
                                  at, rule::fileTruncated);
            inner.offset += stored.offset;
        } else if (!array.fill) {
            return wrongChunk("an inner chunk is missing", at, rule::coverageGap);
        }
        index.push_back(inner);
    }
    return index;
}

// Goes from block to block of the frame, whose header is `head`, by the sizes that they state, without
// unpacking. Large frames are walked where the bytes are near.
Status checkZstdEnd(const ReadFile& file, uint64_t offset, uint64_t length, std::span<const std::byte> head) {
    constexpr uint64_t kSmall = uint64_t{256} << 10;
    constexpr uint64_t kBlockHeader = 3, kMagic = 4, kChecksum = 4;
    if (length > kSmall && file.descriptor() < 0) return {};
    std::vector<std::byte> all(static_cast<size_t>(length <= kSmall ? length : 0));
    if (!all.empty()) SHARDSCOPE_TRY(file.readAt(offset, all));
    const auto cut = [&](uint64_t at) {
        return wrongChunk(fmt::format("the zstd frame goes on behind its {}", counted(length, "byte")),
                          offset + at, rule::fileTruncated);
    };
    if (head.size() <= kMagic) return cut(length);
    const auto descriptor = static_cast<unsigned>(head[kMagic]);
    constexpr uint64_t kDictionary[] = {0, 1, 2, 4};
    const bool single = (descriptor & 0x20) != 0;
    const uint64_t contentSize[] = {single ? uint64_t{1} : 0, 2, 4, 8};
    uint64_t at = kMagic + 1 + (single ? 0 : 1) + kDictionary[descriptor & 3] + contentSize[descriptor >> 6];
    for (bool last = false; !last;) {
        if (!rangeFits(at, kBlockHeader, length)) return cut(std::min(at, length));
        std::array<std::byte, kBlockHeader> raw;
        if (all.empty())
            SHARDSCOPE_TRY(file.readAt(offset + at, raw));
        else
            std::copy_n(all.begin() + static_cast<ptrdiff_t>(at), raw.size(), raw.begin());
        const auto block = ByteParser(raw).littleEndian<3>();
        last = (block & 1) != 0;
        constexpr uint64_t kRepeated = 1;  // one byte, however many it stands for
        at += kBlockHeader + ((block >> 1 & 3) == kRepeated ? 1 : block >> 3);
    }
    if ((descriptor & 4) != 0) at += kChecksum;
    return at > length ? Status(cut(length)) : Status();
}

// Of a stream that is nothing but one zstd frame, the content size in its header is that of a chunk.
Status checkZstdHeader(const ReadFile& file, uint64_t offset, uint64_t length, uint64_t plainBytes) {
    constexpr uint64_t kLongestHeader = 18;
    std::byte head[kLongestHeader];
    const std::span<std::byte> start =
        std::span(head).first(static_cast<size_t>(std::min(length, kLongestHeader)));
    SHARDSCOPE_TRY(file.readAt(offset, start));
    const unsigned long long size = ZSTD_getFrameContentSize(start.data(), start.size());
    if (size == ZSTD_CONTENTSIZE_ERROR)
        return wrongChunk("the chunk does not begin as a zstd frame does", offset,
                          length < kLongestHeader ? rule::fileTruncated : rule::metaInconsistent);
    // Another frame may follow one that is too small.
    if (size != ZSTD_CONTENTSIZE_UNKNOWN && size > plainBytes) return wrongSize(size, plainBytes, offset);
    // A skippable frame has no blocks.
    const bool blocks = start.size() > 4 && start[0] == std::byte{0x28};
    return blocks ? checkZstdEnd(file, offset, length, start) : Status();
}

// Of one member of gzip: its last bytes are the size of what it unpacks to.
Status checkGzipEnd(const ReadFile& file, uint64_t offset, uint64_t length, uint64_t plainBytes) {
    constexpr uint64_t kLeast = 18;
    std::array<std::byte, 4> size;
    std::array<std::byte, 2> magic;
    if (length >= magic.size()) {
        SHARDSCOPE_TRY(file.readAt(offset, magic));
        if (magic != std::array{std::byte{0x1f}, std::byte{0x8b}}) return {};  // zlib's has none
    }
    if (length < kLeast) return wrongChunk("the chunk ends in the middle", offset, rule::fileTruncated);
    SHARDSCOPE_TRY(file.readAt(offset + length - size.size(), size));
    if (ByteParser(size).littleEndian<4>() == (plainBytes & UINT32_MAX)) return {};
    return wrongChunk("its last bytes are not the size of the chunk: it is truncated or damaged", offset,
                      rule::fileTruncated);
}

Status checkPiece(const ZarrArray& array, const ReadFile& file, const InnerChunk& piece,
                  uint64_t plainBytes) {
    if (array.codecs.empty() && piece.length != plainBytes)
        return wrongSize(piece.length, plainBytes, piece.offset);
    if (array.codecs.size() == 1 && array.codecs[0] == ZarrArray::Codec::zstd)
        return checkZstdHeader(file, piece.offset, piece.length, plainBytes);
    if (array.codecs.size() == 1 && array.codecs[0] == ZarrArray::Codec::gzip)
        return checkGzipEnd(file, piece.offset, piece.length, plainBytes);
    return {};
}

uint64_t innerBytes(const ZarrArray& array) {
    return static_cast<uint64_t>(elementCount(array.sharding->inner)) * dtypeBytes(array.dtype);
}

Status checkInFile(const ZarrStoredChunk& stored) {
    if (rangeFits(stored.offset, stored.length, stored.file.size())) return {};
    return wrongChunk(
        fmt::format("the chunk takes {} from byte {}, the file ends at byte {}",
                    counted(stored.length, "byte"), countText(stored.offset), countText(stored.file.size())),
        stored.offset, rule::fileTruncated);
}

// Rows of inner chunks, one behind the other: what they hold is a contiguous part of the chunk.
Status unpackSharded(const ZarrArray& array, const ZarrStoredChunk& stored, const StopToken& stop,
                     const BytesSink& sink) {
    SHARDSCOPE_ASSIGN(const auto index, readIndex(array, stored));
    const Dims& inner = array.sharding->inner;
    const size_t element = dtypeBytes(array.dtype);
    const uint64_t each = innerBytes(array);
    Dims slab = array.chunk;
    if (!slab.empty()) slab[0] = inner[0];
    const uint64_t slabBytes = static_cast<uint64_t>(elementCount(slab)) * element;
    if (slabBytes > kMostChunkInMemory)
        return makeError(ErrorCode::limit,
                         fmt::format("a row of inner chunks has {}, more than are unpacked at once",
                                     counted(slabBytes, "byte")));
    const size_t rows = slab.empty() ? 1 : static_cast<size_t>(array.chunk[0] / inner[0]);
    const size_t perRow = index.size() / rows;
    std::vector<std::byte> row(static_cast<size_t>(slabBytes));
    for (size_t r = 0; r < rows; ++r) {
        Dims offsets(slab.size(), 0);
        for (size_t i = 0; i < perRow; ++i) {
            SHARDSCOPE_TRY(stop.poll());
            const InnerChunk& piece = index[r * perRow + i];
            std::vector<std::byte> plain;
            if (piece.absent()) {
                plain.resize(static_cast<size_t>(each));
                for (size_t at = 0; at < plain.size(); at += element)
                    std::copy_n(array.fill->begin(), element, plain.begin() + static_cast<ptrdiff_t>(at));
            } else {
                SHARDSCOPE_ASSIGN(plain, readStored(stored.file, piece.offset, piece.length));
                SHARDSCOPE_ASSIGN(plain, undoCodecs(array, std::move(plain), piece.offset, each));
            }
            forEachRun(0, elementCount(inner), slab, offsets, inner,
                       [&](int64_t from, int64_t to, int64_t count) {
                           std::memcpy(row.data() + static_cast<size_t>(to) * element,
                                       plain.data() + static_cast<size_t>(from) * element,
                                       static_cast<size_t>(count) * element);
                       });
            for (size_t d = slab.size(); d-- > 1;) {
                offsets[d] += inner[d];
                if (offsets[d] < slab[d]) break;
                offsets[d] = 0;
            }
        }
        SHARDSCOPE_TRY(sink(row));
    }
    return {};
}

}  // namespace

Result<std::optional<uint64_t>> checkZarrChunk(const ZarrArray& array, const ZarrStoredChunk& stored) {
    SHARDSCOPE_TRY(checkInFile(stored));
    if (!array.sharding) {
        const InnerChunk whole{stored.offset, stored.length};
        SHARDSCOPE_TRY(checkPiece(array, stored.file, whole, array.chunkBytes()));
        return array.raw() ? std::optional(stored.offset) : std::nullopt;
    }
    SHARDSCOPE_ASSIGN(const auto index, readIndex(array, stored));
    for (const InnerChunk& piece : index) {
        if (!piece.absent()) SHARDSCOPE_TRY(checkPiece(array, stored.file, piece, innerBytes(array)));
    }
    if (array.codecs.empty() && index.size() == 1 && !index[0].absent())
        return std::optional(index[0].offset);
    return std::optional<uint64_t>();
}

Status unpackZarrChunk(const ZarrArray& array, const ZarrStoredChunk& stored, const StopToken& stop,
                       const BytesSink& sink) {
    SHARDSCOPE_TRY(checkInFile(stored));
    if (array.sharding) return unpackSharded(array, stored, stop, sink);
    const uint64_t plainBytes = array.chunkBytes();
    if (array.codecs.size() == 1 && array.codecs[0] == ZarrArray::Codec::zstd) {
        uint64_t made = 0;
        Status status = unpackZstd(stored.file, stored.offset, stored.length, plainBytes, stop,
                                   [&](std::span<const std::byte> bytes) {
                                       made += bytes.size();
                                       return sink(bytes);
                                   });
        if (!status.ok()) return ofZstd(std::move(status).error(), stored.offset);
        if (made != plainBytes) return wrongSize(made, plainBytes, stored.offset);
        return {};
    }
    SHARDSCOPE_ASSIGN(auto bytes, readStored(stored.file, stored.offset, stored.length));
    SHARDSCOPE_ASSIGN(bytes, undoCodecs(array, std::move(bytes), stored.offset, plainBytes));
    return sink(bytes);
}

}  // namespace shardscope
