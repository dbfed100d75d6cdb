// Requests that serve several reads of a file. Private to this room.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "base/mutex.h"
#include "storage/object_place.h"
#include "storage/planned_reads.h"

namespace shardscope {

// Blocks of files: the planned bytes between two multiples of ObjectPlace::kRequest. A read of a part of one
// brings all of it, once, and the reads that want the rest find it here. Where no memory is free for a block,
// each read asks for its own bytes, as it does outside of plans. Thread-safe.
class JoinedReads : public std::enable_shared_from_this<JoinedReads> {
  public:
    using Fetch = std::function<Status(std::span<const ObjectPlace::Range>)>;

    // For PlannedReads::plan(). `file`: a number that means the same version of the same file.
    std::shared_ptr<void> plan(uint64_t file, std::vector<PlannedRange> ranges, uint64_t memory);

    // Whether there is a plan for the file.
    bool plans(uint64_t file);
    // Fills the buffer, with requests by `fetch` where blocks do not hold the bytes. `small`: a look at what
    // is around tensors, whose bytes are read once more as their data. Errors: those of `fetch`, cancelled.
    Status read(uint64_t file, uint64_t offset, std::span<std::byte> buffer, bool small, const Fetch& fetch);
    // Whether a small read finds its block here, or memory for it.
    bool holds(uint64_t file, uint64_t offset, uint64_t size);

  private:
    struct Free {
        void operator()(std::byte* bytes) const;
    };
    using Memory = std::unique_ptr<std::byte, Free>;
    struct Block {
        // gone: each read asks for its own bytes.
        enum class State : uint8_t { untouched, fetching, here, gone };
        State state = State::gone;
        uint64_t begin = 0, end = 0;  // of the file
        uint64_t left = 0;            // bytes of tensors that nobody has taken yet,
        uint64_t around = 0;          // of which so many may be those around them
        uint64_t touched = 0;         // when, in claims
        unsigned users = 0;           // reads that wait for it or copy from it
        Memory bytes;
    };
    struct Plan {
        std::vector<PlannedRange> ranges;
        std::map<uint64_t, std::shared_ptr<Block>> blocks;  // by number; those that were touched
    };
    struct Take {
        std::shared_ptr<Block> block;
        ObjectPlace::Range range;
    };
    struct Division {
        std::vector<ObjectPlace::Range> now;
        std::vector<std::shared_ptr<Block>> own;  // blocks among these
        std::vector<Take> later;
    };

    std::shared_ptr<Block> blockAt(Plan& plan, uint64_t number) SHARDSCOPE_REQUIRES(mutex_);
    // Gives a block memory. `gently`: only where all that has it is taken; else also that of a block that
    // nobody has wanted for long.
    bool claim(const std::shared_ptr<Block>& block, bool gently) SHARDSCOPE_REQUIRES(mutex_);
    std::shared_ptr<Block> toDrop(bool gently) SHARDSCOPE_REQUIRES(mutex_);
    void divide(Plan& plan, const ObjectPlace::Range& read, bool small, Division& to)
        SHARDSCOPE_REQUIRES(mutex_);
    Status take(const Take& take, bool small, const Fetch& fetch);

    Mutex mutex_;
    Condition changed_;  // of the state of a block
    std::map<uint64_t, std::shared_ptr<Plan>> plans_ SHARDSCOPE_GUARDED_BY(mutex_);  // by file
    std::vector<std::shared_ptr<Block>> held_ SHARDSCOPE_GUARDED_BY(mutex_);         // those with memory
    uint64_t most_ SHARDSCOPE_GUARDED_BY(mutex_) = 0;                                // of them
    uint64_t claims_ SHARDSCOPE_GUARDED_BY(mutex_) = 0;
    uint64_t patience_ SHARDSCOPE_GUARDED_BY(mutex_) = 64;  // claims, until a block that nobody wants goes
};

}  // namespace shardscope
