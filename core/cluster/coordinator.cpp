#include "cluster/coordinator.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <filesystem>
#include <map>
#include <set>
#include <thread>

#include <fmt/format.h>

#include "base/token.h"
#include "cluster/broadcast.h"
#include "cluster/messages.h"
#include "cluster/part_queue.h"
#include "cluster/peer_disks.h"
#include "cluster/peer_files.h"
#include "cluster/slurm.h"
#include "cluster/worker_link.h"

namespace shardscope {
namespace {

using Json = nlohmann::json;
using Clock = Channel::Clock;
using OnDone = std::function<Status(size_t order, const PartDone& result)>;

constexpr size_t kAtOnce = 2;  // parts under way at one worker, so that it never waits for the next
// A stop comes by a signal, which wakes nobody: the thread that waits for the work looks for it.
constexpr std::chrono::milliseconds kStopInterval{50};
constexpr std::chrono::seconds kLongLook{1};  // of other threads, which are interrupted

}  // namespace

// A thread for each worker, and what they share: the parts of the run() that is under way, if there is one.
class CoordinatorRun {
  public:
    CoordinatorRun(WorkerScheduler& scheduler, StopToken stop)
        : scheduler_(scheduler), options_(scheduler.options_), stop_(std::move(stop)) {
        const std::vector<WorkerState> states = scheduler_.workers();
        connecting_ = joining_ = states.size();
        for (size_t i = 0; i < states.size(); ++i) {
            alive_.insert(i);
            workers_.push_back(std::make_unique<Worker>(options_, i, states[i].name, [this] {
                MutexLock lock(mutex_);
                return stopping();
            }));
        }
        for (const auto& worker : workers_)
            threads_.emplace_back([this, &worker = *worker] { work(worker); });
    }

    ~CoordinatorRun() { end(); }

    void end() {
        {
            MutexLock lock(mutex_);
            closing_ = true;
        }
        wakeAll();
        for (std::thread& thread : threads_)
            thread.join();
        threads_.clear();
    }

    const std::string& token() const { return token_; }

    // Waits until all are connected; who they are to each other.
    Result<std::vector<Peer>> peers() {
        MutexLock lock(mutex_);
        while (connecting_ > 0 && !stopping())
            changed_.wait_for(lock, kStopInterval);
        // Once it is stopped, what workers die of is not news.
        SHARDSCOPE_TRY(stop_.poll());
        if (failure_) return *failure_;
        std::vector<Peer> peers;
        for (const auto& worker : workers_)
            peers.push_back(worker->peer);
        return peers;
    }

    Status run(const SharedJob& shared, PartWork work, const std::vector<PartOrder>& orders,
               const OnDone& done, Progress* progress) {
        {
            MutexLock lock(mutex_);
            if (!shared_) {
                shared_ = shared;
                progress_ = progress;
            }
        }
        wakeAll();
        std::vector<bool> finished(orders.size(), false);
        const bool grouped = scheduler_.reading_ && work == PartWork::convert;
        // Of the parts that a broken group leaves some may be done in part.
        std::vector<PartOrder> given = orders;
        if (grouped && broadcast(orders, done, finished))
            for (PartOrder& order : given)
                order.retry = true;
        if (giveOut(work, given, done, std::move(finished))) return {};
        end();
        MutexLock lock(mutex_);
        return endingOf();
    }

  private:
    // The state of one worker. Its thread alone uses it, but for what is guarded.
    struct Worker {
        Worker(const CoordinatorOptions& options, size_t number, std::string name,
               std::function<bool()> stopping)
            : index(number), link(options, number, std::move(name), std::move(stopping)) {}
        const size_t index;
        WorkerLink link;
        Peer peer{};            // once it is connected
        std::string machine{};  // then
        bool inGroup = false, toldToLeave = false;
        std::deque<size_t> underWay{};  // orders, one after the other
        size_t round = 0;               // whose bytes these are:
        uint64_t shown = 0;             // in the progress
        uint64_t confirmed = 0;         // of parts that are done
    };

    bool stopping() const SHARDSCOPE_REQUIRES(mutex_) {
        return failure_ || closing_ || stop_.stopRequested();
    }

    void wakeAll() {
        for (const auto& worker : workers_)
            worker->link.interrupt();
        changed_.notify_all();
    }

