#include "ui/models/validation.h"

#include "ui/models/scan_store.h"
#include "ui/models/suppressions.h"
#include "ui/models/texts.h"

namespace shardscope::ui {

namespace {
constexpr int kKeepInterval = 30'000;  // milliseconds between two writings of how far values were read
// What reading from a good disk gives; only for telling minutes from hours before anything is known.
constexpr double kAssumedRate = 1e9;
constexpr size_t kFewFiles = 2000;  // whose headers are read without being asked for

struct Judged {
    std::shared_ptr<const ValidationReport> report;
    std::shared_ptr<const ReadyCard> card;
};
}  // namespace

Validation::Validation(std::shared_ptr<EngineService> engine, Tasks& tasks,
                       std::function<QString()> unfinished, QObject* parent)
    : QObject(parent), engine_(std::move(engine)), tasks_(tasks), unfinished_(std::move(unfinished)) {
    keepTimer_.setInterval(kKeepInterval);
    connect(&keepTimer_, &QTimer::timeout, this, &Validation::keepScan);
}

void Validation::begin(CheckpointPtr checkpoint, const QString& path, const std::string& openedHow,
                       std::shared_ptr<ValueScan> scan, std::string scanKey) {
    end();
    checkpoint_ = std::move(checkpoint);
    path_ = path;
    openedHow_ = openedHow;
    scan_ = std::move(scan);
    if (scan_) scanKey_ = std::make_shared<std::string>(std::move(scanKey));
}

void Validation::end() {
    ticket_.drop();
    cardTicket_.drop();
    keepTimer_.stop();
    checkpoint_.reset();
    path_.clear();
    report_.reset();
    card_.reset();
    begun_ = deeper_ = false;
    error_.reset();
    scan_.reset();
    scanKey_.reset();
}

void Validation::setSuppressions(const Suppressions* suppressions) {
    suppressions_ = suppressions;
    if (suppressions_)
        connect(suppressions_, &Suppressions::changed, this, [this] {
            emit verdictChanged();
            makeCard();
        });
    emit verdictChanged();
}

std::vector<Suppression> Validation::suppressions() const {
    return suppressions_ ? suppressions_->of(path_) : std::vector<Suppression>();
}

QString Validation::cost(ValidateLevel level) const {
    if (!checkpoint_) return {};
    const Catalog& catalog = checkpoint_->catalog();
    switch (level) {
        case ValidateLevel::metadata:
            return tr("opens no data file");
        case ValidateLevel::files:
            return countedText(catalog.files().size(), tr("reads the header of 1 file"),
                               tr("reads the headers of %1 files"));
        case ValidateLevel::values: {
            const double seconds = static_cast<double>(catalog.totalBytes()) / kAssumedRate;
            return seconds < 1 ? tr("reads %1").arg(sizeText(catalog.totalBytes()))
                               : tr("reads %1, about %2 at 1 GB/s")
                                     .arg(sizeText(catalog.totalBytes()), timeText(seconds));
        }
    }
    return {};
}

QString Validation::obstacle(ValidateLevel level) const {
    if (!checkpoint_) return tr("No checkpoint is open.");
    if (!unfinished_().isEmpty()) return tr("It is still being written.");
    if (level != ValidateLevel::metadata && !checkpoint_->reader->dataElsewhere().empty())
        return tr("It needs the data; this is %1.").arg(toQString(checkpoint_->reader->dataElsewhere()));
    return {};
}

void Validation::start(ValidateLevel level, const QString& expectPath) {
    if (!checkpoint_ || !unfinished_().isEmpty()) return;
    // A lesser check leaves alone what can be continued.
    if (level == ValidateLevel::values || !canContinue()) {
        scan_ = level == ValidateLevel::values ? std::make_shared<ValueScan>() : nullptr;
        scanKey_.reset();
    }
    expectPath_ = expectPath;
    run(level);
}

void Validation::startByItself() {
    if (!checkpoint_ || begun_) return;
    start(ValidateLevel::metadata);
    deeper_ = running() && filesAreLittleWork();
}

bool Validation::filesAreLittleWork() const {
    const bool local = !path_.contains(QStringLiteral("://"));  // on no other host, in no bucket
    return local && obstacle(ValidateLevel::files).isEmpty() &&
           checkpoint_->catalog().files().size() <= kFewFiles;
}

void Validation::forget() {
    if (!running() && !report_) return;
    ticket_.drop();
    cardTicket_.drop();
    keepTimer_.stop();
    report_.reset();
    card_.reset();
    emit changed();
}

bool Validation::canContinue() const {
    if (!checkpoint_ || !scan_ || running()) return false;
    if (report_ && report_->level == ValidateLevel::values) return report_->stopped;
    return scan_->chunksRead() > 0 && scan_->chunksRead() < scan_->chunks();
}

void Validation::continueReading() {
    if (canContinue() && unfinished_().isEmpty()) run(ValidateLevel::values);
}

void Validation::run(ValidateLevel level) {
    ticket_.drop();
    error_.reset();
    begun_ = true;
    deeper_ = false;
    const bool values = level == ValidateLevel::values;
    if (values && !scanKey_) scanKey_ = std::make_shared<std::string>();
    if (values) keepTimer_.start();
    const auto validate =
        [engine = engine_, checkpoint = checkpoint_, level, values, scan = values ? scan_ : nullptr,
         key = scanKey_, how = openedHow_,
         expectPath = expectPath_.toStdString()](const TaskContext& context) -> Result<ValidationReport> {
        CheckpointPtr expect;
        if (!expectPath.empty()) {
            SHARDSCOPE_ASSIGN(expect, engine->open(expectPath, {}, context));
        }
        // Of before the first byte was read, so that what changes meanwhile shows.
        if (values && scan->chunksRead() == 0 && key->empty())
            *key = ScanStore::keyOf(*checkpoint, how, context.stop);
        ValidateOptions options;
        options.level = level;
        options.maxExamples = kReadyExamples;
        options.scan = scan;
        auto report = engine->validate(checkpoint, options, expect, context);
        // Also when nobody waits for the answer any more, because the window was closed.
        if (values && report.ok() && !report->stopped) ScanStore::remove(*checkpoint, how);
        if (values && (!report.ok() || report->stopped)) {
            if (Status kept = ScanStore::save(*checkpoint, how, *key, *scan); !kept.ok() && report.ok())
                report->notChecked.push_back({kept.error().message});
        }
        return report;
    };
    const std::vector<Suppression> accepted = suppressions();
    ticket_ = tasks_.run<Judged>(
        Work::bulk, tr("Validating"),
        [validate, checkpoint = checkpoint_, accepted](const TaskContext& context) -> Result<Judged> {
            SHARDSCOPE_ASSIGN(ValidationReport report, validate(context));
            auto card = std::make_shared<ReadyCard>(readyCard(*checkpoint, report, accepted));
            return Judged{std::make_shared<ValidationReport>(std::move(report)), std::move(card)};
        },
        [this, accepted](Result<Judged> answer) {
            keepTimer_.stop();
            if (answer.ok()) {
                report_ = std::move(answer->report);
                card_ = std::move(answer->card);
                cardTicket_.drop();
                if (accepted != suppressions()) makeCard();
            } else if (answer.error().code != ErrorCode::cancelled) {
                error_ = std::move(answer).error();
            }
            const bool deeper = deeper_ && answer.ok();
            emit changed();
            if (deeper && deeper_) start(ValidateLevel::files);
        });
    emit changed();
}

void Validation::keepScan() {
    if (!running() || !scan_ || !scanKey_ || scan_->chunksRead() == 0 || keepTicket_.running()) return;
    keepTicket_ = tasks_.run<bool>(
        Work::metadata, tr("Saving the progress of the validation"),
        [checkpoint = checkpoint_, how = openedHow_, key = scanKey_,
         scan = scan_](const TaskContext&) -> Result<bool> {
            SHARDSCOPE_TRY(ScanStore::save(*checkpoint, how, *key, *scan));
            return true;
        },
        [this](Result<bool> answer) {
            if (!answer.ok()) emit scanNotKept(answer.error());
        });
}

// Lists the step's directory, which may take long.
void Validation::makeCard() {
    cardTicket_.drop();
    if (!report_) return;
    cardTicket_ = tasks_.run<CardPtr>(
        Work::metadata, tr("Looking at the step"),
        [checkpoint = checkpoint_, report = report_,
         accepted = suppressions()](const TaskContext&) -> Result<CardPtr> {
            return std::make_shared<const ReadyCard>(readyCard(*checkpoint, *report, accepted));
        },
        [this](Result<CardPtr> answer) {
            if (!answer.ok()) return;
            card_ = *std::move(answer);
            emit cardChanged();
        });
}

std::optional<Verdict> Validation::verdict() const {
    if (!report_) return std::nullopt;
    return verdictWithout(*report_, suppressions());
}

QString Validation::depth() const {
    const bool here = !checkpoint_ || checkpoint_->reader->dataElsewhere().empty();
    if (!report_) return here ? tr("metadata only") : tr("index only");
    switch (report_->level) {
        case ValidateLevel::metadata:
            return here ? tr("metadata checked") : tr("index checked");
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

}  // namespace shardscope::ui
