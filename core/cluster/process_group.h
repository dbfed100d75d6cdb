// The processes of a conversion as ranks that go through collective calls together: how the first of them
// hands on what it reads, where a library does that better than a connection to each (core/accelerator).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"

namespace shardscope {

// Every rank makes the same calls in the same order, from one thread at a time. Errors: remote; every later
// call then fails too, and what a call was given may be empty: its memory stays with a transfer that cannot
// be ended.
class ProcessGroup {
  public:
    using Bytes = std::vector<std::byte>;

    virtual ~ProcessGroup() = default;
    virtual int rank() const = 0;
    virtual int size() const = 0;
    // What is in rank 0's bytes comes into everyone's, which are as many.
    virtual Status broadcast(Bytes& bytes) = 0;
    // `send` holds a part for each rank one after the other, sendBytes[rank] long; so does `receive` from
    // each. They may be longer than that.
    virtual Status allToAll(Bytes& send, const std::vector<uint64_t>& sendBytes, Bytes& receive,
                            const std::vector<uint64_t>& receiveBytes) = 0;
    virtual uint64_t bytesSent() const = 0;  // by this rank to others, so far
    // Ends calls that are under way, and makes later ones fail. Thread-safe.
    virtual void abort() = 0;
};

struct GroupSpec {
    std::string host;  // where rank 0 is found by all
    uint16_t port = 0;
    int rank = 0, size = 1;
    std::string backend;  // "gloo", "nccl"
    int device = 0;       // the GPU of this rank, for "nccl"
};
// Waits for all ranks, for some seconds. On rank 0 `listening` is told the port once the others can come.
// Errors: remote (a rank did not come), impossible (no such backend here).
using MakeGroup = std::function<Result<std::unique_ptr<ProcessGroup>>(
    const GroupSpec& spec, const std::function<void(uint16_t port)>& listening)>;

}  // namespace shardscope
