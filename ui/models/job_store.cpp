#include "ui/models/job_store.h"

#include <QDir>
#include <QFile>
#include <QFileInfo>
#include <algorithm>

#include "cluster/worker_list.h"
#include "ui/bridge/hosts.h"
#include "ui/models/session.h"

namespace shardscope::ui {

namespace {

constexpr int kBusyMilliseconds = 200;
constexpr int kIdleMilliseconds = 2000;

}  // namespace

struct JobStore::Watch {
    QString directory;
    struct Entry {
        std::unique_ptr<JobReader> reader;
        std::shared_ptr<const Job> shown;
        uint64_t version = 0;
    };
    std::map<QString, Entry> entries;
};

JobStore::JobStore(QObject* parent, const QString& directory)
    : QObject(parent),
      records_(directory.toStdString()),
      directory_(QString::fromStdString(records_.path())),
      watch_(std::make_shared<Watch>()) {
    watch_->directory = directory_;
    thread_.setMaxThreadCount(1);
    connect(&timer_, &QTimer::timeout, this, &JobStore::refresh);
    timer_.start(kIdleMilliseconds);
    refresh();
}

JobStore::~JobStore() {
    thread_.waitForDone();
}

Result<QString> JobStore::program() const {
    if (!program_.isEmpty()) {
        if (QFileInfo(program_).isExecutable()) return program_;
        return makeError(ErrorCode::notFound, tr("'%1' is not a program").arg(program_).toStdString())
            .withHint(tr("choose the shardscope program that runs jobs").toStdString());
    }
    return commandLineProgram();
}

const Job* JobStore::find(const QString& id) const {
    const auto it = std::find_if(jobs_.begin(), jobs_.end(), [&](const auto& job) { return job->id == id; });
    return it == jobs_.end() ? nullptr : it->get();
}

size_t JobStore::activeCount() const {
    return static_cast<size_t>(
        std::count_if(jobs_.begin(), jobs_.end(), [](const auto& job) { return job->active(); }));
}

void JobStore::refresh() {
    if (looking_) {
        again_ = true;
        return;
    }
    looking_ = true;
    thread_.start([this, watch = watch_] {
        auto answer = std::make_shared<Look>(look(*watch));
        // The destructor waits for this thread, and events for a destroyed object are dropped.
        QMetaObject::invokeMethod(
            this, [this, answer] { take(std::move(*answer)); }, Qt::QueuedConnection);
    });
}

JobStore::Look JobStore::look(Watch& watch) {
    Look result;
    const QStringList names = QDir(watch.directory).entryList(QDir::Dirs | QDir::NoDotAndDotDot);
    std::erase_if(watch.entries, [&](const auto& entry) { return !names.contains(entry.first); });
    for (const QString& name : names) {
        Watch::Entry& entry = watch.entries[name];
        if (!entry.reader) entry.reader = std::make_unique<JobReader>(watch.directory + '/' + name);
        if (const Status status = entry.reader->poll(); !status.ok()) {
            // A job that another window is just creating or removing is not a job yet, or no more.
            if (QFile::exists(watch.directory + '/' + name + "/job.json") ||
                QFileInfo(watch.directory + '/' + name).lastModified().secsTo(QDateTime::currentDateTime()) >
                    5)
                result.skipped += QObject::tr("'%1' was skipped: %2.")
                                      .arg(name, QString::fromStdString(status.error().message));
            continue;
        }
        if (!entry.shown || entry.version != entry.reader->version()) {
            entry.version = entry.reader->version();
            entry.shown = std::make_shared<const Job>(entry.reader->job());
            result.changed += name;
        }
        result.jobs.push_back(entry.shown);
    }
    std::sort(result.jobs.begin(), result.jobs.end(), [](const auto& a, const auto& b) {
        return std::pair(a->record.created, a->record.id) > std::pair(b->record.created, b->record.id);
    });
    return result;
}

void JobStore::take(Look look) {
    looking_ = false;
    const auto sameId = [](const auto& a, const auto& b) { return a->id == b->id; };
    const bool list = !ready_ || look.skipped != skipped_ ||
                      !std::equal(jobs_.begin(), jobs_.end(), look.jobs.begin(), look.jobs.end(), sameId);
    ready_ = true;
    // A look that began before another attempt was started knows less than this window.
    for (auto& job : look.jobs) {
        const auto known =
            std::find_if(jobs_.begin(), jobs_.end(), [&](const auto& j) { return j->id == job->id; });
        if (known != jobs_.end() && (*known)->record.attempts > job->record.attempts) job = *known;
    }
    jobs_ = std::move(look.jobs);
    skipped_ = std::move(look.skipped);
    for (const auto& job : jobs_) {
        if (!job->active()) cancelling_.removeAll(job->id);
    }
    if (list) emit listChanged();
    for (const QString& id : look.changed)
        emit changed(id);
    timer_.setInterval(activeCount() ? kBusyMilliseconds : kIdleMilliseconds);
    if (again_) {
        again_ = false;
        refresh();
    }
}

// Shows the job as starting at once, so that nobody starts it twice. `before` is what it was, null for a new
// one.
void JobStore::launch(Job job, std::shared_ptr<const Job> before, bool resume) {
    job.record.started = QDateTime::currentDateTimeUtc().toString(Qt::ISODateWithMs).toStdString();
    job.record.state = JobState::starting;
    job.record.pid = 0;
    job.error.reset();
    job.report.reset();
    for (auto& known : jobs_) {
        if (known->id != job.id) continue;
        known = std::make_shared<const Job>(job);
        emit changed(job.id);
    }
    // The thread that looks at jobs, too: a look sees a launch whole or not at all.
    thread_.start([this, records = records_, job = std::move(job), before = std::move(before), resume] {
        Status status;
        if (before) {
            JobRecord next = before->record;
            next.program = job.record.program;
            status = records.again(next, resume);
        } else {
            status = records.start(job.record);
        }
        QMetaObject::invokeMethod(
            this, [this, id = job.id, before, status] { launchEnded(id, before, status); },
            Qt::QueuedConnection);
    });
}

void JobStore::launchEnded(const QString& id, const std::shared_ptr<const Job>& before,
                           const Status& status) {
    if (status.ok()) {
        emit launched(id);
    } else {
        for (auto& known : jobs_) {
            if (known->id != id || !before) continue;
            known = before;
            emit changed(id);
        }
        emit failed(id, errorSentence(status.error()));
    }
    timer_.setInterval(kBusyMilliseconds);
    refresh();
}

Result<QString> JobStore::start(const ConversionSpec& spec, const QString& title) {
    Job job;
    SHARDSCOPE_ASSIGN(const QString path, program());
    job.record.id = JobDirectory::newId();
    job.record.title = title.toStdString();
    job.record.program = path.toStdString();
    job.record.order = {spec.toJob(), {}, {}};
    job.id = QString::fromStdString(job.record.id);
    const QString id = job.id;
    launch(std::move(job), nullptr, false);
    return id;
}

Status JobStore::cancel(const QString& id) {
    const Job* job = find(id);
    if (!job || !job->active())
        return makeError(ErrorCode::notFound, tr("the job does not run").toStdString());
    SHARDSCOPE_TRY(records_.cancel(job->record));
    if (!cancelling_.contains(id)) cancelling_ += id;
    refresh();
    return {};
}

Status JobStore::resume(const QString& id) {
    return again(id, true);
}

Status JobStore::retry(const QString& id) {
    return again(id, false);
}

Status JobStore::again(const QString& id, bool resume) {
    const auto job = std::find_if(jobs_.begin(), jobs_.end(), [&](const auto& j) { return j->id == id; });
    if (job == jobs_.end() || (*job)->active())
        return makeError(ErrorCode::notFound, tr("there is no such job, or it runs").toStdString());
    Job next = **job;
    SHARDSCOPE_ASSIGN(const QString path, program());
    next.record.program = path.toStdString();
    ++next.record.attempts;
    launch(std::move(next), *job, resume);
    return {};
}

Status JobStore::remove(const QString& id) {
    const Job* job = find(id);
    if (!job) return makeError(ErrorCode::notFound, tr("there is no such job").toStdString());
    SHARDSCOPE_TRY(records_.remove(job->record));
    refresh();
    return {};
}

}  // namespace shardscope::ui
