#include "accelerator/c10d_group.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include <ATen/ops/from_blob.h>
#include <arpa/inet.h>
#include <c10/util/Logging.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <link.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <torch/headeronly/version.h>
#include <unistd.h>

#include "accelerator/gpu/gpu_tiles.h"
#include "accelerator/lane_transport.h"
#include "base/mutex.h"

// The headers in gloo_headers/ say of Gloo what this version of libtorch needs.
static_assert(
    TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 15,
    "gloo_headers/ was made for libtorch 2.15: compare it with ProcessGroupGloo.hpp before continuing");

namespace shardscope {
namespace {

using Clock = std::chrono::steady_clock;
using StorePtr = c10::intrusive_ptr<c10d::Store>;

// libtorch tells of every broken connection with a trace of its own calls; what that means we say ourselves.
// Whoever sets the variable wants to see it.
void quietTorch() {
    setenv("TORCH_CPP_LOG_LEVEL", "FATAL", 0);
    c10::initLogging();
}

constexpr const char* kAllMustRun = "all ranks must run, and reach the host and port of rank 0";

// The store goes with rank 0, which stays until so many have counted themselves under the key, or for the
// time.
void stayUntilHeard(c10d::Store& store, const std::string& key, int count, std::chrono::milliseconds most) {
    const auto end = Clock::now() + most;
    while (store.add(key, 0) < count && Clock::now() < end)
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

// Added to a rank's count of heartbeats by one that goes in order.
constexpr int64_t kGone = int64_t{1} << 40;

// What a library says, without its advice.
std::string firstLine(const char* text) {
    std::string line(text);
    line.resize(std::min({line.size(), line.find('\n'), line.find(". This is typically"), size_t{300}}));
    return line;
}

at::Tensor bytesTensor(const void* bytes, size_t size) {
    static std::byte nothing;
    void* place = size == 0 ? &nothing : const_cast<void*>(bytes);
    return at::from_blob(place, {static_cast<int64_t>(size)}, at::TensorOptions(at::kByte));
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
        // A step takes as long as its slowest disk; heartbeats tell who is lost.
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
        return group_->all_to_all_single(out, in, outCounts, inCounts);
    }

    void finish() override {}

  private:
    c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;
};

// ------------------------------------------------------------------ GPUs

// NVRTC: what the environment names, else what came with libtorch, else the system's.
std::vector<std::string> gpuCompilers() {
    if (const char* named = std::getenv("SHARDSCOPE_NVRTC"); named && *named) return {named};
    std::vector<std::string> found;
    link_map* map = nullptr;
    void* torch = dlopen("libc10.so", RTLD_NOW | RTLD_NOLOAD);
    if (torch && dlinfo(torch, RTLD_DI_LINKMAP, static_cast<void*>(&map)) == 0 && map) {
        // <packages>/torch/lib/libc10.so, and <packages>/nvidia/cu13/lib/libnvrtc.so.13
        const auto nvidia =
            std::filesystem::path(map->l_name).parent_path().parent_path().parent_path() / "nvidia";
        std::error_code error;
        for (const auto& version : std::filesystem::directory_iterator(nvidia, error)) {
            std::error_code none;
            for (const auto& file : std::filesystem::directory_iterator(version.path() / "lib", none))
                if (file.path().filename().string().starts_with("libnvrtc.so.")) found.push_back(file.path());
        }
        std::sort(found.rbegin(), found.rend());
    }
    for (const std::string& name : DeviceSpec().compilers)
        found.push_back(name);
    return found;
}

// ------------------------------------------------------------------ where ranks meet

// The address that this machine reaches `host` from.
Result<std::string> addressTowards(const std::string& host, uint16_t port) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_DGRAM;
    addrinfo* found = nullptr;
    if (const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found); error != 0)
        return makeError(ErrorCode::remote, fmt::format("the host of rank 0, '{}', is not known here: {}",
                                                        host, gai_strerror(error)));
    std::string address;
    for (const addrinfo* each = found; each && address.empty(); each = each->ai_next) {
        const int probe = socket(each->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        if (probe < 0) continue;
        sockaddr_storage own{};
        socklen_t length = sizeof own;
        std::array<char, NI_MAXHOST> text{};
        // Sends nothing: a route is chosen.
        if (connect(probe, each->ai_addr, each->ai_addrlen) == 0 &&
            getsockname(probe, reinterpret_cast<sockaddr*>(&own), &length) == 0 &&
            getnameinfo(reinterpret_cast<sockaddr*>(&own), length, text.data(), text.size(), nullptr, 0,
                        NI_NUMERICHOST) == 0)
            address = text.data();
        close(probe);
    }
    freeaddrinfo(found);
    if (address.empty()) return makeError(ErrorCode::remote, fmt::format("no route from here to '{}'", host));
    return address;
}

// A socket that listens at this address alone.
Result<int> listenAt(const std::string& address, uint16_t port) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_PASSIVE;
    addrinfo* found = nullptr;
    if (const int error = getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found);
        error != 0)
        return makeError(ErrorCode::remote, fmt::format("'{}' is not an address of this machine: {}", address,
                                                        gai_strerror(error)));
    int listener = -1, failed = 0;
    for (const addrinfo* each = found; each && listener < 0; each = each->ai_next) {
        listener = socket(each->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        const int yes = 1;
        if (listener >= 0 && setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0 &&
            bind(listener, each->ai_addr, each->ai_addrlen) == 0 && listen(listener, 1024) == 0)
            break;
        failed = errno;
        if (listener >= 0) close(listener);
        listener = -1;
    }
    freeaddrinfo(found);
    if (listener < 0)
        return systemError(failed, fmt::format("listen at {} port {} as rank 0", address, port), "")
            .withHint("another job may have the port: give this one its own by MASTER_PORT or --master");
    return listener;
}

