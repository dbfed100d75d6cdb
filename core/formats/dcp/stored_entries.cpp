#include "formats/dcp/stored_entries.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include <fmt/format.h>
#include <zstd.h>

#include "base/checked.h"
#include "base/rule.h"

namespace shardscope::dcp {

namespace {

constexpr uint64_t kMemoryEntry = uint64_t{16} << 20;  // unpacked entries up to this size stay in memory
constexpr uint64_t kMemoryTotal = uint64_t{64} << 20;  // as long as all of them together stay below this
constexpr size_t kRecentPlain = 8;
constexpr size_t kInput = size_t{256} << 10;

class MemoryFile final : public ReadFile {
  public:
    MemoryFile(std::shared_ptr<const ReadFile> origin, std::vector<std::byte> bytes,
               std::shared_ptr<std::atomic<uint64_t>> live)
        : origin_(std::move(origin)), bytes_(std::move(bytes)), live_(std::move(live)) {
        *live_ += bytes_.size();
    }
    ~MemoryFile() override { *live_ -= bytes_.size(); }

    const std::string& path() const override { return origin_->path(); }
    uint64_t size() const override { return bytes_.size(); }
    Status readAt(uint64_t offset, std::span<std::byte> buffer) const override {
        if (!rangeFits(offset, buffer.size(), bytes_.size())) {
            return damaged(fmt::format("the unpacked entry ends at byte {}", bytes_.size()), offset)
                .inFile(path());
        }
        if (!buffer.empty()) std::memcpy(buffer.data(), bytes_.data() + offset, buffer.size());
        return {};
    }
    Result<Fingerprint> fingerprint() const override { return origin_->fingerprint(); }

  private:
    std::shared_ptr<const ReadFile> origin_;
    std::vector<std::byte> bytes_;
    std::shared_ptr<std::atomic<uint64_t>> live_;
};

}  // namespace

StoredEntries::StoredEntries(const Source& source, const OpenOptions& options)
    : fileSystem_(source.fileSystem),
      openFiles_(source.directory),
      scratchDirectory_(options.scratchDirectory),
      stop_(options.stop),
      liveMemory_(std::make_shared<std::atomic<uint64_t>>(0)) {}

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
    SHARDSCOPE_ASSIGN(auto file, openFile(path));
    if (!rangeFits(offset, length, file->size())) {
        return damaged(fmt::format("the entry takes bytes {} to {}, the file ends at {}", offset,
                                   offset + length, file->size()))
            .inFile(file->path())
            .at(offset)
            .byRule(rule::fileTruncated);
    }
    if (transforms.empty()) return EntrySlice{std::move(file), offset, length};

    std::shared_ptr<Slot> slot;
    {
        std::lock_guard lock(mutex_);
        auto& known = slots_[{path, offset}];
        if (!known) known = std::make_shared<Slot>();
        slot = known;
    }
    std::lock_guard lock(slot->mutex);
    std::shared_ptr<const ReadFile> plain = slot->file.lock();
    if (!plain) {
        // Transforms are listed in the order of reading.
        plain = file;
        uint64_t at = offset;
        uint64_t size = length;
        for (size_t i = 0; i < transforms.size(); ++i) {
            auto next = unpack(plain, at, size, maxPlain);
            if (!next.ok()) return std::move(next).error().inFile(file->path()).at(offset);
            plain = std::move(next).value();
            at = 0;
            size = plain->size();
        }
        slot->file = plain;
        std::lock_guard recent(mutex_);
        recentPlain_.push_front(plain);
        if (recentPlain_.size() > kRecentPlain) recentPlain_.pop_back();
    }
    return EntrySlice{plain, 0, plain->size()};
}

// A zstd stream of any number of frames, up to the end of the slice.
Result<std::shared_ptr<const ReadFile>> StoredEntries::unpack(const std::shared_ptr<const ReadFile>& packed,
                                                              uint64_t offset, uint64_t length,
                                                              uint64_t maxPlain) const {
    const std::unique_ptr<ZSTD_DStream, size_t (*)(ZSTD_DStream*)> stream(ZSTD_createDStream(),
                                                                          ZSTD_freeDStream);
    if (!stream) return makeError(ErrorCode::limit, "there is no memory to unpack a zstd stream");
    const bool memory = maxPlain <= kMemoryEntry && *liveMemory_ + maxPlain <= kMemoryTotal;
    std::shared_ptr<WriteFile> scratch;
    if (!memory) {
        SHARDSCOPE_ASSIGN(scratch, fileSystem_->createScratch(scratchDirectory_));
    }
    std::vector<std::byte> input(static_cast<size_t>(std::min<uint64_t>(kInput, length)));
    std::vector<std::byte> output(ZSTD_DStreamOutSize());
    std::vector<std::byte> whole;
    uint64_t produced = 0;
    size_t wanted = 0;  // 0 = at the end of a frame
    for (uint64_t done = 0; done < length;) {
        SHARDSCOPE_TRY(stop_.poll());
        const size_t piece = static_cast<size_t>(std::min<uint64_t>(input.size(), length - done));
        SHARDSCOPE_TRY(packed->readAt(offset + done, std::span(input).first(piece)));
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
            const auto bytes = std::span(output).first(out.pos);
            if (memory)
                whole.insert(whole.end(), bytes.begin(), bytes.end());
            else
                SHARDSCOPE_TRY(scratch->writeAt(produced, bytes));
            produced += out.pos;
            if (wanted == 0 && in.pos == in.size) break;
        }
        done += piece;
    }
    if (wanted != 0) return damaged("the zstd stream ends in the middle of a frame", offset + length);
    if (memory) {
        whole.shrink_to_fit();
        return std::shared_ptr<const ReadFile>(
            std::make_shared<MemoryFile>(packed, std::move(whole), liveMemory_));
    }
    return fileSystem_->reopen(scratch);
}

}  // namespace shardscope::dcp
