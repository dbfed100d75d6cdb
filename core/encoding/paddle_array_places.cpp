#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "base/checked.h"
#include "base/rule.h"
#include "encoding/paddle_file.h"
#include "encoding/pickle_text.h"

namespace shardscope {

namespace {

constexpr uint64_t kMemoryEntry = uint64_t{16} << 20;  // unpacked arrays up to this size stay in memory
constexpr size_t kRecent = 8;
constexpr size_t kPiece = size_t{256} << 10;

class MemoryFile final : public ReadFile {
  public:
    MemoryFile(std::shared_ptr<const ReadFile> origin, std::string bytes)
        : origin_(std::move(origin)), bytes_(std::move(bytes)) {}

    const std::string& path() const override { return origin_->path(); }
    uint64_t size() const override { return bytes_.size(); }
    Status readAt(uint64_t offset, std::span<std::byte> buffer) const override {
        if (!rangeFits(offset, buffer.size(), bytes_.size()))
            return damaged(fmt::format("the array ends at byte {}", bytes_.size()), offset).inFile(path());
        if (!buffer.empty()) std::memcpy(buffer.data(), bytes_.data() + offset, buffer.size());
        return {};
    }
    Result<Fingerprint> fingerprint() const override { return origin_->fingerprint(); }

  private:
    std::shared_ptr<const ReadFile> origin_;
    std::string bytes_;
};

}  // namespace

PaddleArrayPlaces::PaddleArrayPlaces(std::shared_ptr<FileSystem> fileSystem, std::string scratchDirectory,
                                     StopToken stop)
    : fileSystem_(std::move(fileSystem)),
      scratchDirectory_(std::move(scratchDirectory)),
      stop_(std::move(stop)) {}

Result<PaddleArrayPlaces::Place> PaddleArrayPlaces::place(const std::shared_ptr<const ReadFile>& file,
                                                          const PaddleArray& array) const {
    int64_t elements = 0;
    if (!checkedProduct(array.shape, elements))
        return damaged("the number of elements of an array overflows");
    const auto bytes = dtypeByteCount(array.dtype, static_cast<uint64_t>(elements));
    if (!bytes) return damaged("the size of an array overflows");
    const auto wrong = [&](uint64_t has) {
        return damaged(fmt::format("an array of shape {} and dtype {} needs {} bytes, it has {}",
                                   formatDims(array.shape), dtypeName(array.dtype), *bytes, has),
                       array.offset)
            .byRule(rule::metaInconsistent)
            .inFile(file->path());
    };
    switch (array.raw) {
        case PaddleArray::Raw::plain:
            if (array.length != *bytes) return wrong(array.length);
            return Place{file, array.offset};
        case PaddleArray::Raw::inMemory:
            if (array.bytes.size() != *bytes) return wrong(array.bytes.size());
            return Place{std::make_shared<MemoryFile>(file, array.bytes), 0};
        case PaddleArray::Raw::text:
            break;
    }
    // Each byte takes one or two bytes of UTF-8.
    if (array.length < *bytes || array.length / 2 > *bytes) return wrong(array.length);
    std::shared_ptr<Slot> slot;
    {
        std::lock_guard lock(mutex_);
        auto& known = slots_[{file->path(), array.offset}];
        if (!known) known = std::make_shared<Slot>();
        slot = known;
    }
    std::lock_guard lock(slot->mutex);
    std::shared_ptr<const ReadFile> plain = slot->file.lock();
    if (!plain) {
        SHARDSCOPE_ASSIGN(plain, unpack(file, array, *bytes));
        slot->file = plain;
        std::lock_guard recent(mutex_);
        recent_.push_front(plain);
        if (recent_.size() > kRecent) recent_.pop_back();
    }
    return Place{plain, 0};
}

Result<std::shared_ptr<const ReadFile>> PaddleArrayPlaces::unpack(const std::shared_ptr<const ReadFile>& file,
                                                                  const PaddleArray& array,
                                                                  uint64_t bytes) const {
    std::string memory;
    std::shared_ptr<WriteFile> scratch;
    if (bytes <= kMemoryEntry) {
        memory.reserve(static_cast<size_t>(bytes));
    } else {
        SHARDSCOPE_ASSIGN(scratch, fileSystem_->createScratch(scratchDirectory_));
        SHARDSCOPE_TRY(scratch->allocate(bytes));
    }
    std::string buffer, plain;
    uint64_t written = 0;
    for (uint64_t done = 0; done < array.length;) {
        SHARDSCOPE_TRY(stop_.poll());
        buffer.resize(static_cast<size_t>(std::min<uint64_t>(kPiece, array.length - done)));
        SHARDSCOPE_TRY(file->readAt(array.offset + done, std::as_writable_bytes(std::span(buffer))));
        // A character that goes on in the next piece is left to it.
        if (done + buffer.size() < array.length && (static_cast<uint8_t>(buffer.back()) & 0xc0) == 0xc0)
            buffer.pop_back();
        plain.clear();
        if (!pickle_text::isUtf8(buffer) || !pickle_text::toLatin1(buffer, plain)) {
            return damaged("an array is spelled as text with characters that are no bytes",
                           array.offset + done)
                .inFile(file->path());
        }
        if (plain.size() > bytes - written) {
            return damaged(fmt::format("an array of shape {} needs {} bytes, its text has more",
                                       formatDims(array.shape), bytes),
                           array.offset)
                .inFile(file->path())
                .byRule(rule::metaInconsistent);
        }
        if (scratch) {
            SHARDSCOPE_TRY(scratch->writeAt(written, std::as_bytes(std::span(plain))));
        } else {
            memory += plain;
        }
        written += plain.size();
        done += buffer.size();
    }
    if (written != bytes) {
        return damaged(fmt::format("an array of shape {} needs {} bytes, its text has {}",
                                   formatDims(array.shape), bytes, written),
                       array.offset)
            .inFile(file->path())
            .byRule(rule::metaInconsistent);
    }
    if (scratch) return fileSystem_->reopen(scratch);
    return std::shared_ptr<const ReadFile>(std::make_shared<MemoryFile>(file, std::move(memory)));
}

}  // namespace shardscope
