// A string as a file.
#pragma once

#include <cstring>
#include <string>

#include "storage/file_system.h"

namespace shardscope::test {

class TextFile final : public ReadFile {
  public:
    explicit TextFile(std::string bytes, std::string path = "file")
        : bytes_(std::move(bytes)), path_(std::move(path)) {}
    const std::string& path() const override { return path_; }
    uint64_t size() const override { return bytes_.size(); }
    Status readAt(uint64_t offset, std::span<std::byte> buffer) const override {
        if (offset > bytes_.size() || buffer.size() > bytes_.size() - offset)
            return makeError(ErrorCode::internal, "a read goes beyond the end of the file");
        if (!buffer.empty()) std::memcpy(buffer.data(), bytes_.data() + offset, buffer.size());
        return {};
    }
    Result<Fingerprint> fingerprint() const override { return Fingerprint{}; }

  private:
    std::string bytes_;
    std::string path_;
};

}  // namespace shardscope::test