    // Waits until all parts are done; false where they cannot be.
    bool giveOut(PartWork work, const std::vector<PartOrder>& orders, const OnDone& done,
                 std::vector<bool> finished) {
        {
            MutexLock lock(mutex_);
            orders_ = &orders;
            done_ = &done;
            work_ = work;
            queue_ = PartQueue(orders, std::move(finished), workers_.size());
            ++round_;
        }
        wakeAll();
        MutexLock lock(mutex_);
        while (queue_.left() > 0 && !stopping() && !alive_.empty())
            changed_.wait_for(lock, kStopInterval);
        return queue_.left() == 0 && !stopping();
    }

    // Why it was not done. All workers have ended.
    Error endingOf() SHARDSCOPE_REQUIRES(mutex_) {
        const std::string endings = stop_.stopRequested() ? std::string() : allocations_.endings();
        allocations_.giveBack();
        // Once it is stopped, what workers die of is not news.
        if (failure_ && !(stop_.stopRequested() && failure_->code == ErrorCode::remote)) {
            failure_->message += endings;
            return *failure_;
        }
        if (stop_.stopRequested()) return stop_.poll().error();
        Error error = makeError(ErrorCode::remote, "all workers are gone");
        if (!lost_.empty()) error.message += "; the last was " + lost_;
        error.message += endings;
        return error;
    }

    // ------------------------------------------------------------------ one worker's thread

    void work(Worker& worker) {
        Status joined = connect(worker);
        countDown(&CoordinatorRun::connecting_);
        if (joined.ok()) joined = start(worker);
        countDown(&CoordinatorRun::joining_);
        Status status = joined.ok() ? serve(worker) : std::move(joined);
        const bool wasStopped = [&] {
            MutexLock lock(mutex_);
            // What waits for this worker waits no longer, also in a group that comes together only now.
            groupBroken_ = true;
            if (group_) group_->abort();
            return stopping();
        }();
        if (status.ok() || wasStopped)
            setPhase(worker.index, WorkerState::Phase::ended);
        else
            onLost(worker, status.error());
        worker.link.end(status.ok() && worker.underWay.empty());
        report(worker, worker.confirmed);
        {
            MutexLock lock(mutex_);
            alive_.erase(worker.index);
        }
        wakeAll();
    }

    void countDown(size_t CoordinatorRun::*count) {
        {
            MutexLock lock(mutex_);
            --(this->*count);
        }
        wakeAll();
    }

    // Starts it, and learns how others reach it.
    Status connect(Worker& worker) {
        Status status = launch(worker);
        const bool launched = status.ok();
        if (launched) status = worker.link.meet(token_);
        {
            MutexLock lock(mutex_);
            worker.peer = worker.link.peer();
            worker.machine = worker.link.machine();
        }
        {
            MutexLock states(scheduler_.mutex_);
            scheduler_.states_[worker.index].name = worker.link.name();
        }
        if (status.ok() || status.error().code == ErrorCode::cancelled) return status;
        if (!launched && options_.ranks) {
            fail(status.error());
        } else if (!launched || worker.link.refused()) {
            refuse(worker, status.error());
        } else if (options_.peers) {
            // Nobody else knows what it has of the source.
            Error error = status.error();
            error.message = worker.link.reasonOf(error);
            refuse(worker, error);
            return error;
        }
        return status;
    }

    Status launch(Worker& worker) {
        const WorkerSpec& spec = options_.workers[worker.index];
        const SlurmAllocation* allocation = nullptr;
        if (spec.slurm) {
            const auto stopping = [this] {
                MutexLock lock(mutex_);
                return this->stopping();
            };
            SHARDSCOPE_ASSIGN(allocation,
                              allocations_.of(spec.slurm, stopping,
                                              [&](const std::string& job, const std::string& message) {
                                                  setSlurmJob(spec.slurm, job, message);
                                              }));
            setSlurmJob(spec.slurm, allocation->job(), "");
        }
        return worker.link.launch(allocation, started_ + options_.patience);
    }

    void setSlurmJob(const std::shared_ptr<const SlurmRequest>& request, const std::string& job,
                     const std::string& message) {
        MutexLock states(scheduler_.mutex_);
        for (size_t i = 0; i < scheduler_.states_.size(); ++i) {
            if (options_.workers[i].slurm != request) continue;
            scheduler_.states_[i].slurmJob = job;
            scheduler_.states_[i].why = message;
        }
    }

