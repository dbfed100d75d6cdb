// The collectives of one lane, started and then waited for by c10d_group.cpp. Private to this room; the NCCL
// module brings another one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

namespace shardscope {

// Whatever fails throws, as libtorch does.
class LaneTransport {
  public:
    using WorkPtr = c10::intrusive_ptr<c10d::Work>;
    virtual ~LaneTransport() = default;
    virtual WorkPtr broadcast(std::span<std::byte> bytes, int root) = 0;
    virtual WorkPtr allToAll(std::span<const std::byte> send, const std::vector<int64_t>& sendBytes,
                             std::span<std::byte> receive, const std::vector<int64_t>& receiveBytes) = 0;
    // After the work has completed: what was received is where it was wanted.
    virtual void finish() = 0;
};

// Before libtorch 2.15 the call has another name.
template <class Group>
LaneTransport::WorkPtr allToAllSingle(Group& group, at::Tensor& out, at::Tensor& in,
                                      std::vector<int64_t>& outCounts, std::vector<int64_t>& inCounts) {
    if constexpr (requires { group.all_to_all_single(out, in, outCounts, inCounts); })
        return group.all_to_all_single(out, in, outCounts, inCounts);
    else
        return group.alltoall_base(out, in, outCounts, inCounts);
}

// What the module shardscope_nccl exports, by these names.
struct NcclModule {
    using Devices = int();  // GPUs that can be used; 0 without a driver
    using Make = LaneTransport*(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, int device);
};

}  // namespace shardscope
