// Any bytes as the bodies of a manifest and of the nodes of an OCDBT database, whose checksums fit: an error,
// or keys in ascending order.
#include <algorithm>
#include <string>

#include "encoding/crc32c.h"
#include "encoding/ocdbt.h"
#include "fuzz_file.h"

using namespace shardscope;

namespace {

std::string envelope(uint32_t magic, std::string_view body) {
    std::string out;
    for (int shift = 24; shift >= 0; shift -= 8)
        out += static_cast<char>(magic >> shift);
    const uint64_t length = body.size() + 18;
    for (int shift = 0; shift < 64; shift += 8)
        out += static_cast<char>(length >> shift);
    out += std::string(2, '\0');  // version 0, not compressed
    out += body;
    const uint32_t sum = crc32cOf(std::as_bytes(std::span(out)));
    for (int shift = 0; shift < 32; shift += 8)
        out += static_cast<char>(sum >> shift);
    return out;
}

std::shared_ptr<const ReadFile> fileOf(const std::string& bytes) {
    return std::make_shared<fuzz::BytesFile>(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
}

// The manifest under its name, the node under every other.
class Database final : public fuzz::BytesDirectory {
  public:
    Database(const std::string& manifest, const std::string& node)
        : fuzz::BytesDirectory(fileOf(node)), manifest_(fileOf(manifest)) {}
    Result<std::shared_ptr<const ReadFile>> openFile(std::string_view name) const override {
        if (name == kOcdbtManifest) return manifest_;
        return fuzz::BytesDirectory::openFile(name);
    }

  private:
    const std::shared_ptr<const ReadFile> manifest_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    if (size < 2) return 0;
    const std::string_view bytes(reinterpret_cast<const char*>(data + 1), size - 1);
    const size_t split = std::min<size_t>(data[0], bytes.size());
    OcdbtLimits limits;
    limits.nodeBytes = 1 << 20;
    limits.keyBytes = limits.inlineBytes = 1 << 20;
    limits.nodes = 1000;
    const Database database(envelope(0x0cdb3a2a, bytes.substr(0, split)),
                            envelope(0x0cdb20de, bytes.substr(split)));
    const auto index = readOcdbt(database, {}, limits, {});
    if (!index.ok()) return 0;
    for (size_t i = 0; i < index->size(); ++i) {
        const OcdbtIndex::Entry entry = (*index)[i];
        if (i > 0 && entry.key <= (*index)[i - 1].key) __builtin_trap();
        if (entry.inTree && entry.value.size() != entry.length) __builtin_trap();
        if (entry.file >= index->files().size() || !checkRelativeName(index->files()[entry.file]).ok())
            __builtin_trap();
    }
    return 0;
}