    // Waits until the conversion is known, and gives it to the worker.
    Status start(Worker& worker) {
        SHARDSCOPE_TRY(awaitJob(worker));
        Json fields;
        std::string body;
        {
            MutexLock lock(mutex_);
            if (stopping()) return {};
            fields["job"] = sharedJobJson(*shared_);
            // The cores of a machine are shared by its workers.
            fields["neighbors"] = std::ranges::count_if(
                workers_, [&](const auto& other) { return other->machine == worker.machine; });
        }
        if (scheduler_.peers_) {
            fields["peers"] = scheduler_.peers_->json();
            if (scheduler_.disks_) fields["disks"] = scheduler_.disks_->diskByPeer();
            if (scheduler_.table_) body = scheduler_.table_->packed();
        }
        auto gpu = worker.link.start(std::move(fields), std::move(body));
        if (!gpu.ok()) {
            if (worker.link.refused()) refuse(worker, gpu.error());
            return std::move(gpu).error();
        }
        checkGpu(worker, *gpu);
        setPhase(worker.index, WorkerState::Phase::idle);
        return {};
    }

    Status awaitJob(Worker& worker) {
        MutexLock lock(mutex_);
        while (!shared_ && !stopping()) {
            if (!options_.peers) {
                changed_.wait(lock);
                continue;
            }
            // A worker that serves files sends heartbeats from now on.
            lock.unlock();
            SHARDSCOPE_TRY(worker.link.next(Clock::now() + kLongLook));
            lock.lock();
        }
        return {};
    }

    void checkGpu(Worker& worker, const std::string& gpu) {
        std::string other;
        {
            MutexLock lock(mutex_);
            if (gpu.empty() || gpus_.emplace(gpu, worker.link.name()).second) return;
            other = gpus_[gpu];
        }
        fail(makeError(ErrorCode::usage,
                       fmt::format("{} and {} have the same GPU ({})", other, worker.link.name(), gpu))
                 .withHint("start one rank for each GPU"));
    }

    void fail(Error error) {
        {
            MutexLock lock(mutex_);
            if (!failure_) failure_ = std::move(error);
        }
        wakeAll();
    }

    // A worker that cannot take part ends the job before the work begins, so that the user knows.
    void refuse(Worker& worker, const Error& error) {
        Error told = error;
        told.message = fmt::format("{} cannot take part: {}", worker.link.name(), error.message);
        fail(std::move(told));
    }

    void onLost(Worker& worker, const Error& error) {
        const std::string why = worker.link.reasonOf(error);
        setPhase(worker.index, WorkerState::Phase::lost, why);
        if (worker.inGroup) leaveGroup(worker);
        MutexLock lock(mutex_);
        lost_ = fmt::format("{}: {}", worker.link.name(), why);
        for (auto order = worker.underWay.rbegin(); order != worker.underWay.rend(); ++order)
            requeue(worker, *order, error, why);
    }

    void requeue(const Worker& worker, size_t order, const Error& error, const std::string& why)
        SHARDSCOPE_REQUIRES(mutex_) {
        if (queue_.requeue(order, worker.index, alive_) || failure_) return;
        failure_ = error;
        failure_->message = fmt::format("a part of the work failed {} times, at last on {}: {}",
                                        queue_.attempts(order), worker.link.name(), why);
    }

    // ------------------------------------------------------------------ the work

    Status serve(Worker& worker) {
        for (;;) {
            SHARDSCOPE_ASSIGN(const bool goesOn, giveNext(worker));
            if (!goesOn) return {};
            SHARDSCOPE_TRY(followGroup(worker));
            if (worker.underWay.empty() && !worker.inGroup) setPhase(worker.index, WorkerState::Phase::idle);
            SHARDSCOPE_ASSIGN(const Json reply, worker.link.next(Clock::now() + kLongLook));
            if (reply.is_null()) continue;
            const std::string& what = reply["say"].get_ref<const std::string&>();
            if (what == "beat") {
                beat(worker, reply);
            } else if (what == "done") {
                SHARDSCOPE_TRY(onDone(worker, reply));
            } else if (what == "failed") {
                SHARDSCOPE_TRY(onFailed(worker, reply));
            } else if (what == "grouped" && worker.inGroup) {
                leaveGroup(worker);
            } else {
                return damaged("an answer that does not belong here");
            }
        }
    }

