#include "ui/models/run_steps.h"

#include <algorithm>
#include <unordered_map>

#include "ui/models/texts.h"

namespace shardscope::ui {

namespace {
constexpr int kLook = 5000;  // milliseconds from one listing to the next
constexpr std::chrono::seconds kSettle{30};
constexpr size_t kMostDetails = 8;

bool looksTheSame(const RunRow& a, const RunRow& b) {
    if (a.step.name != b.step.name || !(a.files.identity == b.files.identity) || a.format != b.format)
        return false;
    if (!a.verdict || !b.verdict) return a.verdict.has_value() == b.verdict.has_value();
    return a.verdict->verdict() == b.verdict->verdict() && a.verdict->report.level == b.verdict->report.level;
}
}  // namespace

RunSteps::RunSteps(Session& session, QObject* parent)
    : QObject(parent), session_(session), saves_(std::make_unique<SaveWatch>(kSettle)) {
    timer_.setInterval(kLook);
    connect(&timer_, &QTimer::timeout, this, &RunSteps::refresh);
    connect(&session_, &Session::stateChanged, this, &RunSteps::follow);
}

void RunSteps::setTimes(std::chrono::milliseconds interval, std::chrono::seconds settle) {
    timer_.setInterval(interval);
    saves_ = std::make_unique<SaveWatch>(settle);
}

void RunSteps::follow() {
    if (session_.run() == run_) return;
    listTicket_.drop();
    judgeTicket_.drop();
    chartsTicket_.drop();
    charts_.reset();
    chartsOf_.clear();
    current_ = SIZE_MAX;
    rows_.clear();
    facts_ = {};
    listing_.reset();
    run_ = session_.run();
    if (!run_) {
        timer_.stop();
        return;
    }
    timer_.start();
    tell();
    refresh();
}

void RunSteps::tell() {
    std::vector<SeenStep> seen;
    for (const RunRow& row : rows_)
        seen.push_back({&row.files, row.verdict ? &*row.verdict : nullptr});
    facts_ = factsOf(seen);
    followValues();
    emit changed();
}

void RunSteps::followValues() {
    std::vector<size_t> read;  // rows, the oldest first
    std::vector<Digest128> identities;
    for (size_t row = rows_.size(); row-- > 0;) {
        const auto& verdict = rows_[row].verdict;
        if (!verdict || verdict->error || verdict->report.level != ValidateLevel::values) continue;
        read.push_back(row);
        identities.push_back(rows_[row].files.identity);
    }
    if (identities == chartsOf_) return;
    chartsOf_ = std::move(identities);
    chartsTicket_.drop();
    if (read.size() < 2) {
        charts_.reset();
        return;
    }
    auto shown = std::make_shared<RunListing>(*listing_);
    shown->rows = rows_;
    chartsTicket_ = session_.tasks().run<std::shared_ptr<const ValueCharts>>(
        Work::metadata, tr("Following norms"),
        [engine = session_.enginePtr(), listing = RunListingPtr(std::move(shown)), read,
         how =
             session_.openedHow()](const TaskContext& context) -> Result<std::shared_ptr<const ValueCharts>> {
            ValueHistory history;
            for (const size_t row : read) {
                SHARDSCOPE_TRY(context.stop.poll());
                SHARDSCOPE_ASSIGN(const auto values, engine->stepValues(listing, row, how));
                if (!values.empty()) history.add(listing->rows[row].step.name, values);
            }
            return ValueCharts::of(history);
        },
        [this](Result<std::shared_ptr<const ValueCharts>> answer) {
            charts_ = answer.ok() ? *std::move(answer) : nullptr;
            emit changed();
        });
}

void RunSteps::refresh() {
    if (!run_ || listTicket_.running()) return;
    listTicket_ = session_.tasks().run<RunListingPtr>(
        Work::metadata, tr("Listing the run"),
        [engine = session_.enginePtr(), path = session_.path().toStdString(), options = session_.options(),
         how = session_.openedHow(), level = level_](const TaskContext& context) -> Result<RunListingPtr> {
            SHARDSCOPE_ASSIGN(const CheckpointOptions opened, options.toEngine());
            return engine->listRun(path, opened, how, level, context);
        },
        [this](Result<RunListingPtr> answer) {
            // A directory that is away for a moment keeps what is shown.
            if (answer.ok() && *answer) taken(*answer);
        });
}

void RunSteps::taken(const RunListingPtr& listing) {
    // A step that is judged right now keeps its place by name.
    const std::string current = current_ < rows_.size() ? rows_[current_].step.name : std::string();
    const auto before = std::move(rows_);
    std::unordered_map<std::string_view, const RunRow*> known;
    for (const RunRow& row : before)
        known.emplace(row.step.name, &row);
    const auto completeBefore = std::move(complete_);
    const bool sameRun = listing_ && listing_->run.directory.tracker == listing->run.directory.tracker &&
                         listing_->run.directory.tracked == listing->run.directory.tracked &&
                         listing_->run.directory.trackedExists == listing->run.directory.trackedExists;
    listing_ = listing;
    rows_ = listing->rows;
    complete_.assign(rows_.size(), false);
    current_ = SIZE_MAX;
    for (size_t i = 0; i < rows_.size(); ++i) {
        RunRow& row = rows_[i];
        // Old files need no wait. Should somebody copy them just now, they change, and are judged again.
        complete_[i] = saves_->isComplete(listing->run, row.step, row.files) || saves_->isOld(row.files);
        if (!current.empty() && row.step.name == current) current_ = i;
        // What did not open is not remembered elsewhere.
        const auto old = known.find(row.step.name);
        if (row.verdict || old == known.end() || !old->second->verdict) continue;
        if (old->second->files.identity == row.files.identity && old->second->verdict->report.level >= level_)
            row.verdict = old->second->verdict;
    }
    // Views are not told anew what they show already.
    if (!sameRun || complete_ != completeBefore || !std::ranges::equal(rows_, before, looksTheSame)) tell();
    next();
}

void RunSteps::next() {
    if (!checking_ || judgeTicket_.running() || !listing_) return;
    size_t row = 0;
    while (row < rows_.size() && (rows_[row].verdict || !complete_[row]))
        ++row;
    if (row == rows_.size()) return;
    current_ = row;
    judgeTicket_ = session_.tasks().run<StepVerdict>(
        Work::metadata, tr("Checking %1").arg(toQString(rows_[row].step.name)),
        [engine = session_.enginePtr(), listing = listing_, row, options = session_.options(),
         how = session_.openedHow(), level = level_](const TaskContext& context) -> Result<StepVerdict> {
            SHARDSCOPE_ASSIGN(const CheckpointOptions opened, options.toEngine());
            return engine->judgeStep(listing, row, opened, how, level, context);
        },
        [this, name = rows_[row].step.name, identity = rows_[row].files.identity,
         level = level_](Result<StepVerdict> answer) {
            current_ = SIZE_MAX;
            StepVerdict verdict;
            if (answer.ok()) {
                verdict = *std::move(answer);
            } else if (answer.error().code == ErrorCode::cancelled) {
                checking_ = false;
                tell();
                return;
            } else {
                verdict.error = std::move(answer).error();
                verdict.report.level = level;
            }
            for (RunRow& judged : rows_) {
                if (judged.step.name != name || !(judged.files.identity == identity) || level < level_)
                    continue;
                if (judged.format.empty()) judged.format = verdict.format;
                judged.verdict = std::move(verdict);
                break;
            }
            tell();
            next();
        });
    tell();
}

void RunSteps::setLevel(ValidateLevel level) {
    if (level == level_) return;
    level_ = level;
    judgeTicket_.drop();
    current_ = SIZE_MAX;
    for (RunRow& row : rows_) {
        if (row.verdict && row.verdict->report.level < level_) row.verdict.reset();
    }
    tell();
    listTicket_.drop();
    refresh();
}

void RunSteps::setChecking(bool on) {
    if (on == checking_) return;
    checking_ = on;
    if (!on) judgeTicket_.cancel();
    tell();
    next();
}

RunSteps::State RunSteps::state(size_t row) const {
    if (row == current_) return State::checking;
    if (rows_[row].verdict) return State::checked;
    if (!complete_[row]) return State::saving;
    return checking_ ? State::waiting : State::unchecked;
}

QString RunSteps::path(size_t row) const {
    return QString::fromStdString(run_->pathOf(rows_[row].step));
}

QString RunSteps::stateText(size_t row) const {
    switch (state(row)) {
        case State::checking:
            return tr("checking…");
        case State::saving:
            return tr("being saved");
        case State::waiting:
            return tr("waits");
        case State::unchecked:
            return tr("not checked");
        case State::checked:
            break;
    }
    const StepVerdict& verdict = *rows_[row].verdict;
    if (verdict.error) return tr("✕ does not open");
    const Finding* const reason = verdict.reason();
    if (!reason) return verdictText(verdict.verdict());
    return tr("%1: %2").arg(verdictText(verdict.verdict()),
                            toQString(reason->cause.empty() ? reason->message : reason->cause));
}

QString RunSteps::details(size_t row) const {
    if (!rows_[row].verdict) return {};
    const StepVerdict& verdict = *rows_[row].verdict;
    if (verdict.error) return errorSentence(*verdict.error) + ' ' + errorHint(*verdict.error);
    QStringList lines;
    for (const Finding& finding : verdict.report.findings) {
        if (finding.severity == Severity::info) continue;
        if (static_cast<size_t>(lines.size()) == kMostDetails) {
            lines += QStringLiteral("…");
            break;
        }
        QString line = toQString(finding.rule) + QStringLiteral(": ") + toQString(finding.message);
        if (finding.message.find(finding.cause) == std::string::npos)
            line += QStringLiteral(" (%1)").arg(toQString(finding.cause));
        lines += line;
    }
    return lines.join('\n');
}

QString RunSteps::savedText(size_t row) const {
    const int64_t ns = rows_[row].files.modifiedNs;
    if (ns == 0) return tr("unknown");
    return momentText(QDateTime::fromMSecsSinceEpoch(ns / 1'000'000));
}

QString RunSteps::advice() const {
    const size_t newest = facts_.newestWhole;
    if (newest == kNoStep) {
        const bool judged =
            std::ranges::any_of(rows_, [](const RunRow& row) { return row.verdict.has_value(); });
        return judged ? tr("✕ No step that was checked is whole: none to resume from yet.") : QString();
    }
    QString text = tr("✓ Resume from %1, the newest whole step.").arg(toQString(rows_[newest].step.name));
    size_t open = 0;
    for (size_t row = 0; row < newest; ++row)
        open += !rows_[row].verdict;
    if (open > 0)
        text += ' ' +
                countedText(open, tr("1 newer step is not checked."), tr("%1 newer steps are not checked."));
    return text;
}

QString RunSteps::description(size_t row) const {
    const RunRow& step = rows_[row];
    const StepFacts& facts = facts_.steps[row];
    QStringList lines{toQString(step.step.name) + QStringLiteral(": ") + stateText(row)};
    if (row == facts_.newestWhole) lines += tr("The newest whole step: resume from it");
    lines += tr("Saved %1").arg(savedText(row));
    if (const std::string since = facts.sinceText(); !since.empty())
        lines += tr("%1 after the save before it").arg(toQString(since));
    lines +=
        tr("%1 in %2")
            .arg(sizeText(step.files.bytes), countedText(step.files.files, tr("1 file"), tr("%1 files")));
    if (const std::string ranks = facts.ranksText(); !ranks.empty())
        lines += (facts.lostRanks() ? tr("Ranks lost: %1") : tr("Ranks: %1")).arg(toQString(ranks));
    return lines.join('\n');
}

QString RunSteps::summary() const {
    if (!listing_) return {};
    const RunDirectory& directory = listing_->run.directory;
    size_t checked = 0, bad = 0;
    uint64_t bytes = 0;
    for (const RunRow& row : rows_) {
        bytes += row.files.bytes;
        checked += row.verdict.has_value();
        bad += row.verdict && row.verdict->verdict() == Verdict::unsafe;
    }
    QStringList parts{countedText(rows_.size(), tr("1 step"), tr("%1 steps")) + QStringLiteral(", ") +
                      sizeText(bytes)};
    if (const std::string missing = listing_->run.missingStep(); !missing.empty()) {
        parts += toQString(missing);
    } else if (!directory.tracker.empty() && directory.tracker != directory.tracked) {
        parts += tr("%1 names %2").arg(toQString(directory.tracker), toQString(directory.tracked));
    }
    parts += tr("%1 of %2 checked").arg(numberText(checked), numberText(rows_.size()));
    if (bad > 0) parts += tr("%1 not whole").arg(numberText(bad));
    return parts.join(QStringLiteral(" · "));
}

}  // namespace shardscope::ui
