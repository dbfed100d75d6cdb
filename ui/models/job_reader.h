// One job as the window shows it: what core/jobs says of it, and what it printed, followed line by line:
// messages and rates over time. A job is a child process that outlives the window; its files are all that is
// known of it.
#pragma once

#include <QDateTime>
#include <QString>
#include <QStringList>
#include <memory>
#include <optional>
#include <vector>

#include "jobs/jobs.h"

namespace shardscope::ui {

// What threads spent their time on: seconds, summed over threads.
struct JobBusy {
    double read = 0, compute = 0, write = 0;
    bool operator==(const JobBusy&) const = default;
    JobBusy& operator+=(const JobBusy& more);
    bool any() const { return read + compute + write > 0; }
};

// Bytes read and written in one stretch of time, and what the threads did.
struct JobRate {
    double read = 0, written = 0;  // bytes
    JobBusy busy{};
    JobRate& operator+=(const JobRate& more);
};

struct JobMessage {
    enum class Kind : uint8_t { info, warning, error } kind = Kind::info;
    QString text;  // a sentence
    QString raw;   // the line as it was printed; may be empty
};

struct JobEntry {
    QString name, why;
};

// One of several processes that do a job.
struct JobWorker {
    QString name, state;  // "node7"; "starting", "working", "idle", "lost", "ended"
    uint64_t bytes = 0;   // written
    QString why;          // it was lost
    JobBusy spent{};
    // In each stretch of time, as in Job::rates; shorter when nothing came of late. `read` is not known of
    // one worker. Kept of the first workers only.
    std::vector<JobRate> rates{};
    bool operator==(const JobWorker&) const = default;
};

struct JobReport {
    uint64_t bytesRead = 0, bytesWritten = 0, bytesReused = 0, peakMemory = 0, tensors = 0;
    double seconds = 0, verifySeconds = 0;
    QString verify;  // "digest", "full", "none"
    bool verified = false;
    std::vector<JobEntry> leftOut, unknown, changed;
    std::vector<JobEntry> findings;  // tensor, what was found in it
};

struct JobError {
    QString code, message, file, tensor, hint;
};

struct Job {
    QString id;
    JobRecord record;  // as core/jobs has it, without its progress and result
    JobProgress progress;
    QString tensor;
    double rateStep = 0.5;           // seconds that one element of `rates` stands for
    std::vector<JobRate> rates;      // over the time that the job ran
    std::vector<JobWorker> workers;  // empty where one process does it all
    std::vector<JobMessage> log;     // the last ones
    std::optional<JobReport> report;
    std::optional<JobError> error;

    // For programs, as they are; what is shown of them is made printable.
    QString source() const { return QString::fromStdString(record.source); }
    QString destination() const { return QString::fromStdString(record.destination); }
    QStringList arguments() const;  // without --resume of later attempts and without output options
    bool is(JobState state) const { return record.state == state; }
    bool active() const { return record.active(); }
    bool resumable() const { return !active() && !is(JobState::done); }
    double share() const { return is(JobState::done) ? 1 : progress.share; }  // as JobProgress::share
    JobBusy busy() const;  // of all attempts; nothing where the program does not say it
};

// Reads one job, each byte of its progress once. For one thread at a time.
class JobReader {
  public:
    explicit JobReader(QString directory);

    // Reads no more than the time of one file once the outcome is known. Errors: those of job.json; then
    // there is no job to show.
    Status poll();
    const Job& job() const { return job_; }
    // Counts up whenever poll() found something new.
    uint64_t version() const { return version_; }

  private:
    void readProgress();
    void takeLine(const QByteArray& line);
    void takeProgress(const QByteArray& line);
    void takeWorkers(const nlohmann::json& event);
    void addRate(double seconds, const JobRate& more);
    void addTo(std::vector<JobRate>& rates, const JobRate& more);
    void say(JobMessage::Kind kind, const QString& text, const QByteArray& raw = {});
    void takeOutcome();

    QString directory_;
    JobDirectory jobs_;
    Job job_;
    uint64_t version_ = 0;
    QByteArray partial_;
    QDateTime described_;  // when job.json was written, as far as it has been read
    qint64 describedSize_ = -1;
    qint64 offset_ = 0;
    // Where the current attempt and phase stand in time.
    double before_ = 0;  // seconds of earlier attempts and phases
    double phaseSeconds_ = 0;
    QString linePhase_;
    uint64_t lineDone_ = 0;
    JobBusy lineBusy_;
    bool settled_ = false;  // the outcome of this attempt has been read
    int attempt_ = 0;
};

// A word for people: "Running", "Lost: can be resumed".
QString jobStateText(const Job& job);
QString jobPhaseText(const Job& job);

}  // namespace shardscope::ui
