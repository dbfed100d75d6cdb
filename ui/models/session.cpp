#include "ui/models/session.h"

#include <QDir>
#include <QFileInfo>

#include "base/rule.h"
#include "ui/models/scan_store.h"
#include "ui/models/texts.h"

namespace shardscope::ui {

namespace {
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

namespace {
bool onlyStep(const Run& run) {
    return run.directory.steps.size() == 1 && run.missingStep().empty();
}
}  // namespace

QString errorText(const Error& error) {
    return (errorSentence(error) + ' ' + errorHint(error)).trimmed();
}

QString errorHint(const Error& error) {
    // What a verb of the command line would show, the window shows by itself.
    QStringList parts = QString::fromStdString(error.hint).split(QStringLiteral("; "), Qt::SkipEmptyParts);
    parts.removeIf([](const QString& part) { return part.contains(QStringLiteral("'shardscope ")); });
    QString text = parts.join(QStringLiteral("; "));
    if (text.isEmpty()) return text;
    text[0] = text[0].toUpper();
    if (!text.endsWith('.')) text += '.';
    return text;
}

Session::Session(std::shared_ptr<EngineService> engine, QObject* parent)
    : QObject(parent),
      engine_(std::move(engine)),
      connection_(engine_, tasks_),
      watch_(tasks_, connection_),
      validation_(engine_, tasks_, [this] { return beingWritten(); }),
      filtered_(tasks_) {
    connect(&filtered_, &FilteredTensors::changed, this, &Session::visibleChanged);
    connect(&connection_, &HostConnection::changed, this, &Session::connectionChanged);
    connect(&connection_, &HostConnection::found, &watch_, &FileWatch::look);
    connect(&watch_, &FileWatch::changed, this, [this] {
        if (!beingWritten().isEmpty()) validation_.forget();
        emit filesChanged();
    });
    connect(&validation_, &Validation::verdictChanged, this, &Session::verdictChanged);
    connect(&validation_, &Validation::cardChanged, this, &Session::cardChanged);
    connect(&validation_, &Validation::scanNotKept, this, &Session::scanNotKept);
    connect(&validation_, &Validation::changed, this, [this] {
        const auto& report = validation_.report();
        if (facts_ && report && !validation_.running() && report != reportOfFacts_) takeFindings();
        emit reportChanged();
    });
    connect(&tasks_, &Tasks::progressed, this, &Session::progressed);
    connect(&selection_, &Selection::changed, this, [this](const Selected& now, const Selected& before) {
        if (now.filter != before.filter) filtered_.setText(now.filter);
    });
}

Session::~Session() = default;

void Session::open(const QString& path, const SourceOptions& options) {
    openTicket_.drop();
    const QString pathBefore = path_;
    const SourceOptions optionsBefore = options_;
    const QString whole = wholePath(path);
    path_ = withoutSecrets(whole);
    if (whole != path_ || withoutSecrets(signed_) != path_) signed_ = whole;
    options_ = options;
    error_.reset();
    state_ = State::opening;
    openProgress_ = std::make_shared<OpenProgress>();
    connected_ = std::make_shared<std::atomic<bool>>(hostOf(path_).isEmpty());
    const bool otherOptions = checkpoint_ && path_ == pathBefore && !(options_ == optionsBefore);
    auto failed = std::make_shared<FailedPath>();
    const auto load = [engine = engine_, path = signed_.toStdString(), options, progress = openProgress_,
                       connected = connected_](const TaskContext& context) -> Result<Opened> {
        Opened opened;
        SHARDSCOPE_ASSIGN(CheckpointOptions how, options.toEngine());
        how.progress = progress;
        SHARDSCOPE_TRY(engine->connect(path, false, context));
        *connected = true;
        SHARDSCOPE_ASSIGN(auto found, engine->openAny(path, how, context));
        // The only step stands for its run, where it opens.
        if (const RunPtr* run = std::get_if<RunPtr>(&found); run && onlyStep(**run)) {
            opened.path = (*run)->pathOf((*run)->directory.steps[0]);
            auto step = engine->openAny(opened.path, how, context);
            if (step.ok() && std::holds_alternative<CheckpointPtr>(*step)) found = *std::move(step);
        }
        if (RunPtr* run = std::get_if<RunPtr>(&found)) {
            opened.run = std::move(*run);
            return opened;
        }
        opened.checkpoint = std::get<CheckpointPtr>(std::move(found));
        opened.directory = QString::fromStdString(directoryOf(*opened.checkpoint));
        // Once the metadata is read, what is left is short: a cancel that comes now loses nothing.
        opened.tree = std::make_shared<ModuleTree>(ModuleTree::buildAll(opened.checkpoint->catalog(), {}));
        if (auto stamps = stampsOf(*opened.checkpoint, false, {}); stamps.ok())
            opened.stamps = *std::move(stamps);
        auto kept = ScanStore::load(*opened.checkpoint, asText(options), context.stop);
        opened.scan = std::move(kept.scan);
        opened.scanKey = std::move(kept.key);
        return opened;
    };
    openTicket_ = tasks_.run<Opened>(
        Work::metadata, tr("Opening %1").arg(path_),
        [load, failed, path = path_](const TaskContext& context) {
            Result<Opened> opened = load(context);
            if (!opened.ok()) *failed = lookAtFailedPath(path, opened.error().code == ErrorCode::usage);
            return opened;
        },
        [this, failed, otherOptions, optionsBefore](Result<Opened> answer) {
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
                failedPath_ = std::move(*failed);
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
    facts_.reset();
    reportOfFacts_.reset();
    finished_ = false;
    if (!opened.path.empty()) path_ = QString::fromStdString(opened.path);
    checkpoint_ = std::move(opened.checkpoint);
    directory_ = std::move(opened.directory);
    connection_.begin(checkpoint_->path);
    watch_.begin(checkpoint_, std::move(opened.stamps), again);
    validation_.begin(checkpoint_, path_, openedHow(), std::move(opened.scan), std::move(opened.scanKey));
    filtered_.begin(checkpoint_, std::move(opened.tree));
    openedAt_ = QDateTime::currentDateTime();
    state_ = State::open;
    selection_.clear();
    emit stateChanged();
    emit visibleChanged();
    if (again) {
        // A reload keeps the selection, by name.
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
}

void Session::startFacts() {
    factsTicket_ = tasks_.run<std::shared_ptr<const Facts>>(
        Work::query, tr("Checking coverage"),
        [checkpoint = checkpoint_](const TaskContext& context) -> Result<std::shared_ptr<const Facts>> {
            auto facts = computeFacts(checkpoint->catalog(), context.stop);
            if (!facts) return makeError(ErrorCode::cancelled, "canceled");
            return facts;
        },
        [this](Result<std::shared_ptr<const Facts>> answer) {
            if (!answer.ok()) return;
            facts_ = std::move(answer).value();
            takeFindings();
            if (!otherFormats().empty()) emit otherFormatsFound();
        });
}

// What the report found shows in the facts, too.
void Session::takeFindings() {
    reportOfFacts_ = validation_.report();
    if (reportOfFacts_) facts_ = withFindings(*facts_, catalog(), *reportOfFacts_);
    emit factsChanged();
    filtered_.setFacts(facts_);
}

std::vector<FormatMatch> Session::otherFormats() const {
    return checkpoint_ && options_.format.isEmpty() ? checkpoint_->others : std::vector<FormatMatch>();
}

void Session::reload() {
    if (!path_.isEmpty()) open(path_, SourceOptions(options_));
}

void Session::cancel() {
    openTicket_.cancel();
    validation_.cancel();
}

void Session::close() {
    openTicket_.drop();
    factsTicket_.drop();
    filtered_.end();
    validation_.end();
    watch_.end();
    connection_.end();
    directory_.clear();
    checkpoint_.reset();
    run_.reset();
    facts_.reset();
    reportOfFacts_.reset();
    error_.reset();
    finished_ = false;
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

QString Session::beingWritten() const {
    if (!checkpoint_ || finished_) return {};
    if (!watch_.growth().isEmpty()) return watch_.growth();
    const auto& notes = catalog().notes();
    const auto trace = std::find_if(notes.begin(), notes.end(),
                                    [](const Note& note) { return note.rule == rule::fileLock; });
    if (trace != notes.end()) {
        return trace->file.empty() ? tr("Traces of an unfinished save are here.")
                                   : tr("'%1' marks an unfinished save.").arg(toQString(trace->file));
    }
    if (const QString result = resultOfStaging(path_); !result.isEmpty())
        return tr("A conversion is writing '%1' here.").arg(result);
    return {};
}

void Session::lookAgain() {
    watch_.expectGrowth();
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
