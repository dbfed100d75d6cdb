// The data files of a checkpoint: which arrays each of them holds, and where.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "encoding/paddle_file.h"
#include "formats/format.h"
#include "formats/open_files.h"

namespace shardscope::paddle {

// Thread-safe.
class RankFiles {
  public:
    RankFiles(const Source& source, const OpenOptions& options);

    struct Entry {
        Dims shape;
        std::vector<PaddleArray> parts;
    };
    using Index = std::unordered_map<std::string, Entry>;

    // As OpenFiles::open().
    Result<std::shared_ptr<const ReadFile>> openFile(const std::string& path) const {
        return openFiles_.open(path);
    }
    // Read once for each file; a failure is remembered too. Errors: as readPaddleFile and readHeader.
    Result<std::shared_ptr<const Index>> index(const std::string& path) const;
    // Where the elements of an entry stand; the parts of a big parameter are put together first.
    Result<PaddleArrayPlaces::Place> place(const std::string& path, const Entry& entry) const;

  private:
    struct Slot {
        std::mutex mutex;
        bool read = false;
        Status status;
        std::shared_ptr<const Index> index;
    };
    Result<std::shared_ptr<const Index>> readIndex(const std::string& path) const;
    Result<std::shared_ptr<const Index>> readSafetensors(const ReadFile& file) const;
    Result<PaddleArrayPlaces::Place> join(const std::shared_ptr<const ReadFile>& file,
                                          const Entry& entry) const;

    std::shared_ptr<FileSystem> fileSystem_;
    OpenFiles openFiles_;
    OpenOptions options_;
    PaddleArrayPlaces places_;

    mutable std::mutex mutex_;
    mutable std::unordered_map<std::string, std::shared_ptr<Slot>> slots_;
};

// Whether an array of dtype `stored` is what a tensor of dtype `wanted` is stored as.
bool storedAs(DType wanted, DType stored);

}  // namespace shardscope::paddle
