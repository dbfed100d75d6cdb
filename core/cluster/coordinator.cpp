#include "cluster/coordinator.h"

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <thread>

#include <fmt/format.h>

#include "base/text.h"
#include "cluster/broadcast.h"
#include "cluster/messages.h"
#include "cluster/peer_disks.h"
#include "cluster/peer_files.h"
#include "cluster/rendezvous.h"
#include "cluster/slurm.h"
#include "hosts/launch.h"

namespace shardscope {
namespace {

using Json = nlohmann::json;
using Clock = Channel::Clock;

constexpr size_t kAtOnce = 4;  // units under way at one worker, so that it never waits for the next
constexpr size_t kMostAttempts = 3;
constexpr std::chrono::milliseconds kPollInterval{50};
constexpr std::chrono::milliseconds kShortLook{5};  // while there is nothing to do, for it may come soon

}  // namespace

// A thread for each worker, and what they share: the units of the run() that is under way, if there is one.
class CoordinatorRun {
  public:
    CoordinatorRun(WorkerScheduler& scheduler, StopToken stop)
        : scheduler_(scheduler), stop_(std::move(stop)), peers_(scheduler.options_.places.size()) {
        const size_t count = scheduler_.workers().size();
        connecting_ = joining_ = count;
        for (size_t i = 0; i < count; ++i)
            alive_.insert(i);
        for (size_t i = 0; i < count; ++i)
            threads_.emplace_back([this, i] { work(i); });
    }

    ~CoordinatorRun() { end(); }

    void end() {
        {
            MutexLock lock(mutex_);
            closing_ = true;
        }
        for (std::thread& thread : threads_)
            thread.join();
        threads_.clear();
    }

    const std::string& token() const { return token_; }
    // Waits until all are connected; who they are to each other.
    Result<std::vector<Peer>> peers() {
        MutexLock lock(mutex_);
        while (connecting_ > 0 && !over())
            changed_.wait_for(lock, kPollInterval);
        // Once it is stopped, what workers die of is not news.
        SHARDSCOPE_TRY(stop_.poll());
        if (failure_) return *failure_;
        return peers_;
    }

    Status run(const JobIdentity& identity, Progress* progress, const std::vector<Unit>& units,
               const std::function<Status(size_t, UnitResult)>& done) {
        {
            MutexLock lock(mutex_);
            if (!identity_) identity_ = identity;
            progress_ = progress;
        }
        std::vector<bool> finished(units.size(), false);
        if (scheduler_.reading_ && !units.empty() && units.front().work == UnitWork::convert)
            broadcast(units, done, finished);
        {
            MutexLock lock(mutex_);
            units_ = &units;
            done_ = &done;
            attempts_.assign(units.size(), {});
            left_ = static_cast<size_t>(std::ranges::count(finished, false));
            finished_ = std::move(finished);
            waiting_.assign(peers_.size() + 1, {});
            again_.clear();
            for (size_t u = 0; u < units.size(); ++u) {
                if (finished_[u]) continue;
                const int home = units[u].home;
                waiting_[home < 0 || static_cast<size_t>(home) >= peers_.size()
                             ? 0
                             : static_cast<size_t>(home) + 1]
                    .push_back(u);
            }
            ++round_;
            // Those who cut it short may be stopped by a signal, which wakes nobody.
            while (left_ > 0 && !over() && !alive_.empty())
                changed_.wait_for(lock, kPollInterval);
            if (left_ == 0 && !over()) return {};
        }
        end();
        MutexLock lock(mutex_);
        if (left_ > 0 && !stop_.stopRequested()) explainWithSlurm();
        allocations_.clear();
        // Once it is stopped, what workers die of is not news.
        if (failure_ && !(stop_.stopRequested() && failure_->code == ErrorCode::remote))
            return std::move(*failure_);
        SHARDSCOPE_TRY(stop_.poll());
        Error error = makeError(ErrorCode::remote, "all workers are gone");
        if (!lost_.empty()) error.message += "; the last was " + lost_;
        return error;
    }

