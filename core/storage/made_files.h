// Files whose bytes are not stored as they are read.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/checked.h"
#include "storage/file_system.h"
#include "storage/stored_bytes.h"

namespace shardscope {

// Bytes that are not stored: one element again and again.
class FilledFile final : public ReadFile, public StoredBytes {
  public:
    FilledFile(std::shared_ptr<const ReadFile> origin, uint64_t size, std::vector<std::byte> element)
        : origin_(std::move(origin)), size_(size), element_(std::move(element)) {}
    const std::string& path() const override { return origin_->path(); }
    uint64_t size() const override { return size_; }
    Status readAt(uint64_t offset, std::span<std::byte> buffer) const override {
        if (!rangeFits(offset, buffer.size(), size_))
            return damaged(fmt::format("the chunk ends at byte {}", size_), offset).inFile(path());
        for (size_t i = 0; i < buffer.size(); ++i)
            buffer[i] = element_[(offset + i) % element_.size()];
        return {};
    }
    uint64_t countStored(uint64_t) const override { return 0; }
    Result<Fingerprint> fingerprint() const override { return origin_->fingerprint(); }

  private:
    const std::shared_ptr<const ReadFile> origin_;
    const uint64_t size_;
    const std::vector<std::byte> element_;
};

// Bytes that are stored in another form: unpacked when they are first read, and given up when as many were
// read as there are.
class UnpackedFile final : public ReadFile, public StoredBytes {
  public:
    using Unpack = std::function<Result<std::shared_ptr<const ReadFile>>()>;
    UnpackedFile(std::shared_ptr<const ReadFile> origin, uint64_t size, uint64_t stored, Unpack unpack)
        : origin_(std::move(origin)), size_(size), share_(size, stored), unpack_(std::move(unpack)) {}
    const std::string& path() const override { return origin_->path(); }
    uint64_t size() const override { return size_; }
    Status readAt(uint64_t offset, std::span<std::byte> buffer) const override {
        std::shared_ptr<const ReadFile> plain;
        {
            std::lock_guard lock(mutex_);
            plain = plain_;
        }
        if (!plain) {
            SHARDSCOPE_ASSIGN(plain, unpack_());
            std::lock_guard lock(mutex_);
            plain_ = plain;
        }
        SHARDSCOPE_TRY(plain->readAt(offset, buffer));
        std::lock_guard lock(mutex_);
        read_ += buffer.size();
        if (read_ >= size_) {
            plain_.reset();
            read_ = 0;
        }
        return {};
    }
    uint64_t countStored(uint64_t bytes) const override { return share_.count(bytes); }
    Result<Fingerprint> fingerprint() const override { return origin_->fingerprint(); }

  private:
    const std::shared_ptr<const ReadFile> origin_;
    const uint64_t size_;
    const StoredShare share_;
    const Unpack unpack_;
    mutable std::mutex mutex_;
    mutable std::shared_ptr<const ReadFile> plain_;
    mutable uint64_t read_ = 0;
};

}  // namespace shardscope
