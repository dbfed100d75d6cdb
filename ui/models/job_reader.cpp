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
constexpr size_t kMostEntries = 10'000;  // of a report's lists; the file has them all
constexpr qint64 kBlock = qint64{1} << 20;
constexpr int kStartSeconds = 15;  // a shell that has not recorded itself by then never will

QByteArray contents(const QString& path) {
    QFile file(path);
    return file.open(QIODevice::ReadOnly) ? file.readAll() : QByteArray();
}

Json parse(const QByteArray& text) {
    return Json::parse(text.cbegin(), text.cend(), nullptr, false);
}

QString text(const Json& object, const char* key) {
    const auto it = object.is_object() ? object.find(key) : object.end();
    if (!object.is_object() || it == object.end() || !it->is_string()) return {};
    return toQString(it->get_ref<const std::string&>());
}
// For paths and arguments, which are handed back to programs as they are.
QString exact(const Json& object, const char* key) {
    const auto it = object.is_object() ? object.find(key) : object.end();
    if (!object.is_object() || it == object.end() || !it->is_string()) return {};
    return QString::fromStdString(it->get_ref<const std::string&>());
}
double number(const Json& object, const char* key) {
    if (!object.is_object()) return 0;
    const auto it = object.find(key);
    return it != object.end() && it->is_number() ? it->get<double>() : 0;
}
uint64_t count(const Json& object, const char* key) {
    const double value = number(object, key);
    return value > 0 ? static_cast<uint64_t>(value) : 0;
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
    return QObject::tr("%1 NaN and %2 infinite values")
        .arg(numberText(count(finding, "nan")), numberText(count(finding, "inf")));
}

JobError errorOf(const Json& json) {
    JobError error{text(json, "code"), sentence(text(json, "message")), text(json, "file"),
                   text(json, "tensor"), sentence(text(json, "hint"))};
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
    report.seconds = number(json, "seconds");
    report.verifySeconds = number(json, "verify_seconds");
    report.verify = text(json, "verify");
    const auto verified = json.find("verified");
    report.verified = verified != json.end() && verified->is_boolean() && verified->get<bool>();
    report.leftOut = entries(list(json, "left_out"), "why");
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

// Fields of /proc/<pid>/stat: the name, which may hold anything, ends at the last ')'.
struct ProcessStat {
    int64_t pid = 0;
    char state = 0;
    uint64_t start = 0;
};
std::optional<ProcessStat> processStat(const QByteArray& text) {
    const qsizetype close = text.lastIndexOf(')');
    if (close < 0) return std::nullopt;
    const QList<QByteArray> rest = text.mid(close + 2).trimmed().split(' ');
    if (rest.size() < 20 || rest[0].isEmpty()) return std::nullopt;
    ProcessStat stat;
    stat.pid = text.left(text.indexOf(' ')).toLongLong();
    stat.state = rest[0][0];
    stat.start = rest[19].toULongLong();  // field 22
    if (stat.pid <= 0) return std::nullopt;
    return stat;
}

}  // namespace

QString thisHost() {
    return QSysInfo::machineHostName();
}
QString thisBoot() {
    return QString::fromLatin1(contents(QStringLiteral("/proc/sys/kernel/random/boot_id")).trimmed());
}

double Job::share() const {
    if (state == JobState::done) return 1;
    // Writing and reading back take about the same time; publishing takes next to none.
    const qsizetype option = arguments.indexOf(QStringLiteral("--verify"));
    const bool verifies = option < 0 || arguments.value(option + 1) != QLatin1String("none");
    const double phaseShare =
        bytesTotal ? std::min(1.0, static_cast<double>(bytesDone) / static_cast<double>(bytesTotal)) : 0.0;
    if (phase == QLatin1String("write")) return bytesTotal ? phaseShare * (verifies ? 0.5 : 1.0) : -1;
    if (phase == QLatin1String("verify")) return 0.5 + phaseShare * 0.5;
    if (phase == QLatin1String("commit")) return 1;
    return -1;
}

JobReader::JobReader(QString directory) : directory_(std::move(directory)) {
    job_.directory = directory_;
    job_.id = QFileInfo(directory_).fileName();
}

