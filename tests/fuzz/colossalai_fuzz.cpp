// Any bytes as the metadata of a rank, as an index, and as the file that either names. An error, or a catalog
// whose chunks lie inside their file.
#include "formats/colossalai/colossalai.h"
#include "fuzz_reader.h"

using namespace shardscope;

namespace {

// The bytes under one name, some of them again under every other.
class TwoFiles final : public fuzz::BytesDirectory {
  public:
    TwoFiles(std::shared_ptr<const ReadFile> metadata, std::shared_ptr<const ReadFile> other)
        : BytesDirectory(std::move(other)), metadata_(std::move(metadata)) {}
    Result<std::shared_ptr<const ReadFile>> openFile(std::string_view name) const override {
        return name.ends_with(".json") ? Result<std::shared_ptr<const ReadFile>>(metadata_)
                                       : BytesDirectory::openFile(name);
    }

  private:
    const std::shared_ptr<const ReadFile> metadata_;
};

void tryOpen(const std::string& name, const std::shared_ptr<const ReadFile>& file,
             const std::shared_ptr<const ReadFile>& other, const std::string& variant) {
    Source source;
    source.directory = std::make_shared<TwoFiles>(file, other);
    source.entries = {{name, DirectoryEntry::Kind::file, file->size()}};
    source.fileSystem = systemFileSystem();
    OpenOptions options;
    options.variant = variant;
    const auto reader = fuzz::tryOpen(colossalaiFormat(), source, options);
    if (!reader) return;
    const Catalog& catalog = reader->catalog();
    for (const char* target : {"", "distributed-bin", "gathered", "gathered-bin"}) {
        WriteOptions write;
        write.variant = target;
        (void)colossalaiFormat().cannotHold(catalog, write);
        (void)colossalaiFormat().layout(catalog, write);
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const auto file = std::make_shared<fuzz::BytesFile>(data, size);
    constexpr std::string_view kHeader = R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})";
    std::string other;
    for (size_t i = 0; i < 8; ++i)
        other += static_cast<char>(kHeader.size() >> (8 * i) & 0xFF);
    other += std::string(kHeader) + "abcd";
    const auto small =
        std::make_shared<fuzz::BytesFile>(reinterpret_cast<const uint8_t*>(other.data()), other.size());
    tryOpen("pytorch_model-meta-dist-00000.json", file, small, "");
    tryOpen("pytorch_model-meta-dist-00003.json", file, small, "fused-qkv=*");
    tryOpen("model.safetensors.index.json", file, small, "");
    tryOpen("pytorch_optim.bin.index.json", file, small, "");
    tryOpen("optimizer.safetensors", file, file, "");
    return 0;
}
