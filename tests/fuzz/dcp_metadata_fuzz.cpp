// Any bytes as a `.metadata` file: decoded or refused, never more.
#include <cstring>

#include "formats/dcp/metadata.h"

namespace {

class BytesFile final : public shardscope::ReadFile {
  public:
    BytesFile(const uint8_t* data, size_t size) : data_(data), size_(size) {}
    const std::string& path() const override { return path_; }
    uint64_t size() const override { return size_; }
    shardscope::Status readAt(uint64_t offset, std::span<std::byte> buffer) const override {
        if (offset > size_ || buffer.size() > size_ - offset)
            return shardscope::damaged("beyond the end", offset);
        if (!buffer.empty()) std::memcpy(buffer.data(), data_ + offset, buffer.size());
        return {};
    }
    shardscope::Result<shardscope::Fingerprint> fingerprint() const override {
        return shardscope::Fingerprint{};
    }

  private:
    const uint8_t* data_;
    size_t size_;
    std::string path_ = ".metadata";
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const BytesFile file(data, size);
    const auto metadata = shardscope::dcp::decodeMetadata(file, {}, {});
    if (metadata.ok()) (void)shardscope::dcp::joinStorage(*metadata);
    return 0;
}
