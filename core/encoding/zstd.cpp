#include "encoding/zstd.h"

#include <algorithm>
#include <memory>

#include <fmt/format.h>
#include <zstd.h>

#include "base/units.h"

namespace shardscope {

namespace {

constexpr size_t kZstdInput = size_t{256} << 10;

class ZstdStream {
  public:
    ZstdStream() : stream_(ZSTD_createDStream(), ZSTD_freeDStream), output_(ZSTD_DStreamOutSize()) {}

    // The next bytes of the stream; `at` is the place of the first of them, for messages.
    Status take(std::span<const std::byte> packed, uint64_t at, uint64_t maxPlain, const BytesSink& sink) {
        if (!stream_) return makeError(ErrorCode::limit, "there is no memory to unpack a zstd stream");
        ZSTD_inBuffer in{packed.data(), packed.size(), 0};
        bool flushed = true;
        while (in.pos < in.size || !flushed) {
            ZSTD_outBuffer out{output_.data(), output_.size(), 0};
            wanted_ = ZSTD_decompressStream(stream_.get(), &out, &in);
            if (ZSTD_isError(wanted_)) {
                return damaged(fmt::format("the zstd stream is damaged: {}", ZSTD_getErrorName(wanted_)),
                               at + in.pos);
            }
            flushed = out.pos < out.size;
            if (out.pos > maxPlain - produced_) {
                return makeError(
                    ErrorCode::limit,
                    fmt::format("the zstd stream unpacks to more than the {} that its entry can have",
                                counted(maxPlain, "byte")));
            }
            SHARDSCOPE_TRY(sink(std::span(output_).first(out.pos)));
            produced_ += out.pos;
            if (wanted_ == 0 && in.pos == in.size) break;
        }
        return {};
    }

    Status end(uint64_t at) const {
        if (wanted_ != 0) return damaged("the zstd stream ends in the middle of a frame", at);
        return {};
    }

  private:
    const std::unique_ptr<ZSTD_DStream, size_t (*)(ZSTD_DStream*)> stream_;
    std::vector<std::byte> output_;
    uint64_t produced_ = 0;
    size_t wanted_ = 0;  // 0 = at the end of a frame
};

}  // namespace

Status unpackZstd(const ReadFile& packed, uint64_t offset, uint64_t length, uint64_t maxPlain,
                  const StopToken& stop, const BytesSink& sink) {
    ZstdStream stream;
    std::vector<std::byte> input(static_cast<size_t>(std::min<uint64_t>(kZstdInput, length)));
    for (uint64_t done = 0; done < length;) {
        SHARDSCOPE_TRY(stop.poll());
        const size_t piece = static_cast<size_t>(std::min<uint64_t>(input.size(), length - done));
        SHARDSCOPE_TRY(packed.readAt(offset + done, std::span(input).first(piece)));
        SHARDSCOPE_TRY(stream.take(std::span(input).first(piece), offset + done, maxPlain, sink));
        done += piece;
    }
    return stream.end(offset + length);
}

Result<std::vector<std::byte>> unpackZstd(std::span<const std::byte> packed, uint64_t maxPlain) {
    ZstdStream stream;
    std::vector<std::byte> plain;
    SHARDSCOPE_TRY(stream.take(packed, 0, maxPlain, [&](std::span<const std::byte> bytes) -> Status {
        plain.insert(plain.end(), bytes.begin(), bytes.end());
        return {};
    }));
    SHARDSCOPE_TRY(stream.end(packed.size()));
    return plain;
}

}  // namespace shardscope
