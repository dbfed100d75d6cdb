#include <algorithm>

#include <fmt/format.h>

#include "base/checked.h"
#include "base/rule.h"
#include "base/units.h"
#include "encoding/paddle_file.h"
#include "encoding/pickle_text.h"

namespace shardscope {

namespace {

constexpr size_t kBufferBytes = size_t{256} << 10;

Error wrongSize(const PaddleArray& array, uint64_t needed, const std::string& has) {
    return damaged(fmt::format("an array of shape {} and dtype {} needs {}, it has {}",
                               formatDims(array.shape), dtypeName(array.dtype), counted(needed, "byte"), has),
                   array.offset)
        .byRule(rule::metaInconsistent);
}

Result<uint64_t> bytesOf(const PaddleArray& array) {
    int64_t elements = 0;
    if (!checkedProduct(array.shape, elements))
        return damaged("the number of elements of an array overflows");
    const auto bytes = dtypeByteCount(array.dtype, static_cast<uint64_t>(elements));
    if (!bytes) return damaged("the size of an array overflows");
    return *bytes;
}

// The bytes that an array spelled as UTF-8 stands for.
Status unpackText(const ReadFile& file, const PaddleArray& array, uint64_t bytes, const StopToken& stop,
                  const Materialized::Sink& sink) {
    std::string buffer, plain;
    uint64_t written = 0;
    for (uint64_t done = 0; done < array.length;) {
        SHARDSCOPE_TRY(stop.poll());
        buffer.resize(static_cast<size_t>(std::min<uint64_t>(kBufferBytes, array.length - done)));
        SHARDSCOPE_TRY(file.readAt(array.offset + done, std::as_writable_bytes(std::span(buffer))));
        // A character that continues in the next piece is left to it.
        if (done + buffer.size() < array.length && (static_cast<uint8_t>(buffer.back()) & 0xc0) == 0xc0)
            buffer.pop_back();
        plain.clear();
        if (!pickle_text::isUtf8(buffer) || !pickle_text::toLatin1(buffer, plain)) {
            return damaged("an array is spelled as text with characters that are not bytes",
                           array.offset + done);
        }
        if (plain.size() > bytes - written) return wrongSize(array, bytes, "more");
        SHARDSCOPE_TRY(sink(std::as_bytes(std::span(plain))));
        written += plain.size();
        done += buffer.size();
    }
    if (written != bytes) return wrongSize(array, bytes, countText(written));
    return {};
}

Result<PaddleExtent> placeInside(const std::shared_ptr<const ReadFile>& file, const PaddleArray& array,
                                 const Materialized& cache, const StopToken& stop) {
    SHARDSCOPE_ASSIGN(const uint64_t bytes, bytesOf(array));
    switch (array.raw) {
        case PaddleArray::Raw::plain:
            if (array.length != bytes) return wrongSize(array, bytes, countText(array.length));
            return PaddleExtent{file, array.offset};
        case PaddleArray::Raw::inMemory: {
            if (array.bytes.size() != bytes) return wrongSize(array, bytes, countText(array.bytes.size()));
            const auto from = std::as_bytes(std::span(array.bytes));
            return PaddleExtent{fileInMemory(file, {from.begin(), from.end()}), 0};
        }
        case PaddleArray::Raw::text:
            break;
    }
    // Each byte takes one or two bytes of UTF-8.
    if (array.length < bytes || array.length / 2 > bytes)
        return wrongSize(array, bytes, countText(array.length));
    SHARDSCOPE_ASSIGN(
        auto plain, cache.get({fmt::format("text {} {} {}", array.offset, bytes, file->path()), file, bytes},
                              [&](const Materialized::Sink& sink) {
                                  return unpackText(*file, array, bytes, stop, sink);
                              }));
    return PaddleExtent{std::move(plain), 0};
}

}  // namespace

Result<PaddleExtent> placeOfArray(const std::shared_ptr<const ReadFile>& file, const PaddleArray& array,
                                  const Materialized& cache, const StopToken& stop) {
    auto place = placeInside(file, array, cache, stop);
    if (!place.ok()) return std::move(place).error().inFile(file->path());
    return place;
}

Result<PaddleExtent> placeOfParts(const std::shared_ptr<const ReadFile>& file, std::string_view name,
                                  DimSpan shape, std::span<const PaddleArray> parts,
                                  const Materialized& cache, const StopToken& stop) {
    uint64_t total = 0;
    int64_t elements = 0, wanted = 0;
    for (const PaddleArray& part : parts) {
        int64_t count = 0;
        if (!checkedProduct(part.shape, count) || !checkedAdd(elements, count, elements) ||
            part.dtype != parts[0].dtype || part.bigEndian != parts[0].bigEndian || part.columnMajor)
            return damaged("the parts of a split parameter do not fit each other").inFile(file->path());
        SHARDSCOPE_ASSIGN(const uint64_t bytes, bytesOf(part));
        if (!checkedAdd(total, bytes, total))
            return damaged("the size of a split parameter overflows").inFile(file->path());
    }
    if (parts.empty() || !checkedProduct(shape, wanted) || wanted != elements)
        return damaged("the parts of a split parameter have another size than the whole")
            .inFile(file->path());
    const auto join = [&](const Materialized::Sink& sink) -> Status {
        std::vector<std::byte> buffer(kBufferBytes);
        for (const PaddleArray& part : parts) {
            SHARDSCOPE_ASSIGN(const PaddleExtent place, placeOfArray(file, part, cache, stop));
            SHARDSCOPE_ASSIGN(const uint64_t bytes, bytesOf(part));
            for (uint64_t done = 0; done < bytes;) {
                SHARDSCOPE_TRY(stop.poll());
                const auto piece = std::span(buffer).first(
                    static_cast<size_t>(std::min<uint64_t>(buffer.size(), bytes - done)));
                SHARDSCOPE_TRY(place.file->readAt(place.offset + done, piece));
                SHARDSCOPE_TRY(sink(piece));
                done += piece.size();
            }
        }
        return {};
    };
    SHARDSCOPE_ASSIGN(auto joined,
                      cache.get({fmt::format("parts {} {}", name, file->path()), file, total}, join));
    return PaddleExtent{std::move(joined), 0};
}

}  // namespace shardscope