  private:
    struct Attempts {
        size_t count = 0;
        std::set<size_t> workers;
    };
    // What one worker's thread keeps.
    struct WorkerThread {
        size_t index;
        std::string name;
        Launched launched;
        std::string machine{};  // its host, by what it says itself
        int device = 0;         // the GPU that would be its own
        bool inGroup = false, toldToLeave = false;
        std::deque<size_t> under{};  // units under way, in order
        Clock::time_point heard{};
        Silence silence{};
        size_t round = 0;        // whose bytes these are:
        uint64_t shown = 0;      // in the progress
        uint64_t confirmed = 0;  // of units that are done
    };

    // Where a worker of Slurm runs: its allocation is asked for by the first of its workers, the others wait.
    struct Allocation {
        Mutex mutex;
        bool asked SHARDSCOPE_GUARDED_BY(mutex) = false;
        std::unique_ptr<SlurmAllocation> allocation;
        std::optional<Error> error;
    };
    Result<const SlurmAllocation*> allocationOf(const WorkerSpec& place) {
        Allocation* lent = nullptr;
        {
            MutexLock lock(mutex_);
            auto& entry = allocations_[place.slurm.get()];
            if (!entry) entry = std::make_unique<Allocation>();
            lent = entry.get();
        }
        MutexLock asking(lent->mutex);
        if (!lent->asked) {
            lent->asked = true;
            auto obtained = SlurmAllocation::obtain(
                *place.slurm,
                [&] {
                    MutexLock lock(mutex_);
                    return over();
                },
                [&](const std::string& job, const std::string& said) {
                    MutexLock states(scheduler_.mutex_);
                    for (size_t i = 0; i < scheduler_.states_.size(); ++i) {
                        if (scheduler_.options_.places[i].slurm != place.slurm) continue;
                        scheduler_.states_[i].slurmJob = job;
                        scheduler_.states_[i].why = said;
                    }
                });
            if (obtained.ok())
                lent->allocation = std::move(obtained).value();
            else
                lent->error = std::move(obtained).error();
        }
        if (lent->error) return *lent->error;
        return lent->allocation.get();
    }

    Result<Launched> launch(WorkerThread& mine) {
        const WorkerSpec& place = scheduler_.options_.places[mine.index];
        const auto over = [this] {
            MutexLock lock(mutex_);
            return this->over();
        };
        if (place.rank > 0 && scheduler_.options_.ranks) {
            SHARDSCOPE_ASSIGN(auto joined, scheduler_.options_.ranks->take(
                                               place.rank, started_ + scheduler_.options_.patience, over));
            mine.device = joined.localRank;
            MutexLock lock(mutex_);
            peers_[mine.index].host = joined.address;
            return std::move(joined.launched);
        }
        if (!place.slurm) return launchAgent(place, scheduler_.options_, over);
        SHARDSCOPE_ASSIGN(const SlurmAllocation* const allocation, allocationOf(place));
        {
            MutexLock lock(scheduler_.mutex_);
            mine.name = allocation->nodeOf(place.task);
            if (place.slurm->tasksPerNode > 1)
                mine.name += fmt::format(" {}", place.task % place.slurm->tasksPerNode + 1);
            scheduler_.states_[mine.index].name = mine.name;
            scheduler_.states_[mine.index].slurmJob = allocation->job();
            scheduler_.states_[mine.index].why.clear();
        }
        return allocation->launch(place.task, scheduler_.options_, over);
    }

    // What Slurm did to the job says more than that its workers are gone.
    void explainWithSlurm() SHARDSCOPE_REQUIRES(mutex_) {
        std::string words;
        for (const auto& [request, lent] : allocations_) {
            if (!lent->allocation) continue;
            if (const std::string ending = lent->allocation->ending(); !ending.empty())
                words += "; " + ending;
        }
        if (words.empty()) return;
        if (failure_)
            failure_->message += words;
        else
            lost_ += words;
    }

    void setPhase(size_t i, WorkerState::Phase phase, const std::string& why = {}) {
        MutexLock lock(scheduler_.mutex_);
        scheduler_.states_[i].phase = phase;
        if (!why.empty()) scheduler_.states_[i].why = why;
    }