// ------------------------------------------------------------------ heartbeats

// Tells the others that this rank lives, and notices who does not. Rank 0 looks at all and says in the store
// whom it misses; the others look there, and at rank 0.
class Heartbeat {
  public:
    Heartbeat(StorePtr store, int rank, int size, std::chrono::milliseconds beat)
        : store_(std::move(store)), rank_(rank), size_(size), beat_(beat) {
        heard_.assign(static_cast<size_t>(size), Clock::now());
        counts_.assign(static_cast<size_t>(size), 0);
        beats_ = std::thread([this] { run(); });
        watch_ = std::thread([this] { watchZero(); });
    }
    ~Heartbeat() {
        stop();
        try {
            store_->add(key(rank_), kGone);
        } catch (const std::exception&) {
            // Nobody is left to be told.
        }
    }
    void stop() {
        {
            MutexLock lock(mutex_);
            stopping_ = true;
            changed_.notify_all();
        }
        if (beats_.joinable()) beats_.join();
        if (watch_.joinable()) watch_.join();
    }
    int lost() const { return lost_; }  // -1 = nobody
    // After something broke. A loss is noticed three beats after the last one heard, which may be as late as
    // the next look.
    int waitForLost() {
        hurry();
        {
            MutexLock lock(mutex_);
            changed_.wait_for(lock, 4 * beat_ + beat_ / 2,
                              [&]() SHARDSCOPE_REQUIRES(mutex_) { return lost_ >= 0 || stopping_; });
        }
        if (rank_ == 0 && lost_ > 0) waitUntilHeard();
        return lost_;
    }
    // On rank 0: one that has gone in order, though the work is not done; -1 = none.
    int gone() {
        MutexLock lock(mutex_);
        const auto found =
            std::find_if(counts_.begin() + 1, counts_.end(), [](int64_t n) { return n >= kGone; });
        return found == counts_.end() ? -1 : static_cast<int>(found - counts_.begin());
    }
    // On rank 0: until all others have gone in order, or some time has passed.
    void waitForAll(std::chrono::milliseconds most) {
        const auto end = Clock::now() + most;
        MutexLock lock(mutex_);
        while (Clock::now() < end && lost_ < 0 &&
               std::any_of(counts_.begin() + 1, counts_.end(), [](int64_t n) { return n < kGone; }))
            changed_.wait_for(lock, std::chrono::milliseconds(20));
        quick_ = false;
    }
    void hurry() {
        MutexLock lock(mutex_);
        quick_ = true;
        changed_.notify_all();
    }

  private:
    static std::string key(int rank) { return fmt::format("beat/{}", rank); }

    // Until those that are left know who is lost, or have had the time for it.
    void waitUntilHeard() {
        try {
            stayUntilHeard(*store_, "lost heard", size_ - 2, beat_ + beat_ / 2);
        } catch (const std::exception&) {
            // There is no store to stay for.
        }
    }

