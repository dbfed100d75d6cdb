// Opens the stored entries of a checkpoint: byte ranges of its .distcp files. Undoes the transforms that the
// writer applied. Keeps a bounded number of file handles.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "formats/format.h"
#include "formats/open_files.h"
#include "storage/materialized.h"

namespace shardscope::dcp {

// A byte range of a file that can be read by position.
struct EntrySlice {
    std::shared_ptr<const ReadFile> file;
    uint64_t offset = 0;
    uint64_t length = 0;
};

// Thread-safe.
class StoredEntries {
  public:
    StoredEntries(const Source& source, const OpenOptions& options);

    // As OpenFiles::open().
    Result<std::shared_ptr<const ReadFile>> openFile(const std::string& path) const {
        return openFiles_.open(path);
    }

    // The plain bytes of an entry, with `transforms` undone in order; at most `maxPlain` bytes. Errors:
    // damaged (rule file.truncated), unsupported (naming the transform), limit.
    Result<EntrySlice> open(const std::string& path, uint64_t offset, uint64_t length,
                            const std::vector<std::string>& transforms, uint64_t maxPlain) const;

  private:
    OpenFiles openFiles_;
    StopToken stop_;
    Materialized plain_;
};

}  // namespace shardscope::dcp
