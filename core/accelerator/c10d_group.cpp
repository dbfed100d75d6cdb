// The module shardscope_torch: what needs libtorch.

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <numeric>
#include <optional>
#include <thread>

#include <ATen/ops/from_blob.h>
#include <c10/util/Logging.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <torch/headeronly/version.h>

#include "accelerator/lane_transport.h"
#include "accelerator/torch_module.h"
#include "base/mutex.h"
#include "base/option_words.h"

// The headers in gloo_headers/ say of Gloo what this version of libtorch needs.
static_assert(TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 11,
              "gloo_headers/ was made for libtorch 2.11 to 2.15: compare it with ProcessGroupGloo.hpp before "
              "continuing");

namespace shardscope {
namespace {

using StorePtr = c10::intrusive_ptr<c10d::Store>;

// For all ranks to come: they are connected to the coordinator already.
constexpr std::chrono::seconds kGroupPatience{10};

// libtorch tells of every broken connection with a trace of its own calls; what that means we say ourselves.
// A user who sets the variable wants to see it.
void quietTorch() {
    setenv("TORCH_CPP_LOG_LEVEL", "FATAL", 0);
    c10::initLogging();
}

// What a library says, without its advice.
std::string firstLine(const char* text) {
    std::string line(text);
    line.resize(std::min({line.size(), line.find('\n'), line.find(". This is typically"), size_t{300}}));
    return line;
}

at::Tensor bytesTensor(const void* bytes, size_t size) {
    static std::byte nothing;
    void* data = size == 0 ? &nothing : const_cast<void*>(bytes);
    return at::from_blob(data, {static_cast<int64_t>(size)}, at::TensorOptions(at::kByte));
}

// ------------------------------------------------------------------ Gloo

class GlooLane final : public LaneTransport {
  public:
    GlooLane(const StorePtr& store, int rank, int size, const std::string& address,
             std::chrono::seconds patience) {
        auto options = c10d::ProcessGroupGloo::Options::create();
        options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(address));
        options->threads = 1;
        options->timeout = patience;
        group_ = c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, size, options);
        // A step takes as long as its slowest disk; the coordinator's heartbeats tell who is lost.
        group_->setTimeout(std::chrono::hours(24));
    }

    WorkPtr broadcast(std::span<std::byte> bytes, int root) override {
        std::vector<at::Tensor> tensors{bytesTensor(bytes.data(), bytes.size())};
        c10d::BroadcastOptions options;
        options.rootRank = root;
        return group_->broadcast(tensors, options);
    }

    WorkPtr allToAll(std::span<const std::byte> send, const std::vector<int64_t>& sendBytes,
                     std::span<std::byte> receive, const std::vector<int64_t>& receiveBytes) override {
        at::Tensor in = bytesTensor(send.data(), send.size()),
                   out = bytesTensor(receive.data(), receive.size());
        // The call takes the counts for itself.
        std::vector<int64_t> inCounts = sendBytes, outCounts = receiveBytes;
        return allToAllSingle(*group_, out, in, outCounts, inCounts);
    }

    void finish() override {}

  private:
    c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;
};

// ------------------------------------------------------------------ NCCL

struct Nccl {
    NcclModule::Devices* devices = nullptr;
    NcclModule::Make* make = nullptr;
};

Result<Nccl> findNccl() {
    static const int here = 0;
    Dl_info own{};
    std::string file = dladdr(&here, &own) ? own.dli_fname : "";
    file.replace(file.rfind('/') + 1, file.npos, TorchFunctions::kNcclFile);
    void* module = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!module)
        return makeError(ErrorCode::impossible,
                         fmt::format("NCCL cannot be used here: {}", firstLine(dlerror())))
            .withHint("install the CUDA build of libtorch with its NCCL, or use " +
                      option("backend", "gloo"));
    Nccl nccl;
    nccl.devices = reinterpret_cast<NcclModule::Devices*>(dlsym(module, "shardscope_devices"));
    nccl.make = reinterpret_cast<NcclModule::Make*>(dlsym(module, "shardscope_make_lane"));
    if (!nccl.devices || !nccl.make)
        return makeError(ErrorCode::impossible, "the NCCL module is not of this program");
    return nccl;
}