    void run() {
        MutexLock lock(mutex_);
        while (!stopping_) {
            lock.unlock();
            try {
                store_->add(key(rank_), 1);
                if (rank_ == 0)
                    lookAtAll();
                else
                    lookAtZero();
                lock.lock();
            } catch (const std::exception&) {
                lock.lock();  // rank 0 does not answer; how long that may last watchZero() decides
            }
            // A large group asks less often, for one store answers all.
            const bool quick = quick_;
            changed_.wait_for(lock, quick ? std::chrono::milliseconds(20 + size_) : beat_,
                              [&]() SHARDSCOPE_REQUIRES(mutex_) { return stopping_ || quick_ != quick; });
        }
    }

    // The store answers for rank 0 where it is in the same process; torchrun's does not.
    void lookAtZero() {
        const int64_t who = store_->add("lost", 0), count = store_->add(key(0), 0);
        if (who > 0 && lost_ < 0) {
            store_->add("lost heard", 1);
            lose(static_cast<int>(who));
        }
        MutexLock lock(mutex_);
        if (count != counts_[0]) heard_[0] = Clock::now();
        counts_[0] = count;
    }

    void lookAtAll() {
        for (int r = 1; r < size_; ++r) {
            const int64_t count = store_->add(key(r), 0);
            const auto index = static_cast<size_t>(r);
            MutexLock lock(mutex_);
            if (count != counts_[index]) {
                counts_[index] = count;
                heard_[index] = Clock::now();
            } else if (count < kGone && Clock::now() - heard_[index] > 3 * beat_ && lost_ < 0) {
                lock.unlock();
                store_->add("lost", r);
                lose(r);
                return;
            }
        }
    }

    // A stopped rank 0 leaves run() waiting for an answer, so another thread looks at the clock.
    void watchZero() {
        MutexLock lock(mutex_);
        while (!stopping_) {
            changed_.wait_for(lock, beat_ / 4, [&]() SHARDSCOPE_REQUIRES(mutex_) { return stopping_; });
            if (rank_ != 0 && lost_ < 0 && Clock::now() - heard_[0] > 3 * beat_) {
                lost_ = 0;
                changed_.notify_all();
            }
        }
    }

    void lose(int rank) {
        MutexLock lock(mutex_);
        if (lost_ < 0) lost_ = rank;
        changed_.notify_all();
    }

    const StorePtr store_;
    const int rank_, size_;
    const std::chrono::milliseconds beat_;
    Mutex mutex_;
    Condition changed_;
    bool stopping_ SHARDSCOPE_GUARDED_BY(mutex_) = false, quick_ SHARDSCOPE_GUARDED_BY(mutex_) = false;
    std::atomic<int> lost_{-1};
    std::vector<Clock::time_point> heard_ SHARDSCOPE_GUARDED_BY(mutex_);
    std::vector<int64_t> counts_ SHARDSCOPE_GUARDED_BY(mutex_);
    std::thread beats_, watch_;
};

// ------------------------------------------------------------------ the group

class C10dGroup final : public ProcessGroup {
  public:
    explicit C10dGroup(const GroupOptions& options) : options_(options) {}

    ~C10dGroup() override {
        if (broken_) {
            // What waits for a rank that does not answer cannot be taken down. The program is about to end.
            (void)pulse_.release();
            for (auto& lane : lanes_)
                (void)lane.release();
            (void)tiles_.release();
            return;
        }
        if (!pulse_) return;
        if (rank() == 0) {
            // The others end a moment after the last step; their store must outlive that.
            pulse_->hurry();
            pulse_->waitForAll(3 * options_.beat);
        }
        pulse_->stop();
        lanes_.clear();
        pulse_.reset();
    }

    Status open(const std::function<Status(uint16_t)>& ready) {
        try {
            Status status = join(ready);
            broken_ = !status.ok();
            return status;
        } catch (const std::exception& error) {
            broken_ = true;
            return makeError(ErrorCode::remote,
                             fmt::format("the {} ranks of the group did not come together: {}", size(),
                                         whoIsMissing().value_or(firstLine(error.what()))))
                .withHint(kAllMustRun);
        }
    }

    int rank() const override { return options_.place.rank; }
    int size() const override { return options_.place.size; }
    size_t lanes() const override { return lanes_.size(); }
    bool broken() const override { return broken_; }
    TileCompute* compute() override { return tiles_.get(); }
    uint64_t bytesSent() const override { return sent_; }
    std::string name(int r) const override {
        const std::string& host = hosts_[static_cast<size_t>(r)];
        return host.empty() ? fmt::format("rank {}", r) : fmt::format("rank {} on {}", r, host);
    }

