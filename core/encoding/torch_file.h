// A torch.save file of either kind, zip archive or legacy stream, opened: the saved object as inert values,
// and where each storage is stored. Shared by all formats whose files torch.save wrote.
// docs/formats/torch_save.md.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/stop.h"
#include "encoding/torch_tensor.h"
#include "encoding/torch_walk.h"
#include "model/catalog.h"

namespace shardscope::torch_save {

constexpr uint64_t kFirstBytes = 512;  // that tell the kind of a file

enum class FileKind : uint8_t { none, archive, otherZip, legacy, tar, preview };
// What the first kFirstBytes bytes of a file say.
FileKind fileKind(std::string_view firstBytes);
Result<std::string> firstBytesOf(const ReadFile& file);

struct FileLimits {
    uint64_t pickleText = uint64_t{16} << 20;
    uint64_t pickleBytes = uint64_t{2} << 30;
    uint64_t valueMemory = uint64_t{256} << 20;
    StopToken stop;
};

// What a file of either kind says before its tensors are looked at.
struct Opened {
    // A range of a legacy file that holds one storage.
    struct Storage {
        uint64_t offset = 0;  // in the file
        uint64_t bytes = 0;   // that are stored
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

Result<Opened> openArchive(std::shared_ptr<const ReadFile> file, const FileLimits& limits);
Result<Opened> openLegacy(std::shared_ptr<const ReadFile> file, const FileLimits& limits);
// Opens the file as the kind that its first bytes show. Errors: also unsupported for kinds that are not read.
Result<Opened> openTorchFile(std::shared_ptr<const ReadFile> file, const FileLimits& limits);

// The elements of every storage that the pickle refers to, checked against each other. Errors: damaged.
Result<std::unordered_map<std::string, TorchStorage>> allStorages(const ValueGraph& graph);

// Notes on the records of a zip archive; `storages` as allStorages() gives them.
std::vector<Note> recordNotes(const Opened& opened,
                              const std::unordered_map<std::string, TorchStorage>& storages);

// Where a storage is stored, checked to be as long as the pickle says.
struct StorageExtent {
    const ZipEntry* entry = nullptr;  // of a zip archive
    uint64_t offset = 0;              // of a legacy file
};
Result<StorageExtent> findStorage(const Opened& opened, const TorchStorage& storage);

// The graph that `nodes` stay in: the whole one, or a copy of what they need where most of it describes
// tensors. The nodes are renumbered to fit.
std::shared_ptr<const ValueGraph> keepValues(ValueGraph&& graph, std::vector<NodeId*>& nodes);

}  // namespace shardscope::torch_save