    // Sends parts until the worker has kAtOnce of them. False once the run is stopping.
    Result<bool> giveNext(Worker& worker) {
        for (;;) {
            PartTask task;
            bool suspect = false;
            {
                MutexLock lock(mutex_);
                if (stopping()) return false;
                if (worker.round != round_) {
                    worker.round = round_;
                    worker.shown = worker.confirmed = 0;
                }
                // Nothing is handed out before all are known to see the same source.
                if (joining_ > 0 || worker.underWay.size() >= kAtOnce) return true;
                const auto next = queue_.next(worker.index, worker.underWay.size(), alive_);
                if (!next) return true;
                suspect = queue_.isSuspect(*next);
                worker.underWay.push_back(*next);
                task = {*next, work_, queue_.order(*next)};
            }
            setPhase(worker.index, WorkerState::Phase::working);
            SHARDSCOPE_TRY(worker.link.send(partTaskJson(task)));
            if (suspect) return true;
        }
    }

    // The order that a message is about, taken off those under way.
    Result<size_t> orderOf(Worker& worker, const Json& reply) {
        const auto id = numberOf(reply, "id");
        if (!id) return damaged("an answer without a part");
        const auto at = std::ranges::find(worker.underWay, *id);
        if (at == worker.underWay.end()) return damaged("an answer about a part that it was not given");
        const size_t order = *at;
        worker.underWay.erase(at);
        return order;
    }

    Status onDone(Worker& worker, const Json& reply) {
        SHARDSCOPE_ASSIGN(const size_t order, orderOf(worker, reply));
        addBusyTime(worker, reply);
        bool last = false;
        {
            MutexLock lock(mutex_);
            if (queue_.isFinished(order)) return {};
            const PartDone result{numberOf(reply, "read").value_or(0), numberOf(reply, "moved").value_or(0)};
            if (Status status = (*done_)(order, result); !status.ok()) {
                if (!failure_) failure_ = status.error();
                return status;
            }
            if (work_ == PartWork::convert) scheduler_.bytesMoved_ += result.bytesMoved;
            worker.confirmed += (*orders_)[order].bytes;
            queue_.finish(order);
            last = queue_.left() == 0;
        }
        report(worker, std::max(worker.shown, worker.confirmed));
        {
            MutexLock states(scheduler_.mutex_);
            ++scheduler_.states_[worker.index].units;
        }
        if (last) changed_.notify_all();
        return {};
    }

    Status onFailed(Worker& worker, const Json& reply) {
        const Error error = errorFrom(reply.value("error", Json()));
        if (!reply.contains("id")) return error;
        SHARDSCOPE_ASSIGN(const size_t order, orderOf(worker, reply));
        {
            MutexLock lock(mutex_);
            requeue(worker, order, error, error.message);
        }
        wakeAll();
        return {};
    }

    void beat(Worker& worker, const Json& reply) {
        const auto bytes = numberOf(reply, "bytes");
        if (!bytes) return;
        uint64_t most = worker.confirmed;
        {
            MutexLock lock(mutex_);
            for (const size_t order : worker.underWay)
                most += (*orders_)[order].bytes;
        }
        report(worker, std::clamp<uint64_t>(*bytes, worker.confirmed, most));
        addBusyTime(worker, reply);
    }

    void report(Worker& worker, uint64_t bytes) {
        // May go back: what a lost worker wrote since its journal was last brought to disk is undone.
        if (Progress* progress = progress_) progress->add(bytes - worker.shown);
        worker.shown = bytes;
        MutexLock lock(scheduler_.mutex_);
        scheduler_.states_[worker.index].bytes = bytes;
    }

    // What the worker spent its time on since its last message.
    void addBusyTime(const Worker& worker, const Json& reply) {
        const auto now = busyFrom(reply);
        if (!now) return;
        Progress::Busy fresh;
        {
            MutexLock lock(scheduler_.mutex_);
            Progress::Busy& known = scheduler_.states_[worker.index].busy;
            fresh = since(*now, known);
            for (size_t i = 0; i < fresh.size(); ++i)
                known[i] += fresh[i];
        }
        if (Progress* progress = progress_) progress->addBusy(fresh);
    }

    void setPhase(size_t i, WorkerState::Phase phase, const std::string& why = {}) {
        MutexLock lock(scheduler_.mutex_);
        scheduler_.states_[i].phase = phase;
        if (!why.empty()) scheduler_.states_[i].why = why;
    }

    // ------------------------------------------------------------------ this process reads for all