    Status broadcast(size_t lane, std::span<std::byte> bytes, int root) override {
        if (root == rank()) sent_ += bytes.size() * static_cast<uint64_t>(size() - 1);
        return step(lane, [&](LaneTransport& transport) { return transport.broadcast(bytes, root); });
    }

    Status allToAll(size_t lane, std::span<const std::byte> send, const std::vector<uint64_t>& sendBytes,
                    std::span<std::byte> receive, const std::vector<uint64_t>& receiveBytes) override {
        for (int r = 0; r < size(); ++r)
            sent_ += r == rank() ? 0 : sendBytes[static_cast<size_t>(r)];
        const std::vector<int64_t> out(sendBytes.begin(), sendBytes.end()),
            in(receiveBytes.begin(), receiveBytes.end());
        return step(lane,
                    [&](LaneTransport& transport) { return transport.allToAll(send, out, receive, in); });
    }

  private:
    Status join(const std::function<Status(uint16_t)>& ready) {
        const auto end = Clock::now() + options_.patience;
        const RankInfo& place = options_.place;
        const std::string host = place.host.empty() ? "127.0.0.1" : place.host;
        std::string address = options_.address;
        if (address.empty()) {
            SHARDSCOPE_ASSIGN(address, addressTowards(host, place.port));
        }
        c10d::TCPStoreOptions storeOptions;
        storeOptions.port = place.port;
        storeOptions.isServer = place.rank == 0 && !place.storeThere;
        storeOptions.waitWorkers = false;
        storeOptions.timeout = options_.patience;
        if (storeOptions.isServer) {
            SHARDSCOPE_ASSIGN(const int listener, listenAt(host, place.port));
            storeOptions.masterListenFd = listener;
            sockaddr_storage own{};
            socklen_t length = sizeof own;
            getsockname(listener, reinterpret_cast<sockaddr*>(&own), &length);
            storeOptions.port =
                ntohs(own.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&own)->sin6_port
                                                : reinterpret_cast<sockaddr_in*>(&own)->sin_port);
        }
        const auto server = c10::make_intrusive<c10d::TCPStore>(host, storeOptions);
        // Whoever does not know the group's name finds nothing under its keys.
        const std::string prefix = fmt::format("shardscope/{}", place.group);
        store_ = c10::make_intrusive<c10d::PrefixStore>(prefix, server);
        if (place.rank == 0 && ready) SHARDSCOPE_TRY(ready(storeOptions.port));

