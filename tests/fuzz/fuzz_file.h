// The fuzzer's bytes as a file.
#pragma once

#include <cstring>
#include <memory>
#include <string>

#include "storage/file_system.h"

namespace shardscope::fuzz {

class BytesFile : public ReadFile {
  public:
    BytesFile(const uint8_t* data, size_t size) : bytes_(reinterpret_cast<const char*>(data), size) {}
    const std::string& path() const override { return path_; }
    uint64_t size() const override { return bytes_.size(); }
    Status readAt(uint64_t offset, std::span<std::byte> buffer) const override {
        // A read outside the file would be a mistake of the reader's: sizes are to be checked first.
        if (offset > bytes_.size() || buffer.size() > bytes_.size() - offset) __builtin_trap();
        if (!buffer.empty()) std::memcpy(buffer.data(), bytes_.data() + offset, buffer.size());
        return {};
    }
    Result<Fingerprint> fingerprint() const override { return Fingerprint{}; }

  private:
    std::string path_ = "fuzz";
    std::string bytes_;
};

// A directory that holds nothing but that file.
class BytesDirectory : public Directory {
  public:
    explicit BytesDirectory(std::shared_ptr<const ReadFile> file) : file_(std::move(file)) {}
    const std::string& path() const override { return path_; }
    Result<std::vector<DirectoryEntry>> list(std::string_view) const override {
        return std::vector<DirectoryEntry>{};
    }
    Result<std::shared_ptr<const ReadFile>> openFile(std::string_view) const override { return file_; }
    Result<DirectoryEntry> stat(std::string_view) const override {
        return DirectoryEntry{"fuzz", DirectoryEntry::Kind::file, file_->size()};
    }
    Result<std::shared_ptr<WriteFile>> createFile(std::string_view, bool) override {
        return unsupported("read only");
    }
    Status removeFile(std::string_view) override { return unsupported("read only"); }
    Status sync() override { return {}; }

  private:
    std::string path_ = "/";
    std::shared_ptr<const ReadFile> file_;
};

}  // namespace shardscope::fuzz