    // Broadcasts as long as the group holds; run() gives out the parts that are left. False where no group
    // came together.
    bool broadcast(const std::vector<PartOrder>& orders, const OnDone& done, std::vector<bool>& finished) {
        std::optional<SharedJob> shared;
        {
            MutexLock lock(mutex_);
            while (joining_ > 0 && !stopping())
                changed_.wait_for(lock, kStopInterval);
            if (stopping() || alive_.size() < workers_.size() || alive_.size() < 2) return false;
            shared = shared_;
        }
        auto group = options_.group({.host = options_.hostHere,
                                     .size = static_cast<int>(workers_.size()),
                                     .backend = options_.backend},
                                    {.listening = [this](uint16_t port) { setGroup(nullptr, port); },
                                     .givenUp =
                                         [this] {
                                             MutexLock lock(mutex_);
                                             return groupBroken_ || stopping();
                                         }});
        if (!group.ok() && group.error().code == ErrorCode::impossible) fail(group.error());
        if (group.ok()) {
            setGroup(group->get(), std::nullopt);
            sendThrough(**group, *shared, orders, done, finished);
        }
        setGroup(nullptr, 0);
        MutexLock lock(mutex_);
        while (inGroup_ > 0 && !stopping())
            changed_.wait_for(lock, kStopInterval);
        return group.ok();
    }

    // `port`: the one on which rank 0 of the group listens; 0 without a group.
    void setGroup(ProcessGroup* group, std::optional<uint16_t> port) {
        {
            MutexLock lock(mutex_);
            group_ = group;
            if (port) groupPort_ = *port;
            if (group_ && groupBroken_) group_->abort();
        }
        wakeAll();
    }

    void sendThrough(ProcessGroup& group, const SharedJob& shared, const std::vector<PartOrder>& orders,
                     const OnDone& done, std::vector<bool>& finished) {
        BroadcastSender sender(group, scheduler_.writerOf_, scheduler_.convertOptions_,
                               [this](int rank, uint64_t bytes) {
                                   MutexLock states(scheduler_.mutex_);
                                   scheduler_.states_[static_cast<size_t>(rank)].bytes += bytes;
                               });
        PartWorkerOptions own{.name = "own", .homes = scheduler_.homes()};
        own.write = [&sender](FileId file, uint64_t offset, std::span<const std::byte> bytes) {
            return sender.write(file, offset, bytes);
        };
        const auto reader = scheduler_.reading_(shared, std::move(own));
        if (!reader.ok()) return;  // the worker that does the rest succeeds, or reports the same error
        (void)sender.run(
            **reader, orders,
            [&](size_t order, const PartDone& result) -> Status {
                scheduler_.bytesMoved_ += result.bytesMoved;
                SHARDSCOPE_TRY(done(order, result));
                finished[order] = true;
                return {};
            },
            progress_, stop_);
    }

    // Sends the worker into the group, or out of it. The first one is where this process reads and writes.
    Status followGroup(Worker& worker) {
        Json order;
        {
            MutexLock lock(mutex_);
            if (groupPort_ && !worker.inGroup && worker.index > 0) {
                worker.inGroup = true;
                worker.toldToLeave = false;
                ++inGroup_;
                order = {{"say", "group"},       {"host", options_.hostHere}, {"port", groupPort_},
                         {"rank", worker.index}, {"size", workers_.size()},   {"backend", options_.backend}};
            } else if (!groupPort_ && worker.inGroup && !worker.toldToLeave) {
                worker.toldToLeave = true;
                order = {{"say", "ungroup"}};
            }
        }
        if (order.is_null()) return {};
        setPhase(worker.index, WorkerState::Phase::working);
        return worker.link.send(order);
    }

    void leaveGroup(Worker& worker) {
        worker.inGroup = false;
        {
            MutexLock lock(mutex_);
            --inGroup_;
        }
        changed_.notify_all();
    }

    WorkerScheduler& scheduler_;
    const CoordinatorOptions& options_;
    // From the first run() on, as `shared_`; then it stays. Workers speak before it, and between two runs.
    std::atomic<Progress*> progress_{nullptr};
    const StopToken stop_;
    const Clock::time_point started_ = Clock::now();
    const std::string token_ = newToken();
    SlurmAllocations allocations_;
    std::vector<std::unique_ptr<Worker>> workers_;
    std::vector<std::thread> threads_;