        std::array<char, 256> hostName{};
        gethostname(hostName.data(), hostName.size() - 1);
        store_->set(wordsKey(place.rank), options_.words + "\n");
        store_->set(hostKey(place.rank), std::string(hostName.data()));
        std::vector<std::string> all;
        for (int r = 0; r < place.size; ++r)
            all.push_back(hostKey(r));
        // Before the guard of makeGroup() ends this, which cannot say who is missing.
        store_->wait(all, std::max(std::chrono::milliseconds(100),
                                   std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now())));
        for (const std::string& key : all)
            hosts_.push_back(store_->get_to_str(key));
        SHARDSCOPE_TRY(compareWords());
        pulse_ = std::make_unique<Heartbeat>(store_->clone(), place.rank, place.size, options_.beat);
        const bool nccl = options_.backend == GroupBackend::nccl;
        if (nccl) SHARDSCOPE_TRY(findNccl());
        if (options_.compute == GroupCompute::gpu || (nccl && options_.compute == GroupCompute::automatic))
            openTiles();
        if (nccl || options_.compute == GroupCompute::gpu) SHARDSCOPE_TRY(compareGpus());
        if (nccl) {
            // One lane: communicators that share a GPU must not wait for each other.
            lanes_.emplace_back(makeNcclLane_(c10::make_intrusive<c10d::PrefixStore>("nccl", store_->clone()),
                                              place.rank, place.size, ncclDevice_));
            return {};
        }
        for (size_t lane = 0; lane < options_.lanes; ++lane) {
            lanes_.push_back(std::make_unique<GlooLane>(
                c10::make_intrusive<c10d::PrefixStore>(fmt::format("lane/{}", lane), store_->clone()),
                place.rank, place.size, address, options_.patience));
        }
        return {};
    }

    std::string goneClause(int who) const { return fmt::format("{} is gone or does not answer", name(who)); }
    static std::string hostKey(int rank) { return fmt::format("host/{}", rank); }
    static std::string wordsKey(int rank) { return fmt::format("words/{}", rank); }

    // Ranks that do not do the same wait for each other for ever.
    Status compareWords() {
        const std::string first = store_->get_to_str(wordsKey(0));
        const auto shown = [](const std::string& words) -> std::string {
            const std::string_view text = std::string_view(words).substr(0, words.size() - 1);
            return text.empty() ? "none of these options" : fmt::format("'{}'", text);
        };
        for (int r = 1; r < size(); ++r) {
            const std::string words = store_->get_to_str(wordsKey(r));
            if (words == first) continue;
            waitUntilHeard("words heard");
            return makeError(ErrorCode::usage, fmt::format("{} was started with {}, {} with {}", name(0),
                                                           shown(first), name(r), shown(words)))
                .withHint("start all ranks with the same options");
        }
        return {};
    }

    // This rank knows what is wrong; rank 0 waits for all to.
    void waitUntilHeard(const char* key) {
        store_->add(key, 1);
        if (rank() == 0) stayUntilHeard(*store_, key, size(), 3 * options_.beat);
    }

    // A clause; nothing where nobody can tell.
    std::optional<std::string> whoIsMissing() {
        if (pulse_) {  // all have met
            const int who = pulse_->waitForLost();
            return who < 0 ? std::nullopt : std::optional(goneClause(who));
        }
        constexpr size_t kMost = 8;
        std::vector<int> missing;
        try {
            for (int r = 0; store_ && r < size(); ++r)
                if (!store_->check({hostKey(r)})) missing.push_back(r);
        } catch (const std::exception&) {
            return rank() == 0 ? std::nullopt : std::optional<std::string>("rank 0 has ended, and its store");
        }
        if (missing.empty()) return std::nullopt;
        const size_t shown = std::min(missing.size(), kMost), more = missing.size() - shown;
        return fmt::format("no sign of rank{} {}{}", missing.size() == 1 ? "" : "s",
                           fmt::join(missing.begin(), missing.begin() + static_cast<ptrdiff_t>(shown), ", "),
                           more == 0 ? "" : fmt::format(" and {} more", more));
    }

    Status findNccl() {
        void* module = dlopen(NcclModule::kFile, RTLD_NOW | RTLD_LOCAL);
        if (!module)
            return makeError(ErrorCode::impossible,
                             fmt::format("NCCL cannot be used here: {}", firstLine(dlerror())))
                .withHint("install the CUDA build of libtorch with its NCCL, or use --backend gloo");
        const auto devices = reinterpret_cast<NcclModule::Devices*>(dlsym(module, "shardscope_devices"));
        const auto identity = reinterpret_cast<NcclModule::Identity*>(dlsym(module, "shardscope_identity"));
        makeNcclLane_ = reinterpret_cast<NcclModule::Make*>(dlsym(module, "shardscope_make_lane"));
        if (!devices || !identity || !makeNcclLane_)
            return makeError(ErrorCode::impossible, "the NCCL module is not of this program");
        const int count = devices();
        if (count <= 0) {
            noGpu_ = makeError(ErrorCode::impossible, "this rank has no GPU that can be used")
                         .withHint("use --backend gloo, or start ranks only where GPUs are");
            return {};
        }
        ncclDevice_ = options_.place.localRank % count;
        std::array<char, 128> uuid{};
        identity(ncclDevice_, uuid.data(), uuid.size());
        gpu_ = uuid.data();
        return {};
    }

    // The GPU that casts, scans and hashes. That there is none, the others hear first.
    void openTiles() {
        if (noGpu_) return;
        DeviceSpec place;
        place.device = options_.place.localRank;
        place.compilers = gpuCompilers();
        auto tiles = GpuTiles::open(place);
        if (tiles.ok()) {
            tiles_ = std::move(tiles).value();
            gpu_ = tiles_->uuid();
        } else {
            noGpu_ = std::move(tiles).error();
        }
    }

    // Everyone hears of everyone's GPU, so that all end with the same sentence.
    Status compareGpus() {
        const RankInfo& place = options_.place;
        store_->set(fmt::format("gpu/{}", place.rank),
                    noGpu_ ? fmt::format("!{}\n{}", noGpu_->message, noGpu_->hint) : gpu_);
        std::vector<std::string> gpus;
        for (int r = 0; r < place.size; ++r)
            gpus.push_back(store_->get_to_str(fmt::format("gpu/{}", r)));
        Status status = judgeGpus(gpus);
        if (status.ok()) return {};
        waitUntilHeard("gpus heard");
        return status;
    }

    Status judgeGpus(const std::vector<std::string>& gpus) const {
        std::map<std::string, int> owners;
        for (int r = 0; r < size(); ++r) {
            const std::string& gpu = gpus[static_cast<size_t>(r)];
            if (gpu.starts_with('!')) {
                const size_t end = std::min(gpu.find('\n'), gpu.size() - 1);
                return makeError(ErrorCode::impossible,
                                 fmt::format("{}: {}", name(r), gpu.substr(1, end - 1)))
                    .withHint(gpu.substr(end + 1));
            }
            const auto [it, first] = owners.emplace(gpu, r);
            if (!first)
                return makeError(ErrorCode::usage, fmt::format("{} and {} have the same GPU ({})",
                                                               name(it->second), name(r), gpu))
                    .withHint("start one rank for each GPU");
        }
        return {};
    }

    template <class Start>
    Status step(size_t lane, Start&& start) {
        if (broken_) return lostError("");
        try {
            LaneTransport& transport = *lanes_[lane];
            const auto work = start(transport);
            auto pause = std::chrono::microseconds(20);
            while (!work->isCompleted()) {
                if (pulse_->lost() >= 0 || broken_) {
                    broken_ = true;
                    std::lock_guard lock(unfinishedMutex_);
                    unfinished_.push_back(work);
                    return lostError("");
                }
                std::this_thread::sleep_for(pause);
                pause = std::min(pause * 2, std::chrono::microseconds(1000));
            }
            work->wait();
            transport.finish();
            return {};
        } catch (const std::exception& error) {
            broken_ = true;
            return lostError(firstLine(error.what()));
        }
    }

    Error lostError(const std::string& said) {
        // A connection that breaks does not say whose it was; the heartbeats will.
        if (const int who = pulse_->waitForLost(); who >= 0)
            return makeError(ErrorCode::remote, goneClause(who));
        if (const int left = pulse_->gone(); left >= 0)
            return makeError(ErrorCode::remote,
                             fmt::format("{} has ended before the work was done", name(left)))
                .withHint("it says why on its own standard error");
        return makeError(ErrorCode::remote, said.empty() ? "the group of ranks has broken up"
                                                         : "the group of ranks has broken up: " + said);
    }

    const GroupOptions options_;
    StorePtr store_;
    std::vector<std::string> hosts_;
    std::unique_ptr<Heartbeat> pulse_;
    NcclModule::Make* makeNcclLane_ = nullptr;
    int ncclDevice_ = -1;
    std::string gpu_;             // UUID of this rank's
    std::optional<Error> noGpu_;  // why it has none
    std::unique_ptr<GpuTiles> tiles_;
    std::vector<std::unique_ptr<LaneTransport>> lanes_;
    std::atomic<bool> broken_{false};
    std::atomic<uint64_t> sent_{0};
    std::mutex unfinishedMutex_;
    std::vector<LaneTransport::WorkPtr> unfinished_;  // whose memory may still be written to
};

}  // namespace

