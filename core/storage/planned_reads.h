// Reads that are told before they are made, so that neighboring ones can share a request.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace shardscope {

// Bytes [begin, end) of a file, of which `bytes` will be read as tensor data; the rest is what a format puts
// around it.
struct PlannedRange {
    uint64_t begin = 0, end = 0, bytes = 0;
};

// A ReadFile whose reads cost a request each implements this, too.
class PlannedReads {
  public:
    virtual ~PlannedReads() = default;
    // The ranges are in ascending order and do not overlap. While the returned object lives, they are
    // expected to be read once, in any order, by any thread. What one request brings for several reads is
    // kept until they took it, in at most `memory` bytes for all files of one file system. Other reads work
    // as ever, and so do these if they come otherwise than planned.
    virtual std::shared_ptr<void> plan(std::vector<PlannedRange> ranges, uint64_t memory) const = 0;
};

}  // namespace shardscope
