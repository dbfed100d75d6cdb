// What the processes of one conversion in parts (execute/parts.h) tell each other if they have no directory
// in common. Each has a staging directory of its own. What it has done reaches the others through the storage
// of the destination. core/places has the one for buckets.
#pragma once

#include <cstddef>
#include <set>
#include <span>
#include <string>

#include "base/result.h"

namespace shardscope {

// Of one process; not thread-safe. Errors: those of the storage, if nothing else is said.
class SharedStaging {
  public:
    virtual ~SharedStaging() = default;

    // What all parts must agree on: `text` when no part has said anything yet, else what the first part said.
    // Errors: exists (one process alone writes this destination), unsupported (the storage cannot tell who
    // was first).
    virtual Result<std::string> agree(const std::string& text) = 0;
    // Names of the journals of the parts that are done; none once the job is finished.
    virtual Result<std::set<std::string>> done() = 0;
    // Sends all that this process has written, then the journal, which says so. What is here is removed.
    virtual Status partDone(const std::string& journal, std::span<const std::byte> content) = 0;

    // To finish: brings what the parts agreed on and their journals into the staging directory of this
    // process, if any part has begun.
    virtual Status gather() = 0;
    // Then what they have written, once the files are there in their sizes. Errors: exists (another process
    // finishes).
    virtual Status gatherData() = 0;
};

}  // namespace shardscope
