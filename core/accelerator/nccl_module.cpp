// The part that needs CUDA and NCCL, as a module of its own: a machine without them runs the rest.
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "accelerator/lane_transport.h"

namespace shardscope {
namespace {

// Bytes go through memory of the GPU: in from `send`, between the GPUs, out to `receive`.
class NcclLane final : public LaneTransport {
  public:
    NcclLane(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, int device)
        : device_(at::kCUDA, static_cast<c10::DeviceIndex>(device)) {
        const c10::cuda::CUDAGuard guard(device_);
        auto options = c10d::ProcessGroupNCCL::Options::create();
        options->group_name = "shardscope";
        group_ = c10::make_intrusive<c10d::ProcessGroupNCCL>(store, rank, size, options);
    }
    ~NcclLane() override { group_->shutdown(); }

    WorkPtr broadcast(std::span<std::byte> bytes, int root) override {
        const c10::cuda::CUDAGuard guard(device_);
        to_ = bytes;
        out_ = at::empty({static_cast<int64_t>(bytes.size())}, at::TensorOptions(at::kByte).device(device_));
        if (group_->getRank() == root) out_.copy_(host(bytes.data(), bytes.size()));
        std::vector<at::Tensor> tensors{out_};
        c10d::BroadcastOptions options;
        options.rootRank = root;
        return group_->broadcast(tensors, options);
    }

    WorkPtr allToAll(std::span<const std::byte> send, const std::vector<int64_t>& sendBytes,
                     std::span<std::byte> receive, const std::vector<int64_t>& receiveBytes) override {
        const c10::cuda::CUDAGuard guard(device_);
        to_ = receive;
        const auto kind = at::TensorOptions(at::kByte).device(device_);
        in_ = at::empty({static_cast<int64_t>(send.size())}, kind);
        in_.copy_(host(send.data(), send.size()));
        out_ = at::empty({static_cast<int64_t>(receive.size())}, kind);
        std::vector<int64_t> inCounts = sendBytes, outCounts = receiveBytes;
        return allToAllSingle(*group_, out_, in_, outCounts, inCounts);
    }

    void finish() override {
        if (!to_.empty()) host(to_.data(), to_.size()).copy_(out_);
    }

  private:
    static at::Tensor host(const void* bytes, size_t size) {
        static std::byte nothing;
        return at::from_blob(size == 0 ? &nothing : const_cast<void*>(bytes), {static_cast<int64_t>(size)},
                             at::TensorOptions(at::kByte));
    }

    const at::Device device_;
    c10::intrusive_ptr<c10d::ProcessGroupNCCL> group_;
    at::Tensor in_, out_;
    std::span<std::byte> to_;
};

}  // namespace
}  // namespace shardscope

extern "C" {

__attribute__((visibility("default"))) int shardscope_devices() {
    try {
        return c10::cuda::device_count();
    } catch (const std::exception&) {
        return 0;
    }
}

__attribute__((visibility("default"))) shardscope::LaneTransport* shardscope_make_lane(
    const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, int device) {
    return new shardscope::NcclLane(store, rank, size, device);
}
}
