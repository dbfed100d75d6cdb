#include "ui/bridge/tasks.h"

#include <QCoreApplication>
#include <QDeadlineTimer>
#include <QPointer>
#include <QThreadPool>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <iterator>
#include <new>
#include <optional>

#include <sys/resource.h>
#include <unistd.h>

namespace shardscope::ui {

using Clock = std::chrono::steady_clock;

struct Ticket::State {
    QString title;
    StopSource stop;
    Progress progress;
    Clock::time_point start = Clock::now();
    std::atomic<bool> begun{false}, dropped{false};
    // Touched by the GUI thread only.
    bool running = true;
    // The phase of the last look at it; none before the first.
    std::optional<Progress::Phase> phase;
    Clock::time_point phaseStart = start;
};

namespace {

// Not the global pool: whatever else uses that one must not starve a click. Engine calls bring threads of
// their own for heavy work. Of metadata many: each look at a file system that hangs keeps its thread.
constexpr int kThreads[] = {4, 32, 6};

QThreadPool& pool(Work kind) {
    struct Pools {
        QThreadPool of[std::size(kThreads)];
        Pools() {
            for (size_t i = 0; i < std::size(kThreads); ++i)
                of[i].setMaxThreadCount(kThreads[i]);
        }
    };
    static Pools instance;
    return instance.of[static_cast<size_t>(kind)];
}

// Reading for long must not keep a filter waiting that somebody looks at, nor the other users of a login
// node. The threads that a task starts take this over.
void yieldToOthers() {
    constexpr int kNice = 10;
    setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kNice);
}

constexpr int kProgressMilliseconds = 100;

// What one thread did before handOver() is seen by the other after takeOver(). Qt's pool and event loop see
// to that as well, but with locks that the thread sanitizer does not know, because Qt is not built with it.
std::atomic<unsigned> handedOver{0};
void handOver() {
    handedOver.fetch_add(1, std::memory_order_release);
}
void takeOver() {
    (void)handedOver.load(std::memory_order_acquire);
}

}  // namespace

bool Ticket::running() const {
    return state_ && state_->running;
}

void Ticket::cancel() {
    if (state_) state_->stop.requestStop();
}

void Ticket::drop() {
    if (!state_) return;
    state_->stop.requestStop();
    state_->dropped = true;
    state_->running = false;
}

TaskStatus Ticket::status() const {
    TaskStatus status;
    if (!state_) return status;
    State& state = *state_;
    const auto now = Clock::now();
    status.title = state.title;
    status.waiting = state.running && !state.begun;
    status.phase = state.progress.phase();
    status.done = state.progress.bytesDone();
    status.total = state.progress.bytesTotal();
    status.tensor = QString::fromStdString(state.progress.tensor());
    status.seconds = std::chrono::duration<double>(now - state.start).count();
    if (state.phase && status.phase != *state.phase) state.phaseStart = now;
    state.phase = status.phase;
    const double inPhase = std::chrono::duration<double>(now - state.phaseStart).count();
    if (inPhase > 0.2 && status.done > 0) {
        status.rate = static_cast<double>(status.done) / inPhase;
        if (status.total >= status.done && status.total > 0)
            status.secondsLeft = static_cast<double>(status.total - status.done) / status.rate;
    }
    return status;
}

Tasks::Tasks(QObject* parent) : QObject(parent) {
    timer_.setInterval(kProgressMilliseconds);
    connect(&timer_, &QTimer::timeout, this, &Tasks::progressed);
}

Tasks::~Tasks() {
    for (const auto& state : running_) {
        state->stop.requestStop();
        state->dropped = true;
        state->running = false;
    }
}

Error Tasks::errorOfException() {
    try {
        throw;
    } catch (const std::bad_alloc&) {
        return makeError(ErrorCode::limit, "there is not enough memory for this");
    } catch (const std::exception& e) {
        return makeError(ErrorCode::internal, std::string("an internal error: ") + e.what());
    } catch (...) {
        return makeError(ErrorCode::internal, "an internal error");
    }
}

Ticket Tasks::start(Work kind, const QString& title, std::function<Answer(const TaskContext&)> work) {
    auto state = std::make_shared<Ticket::State>();
    state->title = title;
    running_.push_back(state);
    if (!timer_.isActive()) timer_.start();
    emit changed();

    QPointer<Tasks> self(this);
    std::function<void()> job = [self, state, kind, work = std::move(work)]() mutable {
        takeOver();
        if (kind == Work::bulk) yieldToOthers();
        state->begun = true;
        TaskContext context{state->stop, &state->progress};
        auto answer = std::make_shared<Answer>();
        if (!state->dropped) *answer = work(context);
        work = nullptr;  // what it owns is released here, not on the GUI thread
        handOver();
        QMetaObject::invokeMethod(
            QCoreApplication::instance(),
            [self, state, answer] {
                takeOver();
                if (self) self->finish(state);
                if (!state->dropped) {
                    state->running = false;
                    (*answer)();
                }
            },
            Qt::QueuedConnection);
    };
    handOver();  // what the job holds, too
    pool(kind).start(std::move(job));
    Ticket ticket;
    ticket.state_ = std::move(state);
    return ticket;
}

void Tasks::finish(const std::shared_ptr<Ticket::State>& state) {
    running_.erase(std::remove(running_.begin(), running_.end(), state), running_.end());
    if (running_.empty()) timer_.stop();
    emit changed();
}

std::vector<Ticket> Tasks::running() const {
    std::vector<Ticket> list;
    for (const auto& state : running_) {
        if (state->dropped) continue;
        Ticket ticket;
        ticket.state_ = state;
        list.push_back(ticket);
    }
    return list;
}

bool Tasks::waitForAll(int milliseconds) {
    const QDeadlineTimer deadline(milliseconds);
    bool idle = true;
    for (const Work kind : {Work::query, Work::metadata, Work::bulk}) {
        const qint64 left = milliseconds < 0 ? -1 : deadline.remainingTime();
        idle = pool(kind).waitForDone(static_cast<int>(left)) && idle;
    }
    return idle;
}

}  // namespace shardscope::ui
