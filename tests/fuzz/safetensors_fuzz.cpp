// Any bytes as a file; and, when they start with '{', as the header of a file and as an index beside one. An
// error, or a catalog whose chunks lie inside their file.
#include "formats/safetensors/safetensors.h"
#include "fuzz_reader.h"

using namespace shardscope;

namespace {

// An index and one file that every name leads to.
class IndexDirectory final : public fuzz::BytesDirectory {
  public:
    IndexDirectory(std::shared_ptr<const ReadFile> index, std::shared_ptr<const ReadFile> file)
        : BytesDirectory(std::move(file)), index_(std::move(index)) {}
    Result<std::shared_ptr<const ReadFile>> openFile(std::string_view name) const override {
        return name.ends_with(".json") ? Result<std::shared_ptr<const ReadFile>>(index_)
                                       : BytesDirectory::openFile(name);
    }

  private:
    const std::shared_ptr<const ReadFile> index_;
};

std::string withLength(std::string_view header, size_t dataBytes) {
    std::string text;
    for (size_t i = 0; i < 8; ++i)
        text += static_cast<char>(header.size() >> (8 * i) & 0xFF);
    text += header;
    return text + std::string(dataBytes, '\1');
}

std::shared_ptr<const ReadFile> fileOf(std::string_view text) {
    return std::make_shared<fuzz::BytesFile>(reinterpret_cast<const uint8_t*>(text.data()), text.size());
}

void tryOpen(std::shared_ptr<Directory> directory, const std::string& entry) {
    Source source;
    source.directory = std::move(directory);
    source.entry = entry;
    source.fileSystem = systemFileSystem();
    const auto reader = fuzz::tryOpen(safetensorsFormat(), source);
    if (!reader) return;
    const Catalog& catalog = reader->catalog();
    (void)safetensorsFormat().cannotHold(catalog, {});
    (void)safetensorsFormat().layout(catalog, {});
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    tryOpen(std::make_shared<fuzz::BytesDirectory>(fileOf(text)), "fuzz");
    if (!text.starts_with('{')) return 0;
    for (size_t dataBytes : {0, 1, 24})
        tryOpen(std::make_shared<fuzz::BytesDirectory>(fileOf(withLength(text, dataBytes))), "fuzz");
    const std::string one = withLength(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 4);
    tryOpen(std::make_shared<IndexDirectory>(fileOf(text), fileOf(one)), "model.safetensors.index.json");
    return 0;
}
