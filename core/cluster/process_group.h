// The processes of a conversion as ranks of a process group with collective calls. Rank 0 distributes what it
// reads, through a library that does so better than a connection to each rank (core/accelerator).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"

namespace shardscope {

// Every rank makes the same calls in the same order, from one thread at a time. Errors: remote. Every later
// call then fails, too, and the buffers of the failed call may be empty: a transfer that cannot be ended
// keeps their memory.
class ProcessGroup {
  public:
    using Bytes = std::vector<std::byte>;

    virtual ~ProcessGroup() = default;
    virtual int rank() const = 0;
    virtual int size() const = 0;
    // Copies rank 0's bytes to every rank; `bytes` has the same size on all ranks.
    virtual Status broadcast(Bytes& bytes) = 0;
    // `send` holds the bytes for each rank one after the other, sendBytes[rank] of them; `receive` gets those
    // from each rank, receiveBytes[rank] of them. Both may be longer than that.
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
// What a group calls while it comes together, as long as that lasts. Either may be null.
struct GroupForming {
    std::function<void(uint16_t port)> listening{};  // on rank 0, once the others can connect
    std::function<bool()> givenUp{};                 // true = wait no longer; asked all the time
};
// Waits for all ranks, for some seconds each. Errors: remote (a rank did not come), impossible (no such
// backend here).
using MakeGroup =
    std::function<Result<std::unique_ptr<ProcessGroup>>(const GroupSpec& spec, const GroupForming& forming)>;

}  // namespace shardscope