    void fail(Error error) {
        MutexLock lock(mutex_);
        if (!failure_) failure_ = std::move(error);
    }
    bool over() const SHARDSCOPE_REQUIRES(mutex_) { return failure_ || closing_ || stop_.stopRequested(); }

    void work(size_t i) {
        WorkerThread mine;
        mine.index = i;
        mine.name = scheduler_.workers()[i].name;
        Status joined = connect(mine);
        // Nobody else knows what it has of the source.
        if (!joined.ok() && scheduler_.options_.peers && joined.error().code != ErrorCode::cancelled) {
            Error error = joined.error();
            error.message = reasonOf(mine, error);
            joined = refuse(mine, std::move(error));
        }
        {
            MutexLock lock(mutex_);
            --connecting_;
        }
        changed_.notify_all();
        if (joined.ok()) joined = start(mine);
        {
            MutexLock lock(mutex_);
            --joining_;
        }
        changed_.notify_all();
        Status status = joined.ok() ? serve(mine) : std::move(joined);
        const bool wasStopped = [&] {
            MutexLock lock(mutex_);
            return over();
        }();
        if (status.ok() || wasStopped) {
            setPhase(i, WorkerState::Phase::ended);
        } else {
            lose(mine, status.error());
        }
        finish(mine, status.ok());
        changed_.notify_all();
    }

    // Ends it, in order when it listens; after this it writes no more.
    void finish(WorkerThread& mine, bool inOrder) {
        if (mine.launched.channel) {
            (void)mine.launched.channel->send(message({{"say", "end"}}));
            mine.launched.channel->close();
        }
        if (mine.launched.process) {
            if (!inOrder || !mine.under.empty() || !mine.launched.process->waitFor(std::chrono::seconds(2)))
                mine.launched.process->kill();
            mine.launched.process->waitFor(std::chrono::seconds(10));
        }
        show(mine, mine.confirmed);
        MutexLock lock(mutex_);
        alive_.erase(mine.index);
    }

    // With how its process ended, where it ended.
    std::string reasonOf(WorkerThread& mine, const Error& error) {
        std::string why = error.message;
        if (!mine.launched.process || error.code != ErrorCode::remote) return why;
        mine.launched.process->waitFor(std::chrono::milliseconds(200));
        const std::string said = stderrTail(*mine.launched.process, 300);
        if (mine.launched.channel)
            why += fmt::format(" ({}{}{})", mine.launched.process->ending(), said.empty() ? "" : ": ", said);
        return why;
    }

    void lose(WorkerThread& mine, const Error& error) {
        const std::string why = reasonOf(mine, error);
        setPhase(mine.index, WorkerState::Phase::lost, why);
        if (mine.inGroup) leaveGroup(mine);
        MutexLock lock(mutex_);
        if (group_) group_->abort();
        lost_ = fmt::format("{}: {}", mine.name, why);
        for (auto unit = mine.under.rbegin(); unit != mine.under.rend(); ++unit)
            again(mine.index, *unit, error, why);
    }

    // A unit has to be done again.
    void again(size_t worker, size_t unit, const Error& error, const std::string& why)
        SHARDSCOPE_REQUIRES(mutex_) {
        Attempts& attempts = attempts_[unit];
        ++attempts.count;
        attempts.workers.insert(worker);
        if (attempts.count >= kMostAttempts && (attempts.workers.size() >= 2 || alive_.size() <= 1)) {
            if (failure_) return;
            failure_ = error;
            failure_->message = fmt::format("a part of the work failed {} times, at last on {}: {}",
                                            attempts.count, scheduler_.workers()[worker].name, why);
            return;
        }
        again_.push_back(unit);
    }

    // ------------------------------------------------------------------ this process reads for all

