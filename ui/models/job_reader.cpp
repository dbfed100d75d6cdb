#include "ui/models/job_reader.h"

#include <QDir>
#include <QFile>
#include <QFileInfo>
#include <QSysInfo>
#include <algorithm>

#include <nlohmann/json.hpp>

#include "ui/models/texts.h"

namespace shardscope::ui {

namespace {

using Json = nlohmann::json;

constexpr size_t kMostMessages = 1000;
constexpr size_t kMostRates = 600;
constexpr size_t kMostWorkerRates = 64;  // workers
constexpr size_t kMostEntries = 10'000;  // of a report's lists; the file has them all
constexpr qint64 kBlock = qint64{1} << 20;

Json parse(const QByteArray& text) {
    return Json::parse(text.cbegin(), text.cend(), nullptr, false);
}

QString text(const Json& object, const char* key) {
    return toQString(textIn(object, key));
}
// For paths and arguments, which are handed back to programs as they are.
QString exact(const std::string& text) {
    return QString::fromStdString(text);
}
uint64_t count(const Json& object, const char* key) {
    return static_cast<uint64_t>(std::min(numberIn(object, key), 9e18));
}
JobBusy busyOf(const Json& object) {
    const auto it = object.is_object() ? object.find("busy_s") : object.end();
    if (!object.is_object() || it == object.end()) return {};
    const auto seconds = [&](const char* key) { return numberIn(*it, key); };
    return {seconds("read"), seconds("compute"), seconds("write")};
}
// What came since `before`; one that is started anew counts from the beginning.
JobBusy since(const JobBusy& now, const JobBusy& before) {
    const auto fresh = [](double n, double b) { return n >= b ? n - b : n; };
    return {fresh(now.read, before.read), fresh(now.compute, before.compute), fresh(now.write, before.write)};
}

// Two stretches of time become one.
void fold(std::vector<JobRate>& rates) {
    for (size_t i = 0; i < (rates.size() + 1) / 2; ++i) {
        JobRate both = rates[2 * i];
        if (2 * i + 1 < rates.size()) both += rates[2 * i + 1];
        rates[i] = both;
    }
    rates.resize((rates.size() + 1) / 2);
}

const Json* list(const Json& object, const char* key) {
    if (!object.is_object()) return nullptr;
    const auto it = object.find(key);
    return it != object.end() && it->is_array() ? &*it : nullptr;
}

std::vector<JobEntry> entries(const Json* array, const char* second) {
    std::vector<JobEntry> out;
    if (!array) return out;
    for (const Json& item : *array) {
        if (out.size() == kMostEntries) break;
        out.push_back({text(item, "name"), text(item, second)});
    }
    return out;
}

// As a sentence: the engine's messages begin small, so that they can stand after a place.
QString sentence(QString text) {
    if (text.isEmpty()) return text;
    text[0] = text[0].toUpper();
    return text.endsWith('.') || text.endsWith('?') ? text : text + '.';
}

QString findingText(const Json& finding) {
    return QObject::tr("%1 NaN and %2")
        .arg(numberText(count(finding, "nan")),
             countedText(count(finding, "inf"), QObject::tr("1 infinite value"),
                         QObject::tr("%1 infinite values")));
}

JobError errorOf(const Json& json) {
    JobError error{text(json, "code"), sentence(text(json, "message")), text(json, "file"),
                   text(json, "tensor"), sentence(messageText(text(json, "hint").toStdString()))};
    if (error.message.isEmpty())
        error.message = QObject::tr("The program reported a failure without saying what it was.");
    return error;
}

JobReport reportOf(const Json& json) {
    JobReport report;
    report.bytesRead = count(json, "bytes_read");
    report.bytesWritten = count(json, "bytes_written");
    report.bytesReused = count(json, "bytes_reused");
    report.peakMemory = count(json, "peak_rss");
    report.seconds = numberIn(json, "seconds");
    report.verifySeconds = numberIn(json, "verify_seconds");
    report.verify = text(json, "verify");
    const auto verified = json.find("verified");
    report.verified = verified != json.end() && verified->is_boolean() && verified->get<bool>();
    report.leftOut = entries(list(json, "left_out"), "why");
    report.unknown = entries(list(json, "unknown"), "why");
    if (const auto plan = json.find("plan"); plan != json.end()) {
        report.tensors = count(*plan, "tensors");
        report.changed = entries(list(*plan, "changed"), "why");
    }
    if (const Json* findings = list(json, "findings")) {
        for (const Json& finding : *findings) {
            if (report.findings.size() == kMostEntries) break;
            report.findings.push_back({text(finding, "tensor"), findingText(finding)});
        }
    }
    return report;
}

}  // namespace

JobBusy& JobBusy::operator+=(const JobBusy& more) {
    read += more.read;
    compute += more.compute;
    write += more.write;
    return *this;
}

JobRate& JobRate::operator+=(const JobRate& more) {
    read += more.read;
    written += more.written;
    busy += more.busy;
    return *this;
}

JobBusy Job::busy() const {
    JobBusy all;
    for (const JobRate& each : rates)
        all += each.busy;
    return all;
}

QStringList Job::arguments() const {
    QStringList words;
    for (const std::string& word : record.arguments)
        words += exact(word);
    return words;
}

JobReader::JobReader(QString directory)
    : directory_(std::move(directory)), jobs_(QFileInfo(directory_).path().toStdString()) {
    job_.id = QFileInfo(directory_).fileName();
}

Status JobReader::poll() {
    const QFileInfo file(directory_ + "/job.json");
    const bool same = file.exists() && file.lastModified() == described_ && file.size() == describedSize_;
    if (same && settled_) return {};
    // What a job wrote before it ended is there once its end is known.
    SHARDSCOPE_ASSIGN(JobRecord record, jobs_.read(job_.id.toStdString(), false));
    if (!QDateTime::fromString(exact(record.started), Qt::ISODateWithMs).isValid() ||
        !QDateTime::fromString(exact(record.created), Qt::ISODateWithMs).isValid()) {
        return makeError(ErrorCode::damaged, "job.json does not say when the job began")
            .inFile(file.filePath().toStdString());
    }
    if (!same) ++version_;
    described_ = file.lastModified();
    describedSize_ = file.size();
    if (record.attempts != attempt_) {
        // Another attempt, perhaps started by another window: its outcome is still to come.
        attempt_ = record.attempts;
        settled_ = false;
        job_.error.reset();
        job_.report.reset();
        job_.workers.clear();
        job_.progress = {};
    }
    if (!job_.is(record.state) || job_.record.pid != record.pid) ++version_;
    job_.record = std::move(record);
    readProgress();
    if (!job_.active()) {
        settled_ = true;
        takeOutcome();
    }
    // It may be large.
    job_.record.result = nullptr;
    return {};
}

void JobReader::readProgress() {
    QFile file(directory_ + "/progress.ndjson");
    if (!file.open(QIODevice::ReadOnly)) return;
    if (file.size() < offset_) {  // someone cut it short; begin again
        offset_ = 0;
        partial_.clear();
    }
    if (file.size() == offset_ || !file.seek(offset_)) return;
    for (;;) {
        const QByteArray block = file.read(kBlock);
        if (block.isEmpty()) break;
        offset_ += block.size();
        qsizetype begin = 0;
        for (qsizetype end; (end = block.indexOf('\n', begin)) >= 0; begin = end + 1) {
            partial_ += block.mid(begin, end - begin);
            takeLine(partial_);
            partial_.clear();
        }
        partial_ += block.mid(begin);
    }
    ++version_;
}

void JobReader::say(JobMessage::Kind kind, const QString& text, const QByteArray& raw) {
    if (job_.log.size() >= kMostMessages)
        job_.log.erase(job_.log.begin(), job_.log.begin() + kMostMessages / 10);
    job_.log.push_back(
        {kind, text, toQString(std::string_view(raw.constData(), static_cast<size_t>(raw.size())))});
    ++version_;
}

void JobReader::takeLine(const QByteArray& line) {
    if (line.trimmed().isEmpty()) return;
    if (line.startsWith("{\"event\":\"progress\"")) return takeProgress(line);
    if (line.startsWith("{\"event\":\"done\"")) return;  // the report, which result.json has too
    const Json json = parse(line);
    const QString event = text(json, "event");
    if (event == QLatin1String("attempt")) {
        before_ += phaseSeconds_;
        phaseSeconds_ = 0;
        linePhase_.clear();
        lineBusy_ = {};
        const int n = static_cast<int>(numberIn(json, "number"));
        say(JobMessage::Kind::info,
            n > 1 ? QObject::tr("Attempt %1 began.").arg(n) : QObject::tr("The job began."), line);
    } else if (event == QLatin1String("finding") && json.contains("finding")) {
        const Json& finding = json["finding"];
        say(JobMessage::Kind::warning,
            QObject::tr("'%1' holds %2.").arg(text(finding, "tensor"), findingText(finding)), line);
    } else if (event == QLatin1String("workers")) {
        takeWorkers(json);
    } else if (event == QLatin1String("error") && json.contains("error")) {
        say(JobMessage::Kind::error, errorOf(json["error"]).message, line);
    } else {
        say(JobMessage::Kind::info,
            toQString(std::string_view(line.constData(), static_cast<size_t>(line.size()))), line);
    }
}

void JobReader::takeWorkers(const Json& event) {
    constexpr size_t kMostWorkers = 1000;
    std::vector<JobWorker> workers;
    const Json* said = list(event, "workers");
    for (size_t i = 0; said && i < std::min(said->size(), kMostWorkers); ++i) {
        const Json& worker = (*said)[i];
        workers.push_back({text(worker, "name"), text(worker, "state"), count(worker, "bytes"),
                           text(worker, "why"), busyOf(worker)});
        JobWorker& now = workers.back();
        if (i < kMostWorkerRates) {
            uint64_t bytes = 0;
            JobBusy spent;
            if (i < job_.workers.size() && job_.workers[i].name == now.name) {
                bytes = job_.workers[i].bytes;
                spent = job_.workers[i].spent;
                now.rates = std::move(job_.workers[i].rates);
            }
            // One that is started anew, or begins to verify, counts from the beginning.
            const uint64_t fresh = now.bytes >= bytes ? now.bytes - bytes : now.bytes;
            const JobBusy busy = since(now.spent, spent);
            const auto moved = static_cast<double>(fresh);
            const bool verifying = linePhase_ == QLatin1String("verify");
            if (fresh || busy.any()) addTo(now.rates, {verifying ? moved : 0, verifying ? 0 : moved, busy});
        }
        if (workers.back().state == QLatin1String("lost") &&
            (i >= job_.workers.size() || job_.workers[i].state != workers.back().state))
            say(JobMessage::Kind::warning, QObject::tr("The worker '%1' was lost; others do its part. %2")
                                               .arg(workers.back().name, sentence(workers.back().why)));
    }
    job_.workers = std::move(workers);
}

void JobReader::takeProgress(const QByteArray& line) {
    const Json json = parse(line);
    if (!json.is_object()) return;
    const QString phase = text(json, "phase");
    const uint64_t done = count(json, "bytes_done");
    const double rate = numberIn(json, "rate");
    if (phase != linePhase_) {
        before_ += phaseSeconds_;
        phaseSeconds_ = 0;
        lineDone_ = 0;
        linePhase_ = phase;
        if (phase == QLatin1String("write"))
            say(JobMessage::Kind::info,
                QObject::tr("Reading the source and writing %1.").arg(sizeText(count(json, "bytes_total"))),
                line);
        else if (phase == QLatin1String("verify"))
            say(JobMessage::Kind::info, QObject::tr("Reading the destination back to compare digests."),
                line);
        else if (phase == QLatin1String("commit"))
            say(JobMessage::Kind::info, QObject::tr("Moving the destination into place."), line);
    }
    // Events carry no clock, but their mean rate says for how long the phase has run.
    if (done > 0 && rate > 0) phaseSeconds_ = std::max(phaseSeconds_, static_cast<double>(done) / rate);
    const double fresh = done > lineDone_ ? static_cast<double>(done - lineDone_) : 0;
    lineDone_ = done;
    const bool writing = phase == QLatin1String("write");
    const JobBusy busy = busyOf(json);
    addRate(before_ + phaseSeconds_, {fresh, writing ? fresh : 0, since(busy, lineBusy_)});
    lineBusy_ = busy;
    job_.progress = jobProgress(json, job_.record.arguments);
    job_.tensor = text(json, "tensor");
}

// In the present stretch of time.
void JobReader::addTo(std::vector<JobRate>& rates, const JobRate& more) {
    const size_t at = job_.rates.empty() ? 0 : job_.rates.size() - 1;
    if (rates.size() <= at) rates.resize(at + 1);
    rates[at] += more;
}

void JobReader::addRate(double seconds, const JobRate& more) {
    auto at = static_cast<size_t>(seconds / job_.rateStep);
    while (at >= kMostRates) {
        fold(job_.rates);
        for (JobWorker& worker : job_.workers)
            fold(worker.rates);
        job_.rateStep *= 2;
        at = static_cast<size_t>(seconds / job_.rateStep);
    }
    if (job_.rates.size() <= at) job_.rates.resize(at + 1);
    job_.rates[at] += more;
}

void JobReader::takeOutcome() {
    const JobRecord& record = job_.record;
    if (text(record.result, "schema") == QLatin1String("shardscope.error/1"))
        job_.error = errorOf(record.result);
    switch (record.state) {
        case JobState::done:
            job_.report = reportOf(record.result);
            say(JobMessage::Kind::info,
                QObject::tr("Done: %1 written.").arg(sizeText(job_.report->bytesWritten)));
            return;
        case JobState::lost:
            say(JobMessage::Kind::warning,
                record.exitCode > 128
                    ? QObject::tr(
                          "The program was ended by signal %1. Its work so far may be kept: resume the job.")
                          .arg(record.exitCode - 128)
                    : QObject::tr("The process ended without a result. Its work so far may be kept: resume "
                                  "the job."));
            return;
        case JobState::failed:
            break;
        default:
            return;
    }
    if (job_.error) return;
    JobError error;
    if (record.exitCode == 126 || record.exitCode == 127) {
        error.message = QObject::tr("The program '%1' could not be started.").arg(exact(record.program));
        error.hint =
            QObject::tr("Install shardscope beside this program or in a directory of PATH, then retry.");
    } else {
        error.message =
            QObject::tr("The program ended with code %1 and left no report.").arg(record.exitCode);
        error.hint = QObject::tr("See its last messages in the log of the job.");
    }
    job_.error = error;
}

QString jobStateText(const Job& job) {
    switch (job.record.state) {
        case JobState::starting:
            return QObject::tr("Starting");
        case JobState::running:
            return job.record.elsewhere ? QObject::tr("Running on %1").arg(toQString(job.record.host))
                                        : jobPhaseText(job);
        case JobState::done:
            return QObject::tr("Done");
        case JobState::failed:
            return QObject::tr("Failed");
        case JobState::cancelled:
            return QObject::tr("Canceled");
        case JobState::lost:
            return QObject::tr("Lost, can be resumed");
    }
    return {};
}

QString jobPhaseText(const Job& job) {
    const std::string_view text = shardscope::jobPhaseText(job.progress.phase);
    QString words = QString::fromUtf8(text.data(), static_cast<qsizetype>(text.size()));
    words[0] = words[0].toUpper();
    return words;
}

}  // namespace shardscope::ui