std::string_view groupBackendName(GroupBackend backend) {
    return backend == GroupBackend::gloo ? "gloo" : "nccl";
}

Result<std::unique_ptr<ProcessGroup>> makeGroup(const GroupOptions& options,
                                                const std::function<Status(uint16_t port)>& ready) {
    quietTorch();
    auto group = std::make_unique<C10dGroup>(options);
    std::mutex mutex;
    std::condition_variable changed;
    bool open = false;
    std::thread guard([&] {
        const auto end = Clock::now() + options.patience + std::chrono::seconds(1);
        std::unique_lock lock(mutex);
        while (!changed.wait_for(lock, std::chrono::milliseconds(50), [&] { return open; })) {
            std::optional<Error> why = options.startupError ? options.startupError() : std::nullopt;
            if (!why && Clock::now() >= end)
                why =
                    makeError(ErrorCode::remote,
                              fmt::format("the {} ranks of the group did not come together within {} seconds",
                                          options.place.size, options.patience.count()))
                        .withHint(kAllMustRun);
            if (!why) continue;
            if (options.stuck) options.stuck(*why);
            return;
        }
    });
    Status status = group->open(ready);
    {
        std::lock_guard lock(mutex);
        open = true;
        changed.notify_all();
    }
    guard.join();
    SHARDSCOPE_TRY(std::move(status));
    return std::unique_ptr<ProcessGroup>(std::move(group));
}

std::string torchVersion() {
    return fmt::format("{}.{}.{}", TORCH_VERSION_MAJOR, TORCH_VERSION_MINOR, TORCH_VERSION_PATCH);
}

}  // namespace shardscope