    // As far as that goes; what is left then is handed out.
    void broadcast(const std::vector<Unit>& units, const std::function<Status(size_t, UnitResult)>& done,
                   std::vector<bool>& finished) {
        const CoordinatorOptions& options = scheduler_.options_;
        JobIdentity identity;
        {
            MutexLock lock(mutex_);
            while (joining_ > 0 && !over())
                changed_.wait_for(lock, kPollInterval);
            if (over() || alive_.size() < peers_.size() || alive_.size() < 2) return;
            identity = *identity_;
        }
        auto group = options.group({.host = options.hostHere,
                                    .size = static_cast<int>(options.places.size()),
                                    .backend = options.backend},
                                   [this](uint16_t port) {
                                       MutexLock lock(mutex_);
                                       groupPort_ = port;
                                   });
        if (!group.ok() && group.error().code == ErrorCode::impossible) fail(group.error());
        if (group.ok()) {
            {
                MutexLock lock(mutex_);
                group_ = group->get();
                if (alive_.size() < peers_.size()) group_->abort();
            }
            BroadcastSender sender(**group, scheduler_.writerOf_, scheduler_.convertOptions_,
                                   [this](int rank, uint64_t bytes) {
                                       MutexLock states(scheduler_.mutex_);
                                       scheduler_.states_[static_cast<size_t>(rank)].bytes += bytes;
                                   });
            auto reader = scheduler_.reading_(
                identity,
                {.write = [&sender](FileId file, uint64_t offset, std::span<const std::byte> bytes) {
                    return sender.write(file, offset, bytes);
                }});
            if (reader.ok()) {
                // The worker that does the rest succeeds, or reports the same error.
                (void)sender.run(
                    **reader, units,
                    [&](size_t unit, UnitResult result) -> Status {
                        scheduler_.bytesMoved_ += result.bytesMoved;
                        SHARDSCOPE_TRY(done(unit, std::move(result)));
                        finished[unit] = true;
                        return {};
                    },
                    progress_, stop_);
            }
        }
        MutexLock lock(mutex_);
        group_ = nullptr;
        groupPort_ = 0;
        while (inGroup_ > 0 && !over())
            changed_.wait_for(lock, kPollInterval);
    }

    // Sends the worker into the group, or out of it. The first one is where this process reads and writes.
    Status followGroup(WorkerThread& mine) {
        const CoordinatorOptions& options = scheduler_.options_;
        Json order;
        {
            MutexLock lock(mutex_);
            if (groupPort_ && !mine.inGroup && mine.index > 0) {
                mine.inGroup = true;
                mine.toldToLeave = false;
                ++inGroup_;
                order = {{"say", "group"},     {"host", options.hostHere}, {"port", groupPort_},
                         {"rank", mine.index}, {"size", peers_.size()},    {"backend", options.backend}};
            } else if (!groupPort_ && mine.inGroup && !mine.toldToLeave) {
                mine.toldToLeave = true;
                order = {{"say", "ungroup"}};
            }
        }
        if (order.is_null()) return {};
        setPhase(mine.index, WorkerState::Phase::working);
        return mine.launched.channel->send(message(order));
    }

    void leaveGroup(WorkerThread& mine) {
        mine.inGroup = false;
        MutexLock lock(mutex_);
        --inGroup_;
        changed_.notify_all();
    }

    void show(WorkerThread& mine, uint64_t bytes) {
        if (progress_) progress_->add(bytes - mine.shown);  // may go back: what a lost worker wrote is undone
        mine.shown = bytes;
        MutexLock lock(scheduler_.mutex_);
        scheduler_.states_[mine.index].bytes = bytes;
    }

    // What it spent its time on since its last word.
    void addBusyTime(const WorkerThread& mine, const Json& said) {
        const auto now = busyFrom(said);
        if (!now) return;
        Progress::Busy fresh;
        {
            MutexLock lock(scheduler_.mutex_);
            Progress::Busy& known = scheduler_.states_[mine.index].busy;
            fresh = since(*now, known);
            for (size_t i = 0; i < fresh.size(); ++i)
                known[i] += fresh[i];
        }
        if (progress_) progress_->addBusy(fresh);
    }

    Result<Json> next(WorkerThread& mine, Clock::time_point deadline, std::string* body) {
        SHARDSCOPE_ASSIGN(auto frame, mine.launched.channel->receive(deadline));
        if (!frame) return Json();
        mine.heard = Clock::now();
        if (body) *body = std::move(frame->body);
        return parseMessage(*frame);
    }

