// The stored entries of a checkpoint: slices of its .distcp files, opened through a bounded set of file
// handles, and undone where a transform was applied when they were written.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/result.h"
#include "formats/format.h"
#include "formats/open_files.h"

namespace shardscope::dcp {

// A slice of a file that can be read by position.
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

    // The plain bytes of an entry. With transforms it is unpacked once, into memory or a scratch file, for as
    // long as somebody holds it; more than `maxPlain` bytes are refused. Errors: damaged (rule
    // file.truncated), unsupported (naming the transform), limit.
    Result<EntrySlice> open(const std::string& path, uint64_t offset, uint64_t length,
                            const std::vector<std::string>& transforms, uint64_t maxPlain) const;

  private:
    struct Slot {
        std::mutex mutex;
        std::weak_ptr<const ReadFile> file;
    };
    Result<std::shared_ptr<const ReadFile>> unpack(const std::shared_ptr<const ReadFile>& packed,
                                                   uint64_t offset, uint64_t length, uint64_t maxPlain) const;

    std::shared_ptr<FileSystem> fileSystem_;
    OpenFiles openFiles_;
    std::string scratchDirectory_;
    StopToken stop_;

    mutable std::mutex mutex_;
    mutable std::map<std::pair<std::string, uint64_t>, std::shared_ptr<Slot>> slots_;
    mutable std::list<std::shared_ptr<const ReadFile>> recentPlain_;
    std::shared_ptr<std::atomic<uint64_t>> liveMemory_;
};

}  // namespace shardscope::dcp