// ------------------------------------------------------------------ the group

Error lostRank() {
    return makeError(ErrorCode::remote, "a rank of the process group is gone");
}

class C10dGroup final : public ProcessGroup {
  public:
    C10dGroup(const GroupSpec& spec, std::string address) : spec_(spec), address_(std::move(address)) {}

    ~C10dGroup() override {
        if (!aborted_) return;
        // What waits for a rank that does not answer cannot be taken down; it stays until the process ends.
        static std::mutex mutex;
        static auto& kept = *new std::vector<std::pair<std::unique_ptr<LaneTransport>, Unfinished>>;
        const std::scoped_lock lock(mutex);
        kept.emplace_back(std::move(lane_), std::move(unfinished_));
    }

    Status open(const std::function<void(uint16_t)>& listening) {
        try {
            return join(listening);
        } catch (const std::exception& error) {
            return makeError(ErrorCode::remote,
                             "the process group did not come together: " + firstLine(error.what()));
        }
    }

    int rank() const override { return spec_.rank; }
    int size() const override { return spec_.size; }
    uint64_t bytesSent() const override { return sent_; }
    void abort() override { aborted_ = true; }

    Status broadcast(Bytes& bytes) override {
        if (spec_.rank == 0) sent_ += bytes.size() * static_cast<uint64_t>(spec_.size - 1);
        Bytes none;
        return step([&] { return lane_->broadcast(bytes, 0); }, bytes, none);
    }

    Status allToAll(Bytes& send, const std::vector<uint64_t>& sendBytes, Bytes& receive,
                    const std::vector<uint64_t>& receiveBytes) override {
        const uint64_t all = std::reduce(sendBytes.begin(), sendBytes.end()),
                       coming = std::reduce(receiveBytes.begin(), receiveBytes.end());
        sent_ += all - sendBytes[static_cast<size_t>(spec_.rank)];
        const std::vector<int64_t> out(sendBytes.begin(), sendBytes.end()),
            in(receiveBytes.begin(), receiveBytes.end());
        return step(
            [&] {
                return lane_->allToAll(std::span(send).first(all), out, std::span(receive).first(coming), in);
            },
            send, receive);
    }

  private:
    // A call that was given up, and the memory that it may still read and write.
    struct Unfinished {
        LaneTransport::WorkPtr work;
        Bytes send, receive;
    };

    Status join(const std::function<void(uint16_t)>& listening) {
        Nccl nccl;
        if (spec_.backend == "nccl") {
            SHARDSCOPE_ASSIGN(nccl, findNccl());
            const int count = nccl.devices();
            if (count <= 0)
                return makeError(ErrorCode::impossible, "this rank has no GPU that can be used")
                    .withHint(
                        fmt::format("use {}, or start ranks only where GPUs are", option("backend", "gloo")));
            device_ = spec_.device % count;
        }
        c10d::TCPStoreOptions options;
        options.port = spec_.port;
        options.isServer = spec_.rank == 0;
        options.waitWorkers = false;
        options.timeout = kGroupPatience;
        const auto server = c10::make_intrusive<c10d::TCPStore>(spec_.host, options);
        if (listening) listening(server->getPort());
        const StorePtr store = c10::make_intrusive<c10d::PrefixStore>("shardscope", server);
        if (nccl.make) {
            lane_.reset(nccl.make(store, spec_.rank, spec_.size, device_));
            return {};
        }
        lane_ = std::make_unique<GlooLane>(store, spec_.rank, spec_.size, address_, kGroupPatience);
        return {};
    }

    template <class Start>
    Status step(Start&& start, Bytes& send, Bytes& receive) {
        if (aborted_) return lostRank();
        try {
            const auto work = start();
            auto pause = std::chrono::microseconds(20);
            while (!work->isCompleted()) {
                if (aborted_) {
                    unfinished_ = {work, std::move(send), std::move(receive)};
                    return lostRank();
                }
                std::this_thread::sleep_for(pause);
                pause = std::min(pause * 2, std::chrono::microseconds(1000));
            }
            work->wait();
            lane_->finish();
            return {};
        } catch (const std::exception& error) {
            aborted_ = true;
            return makeError(ErrorCode::remote, "the process group broke: " + firstLine(error.what()));
        }
    }

