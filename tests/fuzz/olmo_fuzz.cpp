// Any bytes as every file of an OLMo directory, in each layout; and, as text, as a key of a safetensors file.
// An error, or a catalog whose chunks lie inside their file.
#include "formats/olmo/olmo.h"
#include "fuzz_reader.h"

using namespace shardscope;

namespace {

class Folder final : public fuzz::BytesDirectory {
  public:
    using BytesDirectory::BytesDirectory;
    Result<std::vector<DirectoryEntry>> list(std::string_view) const override {
        return std::vector<DirectoryEntry>{{"rank0.pt", DirectoryEntry::Kind::file, 1},
                                           {"rank1.pt", DirectoryEntry::Kind::file, 1}};
    }
};

void tryOpen(const std::shared_ptr<const ReadFile>& file, std::vector<DirectoryEntry> entries) {
    Source source;
    source.directory = std::make_shared<Folder>(file);
    source.entries = std::move(entries);
    source.fileSystem = systemFileSystem();
    const auto reader = fuzz::tryOpen(olmoFormat(), source);
    if (!reader) return;
    const Catalog& catalog = reader->catalog();
    (void)olmoFormat().cannotHold(catalog, {});
    (void)olmoFormat().layout(catalog, {});
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const auto file = std::make_shared<fuzz::BytesFile>(data, size);
    using Kind = DirectoryEntry::Kind;
    tryOpen(file,
            {{"model", Kind::directory, 0}, {"optim", Kind::directory, 0}, {"train", Kind::directory, 0}});
    tryOpen(
        file,
        {{"config.yaml", Kind::file, size}, {"rank0.pt", Kind::file, size}, {"rank1.pt", Kind::file, size}});
    tryOpen(file, {{"model.pt", Kind::file, size},
                   {"model.safetensors", Kind::file, size},
                   {"optim.pt", Kind::file, size}});
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    if (size > 4096 || text.find_first_of("\"\\") != text.npos) return 0;
    const std::string header =
        "{\"" + std::string(text) + R"(":{"dtype":"U8","shape":[5],"data_offsets":[0,5]}})";
    std::string whole;
    for (size_t i = 0; i < 8; ++i)
        whole += static_cast<char>(header.size() >> (8 * i) & 0xFF);
    whole += header + std::string("\x80\x04K\x01.", 5);
    tryOpen(std::make_shared<fuzz::BytesFile>(reinterpret_cast<const uint8_t*>(whole.data()), whole.size()),
            {{"model.safetensors", Kind::file, whole.size()}});
    return 0;
}