    // Starts it, and learns how others reach it.
    Status connect(WorkerThread& mine) {
        const CoordinatorOptions& options = scheduler_.options_;
        const WorkerSpec& place = options.places[mine.index];
        auto launched = launch(mine);
        if (!launched.ok() && launched.error().code == ErrorCode::cancelled)
            return std::move(launched).error();
        if (!launched.ok() && options.ranks) {
            fail(launched.error());
            return std::move(launched).error();
        }
        if (!launched.ok()) return refuse(mine, std::move(launched).error());
        mine.launched = std::move(launched).value();
        Json hello;
        for (const auto until = Clock::now() + kStart; hello.is_null();) {
            {
                MutexLock lock(mutex_);
                if (over()) return {};
            }
            if (Clock::now() >= until) return makeError(ErrorCode::remote, "it did not introduce itself");
            SHARDSCOPE_ASSIGN(hello, next(mine, Clock::now() + kPollInterval, nullptr));
        }
        if (Status status = checkHello(hello, options.version, true); !status.ok())
            return refuse(mine, std::move(status).error());
        mine.machine = textOf(hello, "host", 300);
        if (place.rank >= 0) mine.name = fmt::format("rank {} on {}", place.rank, mine.machine);
        {
            MutexLock states(scheduler_.mutex_);
            scheduler_.states_[mine.index].name = mine.name;
        }
        uint16_t port = 0;
        if (options.peers) {
            const bool loopback = place.host.empty() && !place.slurm && options.hostHere == "127.0.0.1";
            SHARDSCOPE_TRY(mine.launched.channel->send(message({{"say", "serve"},
                                                                {"silence", silence(place)},
                                                                {"listen", loopback ? "127.0.0.1" : ""},
                                                                {"token", token_},
                                                                {"source", options.source.size()}},
                                                               options.source + options.destination)));
            SHARDSCOPE_ASSIGN(const Json answer, answerTo(mine, "serving"));
            if (answer.is_null()) return {};
            port = static_cast<uint16_t>(numberOf(answer, "port").value_or(0));
        }
        MutexLock lock(mutex_);
        Peer& peer = peers_[mine.index];
        peer.name = mine.name;
        peer.port = port;
        machines_[mine.index] = mine.machine;
        // A host that ssh finds by another name than the others do is theirs to configure.
        if (peer.host.empty())
            peer.host = place.slurm          ? mine.machine
                        : place.host.empty() ? options.hostHere
                                             : place.host.substr(place.host.rfind('@') + 1);
        return {};
    }

    uint64_t silence(const WorkerSpec& place) const {
        return place.host.empty() && place.rank <= 0 ? 0 : static_cast<uint64_t>(kOrphanTimeout.count());
    }

    // Waits for one message, between heartbeats; nothing when all is over.
    Result<Json> answerTo(WorkerThread& mine, std::string_view what) {
        for (;;) {
            {
                MutexLock lock(mutex_);
                if (over()) return Json();
            }
            SHARDSCOPE_ASSIGN(const Json answer, next(mine, Clock::now() + kPollInterval, nullptr));
            SHARDSCOPE_TRY(mine.silence.check(mine.heard));
            if (answer.is_null()) continue;
            if (answer["say"] == "beat") {
                answerBeat(mine);
                continue;
            }
            if (answer["say"] == what) return answer;
            if (answer["say"] == "failed") return refuse(mine, errorFrom(answer.value("error", Json())));
            return damaged("an answer that does not belong here");
        }
    }

