// Workers that are threads of this program and come to it as ranks do, over sockets, each with a file system
// of its own; and process groups between threads.
#pragma once

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "cluster/messages.h"
#include "cluster/rendezvous.h"
#include "engine/run_conversion.h"

namespace shardscope::test {

// Paths below `root` belong to one file system, all others to another.
class RoutedFileSystem final : public FileSystem {
  public:
    RoutedFileSystem(std::string root, std::shared_ptr<FileSystem> below, std::shared_ptr<FileSystem> others)
        : root_(std::move(root)), below_(std::move(below)), others_(std::move(others)) {}

    Result<std::shared_ptr<Directory>> openDirectory(const std::string& path) override {
        return of(path).openDirectory(path);
    }
    Status makeDirectory(const std::string& path) override { return of(path).makeDirectory(path); }
    Result<DirectoryEntry> stat(const std::string& path) override { return of(path).stat(path); }
    Status rename(const std::string& from, const std::string& to) override {
        return of(from).rename(from, to);
    }
    Status exchange(const std::string& a, const std::string& b) override { return of(a).exchange(a, b); }
    Status removeTree(const std::string& path) override { return of(path).removeTree(path); }
    Status syncDirectory(const std::string& path) override { return of(path).syncDirectory(path); }
    Result<uint64_t> freeBytes(const std::string& path) override { return of(path).freeBytes(path); }
    Result<std::shared_ptr<WriteFile>> createScratch(const std::string& directory) override {
        return others_->createScratch(directory);
    }
    Result<std::shared_ptr<const ReadFile>> reopen(const std::shared_ptr<WriteFile>& file) override {
        return others_->reopen(file);
    }

  private:
    FileSystem& of(const std::string& path) { return path.starts_with(root_) ? *below_ : *others_; }

    const std::string root_;
    const std::shared_ptr<FileSystem> below_, others_;
};

// Groups whose ranks are threads. Makes one group after the other.
class ThreadGroups {
  public:
    MakeGroup make() {
        return [this](const GroupSpec& spec,
                      const GroupForming& forming) -> Result<std::unique_ptr<ProcessGroup>> {
            std::shared_ptr<Shared> shared;
            {
                std::lock_guard lock(mutex_);
                if (spec.rank == 0) {
                    shared_ = std::make_shared<Shared>();
                    shared_->size = static_cast<size_t>(spec.size);
                    shared_->sends.resize(shared_->size);
                    shared_->sizes.resize(shared_->size);
                }
                shared = shared_;
            }
            if (forming.listening) forming.listening(1);
            if (onForm) onForm(spec.rank);
            while (neverComes && !(forming.givenUp && forming.givenUp()))
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
            if (neverComes) return makeError(ErrorCode::remote, "a rank of the process group is gone");
            return std::unique_ptr<ProcessGroup>(std::make_unique<Rank>(*this, shared, spec.rank));
        };
    }
    std::function<void(int rank)> onForm;  // before a rank waits for the others
    std::function<void(int rank)> onStep;  // before each call
    bool neverComes = false;               // one of them: the others wait until they are to wait no longer
    std::atomic<uint64_t> steps{0};

  private:
    struct Shared {
        std::mutex mutex;
        std::condition_variable changed;
        size_t size = 0, here = 0, round = 0;
        bool broken = false;
        std::vector<std::vector<std::byte>> sends;  // copies: a rank that leaves takes its memory with it
        std::vector<std::vector<uint64_t>> sizes;
    };
    class Rank final : public ProcessGroup {
      public:
        Rank(ThreadGroups& all, std::shared_ptr<Shared> shared, int rank)
            : all_(all), shared_(std::move(shared)), rank_(rank) {}
        ~Rank() override { abort(); }
        int rank() const override { return rank_; }
        int size() const override { return static_cast<int>(shared_->size); }
        Status broadcast(Bytes& bytes) override {
            if (rank_ == 0) sent_ += bytes.size() * (shared_->size - 1);
            return step(rank_ == 0 ? std::span<const std::byte>(bytes) : std::span<const std::byte>(), {},
                        [&] {
                            if (rank_ != 0) std::ranges::copy(shared_->sends[0], bytes.begin());
                        });
        }
        Status allToAll(Bytes& send, const std::vector<uint64_t>& sendBytes, Bytes& receive,
                        const std::vector<uint64_t>&) override {
            for (size_t r = 0; r < sendBytes.size(); ++r)
                sent_ += r == static_cast<size_t>(rank_) ? 0 : sendBytes[r];
            return step(send, sendBytes, [&] {
                for (size_t from = 0, at = 0; from < shared_->size; ++from) {
                    const auto& sizes = shared_->sizes[from];
                    size_t begin = 0;
                    for (int to = 0; to < rank_; ++to)
                        begin += sizes[static_cast<size_t>(to)];
                    const auto part =
                        std::span(shared_->sends[from]).subspan(begin, sizes[static_cast<size_t>(rank_)]);
                    std::ranges::copy(part, receive.begin() + static_cast<ptrdiff_t>(at));
                    at += part.size();
                }
            });
        }
        uint64_t bytesSent() const override { return sent_; }
        void abort() override {
            std::lock_guard lock(shared_->mutex);
            shared_->broken = true;
            shared_->changed.notify_all();
        }