    Mutex mutex_ SHARDSCOPE_ACQUIRED_BEFORE(scheduler_.mutex_);
    Condition changed_;
    std::optional<SharedJob> shared_ SHARDSCOPE_GUARDED_BY(mutex_);
    const std::vector<PartOrder>* orders_ SHARDSCOPE_GUARDED_BY(mutex_) = nullptr;
    const OnDone* done_ SHARDSCOPE_GUARDED_BY(mutex_) = nullptr;
    PartWork work_ SHARDSCOPE_GUARDED_BY(mutex_) = PartWork::convert;
    PartQueue queue_ SHARDSCOPE_GUARDED_BY(mutex_);
    size_t round_ SHARDSCOPE_GUARDED_BY(mutex_) = 0;  // how many times run() was called
    std::map<std::string, std::string> gpus_ SHARDSCOPE_GUARDED_BY(mutex_);  // UUID to worker
    ProcessGroup* group_ SHARDSCOPE_GUARDED_BY(mutex_) = nullptr;
    bool groupBroken_ SHARDSCOPE_GUARDED_BY(mutex_) = false;  // a worker has left
    uint16_t groupPort_ SHARDSCOPE_GUARDED_BY(mutex_) = 0;
    size_t inGroup_ SHARDSCOPE_GUARDED_BY(mutex_) = 0;
    size_t joining_ SHARDSCOPE_GUARDED_BY(mutex_) = 0, connecting_ SHARDSCOPE_GUARDED_BY(mutex_) = 0;
    bool closing_ SHARDSCOPE_GUARDED_BY(mutex_) = false;
    std::set<size_t> alive_ SHARDSCOPE_GUARDED_BY(mutex_);
    std::string lost_ SHARDSCOPE_GUARDED_BY(mutex_);
    std::optional<Error> failure_ SHARDSCOPE_GUARDED_BY(mutex_);
};

WorkerScheduler::WorkerScheduler(CoordinatorOptions options) : options_(std::move(options)) {
    size_t local = 0, slurm = 0;
    for (const WorkerSpec& spec : options_.workers) {
        WorkerState state;
        state.name = spec.rank >= 0      ? fmt::format("rank {}", spec.rank)
                     : spec.slurm        ? fmt::format("slurm {}", ++slurm)
                     : spec.host.empty() ? fmt::format("local {}", ++local)
                                         : spec.host;
        states_.push_back(std::move(state));
    }
}

Result<std::unique_ptr<WorkerScheduler>> WorkerScheduler::forJobHere(CoordinatorOptions options) {
    std::error_code none;
    options.directory = std::filesystem::current_path(none).string();
    if (none) return systemError(none.value(), "find the directory that the job is given in", "");
    return std::make_unique<WorkerScheduler>(std::move(options));
}

WorkerScheduler::~WorkerScheduler() = default;

std::vector<WorkerState> WorkerScheduler::workers() const {
    MutexLock lock(mutex_);
    return states_;
}

Result<std::shared_ptr<Peers>> WorkerScheduler::connect(const StopToken& stop) {
    run_ = std::make_unique<CoordinatorRun>(*this, stop);
    SHARDSCOPE_ASSIGN(auto peers, run_->peers());
    // This process has the disks of the first worker where that was started here.
    const WorkerSpec& first = options_.workers.front();
    const int self = first.host.empty() && !first.slurm ? 0 : -1;
    peers_ = std::make_shared<Peers>(std::move(peers), self, run_->token(), options_.version,
                                     options_.files ? options_.files : systemFileSystem());
    return peers_;
}

void WorkerScheduler::share(std::shared_ptr<const PeerTable> table, std::shared_ptr<const PeerDisks> disks) {
    table_ = std::move(table);
    disks_ = std::move(disks);
}

void WorkerScheduler::setReading(Reading reading, WriterOf writerOf, const ConvertOptions& options) {
    reading_ = std::move(reading);
    writerOf_ = std::move(writerOf);
    convertOptions_ = options;
}

Status WorkerScheduler::run(const SharedJob& shared, PartWork work, const std::vector<PartOrder>& orders,
                            const std::function<Status(size_t order, const PartDone& result)>& done,
                            Progress* progress, const StopToken& stop) {
    if (!run_) run_ = std::make_unique<CoordinatorRun>(*this, stop);
    return run_->run(shared, work, orders, done, progress);
}

void WorkerScheduler::end() {
    run_.reset();
}

}  // namespace shardscope