Status JobReader::poll() {
    SHARDSCOPE_TRY(readDescription());
    // The process is asked before its results are looked for: what it wrote before it ended is then there.
    if (settled_) return {};
    const bool alive = processAlive();
    readProgress();
    const JobState before = job_.state;
    if (QFile::exists(directory_ + "/exit")) {
        readOutcome();
    } else if (job_.elsewhere) {
        job_.state = JobState::running;
    } else if (alive) {
        job_.state = JobState::running;
    } else if (job_.pid == 0 && job_.started.secsTo(QDateTime::currentDateTimeUtc()) < kStartSeconds) {
        job_.state = JobState::starting;
    } else {
        job_.state = JobState::lost;
        settled_ = true;
        say(JobMessage::Kind::warning,
            QObject::tr(
                "The process is gone without a result. What it has done so far may be kept: resume it."));
    }
    if (job_.state != before) ++version_;
    return {};
}

Status JobReader::readDescription() {
    const QFileInfo file(directory_ + "/job.json");
    if (file.exists() && file.lastModified() == described_ && file.size() == describedSize_) return {};
    const Json json = parse(contents(file.filePath()));
    if (!json.is_object() || text(json, "schema") != QLatin1String("shardscope.job/1") ||
        !list(json, "arguments")) {
        return makeError(ErrorCode::damaged, "job.json does not describe a job")
            .inFile((directory_ + "/job.json").toStdString());
    }
    const QDateTime created = QDateTime::fromString(text(json, "created"), Qt::ISODateWithMs);
    const QDateTime started = QDateTime::fromString(text(json, "started"), Qt::ISODateWithMs);
    if (!created.isValid() || !started.isValid()) {
        return makeError(ErrorCode::damaged, "job.json does not say when the job began")
            .inFile((directory_ + "/job.json").toStdString());
    }
    described_ = file.lastModified();
    describedSize_ = file.size();
    ++version_;
    job_.title = text(json, "title");
    job_.source = exact(json, "source");
    job_.destination = exact(json, "destination");
    job_.program = exact(json, "program");
    job_.host = text(json, "host");
    job_.created = created;
    job_.started = started;
    job_.attempts = std::max(1, static_cast<int>(number(json, "attempts")));
    job_.arguments.clear();
    for (const Json& word : *list(json, "arguments")) {
        if (word.is_string()) job_.arguments += QString::fromStdString(word.get_ref<const std::string&>());
    }
    job_.elsewhere = job_.host != thisHost();
    if (job_.attempts != attempt_) {
        // Another attempt, perhaps started by another window: its outcome is still to come.
        attempt_ = job_.attempts;
        settled_ = false;
        job_.state = JobState::starting;
        job_.pid = 0;
        job_.exitCode = -1;
        job_.error.reset();
        job_.report.reset();
        job_.phase.clear();
        job_.workers.clear();
        job_.bytesDone = job_.bytesTotal = 0;
        job_.rate = 0;
        job_.secondsLeft = -1;
    } else if (text(json, "boot") != thisBoot() && !job_.elsewhere) {
        job_.pid = 0;
    }
    return {};
}

bool JobReader::processAlive() {
    if (job_.elsewhere) return false;
    const auto recorded = processStat(contents(directory_ + "/process"));
    if (!recorded) return false;
    if (job_.pid != recorded->pid) {
        job_.pid = recorded->pid;
        ++version_;
    }
    const auto now = processStat(contents(QStringLiteral("/proc/%1/stat").arg(recorded->pid)));
    return now && now->start == recorded->start && now->state != 'Z' && now->state != 'X';
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
        const int n = static_cast<int>(number(json, "number"));
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
        workers.push_back(
            {text(worker, "name"), text(worker, "state"), count(worker, "bytes"), text(worker, "why")});
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
    const double rate = number(json, "rate");
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
            say(JobMessage::Kind::info, QObject::tr("Putting the destination in its place."), line);
    }
    // Events carry no clock, but their mean rate says for how long the phase has run.
    if (done > 0 && rate > 0) phaseSeconds_ = std::max(phaseSeconds_, static_cast<double>(done) / rate);
    const double fresh = done > lineDone_ ? static_cast<double>(done - lineDone_) : 0;
    lineDone_ = done;
    const bool writing = phase == QLatin1String("write");
    addRate(before_ + phaseSeconds_, fresh, writing ? fresh : 0);
    job_.phase = phase;
    job_.bytesDone = done;
    job_.bytesTotal = count(json, "bytes_total");
    job_.rate = rate;
    job_.secondsLeft = rate > 0 ? number(json, "eta_s") : -1;
    job_.tensor = text(json, "tensor");
}