      private:
        bool meet(std::unique_lock<std::mutex>& lock) {
            const size_t round = shared_->round;
            if (++shared_->here == shared_->size) {
                shared_->here = 0;
                ++shared_->round;
                shared_->changed.notify_all();
            }
            shared_->changed.wait(lock, [&] { return shared_->round != round || shared_->broken; });
            return shared_->round != round;
        }
        Status step(std::span<const std::byte> send, const std::vector<uint64_t>& sizes,
                    const std::function<void()>& take) {
            ++all_.steps;
            if (all_.onStep) all_.onStep(rank_);
            std::unique_lock lock(shared_->mutex);
            if (shared_->broken) return gone();
            shared_->sends[static_cast<size_t>(rank_)].assign(send.begin(), send.end());
            shared_->sizes[static_cast<size_t>(rank_)] = sizes;
            if (!meet(lock)) return gone();
            take();
            return meet(lock) ? Status() : gone();
        }
        static Error gone() { return makeError(ErrorCode::remote, "a rank of the process group is gone"); }

        ThreadGroups& all_;
        const std::shared_ptr<Shared> shared_;
        const int rank_;
        std::atomic<uint64_t> sent_{0};
    };

    std::mutex mutex_;
    std::shared_ptr<Shared> shared_;
};

struct ThreadWorkersOptions {
    SourceMode mode = SourceMode::automatic;
    bool ownDisks = false;
    StopToken stop{};
    ThreadGroups* groups = nullptr;
    TileCompute* compute = nullptr;
    std::function<void(int worker, Channel& channel)> onStart{};  // before a worker does anything
};

// One worker for each file system; the coordinator has that of the first.
inline Result<ConvertReport> convertByThreads(const std::vector<std::shared_ptr<FileSystem>>& files,
                                              const ConversionRequest& request,
                                              const ThreadWorkersOptions& options,
                                              std::optional<GroupReport>* group = nullptr) {
    const std::string version = "test";
    const auto size = static_cast<int>(files.size());
    RankInfo info;
    info.size = size + 1;
    info.host = "127.0.0.1";
    info.group = "test";
    SHARDSCOPE_ASSIGN(auto listener, RankListener::open(info, info.host, 0, ""));
    info.port = listener->port();

    const auto work = [&](int index) -> Status {
        RankInfo own = info;
        own.rank = index + 1;
        SHARDSCOPE_ASSIGN(auto channel, joinRankZero(own, own.host, own.port, "", "",
                                                     Channel::Clock::now() + std::chrono::seconds(60), {}));
        if (options.onStart) options.onStart(index, *channel);
        SHARDSCOPE_ASSIGN(const Frame first, introduceAgent(*channel, version));
        WorkerSession session(std::move(channel), version, files[static_cast<size_t>(index)]);
        SHARDSCOPE_TRY(session.begin(first));
        SHARDSCOPE_ASSIGN(ConversionRequest asked, unpackRequest(session.request()));
        asked.threads = 2;
        WorkerAbilities abilities;
        abilities.compute = options.compute;
        if (options.groups) abilities.group = options.groups->make();
        auto done = runConversion(asked, Worker{&session, abilities}, nullptr, session.stop());
        if (!done.ok()) {
            session.refuse(done.error());
            return std::move(done).error();
        }
        return {};
    };
    std::vector<std::thread> threads;
    for (int i = 0; i < size; ++i)
        threads.emplace_back([&, i] { (void)work(i); });

    auto report = [&]() -> Result<ConvertReport> {
        Coordinator coordinator;
        coordinator.mode = options.mode;
        coordinator.ownDisks = options.ownDisks;
        coordinator.options.version = version;
        coordinator.options.ranks = std::move(listener);
        coordinator.options.peers = true;
        coordinator.options.files = files.front();
        if (options.groups) {
            coordinator.options.group = options.groups->make();
            coordinator.options.backend = "threads";
        }
        if (options.compute)
            coordinator.openCompute = [&]() -> Result<std::shared_ptr<TileCompute>> {
                return std::shared_ptr<TileCompute>(options.compute, [](TileCompute*) {});
            };
        for (int i = 0; i < size; ++i) {
            coordinator.options.workers.emplace_back();
            coordinator.options.workers.back().rank = i + 1;
        }
        SHARDSCOPE_ASSIGN(const auto conversion, Conversion::prepare(request, coordinator, options.stop));
        Progress progress;
        auto done = conversion->run(&progress);
        if (group) *group = conversion->group();
        return done;
    }();
    for (std::thread& thread : threads)
        thread.join();
    return report;
}

}  // namespace shardscope::test
