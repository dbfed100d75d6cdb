// Base of the layouts whose files hold tensors by name, in safetensors or in a state dict of torch.save;
// other files are texts.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "encoding/safetensors_file.h"
#include "encoding/torch_archive.h"
#include "formats/file_layout.h"

namespace shardscope {

class NamedFileLayout : public FileLayout {
  public:
    Status fileLiterals(FileId file, std::span<const uint32_t> chunkCrcs,
                        const LiteralSink& sink) const final;

  protected:
    using FileLayout::FileLayout;

    struct Entry {
        std::string name;
        DType dtype = DType::float32;
        Dims shape;
        uint64_t bytes = 0;
        std::vector<ChunkId> chunks;  // one behind the other; none = the entry is `literal`
        std::string literal = {};
    };
    // Of a chunk, under the name of its tensor.
    Entry entryOf(ChunkId c) const;

    void addText(std::string path, std::string text, bool metadata = true);
    // Errors: those of safetensors::layOutFile().
    Status addSafetensors(std::string path, std::vector<Entry> entries,
                          const std::vector<std::pair<std::string, std::string>>& texts = {},
                          safetensors::FileOrder how = safetensors::FileOrder::reference);
    // A state dict, an OrderedDict or, `plain`, a dict, in an archive that is called as its file.
    void addStateDict(const std::string& path, const std::vector<Entry>& entries, bool plain);
    // A finished archive, with the chunk of each storage.
    void addArchive(std::string path, std::unique_ptr<TorchArchiveWriter> archive,
                    std::vector<ChunkId> storages);

  private:
    struct Content {
        std::vector<std::pair<uint64_t, std::string>> texts;  // by offset
        std::unique_ptr<TorchArchiveWriter> archive;
        std::vector<ChunkId> storages;
    };
    void placeEntry(const Entry& entry, uint64_t offset);

    std::vector<Content> contents_;  // of each file
};

// The name of an archive in a file: what torch.save takes it from.
std::string archiveNameOf(std::string_view path);

// Why safetensors files as the reference implementation writes them cannot hold a tensor; empty if they can.
// `whose`: "OLMo's safetensors files".
std::string whyNotSafetensors(const Catalog& target, TensorId t, std::string_view whose);

}  // namespace shardscope