    // Waits until the conversion is known, and gives it to the worker.
    Status start(WorkerThread& mine) {
        const CoordinatorOptions& options = scheduler_.options_;
        Json order{{"say", "start"}};
        {
            MutexLock lock(mutex_);
            while (!identity_ && !over()) {
                lock.unlock();
                // One that serves files beats from now on.
                SHARDSCOPE_ASSIGN(const Json said, next(mine, Clock::now() + kShortLook, nullptr));
                if (!said.is_null() && said["say"] == "beat") answerBeat(mine);
                if (options.peers) SHARDSCOPE_TRY(mine.silence.check(mine.heard));
                lock.lock();
            }
            if (over()) return {};
            order["identity"] = identityJson(*identity_);
            // The cores of a machine are shared by its workers.
            order["neighbors"] = std::ranges::count(machines_, mine.machine);
        }
        const WorkerSpec& place = options.places[mine.index];
        if (!options.ranks || place.rank <= 0) mine.device = static_cast<int>(mine.index);
        order["silence"] = silence(place);
        order["request"] = options.request.size();
        order["device"] = mine.device;
        order["gpu"] = options.gpus;
        std::string body = options.directory + '\0' + options.request;
        if (scheduler_.peers_) {
            order["peers"] = scheduler_.peers_->json();
            order["self"] = mine.index;
            if (scheduler_.disks_) order["places"] = scheduler_.disks_->places();
            if (scheduler_.table_) body += scheduler_.table_->packed();
        }
        mine.heard = Clock::now();
        SHARDSCOPE_TRY(mine.launched.channel->send(message(order, std::move(body))));
        SHARDSCOPE_ASSIGN(const Json ready, answerTo(mine, "ready"));
        if (ready.is_null()) return {};
        SHARDSCOPE_TRY(checkGpu(mine, textOf(ready, "gpu", 100)));
        setPhase(mine.index, WorkerState::Phase::idle);
        return {};
    }

    Status checkGpu(WorkerThread& mine, const std::string& gpu) {
        std::string other;
        {
            MutexLock lock(mutex_);
            if (gpu.empty() || gpus_.emplace(gpu, mine.name).second) return {};
            other = gpus_[gpu];
        }
        fail(makeError(ErrorCode::usage,
                       fmt::format("{} and {} have the same GPU ({})", other, mine.name, gpu))
                 .withHint("start one rank for each GPU"));
        return {};
    }

    // That one cannot take part at all is for the user to know before the work begins.
    Error refuse(WorkerThread& mine, Error error) {
        Error told = error;
        told.message = fmt::format("{} cannot take part: {}", mine.name, error.message);
        fail(std::move(told));
        return error;
    }

    Status serve(WorkerThread& mine) {
        mine.heard = Clock::now();
        for (;;) {
            bool between = false;
            {
                MutexLock lock(mutex_);
                if (over()) return {};
                if (mine.round != round_) {
                    mine.round = round_;
                    mine.shown = mine.confirmed = 0;
                }
                between = left_ == 0;
                // Nothing is handed out before all are known to see the same source.
                while (joining_ == 0 && mine.under.size() < kAtOnce) {
                    const std::optional<size_t> taken = takeUnit(mine);
                    if (!taken) break;
                    const size_t unit = *taken;
                    const bool suspect = attempts_[unit].count > 0;
                    mine.under.push_back(unit);
                    Frame order = message(unitJson(unit, (*units_)[unit]));
                    lock.unlock();
                    setPhase(mine.index, WorkerState::Phase::working);
                    SHARDSCOPE_TRY(mine.launched.channel->send(std::move(order)));
                    lock.lock();
                    if (suspect) break;
                }
            }
            SHARDSCOPE_TRY(followGroup(mine));
            if (mine.under.empty() && !mine.inGroup) setPhase(mine.index, WorkerState::Phase::idle);
            std::string body;
            SHARDSCOPE_ASSIGN(const Json said,
                              next(mine, Clock::now() + (between ? kShortLook : kPollInterval), &body));
            SHARDSCOPE_TRY(mine.silence.check(mine.heard));
            if (said.is_null()) continue;
            const std::string& what = said["say"].get_ref<const std::string&>();
            if (what == "beat") {
                beat(mine, said);
                answerBeat(mine);
            } else if (what == "done") {
                SHARDSCOPE_TRY(take(mine, said, std::move(body)));
            } else if (what == "failed") {
                SHARDSCOPE_TRY(failed(mine, said));
            } else if (what == "grouped" && mine.inGroup) {
                leaveGroup(mine);
            } else {
                return damaged("an answer that does not belong here");
            }
        }
    }

