// Work off the GUI thread. Every piece of work has a ticket. Its answer comes back on the GUI thread, unless
// the ticket was dropped in the meantime. Then the answer is thrown away, however late it comes.
#pragma once

#include <QObject>
#include <QString>
#include <QTimer>
#include <functional>
#include <memory>
#include <vector>

#include "base/progress.h"
#include "base/result.h"
#include "base/stop.h"

namespace shardscope::ui {

// What a task does most. Each kind has threads of its own. So a filter answers while values are read, or
// while a file system does not answer.
enum class Work {
    query,     // computes on what is in memory: filter, map, search
    metadata,  // reads little: opening, listings, headers, a slice of values; may hang with its file system
    bulk,      // reads data for long: every value of a checkpoint
};

// What a piece of work may use; it runs on another thread.
struct TaskContext {
    StopToken stop;
    Progress* progress = nullptr;
};

// How far a piece of work is, as a person wants to know it.
struct TaskStatus {
    QString title;
    bool waiting = false;  // for a thread: others of its kind have them all
    Progress::Phase phase = Progress::Phase::open;
    uint64_t done = 0, total = 0;  // bytes; total 0 = not known
    double seconds = 0;            // since it began
    double rate = 0;               // bytes a second in this phase
    double secondsLeft = -1;       // negative = not known
    QString tensor;
};

// A handle on one piece of work; copies mean the same one. The default one is of no work.
class Ticket {
  public:
    bool running() const;
    // Asks the work to stop; its answer is then an Error with code cancelled (or the result, if it was
    // faster).
    void cancel();
    // Asks the work to stop and wants no answer.
    void drop();
    TaskStatus status() const;

  private:
    friend class Tasks;
    struct State;
    std::shared_ptr<State> state_;
};

// Starts work for one view. GUI thread only. Destroying it drops all its tickets and does not wait.
class Tasks : public QObject {
    Q_OBJECT
  public:
    explicit Tasks(QObject* parent = nullptr);
    ~Tasks() override;

    // `work` runs on a thread for its kind and must own what it uses; `done` runs on the GUI thread. An
    // exception out of `work` becomes an Error.
    template <class T>
    Ticket run(Work kind, const QString& title, std::function<Result<T>(const TaskContext&)> work,
               std::function<void(Result<T>)> done) {
        return start(kind, title,
                     [work = std::move(work), done = std::move(done)](const TaskContext& context) {
                         auto answer = std::make_shared<Result<T>>(guarded<T>(work, context));
                         return std::function<void()>([answer, done] { done(std::move(*answer)); });
                     });
    }

    // Of work that was not dropped, oldest first.
    std::vector<Ticket> running() const;

    // Waits until no work of the whole program runs any more, or so many milliseconds (negative: without
    // end). For its end and for tests. False when some still runs.
    static bool waitForAll(int milliseconds = -1);

  signals:
    void changed();     // work began or ended
    void progressed();  // at most ten times a second while work runs

  private:
    using Answer = std::function<void()>;
    Ticket start(Work kind, const QString& title, std::function<Answer(const TaskContext&)> work);
    static Error errorOfException();
    template <class T>
    static Result<T> guarded(const std::function<Result<T>(const TaskContext&)>& work,
                             const TaskContext& context) {
        try {
            return work(context);
        } catch (...) {
            return errorOfException();
        }
    }
    void finish(const std::shared_ptr<Ticket::State>& state);

    std::vector<std::shared_ptr<Ticket::State>> running_;
    QTimer timer_;
};

}  // namespace shardscope::ui
