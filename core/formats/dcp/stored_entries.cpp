#include "formats/dcp/stored_entries.h"

#include <algorithm>

#include <fmt/format.h>
#include <zstd.h>

#include "base/checked.h"
#include "base/rule.h"

namespace shardscope::dcp {

namespace {

constexpr size_t kInput = size_t{256} << 10;

// A zstd stream of any number of frames, up to the end of the slice.
Status unpackZstd(const ReadFile& packed, uint64_t offset, uint64_t length, uint64_t maxPlain,
                  const StopToken& stop, const Materialized::Sink& sink) {
    const std::unique_ptr<ZSTD_DStream, size_t (*)(ZSTD_DStream*)> stream(ZSTD_createDStream(),
                                                                          ZSTD_freeDStream);
    if (!stream) return makeError(ErrorCode::limit, "there is no memory to unpack a zstd stream");
    std::vector<std::byte> input(static_cast<size_t>(std::min<uint64_t>(kInput, length)));
    std::vector<std::byte> output(ZSTD_DStreamOutSize());
    uint64_t produced = 0;
    size_t wanted = 0;  // 0 = at the end of a frame
    for (uint64_t done = 0; done < length;) {
        SHARDSCOPE_TRY(stop.poll());
        const size_t piece = static_cast<size_t>(std::min<uint64_t>(input.size(), length - done));
        SHARDSCOPE_TRY(packed.readAt(offset + done, std::span(input).first(piece)));
        ZSTD_inBuffer in{input.data(), piece, 0};
        bool flushed = true;
        while (in.pos < in.size || !flushed) {
            ZSTD_outBuffer out{output.data(), output.size(), 0};
            wanted = ZSTD_decompressStream(stream.get(), &out, &in);
            if (ZSTD_isError(wanted)) {
                return damaged(fmt::format("the zstd stream is damaged: {}", ZSTD_getErrorName(wanted)),
                               offset + done + in.pos);
            }
            flushed = out.pos < out.size;
            if (out.pos > maxPlain - produced) {
                return makeError(
                    ErrorCode::limit,
                    fmt::format("the zstd stream unpacks to more than the {} bytes that its entry can have",
                                maxPlain));
            }
            SHARDSCOPE_TRY(sink(std::span(output).first(out.pos)));
            produced += out.pos;
            if (wanted == 0 && in.pos == in.size) break;
        }
        done += piece;
    }
    if (wanted != 0) return damaged("the zstd stream ends in the middle of a frame", offset + length);
    return {};
}

}  // namespace

StoredEntries::StoredEntries(const Source& source, const OpenOptions& options)
    : openFiles_(source.directory),
      stop_(options.stop),
      plain_(source.fileSystem, options.scratchDirectory) {}

Result<EntrySlice> StoredEntries::open(const std::string& path, uint64_t offset, uint64_t length,
                                       const std::vector<std::string>& transforms, uint64_t maxPlain) const {
    for (const std::string& transform : transforms) {
        if (transform != "stream.zstd/1") {
            return unsupported(
                       fmt::format("the entry went through the transform '{}', which is not known (only "
                                   "stream.zstd/1 is)",
                                   transform))
                .inFile(path)
                .at(offset);
        }
    }
    SHARDSCOPE_ASSIGN(const auto file, openFile(path));
    if (!rangeFits(offset, length, file->size())) {
        return damaged(fmt::format("the entry takes bytes {} to {}, the file ends at {}", offset,
                                   offset + length, file->size()))
            .inFile(file->path())
            .at(offset)
            .byRule(rule::fileTruncated);
    }
    // Transforms are listed in the order of reading.
    EntrySlice slice{file, offset, length};
    for (size_t i = 0; i < transforms.size(); ++i) {
        auto plain =
            plain_.get({fmt::format("{} {} {}", i, offset, path), file, maxPlain, false},
                       [&](const Materialized::Sink& sink) {
                           return unpackZstd(*slice.file, slice.offset, slice.length, maxPlain, stop_, sink);
                       });
        if (!plain.ok()) return std::move(plain).error().inFile(file->path()).at(offset);
        slice.file = std::move(plain).value();
        slice.offset = 0;
        slice.length = slice.file->size();
    }
    return slice;
}

}  // namespace shardscope::dcp
