// The conversions that were started from windows, and by `shardscope jobs run`. Each is a child process of
// its own session, so that it outlives the window. Its directory under $XDG_STATE_HOME/shardscope/jobs says
// all that is known of it (see core/jobs/jobs.h). Several windows may watch the same jobs.
#pragma once

#include <QObject>
#include <QThreadPool>
#include <QTimer>
#include <map>
#include <memory>
#include <vector>

#include "ui/models/conversion_spec.h"
#include "ui/models/job_reader.h"

namespace shardscope::ui {

class JobStore : public QObject {
    Q_OBJECT
  public:
    // An empty `directory` means that of core/jobs.
    explicit JobStore(QObject* parent = nullptr, const QString& directory = {});
    ~JobStore() override;  // jobs continue

    const QString& directory() const { return directory_; }
    // The program that runs jobs: the one set here, else commandLineProgram(). Errors: notFound.
    void setProgram(const QString& path) { program_ = path; }
    Result<QString> program() const;

    // Newest first, as of the last look at the directory. GUI thread.
    const std::vector<std::shared_ptr<const Job>>& jobs() const { return jobs_; }
    const Job* find(const QString& id) const;
    size_t activeCount() const;
    // Directories that hold no readable job, each as a sentence.
    const QStringList& skipped() const { return skipped_; }
    // Whether the directory has been looked at once.
    bool ready() const { return ready_; }

    // Each returns at once; what becomes of it shows in the jobs. The files of start(), resume() and retry()
    // are written on a thread of their own: launched() or failed() says how that went. Errors: notFound, io,
    // permission.
    Result<QString> start(const ConversionSpec& spec, const QString& title);
    Status cancel(const QString& id);  // the first time orderly; asked again, at once
    Status resume(const QString& id);
    Status retry(const QString& id);
    Status remove(const QString& id);  // from the list; what the job wrote stays
    // Whether cancel() was called for this attempt.
    bool cancelling(const QString& id) const { return cancelling_.contains(id); }

    // Looks at the directory now rather than at the next tick.
    void refresh();

  signals:
    void listChanged();               // jobs came or went, or others were skipped
    void changed(const QString& id);  // something of this job is new; at most five times a second
    void launched(const QString& id);
    void failed(const QString& id, const QString& why);  // it could not be launched

  private:
    struct Watch;  // what the reading thread keeps between two looks
    struct Look {
        std::vector<std::shared_ptr<const Job>> jobs;
        QStringList changed, skipped;
    };
    static Look look(Watch& watch);
    void take(Look look);
    void launch(Job job, std::shared_ptr<const Job> before, bool resume);
    void launchEnded(const QString& id, const std::shared_ptr<const Job>& before, const Status& status);
    Status again(const QString& id, bool resume);

    JobDirectory records_;
    QString directory_, program_;
    std::shared_ptr<Watch> watch_;
    std::vector<std::shared_ptr<const Job>> jobs_;
    QStringList skipped_, cancelling_;
    bool ready_ = false, looking_ = false, again_ = false;
    QTimer timer_;
    QThreadPool thread_;  // one thread: reading may wait for a disk
};

}  // namespace shardscope::ui
