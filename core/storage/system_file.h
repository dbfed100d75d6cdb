// Files of the machine's own file system. Private to this room.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "storage/beneath.h"
#include "storage/file_system.h"

namespace shardscope {

// A second descriptor of the same file that goes past the page cache. Opened when first needed; given up for
// good when the file system refuses it.
class DirectDescriptor {
  public:
    DirectDescriptor(int buffered, int accessMode, bool wanted)
        : buffered_(buffered), access_(accessMode), wanted_(wanted) {}
    ~DirectDescriptor();

    int get() const;  // -1 when there is none
    void giveUp() const { wanted_ = false; }

  private:
    const int buffered_;
    const int access_;
    mutable std::atomic<bool> wanted_;
    mutable std::once_flag once_;
    mutable Descriptor fd_;
    mutable bool counted_ = false;
};

class SystemReadFile final : public ReadFile {
  public:
    SystemReadFile(Descriptor fd, std::string path, uint64_t size, IoMode mode);

    const std::string& path() const override { return path_; }
    uint64_t size() const override { return size_; }
    Status readAt(uint64_t offset, std::span<std::byte> buffer) const override;
    Status readBulk(uint64_t offset, std::span<std::byte> buffer) const override;
    size_t readCached(uint64_t offset, std::span<std::byte> buffer) const override;
    Result<Fingerprint> fingerprint() const override;
    // -1 in direct mode, which leaves the page cache alone.
    int descriptor() const override { return mode_ == IoMode::direct ? -1 : fd_.get(); }

  private:
    Status endedEarly(uint64_t at, uint64_t wantedEnd) const;
    // Reads [offset, offset + buffer.size()) past the page cache; `done` = bytes that were delivered before a
    // refusal.
    Status readDirect(int fd, uint64_t offset, std::span<std::byte> buffer, size_t& done) const;

    const Descriptor fd_;
    const std::string path_;
    const uint64_t size_;
    const IoMode mode_;
    const DirectDescriptor direct_;
};

class SystemWriteFile final : public WriteFile {
  public:
    SystemWriteFile(Descriptor fd, std::string path, IoMode mode);

    const std::string& path() const override { return path_; }
    Status allocate(uint64_t size) override;
    Status writeAt(uint64_t offset, std::span<const std::byte> bytes) override;
    Status writeBulk(uint64_t offset, std::span<const std::byte> bytes) override;
    Status sync() override;
    Result<bool> tryLock() override;

    int descriptor() const { return fd_.get(); }

  private:
    const Descriptor fd_;
    const std::string path_;
    const DirectDescriptor direct_;
};

// Checks that an open descriptor is a regular file. Errors: unsafe, io.
Result<std::shared_ptr<const ReadFile>> makeReadFile(Descriptor fd, std::string path, IoMode mode);

Result<Fingerprint> fingerprintOf(int fd, const std::string& path);

// Whether the file system says that nothing was ever written to a range of a file: its bytes are zeros. False
// where it does not know.
bool isHole(const ReadFile& file, uint64_t offset, uint64_t length);

}  // namespace shardscope
