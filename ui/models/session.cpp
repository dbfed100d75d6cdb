#include "ui/models/session.h"

#include <QDir>
#include <QFileInfo>
#include <QLocale>
#include <filesystem>
#include <numeric>

#include "base/rule.h"
#include "execute/executor.h"
#include "ui/models/filter.h"
#include "ui/models/scan_store.h"
#include "ui/models/suppressions.h"
#include "ui/models/texts.h"

namespace shardscope::ui {

namespace {
constexpr int kFilterDelay = 80;       // milliseconds after the last key
constexpr int kFirstStamp = 1000;      // milliseconds from opening to the first look at the files
constexpr int kStampInterval = 5000;   // milliseconds from one look to the next
constexpr int kStampThere = 30'000;    // the same on another host, where a look is a listing
constexpr int kConnectionLook = 500;   // milliseconds from one look at the connection to the next
constexpr int kKeepInterval = 30'000;  // milliseconds between two writings of how far values were read
constexpr size_t kMostStamps = 10'000;
// What reading from a good disk gives; only for telling minutes from hours before anything is known.
constexpr double kAssumedRate = 1e9;

std::string asText(const SourceOptions& options) {
    return options.words().join('\n').toStdString();
}
}  // namespace

QString errorSentence(const Error& error) {
    Error plain = error;
    plain.hint.clear();
    QString text = QString::fromStdString(describe(plain));
    if (!text.isEmpty()) text[0] = text[0].toUpper();
    if (!text.endsWith('.')) text += '.';
    return text;
}

QString errorHint(const Error& error) {
    QString text = QString::fromStdString(error.hint);
    if (text.isEmpty()) return text;
    text[0] = text[0].toUpper();
    if (!text.endsWith('.')) text += '.';
    return text;
}

Session::Session(std::shared_ptr<EngineService> engine, QObject* parent)
    : QObject(parent), engine_(std::move(engine)) {
    filterTimer_.setSingleShot(true);
    filterTimer_.setInterval(kFilterDelay);
    connect(&filterTimer_, &QTimer::timeout, this, &Session::startFilter);
    connect(&stampTimer_, &QTimer::timeout, this, &Session::checkForChanges);
    keepTimer_.setInterval(kKeepInterval);
    connect(&keepTimer_, &QTimer::timeout, this, &Session::keepScan);
    connectionTimer_.setInterval(kConnectionLook);
    connect(&connectionTimer_, &QTimer::timeout, this, &Session::lookAtConnection);
    connect(&tasks_, &Tasks::progressed, this, &Session::progressed);
    connect(&selection_, &Selection::changed, this, [this](const Selected& now, const Selected& before) {
        if (now.filter != before.filter) filterTimer_.start();
    });
}

Session::~Session() = default;

void Session::open(const QString& path, const SourceOptions& options) {
    openTicket_.drop();
    const QString pathBefore = path_;
    const SourceOptions optionsBefore = options_;
    path_ = wholePath(path);
    options_ = options;
    error_.reset();
    state_ = State::opening;
    openProgress_ = std::make_shared<OpenProgress>();
    connected_ = std::make_shared<std::atomic<bool>>(hostOf(path_).isEmpty());
    const bool otherOptions = checkpoint_ && path_ == pathBefore && !(options_ == optionsBefore);
    auto place = std::make_shared<FailedPlace>();
    const auto load = [engine = engine_, path = path_.toStdString(), options, progress = openProgress_,
                       connected = connected_](const TaskContext& context) -> Result<Opened> {
        Opened opened;
        SHARDSCOPE_ASSIGN(CheckpointOptions how, options.toEngine());
        how.progress = progress;
        SHARDSCOPE_TRY(engine->connect(path, false, context));
        *connected = true;
        SHARDSCOPE_ASSIGN(auto found, engine->openAny(path, how, context));
        if (RunPtr* run = std::get_if<RunPtr>(&found)) {
            opened.run = std::move(*run);
            return opened;
        }
        opened.checkpoint = std::get<CheckpointPtr>(std::move(found));
        opened.directory = QString::fromStdString(directoryOf(*opened.checkpoint));
        // Once the metadata is read, what is left is short: a cancel that comes now loses nothing.
        opened.tree = std::make_shared<ModuleTree>(ModuleTree::buildAll(opened.checkpoint->catalog(), {}));
        opened.stamps = stampFiles(*opened.checkpoint, {});
        auto kept = ScanStore::load(*opened.checkpoint, asText(options), context.stop);
        opened.scan = std::move(kept.scan);
        opened.scanKey = std::move(kept.key);
        return opened;
    };
    openTicket_ = tasks_.run<Opened>(
        Work::metadata, tr("Opening %1").arg(path_),
        [load, place, path = path_](const TaskContext& context) {
            Result<Opened> opened = load(context);
            if (!opened.ok()) *place = lookAtFailedPlace(path);
            return opened;
        },
        [this, place, otherOptions, optionsBefore](Result<Opened> answer) {
            if (answer.ok() && answer->run) {
                const QString asked = path_;
                close();
                path_ = asked;
                run_ = std::move(answer->run);
                state_ = State::run;
                emit stateChanged();
                return;
            }
            if (answer.ok()) {
                opened(std::move(answer).value());
                return;
            }
            // A cancelled opening shows again what was there before.
            if (answer.error().code == ErrorCode::cancelled && checkpoint_) {
                path_ = QString::fromStdString(checkpoint_->path);
                options_ = optionsBefore;
                state_ = State::open;
            } else if (otherOptions) {
                options_ = optionsBefore;
                state_ = State::open;
                emit stateChanged();
                emit openingRefused(answer.error());
                return;
            } else if (answer.error().code == ErrorCode::cancelled) {
                state_ = State::empty;
                path_.clear();
            } else {
                const QString tried = path_;
                close();
                path_ = tried;
                error_ = std::move(answer).error();
                failedPlace_ = std::move(*place);
                state_ = State::failed;
            }
            emit stateChanged();
        });
    emit stateChanged();
}

void Session::opened(Opened opened) {
    const bool again = checkpoint_ && checkpoint_->path == opened.checkpoint->path;
    const Selected before = selection_.current();
    const std::string tensor =
        again && before.tensor != kNone ? std::string(catalog().name(before.tensor)) : std::string();
    const std::string object =
        again && before.object != kNone ? catalog().objects()[before.object].name : std::string();
    factsTicket_.drop();
    filterTicket_.drop();
    validateTicket_.drop();
    stampTicket_.drop();
    facts_.reset();
    keepTimer_.stop();
    report_.reset();
    scan_ = std::move(opened.scan);
    scanKey_ = scan_ ? std::make_shared<std::string>(std::move(opened.scanKey)) : nullptr;
    validationError_.reset();
    changedFiles_.clear();
    settling_ = settling_ && again;
    growth_ = settling_ ? tr("Files were still growing; checking again.") : QString();
    finished_ = false;
    checkpoint_ = std::move(opened.checkpoint);
    directory_ = std::move(opened.directory);
    lost_ = false;
    connectionError_.reset();
    if (hostOf(path_).isEmpty())
        connectionTimer_.stop();
    else
        connectionTimer_.start();
    wholeTree_ = visibleTree_ = std::move(opened.tree);
    stamps_ = std::move(opened.stamps);
    visible_.resize(catalog().tensorCount());
    std::iota(visible_.begin(), visible_.end(), 0U);
    filtered_ = false;
    filterError_.clear();
    openedAt_ = QDateTime::currentDateTime();
    state_ = State::open;
    selection_.clear();
    emit stateChanged();
    emit visibleChanged();
    if (again) {
        // A reload keeps the place, by name.
        selection_.setFilter(before.filter);
        selection_.setPage(before.page);
        if (const TensorId t = tensor.empty() ? kNone : catalog().find(tensor); t != kNone)
            selection_.selectTensor(t);
        const auto& objects = catalog().objects();
        const auto same = std::find_if(objects.begin(), objects.end(),
                                       [&](const ObjectInfo& o) { return o.name == object; });
        if (!object.empty() && same != objects.end())
            selection_.selectObject(static_cast<ObjectId>(same - objects.begin()));
    }
    startFacts();
    stampTimer_.start(kFirstStamp);
}

void Session::startFacts() {
    factsTicket_ = tasks_.run<std::shared_ptr<const Facts>>(
        Work::query, tr("Checking coverage"),
        [checkpoint = checkpoint_](const TaskContext& context) -> Result<std::shared_ptr<const Facts>> {
            auto facts = computeFacts(checkpoint->catalog(), context.stop);
            if (!facts) return makeError(ErrorCode::cancelled, "cancelled");
            return facts;
        },
        [this](Result<std::shared_ptr<const Facts>> answer) {
            if (!answer.ok()) return;
            facts_ = std::move(answer).value();
            if (report_) facts_ = withFindings(*facts_, catalog(), *report_);
            emit factsChanged();
            if (selection_.current().filter.contains("status:")) startFilter();
            if (!otherFormats().empty()) emit otherFormatsFound();
        });
}

std::vector<FormatMatch> Session::otherFormats() const {
    return checkpoint_ && options_.format.isEmpty() ? checkpoint_->others : std::vector<FormatMatch>();
}

void Session::startFilter() {
    filterTicket_.drop();
    if (!checkpoint_) return;
    const QString text = selection_.current().filter.trimmed();
    auto parsed = Filter::parse(text.toStdString());
    if (!parsed.ok()) {
        // What is shown stays while a token is being typed.
        filterError_ = QString::fromStdString(parsed.error().message);
        emit visibleChanged();
        return;
    }
    filterError_.clear();
    if (parsed->empty()) {
        filtered_ = false;
        visible_.resize(catalog().tensorCount());
        std::iota(visible_.begin(), visible_.end(), 0U);
        visibleTree_ = wholeTree_;
        emit visibleChanged();
        return;
    }
    filterTicket_ = tasks_.run<Filtered>(
        Work::query, tr("Filtering"),
        [checkpoint = checkpoint_, facts = facts_,
         filter = std::move(parsed).value()](const TaskContext& context) -> Result<Filtered> {
            Filtered filtered;
            filtered.tensors = filter.apply(checkpoint->catalog(), facts.get(), context.stop);
            filtered.tree = std::make_shared<ModuleTree>(
                ModuleTree::build(checkpoint->catalog(), filtered.tensors, context.stop));
            SHARDSCOPE_TRY(context.stop.poll());
            return filtered;
        },
        [this](Result<Filtered> answer) {
            if (!answer.ok()) {
                filterError_ = QString::fromStdString(answer.error().message);
            } else {
                filtered_ = true;
                visible_ = std::move(answer->tensors);
                visibleTree_ = std::move(answer->tree);
            }
            emit visibleChanged();
        });
}

void Session::reload() {
    if (!path_.isEmpty()) open(path_, SourceOptions(options_));
}

void Session::cancel() {
    openTicket_.cancel();
    validateTicket_.cancel();
}

void Session::close() {
    for (Ticket* ticket :
         {&openTicket_, &factsTicket_, &filterTicket_, &validateTicket_, &stampTicket_, &reconnectTicket_})
        ticket->drop();
    stampTimer_.stop();
    connectionTimer_.stop();
    lost_ = false;
    connectionError_.reset();
    directory_.clear();
    keepTimer_.stop();
    scanKey_.reset();
    checkpoint_.reset();
    run_.reset();
    facts_.reset();
    wholeTree_.reset();
    visibleTree_.reset();
    visible_.clear();
    filtered_ = false;
    report_.reset();
    scan_.reset();
    validationError_.reset();
    error_.reset();
    changedFiles_.clear();
    growth_.clear();
    settling_ = finished_ = false;
    path_.clear();
    state_ = State::empty;
    selection_.clear();
    emit visibleChanged();
    emit stateChanged();
}

QString Session::command(const QString& verb, const QStringList& arguments) const {
    const auto line = [&](const QString& path) {
        return shellLine(QStringList{QStringLiteral("shardscope"), verb, path} + arguments +
                         options_.words());
    };
    // What writes a file runs beside the data.
    if (verb == QLatin1String("extract") && !hostOf(path_).isEmpty())
        return shellLine(sshWords(path_) << line(pathThere(path_)));
    return line(path_);
}

std::string Session::openedHow() const {
    return asText(options_);
}

QString Session::filePath(std::string_view relative) const {
    return directory_ + '/' + toQString(relative);
}

QString Session::dataElsewhere() const {
    return checkpoint_ ? toQString(checkpoint_->reader->dataElsewhere()) : QString();
}

QString Session::openingStage() const {
    if (state_ != State::opening || !openProgress_) return {};
    const OpenProgress& now = *openProgress_;
    if (!*connected_) return tr("Connecting to %1").arg(hostOf(path_));
    if (!now.listed) return tr("Listing the directory");
    const uint64_t files = now.files, opened = std::min<uint64_t>(now.opened, files);
    if (now.metadata) return tr("Indexing %1").arg(countedText(files, tr("1 file"), tr("%1 files")));
    if (files < 2 || opened == 0)
        return tr("Reading metadata; %1")
            .arg(countedText(files, tr("1 file is here"), tr("%1 files are here")));
    return tr("Reading metadata: %1 of %2 files opened").arg(numberText(opened), numberText(files));
}

bool Session::canGoOn() const {
    if (!checkpoint_ || !scan_ || validating()) return false;
    if (report_ && report_->level == ValidateLevel::values) return report_->stopped;
    return scan_->chunksRead() > 0 && scan_->chunksRead() < scan_->chunks();
}

void Session::goOn() {
    if (canGoOn() && beingWritten().isEmpty()) startValidation(ValidateLevel::values, expectPath_);
}

void Session::validate(ValidateLevel level, const QString& expectPath) {
    if (!checkpoint_ || !beingWritten().isEmpty()) return;
    // A lesser check leaves alone what can be continued.
    if (level == ValidateLevel::values || !canGoOn()) {
        scan_ = level == ValidateLevel::values ? std::make_shared<ValueScan>() : nullptr;
        scanKey_.reset();
    }
    expectPath_ = expectPath;
    startValidation(level, expectPath);
}

QString Session::validationCost(ValidateLevel level) const {
    if (!checkpoint_) return {};
    const Catalog& catalog = this->catalog();
    switch (level) {
        case ValidateLevel::metadata:
            return tr("opens no data file");
        case ValidateLevel::files:
            return tr("reads the headers of %1 files").arg(numberText(catalog.files().size()));
        case ValidateLevel::values: {
            const double seconds = static_cast<double>(catalog.totalBytes()) / kAssumedRate;
            return seconds < 1 ? tr("reads %1").arg(sizeText(catalog.totalBytes()))
                               : tr("reads %1, about %2 at 1 GB/s")
                                     .arg(sizeText(catalog.totalBytes()), timeText(seconds));
        }
    }
    return {};
}

QString Session::validationObstacle(ValidateLevel level) const {
    if (!checkpoint_) return tr("No checkpoint is open.");
    if (!beingWritten().isEmpty()) return tr("It is still being written.");
    if (level != ValidateLevel::metadata && !dataElsewhere().isEmpty())
        return tr("It needs the data; this is %1.").arg(dataElsewhere());
    return {};
}

void Session::setSuppressions(const Suppressions* suppressions) {
    suppressions_ = suppressions;
    if (suppressions_) connect(suppressions_, &Suppressions::changed, this, &Session::verdictChanged);
    emit verdictChanged();
}

std::vector<Suppression> Session::suppressions() const {
    return suppressions_ ? suppressions_->of(path_) : std::vector<Suppression>();
}

std::optional<Verdict> Session::verdict() const {
    if (!report_) return std::nullopt;
    return verdictWithout(*report_, suppressions());
}

void Session::startValidation(ValidateLevel level, const QString& expectPath) {
    validateTicket_.drop();
    validationError_.reset();
    const bool values = level == ValidateLevel::values;
    if (values && !scanKey_) scanKey_ = std::make_shared<std::string>();
    if (values) keepTimer_.start();
    validateTicket_ = tasks_.run<ValidationReport>(
        Work::bulk, tr("Validating"),
        [engine = engine_, checkpoint = checkpoint_, level, values, scan = values ? scan_ : nullptr,
         key = scanKey_, how = asText(options_),
         expectPath = expectPath.toStdString()](const TaskContext& context) -> Result<ValidationReport> {
            CheckpointPtr expect;
            if (!expectPath.empty()) {
                SHARDSCOPE_ASSIGN(expect, engine->open(expectPath, {}, context));
            }
            // Of before the first byte was read, so that what changes meanwhile shows.
            if (values && scan->chunksRead() == 0 && key->empty())
                *key = ScanStore::keyOf(*checkpoint, how, context.stop);
            ValidateOptions options;
            options.level = level;
            options.maxExamples = 1000;
            options.scan = scan;
            auto report = engine->validate(checkpoint, options, expect, context);
            // Also when nobody waits for the answer any more, because the window was closed.
            if (values && report.ok() && !report->stopped) ScanStore::remove(*checkpoint, how);
            if (values && (!report.ok() || report->stopped)) {
                if (Status kept = ScanStore::save(*checkpoint, how, *key, *scan); !kept.ok() && report.ok())
                    report->notChecked.push_back({kept.error().message});
            }
            return report;
        },
        [this](Result<ValidationReport> answer) {
            keepTimer_.stop();
            if (answer.ok()) {
                report_ = std::make_shared<ValidationReport>(std::move(answer).value());
                if (facts_) {
                    facts_ = withFindings(*facts_, catalog(), *report_);
                    emit factsChanged();
                    if (selection_.current().filter.contains("status:")) startFilter();
                }
            } else if (answer.error().code != ErrorCode::cancelled) {
                validationError_ = std::move(answer).error();
            }
            emit reportChanged();
        });
    emit reportChanged();
}

// While values are read, so that nothing more than that is lost when the program is killed.
void Session::keepScan() {
    if (!validating() || !scan_ || !scanKey_ || scan_->chunksRead() == 0 || keepTicket_.running()) return;
    keepTicket_ = tasks_.run<bool>(
        Work::metadata, tr("Keeping how far values were read"),
        [checkpoint = checkpoint_, how = asText(options_), key = scanKey_,
         scan = scan_](const TaskContext&) -> Result<bool> {
            SHARDSCOPE_TRY(ScanStore::save(*checkpoint, how, *key, *scan));
            return true;
        },
        [this](Result<bool> answer) {
            if (!answer.ok()) emit scanNotKept(answer.error());
        });
}

QString Session::depth() const {
    if (!report_) return dataElsewhere().isEmpty() ? tr("metadata only") : tr("index only");
    switch (report_->level) {
        case ValidateLevel::metadata:
            return tr("metadata checked");
        case ValidateLevel::files:
            return tr("files checked");
        case ValidateLevel::values:
            if (report_->stopped && scan_ && scan_->chunks())
                return tr("%1 of all values read")
                    .arg(ratioText(static_cast<double>(scan_->chunksRead()) /
                                   static_cast<double>(scan_->chunks())));
            return tr("every value read");
    }
    return {};
}

// Sizes and times of the files that the catalog knows, as they are now.
std::vector<Session::Stamp> Session::stampFiles(const Checkpoint& checkpoint, const StopToken& stop) {
    namespace fs = std::filesystem;
    std::error_code error;
    fs::path directory(checkpoint.path);
    std::vector<Stamp> stamps;
    if (checkpoint.fileSystem && checkpoint.reader->dataElsewhere().empty()) {
        const auto sizes =
            sizesOfFiles(*checkpoint.fileSystem, directoryOf(checkpoint), checkpoint.catalog(), stop);
        for (size_t f = 0; sizes.ok() && f < sizes->size(); ++f)
            stamps.push_back({checkpoint.catalog().files()[f].path, (*sizes)[f], 0});
        return stamps;
    }
    const auto stamp = [&](const std::string& name, const fs::path& path) {
        const auto status = fs::symlink_status(path, error);
        const bool regular = !error && fs::is_regular_file(status);
        const auto size = regular ? static_cast<int64_t>(fs::file_size(path, error)) : -1;
        const auto time = regular ? fs::last_write_time(path, error).time_since_epoch().count() : 0;
        stamps.push_back({name, size, static_cast<int64_t>(time)});
    };
    // The files that an index speaks of lie elsewhere.
    if (!checkpoint.reader->dataElsewhere().empty()) {
        stamp(directory.filename().string(), directory);
        return stamps;
    }
    if (!fs::is_directory(directory, error)) directory = directory.parent_path();
    for (const FileInfo& file : checkpoint.catalog().files()) {
        if (stop.stopRequested() || stamps.size() >= kMostStamps) break;
        if (file.path.empty() || file.path.find("..") != std::string::npos || file.path[0] == '/') continue;
        stamp(file.path, directory / file.path);
    }
    return stamps;
}

void Session::lookAtConnection() {
    const bool lost = checkpoint_ && engine_->connectionLost(checkpoint_->path);
    if (lost == lost_) return;
    lost_ = lost;
    if (!lost) connectionError_.reset();
    emit connectionChanged();
}

void Session::reconnect() {
    if (!checkpoint_ || reconnecting()) return;
    connectionError_.reset();
    reconnectTicket_ = tasks_.run<bool>(
        Work::metadata, tr("Connecting to %1").arg(hostOf(path_)),
        [engine = engine_, path = checkpoint_->path](const TaskContext& context) -> Result<bool> {
            SHARDSCOPE_TRY(engine->connect(path, true, context));
            return true;
        },
        [this](Result<bool> answer) {
            reconnectTicket_ = {};
            if (!answer.ok() && answer.error().code != ErrorCode::cancelled)
                connectionError_ = std::move(answer).error();
            lost_ = engine_->connectionLost(checkpoint_->path);
            emit connectionChanged();
            if (!lost_) checkForChanges();
        });
    emit connectionChanged();
}

void Session::checkForChanges() {
    if (!checkpoint_ || stampTicket_.running()) return;
    // A look at the files would connect again, and nobody would have known.
    if (connectionTimer_.isActive()) lookAtConnection();
    if (lost_) return;
    stampTicket_ = tasks_.run<std::vector<Stamp>>(
        Work::metadata, tr("Looking at the files"),
        [checkpoint = checkpoint_](const TaskContext& context) -> Result<std::vector<Stamp>> {
            return stampFiles(*checkpoint, context.stop);
        },
        [this](Result<std::vector<Stamp>> answer) {
            if (answer.ok()) compareStamps(std::move(answer).value());
        });
}

// A file that grew since the last look is being written. Once all stand still, what changed is said.
void Session::compareStamps(std::vector<Stamp> now) {
    stampTimer_.setInterval(hostOf(path_).isEmpty() ? kStampInterval : kStampThere);
    size_t changed = 0, grown = 0;
    QString first, firstGrown;
    uint64_t firstSize = 0;
    for (size_t i = 0; i < now.size() && i < stamps_.size(); ++i) {
        if (now[i].size == stamps_[i].size && now[i].modified == stamps_[i].modified) continue;
        if (changed++ == 0) first = toQString(now[i].path);
        if (now[i].size > stamps_[i].size && grown++ == 0) {
            firstGrown = toQString(now[i].path);
            firstSize = static_cast<uint64_t>(now[i].size);
        }
    }
    if (changed == 0) {
        settling_ = false;
        if (growth_.isEmpty()) return;
        growth_.clear();
        emit filesChanged();
        return;
    }
    stamps_ = std::move(now);
    const QString time = QLocale().toString(QTime::currentTime(), QLocale::ShortFormat);
    changedFiles_ = changed == 1
                        ? tr("'%1' changed at %2.").arg(first, time)
                        : tr("%1 files changed at %2, '%3' among them.").arg(changed).arg(time, first);
    growth_ = grown == 0   ? QString()
              : grown == 1 ? tr("'%1' has grown to %2.").arg(firstGrown, sizeText(firstSize))
                           : tr("%1 files grow, '%2' among them.").arg(numberText(grown), firstGrown);
    settling_ = grown > 0;
    emit filesChanged();
}

QString Session::beingWritten() const {
    if (!checkpoint_ || finished_) return {};
    if (!growth_.isEmpty()) return growth_;
    const auto& notes = catalog().notes();
    const auto trace = std::find_if(notes.begin(), notes.end(),
                                    [](const Note& note) { return note.rule == rule::fileLock; });
    if (trace != notes.end()) {
        return trace->file.empty()
                   ? tr("Traces of a save that is not finished are here.")
                   : tr("'%1' is what a save leaves here until it is finished.").arg(toQString(trace->file));
    }
    if (const QString result = resultOfStaging(path_); !result.isEmpty())
        return tr("A conversion puts '%1' together here.").arg(result);
    return {};
}

void Session::lookAgain() {
    settling_ = !growth_.isEmpty();
    reload();
}

void Session::takeAsFinished() {
    finished_ = true;
    emit filesChanged();
}

QString resultOfStaging(const QString& path) {
    for (QString at = QDir::cleanPath(path);;) {
        const QFileInfo info(at);
        const QString name = info.fileName();
        static const QString kEnd = QStringLiteral(".shardscope-partial");
        if (name.startsWith('.') && name.endsWith(kEnd) && name.size() > kEnd.size() + 1) {
            const QString result = info.path() + '/' + name.mid(1, name.size() - kEnd.size() - 1);
            if (toQString(stagingPath(result.toStdString())) == at) return result;
        }
        if (name.isEmpty() || info.path() == at) return {};
        at = info.path();
    }
}

}  // namespace shardscope::ui