void JobReader::addRate(double seconds, double read, double written) {
    auto at = static_cast<size_t>(seconds / job_.rateStep);
    while (at >= kMostRates) {
        for (size_t i = 0; i < (job_.rates.size() + 1) / 2; ++i) {
            JobRate both = job_.rates[2 * i];
            if (2 * i + 1 < job_.rates.size()) {
                both.read += job_.rates[2 * i + 1].read;
                both.written += job_.rates[2 * i + 1].written;
            }
            job_.rates[i] = both;
        }
        job_.rates.resize((job_.rates.size() + 1) / 2);
        job_.rateStep *= 2;
        at = static_cast<size_t>(seconds / job_.rateStep);
    }
    if (job_.rates.size() <= at) job_.rates.resize(at + 1);
    job_.rates[at].read += read;
    job_.rates[at].written += written;
}

void JobReader::readOutcome() {
    bool number = false;
    job_.exitCode = contents(directory_ + "/exit").trimmed().toInt(&number);
    if (!number) job_.exitCode = -1;
    const Json result = parse(contents(directory_ + "/result.json"));
    const QString schema = text(result, "schema");
    settled_ = true;
    ++version_;
    if (job_.exitCode == 0 && schema == QLatin1String("shardscope.report/1")) {
        job_.state = JobState::done;
        job_.report = reportOf(result);
        job_.secondsLeft = 0;
        say(JobMessage::Kind::info,
            QObject::tr("Done: %1 written.").arg(sizeText(job_.report->bytesWritten)));
        return;
    }
    if (schema == QLatin1String("shardscope.error/1")) {
        job_.error = errorOf(result);
        job_.state = job_.error->code == QLatin1String("cancelled") ? JobState::cancelled : JobState::failed;
        return;
    }
    if (job_.exitCode == 130) {
        job_.state = JobState::cancelled;
        return;
    }
    if (job_.exitCode > 128) {
        job_.state = JobState::lost;
        say(JobMessage::Kind::warning,
            QObject::tr("The program was ended by signal %1. What it has done so far may be kept: "
                        "resume it.")
                .arg(job_.exitCode - 128));
        return;
    }
    job_.state = JobState::failed;
    JobError error;
    if (job_.exitCode == 126 || job_.exitCode == 127) {
        error.message = QObject::tr("The program '%1' could not be started.").arg(job_.program);
        error.hint =
            QObject::tr("Install shardscope beside this program or in a directory of PATH, then retry.");
    } else {
        error.message = QObject::tr("The program ended with code %1 and left no report.").arg(job_.exitCode);
        error.hint = QObject::tr("Its last messages stand in the log of the job.");
    }
    job_.error = error;
}

QString jobStateText(const Job& job) {
    switch (job.state) {
        case JobState::starting:
            return QObject::tr("Starting");
        case JobState::running:
            return job.elsewhere ? QObject::tr("Running on %1").arg(job.host) : jobPhaseText(job);
        case JobState::done:
            return QObject::tr("Done");
        case JobState::failed:
            return QObject::tr("Failed");
        case JobState::cancelled:
            return QObject::tr("Cancelled");
        case JobState::lost:
            return QObject::tr("Lost, can be resumed");
    }
    return {};
}

QString jobPhaseText(const Job& job) {
    if (job.phase == QLatin1String("write")) return QObject::tr("Converting");
    if (job.phase == QLatin1String("verify")) return QObject::tr("Verifying");
    if (job.phase == QLatin1String("commit")) return QObject::tr("Finishing");
    return QObject::tr("Running");
}

}  // namespace shardscope::ui