    // First the units of this worker, then those of no particular worker, then the last one of the worker
    // that has most units left.
    std::optional<size_t> takeUnit(const WorkerThread& mine) SHARDSCOPE_REQUIRES(mutex_) {
        for (auto it = again_.begin(); it != again_.end(); ++it) {
            const size_t unit = *it;
            if (!eligible(mine, unit)) continue;
            again_.erase(it);
            return unit;
        }
        if (waiting_.empty()) return std::nullopt;
        for (std::deque<size_t>* queue : {&waiting_[mine.index + 1], &waiting_[0]}) {
            if (queue->empty()) continue;
            const size_t unit = queue->front();
            queue->pop_front();
            return unit;
        }
        auto& most = *std::ranges::max_element(waiting_, {}, &std::deque<size_t>::size);
        if (most.empty()) return std::nullopt;
        const size_t unit = most.back();
        most.pop_back();
        return unit;
    }

    // One that failed before goes alone, so that it takes no other with it, and to somebody else while there
    // is somebody.
    bool eligible(const WorkerThread& mine, size_t unit) const SHARDSCOPE_REQUIRES(mutex_) {
        const Attempts& attempts = attempts_[unit];
        if (attempts.count == 0) return true;
        if (!mine.under.empty()) return false;
        return !attempts.workers.contains(mine.index) ||
               std::all_of(alive_.begin(), alive_.end(),
                           [&](size_t worker) { return attempts.workers.contains(worker); });
    }

    // The unit that a message is about, taken off those under way.
    Result<size_t> unitOf(WorkerThread& mine, const Json& said) {
        const auto it = said.find("id");
        if (it == said.end() || !it->is_number_unsigned()) return damaged("an answer without a unit");
        const auto at = std::find(mine.under.begin(), mine.under.end(), it->get<uint64_t>());
        if (at == mine.under.end()) return damaged("an answer about a unit that it was not given");
        const size_t unit = *at;
        mine.under.erase(at);
        return unit;
    }

    // So that a worker of another host knows that the link stands.
    void answerBeat(WorkerThread& mine) {
        if (silence(scheduler_.options_.places[mine.index]) > 0)
            mine.launched.channel->offer(message({{"say", "beat"}}));
    }

    void beat(WorkerThread& mine, const Json& said) {
        const auto it = said.find("bytes");
        if (it == said.end() || !it->is_number_unsigned()) return;
        uint64_t most = mine.confirmed;
        {
            MutexLock lock(mutex_);
            for (const size_t unit : mine.under)
                most += (*units_)[unit].bytes;
        }
        show(mine, std::clamp<uint64_t>(it->get<uint64_t>(), mine.confirmed, most));
        addBusyTime(mine, said);
    }

    Status take(WorkerThread& mine, const Json& said, std::string body) {
        SHARDSCOPE_ASSIGN(const size_t unit, unitOf(mine, said));
        const auto read = said.find("read");
        UnitResult result{std::move(body),
                          read != said.end() && read->is_number_unsigned() ? read->get<uint64_t>() : 0};
        MutexLock lock(mutex_);
        if (finished_[unit]) return {};
        Status status = (*done_)(unit, std::move(result));
        if (!status.ok()) {
            // What it says cannot be right, so neither can what it wrote be trusted.
            if (status.error().code == ErrorCode::damaged)
                mine.under.push_front(unit);
            else if (!failure_)
                failure_ = status.error();
            return status;
        }
        scheduler_.bytesMoved_ += numberOf(said, "moved").value_or(0);
        addBusyTime(mine, said);
        mine.confirmed += (*units_)[unit].bytes;
        show(mine, std::max(mine.shown, mine.confirmed));
        finished_[unit] = true;
        if (--left_ == 0) changed_.notify_all();
        {
            MutexLock states(scheduler_.mutex_);
            ++scheduler_.states_[mine.index].units;
        }
        return {};
    }

    Status failed(WorkerThread& mine, const Json& said) {
        const Error error = errorFrom(said.value("error", Json()));
        if (!said.contains("id")) return error;
        SHARDSCOPE_ASSIGN(const size_t unit, unitOf(mine, said));
        MutexLock lock(mutex_);
        again(mine.index, unit, error, error.message);
        return {};
    }

