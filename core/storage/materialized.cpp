#include "storage/materialized.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "base/checked.h"
#include "base/units.h"

namespace shardscope {

namespace {

constexpr uint64_t kMemoryEntry = uint64_t{16} << 20;  // larger entries go to a scratch file
constexpr uint64_t kMemoryTotal = uint64_t{64} << 20;  // as do all while this much is in memory
constexpr size_t kRecent = 8;

// Bytes that count against a shared budget while this lives.
class Reservation {
  public:
    // Empty when `bytes` do not fit.
    static Reservation take(std::shared_ptr<std::atomic<uint64_t>> used, uint64_t bytes) {
        if (bytes > kMemoryEntry) return {};
        if (used->fetch_add(bytes) + bytes > kMemoryTotal) {
            *used -= bytes;
            return {};
        }
        Reservation reservation;
        reservation.used_ = std::move(used);
        reservation.bytes_ = bytes;
        return reservation;
    }
    Reservation() = default;
    Reservation(Reservation&&) noexcept = default;
    Reservation& operator=(Reservation&& other) noexcept {
        std::swap(used_, other.used_);
        std::swap(bytes_, other.bytes_);
        return *this;
    }
    ~Reservation() {
        if (used_) *used_ -= bytes_;
    }
    explicit operator bool() const { return used_ != nullptr; }
    void shrink(uint64_t bytes) {
        *used_ -= bytes_ - bytes;
        bytes_ = bytes;
    }

  private:
    std::shared_ptr<std::atomic<uint64_t>> used_;
    uint64_t bytes_ = 0;
};

class MemoryFile final : public ReadFile {
  public:
    MemoryFile(std::shared_ptr<const ReadFile> origin, std::vector<std::byte> bytes, Reservation reservation)
        : origin_(std::move(origin)), bytes_(std::move(bytes)), reservation_(std::move(reservation)) {}

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
    const std::shared_ptr<const ReadFile> origin_;
    const std::vector<std::byte> bytes_;
    const Reservation reservation_;
};

}  // namespace

std::shared_ptr<const ReadFile> fileInMemory(std::shared_ptr<const ReadFile> origin,
                                             std::vector<std::byte> bytes) {
    return std::make_shared<MemoryFile>(std::move(origin), std::move(bytes), Reservation());
}

Materialized::Materialized(std::shared_ptr<FileSystem> fileSystem, std::string scratchDirectory)
    : fileSystem_(std::move(fileSystem)),
      scratchDirectory_(std::move(scratchDirectory)),
      inMemory_(std::make_shared<std::atomic<uint64_t>>(0)) {}

std::shared_ptr<Materialized::Slot> Materialized::slotOf(const std::string& key) const {
    std::lock_guard lock(mutex_);
    std::shared_ptr<Slot>& slot = slots_[key];
    if (slot) return slot;
    const auto made = slot = std::make_shared<Slot>();
    if (slots_.size() >= pruneAt_) {
        // A slot that only the map holds is not being filled; `made` is held here.
        std::erase_if(slots_, [](const auto& known) {
            return known.second.use_count() == 1 && known.second->file.expired();
        });
        pruneAt_ = std::max(pruneAt_, 2 * slots_.size());
    }
    return made;
}

void Materialized::keep(std::shared_ptr<const ReadFile> file) const {
    std::shared_ptr<const ReadFile> dropped;  // closed without the lock
    std::lock_guard lock(mutex_);
    std::erase(recent_, file);
    recent_.insert(recent_.begin(), std::move(file));
    if (recent_.size() > kRecent) {
        dropped = std::move(recent_.back());
        recent_.pop_back();
    }
}

bool Materialized::dropOldest() const {
    std::shared_ptr<const ReadFile> dropped;
    std::lock_guard lock(mutex_);
    if (recent_.empty()) return false;
    dropped = std::move(recent_.back());
    recent_.pop_back();
    return true;
}

Result<std::shared_ptr<const ReadFile>> Materialized::get(const Entry& entry, const Produce& produce) const {
    const std::shared_ptr<Slot> slot = slotOf(entry.key);
    std::lock_guard lock(slot->mutex);
    std::shared_ptr<const ReadFile> file = slot->file.lock();
    if (!file) {
        SHARDSCOPE_ASSIGN(file, make(entry, produce));
        slot->file = file;
    }
    keep(file);
    return file;
}

Result<std::shared_ptr<const ReadFile>> Materialized::make(const Entry& entry, const Produce& produce) const {
    Reservation reservation = Reservation::take(inMemory_, entry.bytes);
    // Memory is for what is read now, before what was read last.
    while (!reservation && entry.bytes <= kMemoryEntry && dropOldest())
        reservation = Reservation::take(inMemory_, entry.bytes);
    std::vector<std::byte> memory;
    std::shared_ptr<WriteFile> scratch;
    if (!reservation) {
        SHARDSCOPE_ASSIGN(scratch, fileSystem_->createScratch(scratchDirectory_));
        if (entry.exact) SHARDSCOPE_TRY(scratch->allocate(entry.bytes));
    } else if (entry.exact) {
        memory.reserve(static_cast<size_t>(entry.bytes));
    }
    uint64_t produced = 0;
    SHARDSCOPE_TRY(produce([&](std::span<const std::byte> bytes) -> Status {
        if (bytes.size() > entry.bytes - produced) {
            return makeError(ErrorCode::limit,
                             fmt::format("the unpacked entry has more than {}", counted(entry.bytes, "byte")))
                .inFile(entry.origin->path());
        }
        if (scratch) {
            SHARDSCOPE_TRY(scratch->writeAt(produced, bytes));
        } else {
            memory.insert(memory.end(), bytes.begin(), bytes.end());
        }
        produced += bytes.size();
        return {};
    }));
    if (entry.exact && produced != entry.bytes) {
        return makeError(ErrorCode::internal,
                         fmt::format("unpacked {} of {}", countText(produced), counted(entry.bytes, "byte")))
            .inFile(entry.origin->path());
    }
    if (scratch) return fileSystem_->reopen(scratch);
    memory.shrink_to_fit();
    reservation.shrink(memory.size());
    return std::shared_ptr<const ReadFile>(
        std::make_shared<MemoryFile>(entry.origin, std::move(memory), std::move(reservation)));
}

}  // namespace shardscope
