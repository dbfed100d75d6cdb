// A file whose bytes are in memory. A read past its end ends the test.
#pragma once

#include <QtTest>
#include <cstring>
#include <string>
#include <utility>

#include "storage/file_system.h"

namespace shardscope::test {

class BytesFile final : public ReadFile {
  public:
    explicit BytesFile(std::string bytes, std::string path = "bytes")
        : path_(std::move(path)), bytes_(std::move(bytes)) {}
    const std::string& path() const override { return path_; }
    uint64_t size() const override { return bytes_.size(); }
    Status readAt(uint64_t offset, std::span<std::byte> buffer) const override {
        if (offset > bytes_.size() || buffer.size() > bytes_.size() - offset) qFatal("a read past the end");
        if (!buffer.empty()) std::memcpy(buffer.data(), bytes_.data() + offset, buffer.size());
        return {};
    }
    Result<Fingerprint> fingerprint() const override { return Fingerprint{}; }

  private:
    const std::string path_, bytes_;
};

}  // namespace shardscope::test
