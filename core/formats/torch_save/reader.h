// An open torch.save file: the catalog, and where each storage lies.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "encoding/torch_tensor.h"
#include "formats/format.h"
#include "formats/torch_save/walk.h"

namespace shardscope::torch_save {

constexpr std::string_view kTarHint =
    "load it with a torch of its time (or torch.load(weights_only=False)) and save it again with torch.save";

// Whether the bytes begin like a legacy (pre-1.6) torch.save file.
bool isLegacyStart(std::string_view firstBytes);

// What a file of either kind says before its tensors are looked at.
struct Opened {
    // A stretch of a file that holds one storage.
    struct Storage {
        uint64_t offset = 0;  // in the file; of the zip record's header while `entry` is set
        uint64_t bytes = 0;   // that are stored
        const ZipEntry* entry = nullptr;
    };
    std::shared_ptr<const ReadFile> file;
    std::unique_ptr<ZipArchive> zip;  // absent for legacy files
    std::string prefix;
    Pickle pickle;
    bool bigEndian = false;
    std::string variant, writer;
    std::unordered_map<std::string, Storage> storages;  // by key; legacy files only
    std::vector<Note> notes;
};

Result<Opened> openArchive(std::shared_ptr<const ReadFile> file, const OpenOptions& options);
Result<Opened> openLegacy(std::shared_ptr<const ReadFile> file, const OpenOptions& options);

Result<std::unique_ptr<Reader>> makeReader(Opened opened, std::string fileName,
                                           std::shared_ptr<FileSystem> fileSystem,
                                           const OpenOptions& options);

// The elements of every storage that the pickle refers to, checked against each other. Errors: damaged.
Result<std::unordered_map<std::string, TorchStorage>> allStorages(const ValueGraph& graph);

}  // namespace shardscope::torch_save
