// A cache of open file handles: a checkpoint of many thousand files needs few descriptors. Also reads small
// files whole.
#pragma once

#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/result.h"
#include "storage/file_system.h"

namespace shardscope {

// The first bytes of a file, at most `most`; empty when it cannot be read.
std::string startOf(const Directory& directory, std::string_view name, uint64_t most = 64);
// All bytes of a file that has at most `most`; empty when it is larger or cannot be read.
std::string smallFile(const Directory& directory, std::string_view name, uint64_t most);

// All bytes of an open file. Errors: limit where it has more than `most`; those of reading.
Result<std::string> wholeText(const ReadFile& file, uint64_t most);

// Thread-safe. A handle keeps its file open. The cache holds at most `most` handles and drops the least
// recently used.
class OpenFiles {
  public:
    explicit OpenFiles(std::shared_ptr<Directory> directory, size_t most = 256)
        : directory_(std::move(directory)), most_(most) {}

    // Errors: notFound (rule file.missing), unsafe, permission, io.
    Result<std::shared_ptr<const ReadFile>> open(const std::string& path) const;

  private:
    using Recent = std::list<std::pair<std::string, std::shared_ptr<const ReadFile>>>;

    std::shared_ptr<Directory> directory_;
    size_t most_;
    mutable std::mutex mutex_;
    mutable Recent recent_;  // most recently used first
    mutable std::unordered_map<std::string, Recent::iterator> byPath_;
};

}  // namespace shardscope
