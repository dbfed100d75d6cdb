// Entries of files that cannot be read by position as they are stored: deflated, compressed, spelled as text,
// split in parts. Their plain bytes are produced once, in memory or in a scratch file. All readers share
// them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "storage/file_system.h"

namespace shardscope {

// Bytes as a file that can be read by position. `origin` gives the path for messages and the fingerprint.
std::shared_ptr<const ReadFile> fileInMemory(std::shared_ptr<const ReadFile> origin,
                                             std::vector<std::byte> bytes);

// A bounded cache of plain entries. Thread-safe: threads that ask for the same entry wait until one of them
// has produced it. No lock is held that threads with other entries need. An entry lives as long as a reader
// holds it; the cache itself holds the few that were used last. A failure is not remembered.
class Materialized {
  public:
    Materialized(std::shared_ptr<FileSystem> fileSystem, std::string scratchDirectory);

    struct Entry {
        std::string key;                         // unique among all entries of this cache
        std::shared_ptr<const ReadFile> origin;  // the file that stores it
        uint64_t bytes = 0;                      // of the plain entry; the most that it can have if not exact
        bool exact = true;
    };
    // Takes the plain bytes in order. Errors: limit for more than Entry::bytes, noSpace, io.
    using Sink = std::function<Status(std::span<const std::byte>)>;
    // Produces the entry; may ask this cache for other entries.
    using Produce = std::function<Status(const Sink&)>;

    // Errors: those of `produce` and of the sink; internal when an exact entry gets fewer bytes than stated.
    Result<std::shared_ptr<const ReadFile>> get(const Entry& entry, const Produce& produce) const;

  private:
    struct Slot {
        std::mutex mutex;  // held while the entry is produced
        std::weak_ptr<const ReadFile> file;
    };
    std::shared_ptr<Slot> slotOf(const std::string& key) const;
    void keep(std::shared_ptr<const ReadFile> file) const;
    bool dropOldest() const;
    Result<std::shared_ptr<const ReadFile>> make(const Entry& entry, const Produce& produce) const;

    std::shared_ptr<FileSystem> fileSystem_;
    std::string scratchDirectory_;
    std::shared_ptr<std::atomic<uint64_t>> inMemory_;  // bytes of the entries that live in memory

    mutable std::mutex mutex_;  // never held while an entry is produced
    mutable std::unordered_map<std::string, std::shared_ptr<Slot>> slots_;
    mutable size_t pruneAt_ = 1024;                                // slots
    mutable std::vector<std::shared_ptr<const ReadFile>> recent_;  // used last, newest first
};

}  // namespace shardscope