    const GroupSpec spec_;
    const std::string address_;
    int device_ = 0;
    std::unique_ptr<LaneTransport> lane_;
    std::atomic<bool> aborted_{false};
    std::atomic<uint64_t> sent_{0};
    Unfinished unfinished_;  // at most one: every later call fails
};

Result<std::unique_ptr<ProcessGroup>> makeGroup(const GroupSpec& spec, const std::string& address,
                                                const GroupForming& forming) {
    quietTorch();
    // Each step of it waits by itself for a rank that does not answer, and cannot be interrupted, so it has a
    // thread of its own, which is left alone once it is given up.
    struct Attempt {
        Mutex mutex;
        Condition changed;
        bool givenUp SHARDSCOPE_GUARDED_BY(mutex) = false;
        std::optional<Status> opened SHARDSCOPE_GUARDED_BY(mutex);
        std::unique_ptr<C10dGroup> group;  // the thread's own until it is opened
    };
    auto attempt = std::make_shared<Attempt>();
    attempt->group = std::make_unique<C10dGroup>(spec, address);
    std::thread thread([attempt, listening = forming.listening] {
        Status opened = attempt->group->open([&](uint16_t port) {
            MutexLock lock(attempt->mutex);
            if (listening && !attempt->givenUp) listening(port);
        });
        MutexLock lock(attempt->mutex);
        if (attempt->givenUp) attempt->group->abort();
        attempt->opened = std::move(opened);
        attempt->changed.notify_all();
    });
    MutexLock lock(attempt->mutex);
    while (!attempt->opened) {
        lock.unlock();
        const bool givenUp = forming.givenUp && forming.givenUp();
        lock.lock();
        if (givenUp && !attempt->opened) {
            attempt->givenUp = true;
            thread.detach();
            return lostRank();
        }
        attempt->changed.wait_for(lock, std::chrono::milliseconds(20));
    }
    lock.unlock();
    thread.join();
    lock.lock();
    SHARDSCOPE_TRY(std::move(*attempt->opened));
    return std::unique_ptr<ProcessGroup>(std::move(attempt->group));
}

Result<int> usableDevices() {
    SHARDSCOPE_ASSIGN(const Nccl nccl, findNccl());
    return nccl.devices();
}

Result<std::string> shareText(const RankInfo& info, const std::optional<std::string>& address,
                              std::chrono::seconds patience) {
    quietTorch();
    try {
        c10d::TCPStoreOptions options;
        options.port = info.port;
        options.waitWorkers = false;
        options.timeout = patience;
        const auto server = c10::make_intrusive<c10d::TCPStore>(info.host, options);
        c10d::PrefixStore store("shardscope/" + info.group, server);
        if (address) store.set("rank 0", *address);
        return store.get_to_str("rank 0");
    } catch (const std::exception& error) {
        return makeError(ErrorCode::remote,
                         fmt::format("the store of {} at {} port {} cannot be used: {}", info.launcher,
                                     info.host, info.port, firstLine(error.what())));
    }
}

}  // namespace
}  // namespace shardscope

#define SHARDSCOPE_TEXT(x) #x
#define SHARDSCOPE_VERSION_TEXT(major, minor, patch) \
    SHARDSCOPE_TEXT(major) "." SHARDSCOPE_TEXT(minor) "." SHARDSCOPE_TEXT(patch)

extern "C" __attribute__((visibility("default"))) const shardscope::TorchFunctions* shardscope_torch() {
    static constexpr shardscope::TorchFunctions kAll{
        SHARDSCOPE_VERSION_TEXT(TORCH_VERSION_MAJOR, TORCH_VERSION_MINOR, TORCH_VERSION_PATCH),
        shardscope::makeGroup, shardscope::usableDevices, shardscope::shareText};
    return &kAll;
}