    WorkerScheduler& scheduler_;
    std::optional<JobIdentity> identity_ SHARDSCOPE_GUARDED_BY(mutex_);  // from the first run() on
    Progress* progress_ = nullptr;                                       // as `identity_`; then it stays
    const StopToken stop_;
    const Clock::time_point started_ = Clock::now();
    const std::string token_ = newToken();
    std::vector<std::thread> threads_;

    Mutex mutex_ SHARDSCOPE_ACQUIRED_BEFORE(scheduler_.mutex_);
    Condition changed_;
    const std::vector<Unit>* units_ SHARDSCOPE_GUARDED_BY(mutex_) = nullptr;
    const std::function<Status(size_t, UnitResult)>* done_ SHARDSCOPE_GUARDED_BY(mutex_) = nullptr;
    size_t round_ SHARDSCOPE_GUARDED_BY(mutex_) = 0;  // how many times run() was called
    std::vector<Peer> peers_ SHARDSCOPE_GUARDED_BY(mutex_);
    std::vector<std::string> machines_ SHARDSCOPE_GUARDED_BY(mutex_) =
        std::vector<std::string>(scheduler_.options_.places.size());
    std::map<std::string, std::string> gpus_ SHARDSCOPE_GUARDED_BY(mutex_);  // UUID to worker
    // Units by who has most of them at hand, those that are anybody's first; and those that failed.
    std::vector<std::deque<size_t>> waiting_ SHARDSCOPE_GUARDED_BY(mutex_);
    std::deque<size_t> again_ SHARDSCOPE_GUARDED_BY(mutex_);
    ProcessGroup* group_ SHARDSCOPE_GUARDED_BY(mutex_) = nullptr;
    uint16_t groupPort_ SHARDSCOPE_GUARDED_BY(mutex_) = 0;  // where rank 0 of it is; 0 = there is none
    size_t inGroup_ SHARDSCOPE_GUARDED_BY(mutex_) = 0;
    std::vector<Attempts> attempts_ SHARDSCOPE_GUARDED_BY(mutex_);
    std::vector<bool> finished_ SHARDSCOPE_GUARDED_BY(mutex_);
    size_t left_ SHARDSCOPE_GUARDED_BY(mutex_) = 0, joining_ SHARDSCOPE_GUARDED_BY(mutex_) = 0,
                 connecting_ SHARDSCOPE_GUARDED_BY(mutex_) = 0;
    bool closing_ SHARDSCOPE_GUARDED_BY(mutex_) = false;
    std::set<size_t> alive_ SHARDSCOPE_GUARDED_BY(mutex_);
    std::map<const SlurmRequest*, std::unique_ptr<Allocation>> allocations_ SHARDSCOPE_GUARDED_BY(mutex_);
    std::string lost_ SHARDSCOPE_GUARDED_BY(mutex_);
    std::optional<Error> failure_ SHARDSCOPE_GUARDED_BY(mutex_);
};

WorkerScheduler::WorkerScheduler(CoordinatorOptions options) : options_(std::move(options)) {
    size_t local = 0, lent = 0;
    for (const WorkerSpec& place : options_.places) {
        WorkerState state;
        state.name = place.rank >= 0      ? fmt::format("rank {}", place.rank)
                     : place.slurm        ? fmt::format("slurm {}", ++lent)
                     : place.host.empty() ? fmt::format("local {}", ++local)
                                          : place.host;
        states_.push_back(std::move(state));
    }
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
    const WorkerSpec& first = options_.places.front();
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

Status WorkerScheduler::run(const JobIdentity& identity, const std::vector<Unit>& units,
                            const std::function<Status(size_t unit, UnitResult result)>& done,
                            Progress* progress, const StopToken& stop) {
    if (!run_) run_ = std::make_unique<CoordinatorRun>(*this, stop);
    return run_->run(identity, progress, units, done);
}

void WorkerScheduler::end() {
    run_.reset();
}

}  // namespace shardscope
