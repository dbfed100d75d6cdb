// One open checkpoint: its catalog, the facts worked out from it, the filter's result, what validation said.
// Views listen to its signals and keep no copies.
#pragma once

#include <QDateTime>
#include <QObject>
#include <QString>
#include <QTimer>
#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "engine/report.h"
#include "survey/facts.h"
#include "ui/bridge/engine_service.h"
#include "ui/bridge/selection.h"
#include "ui/bridge/source_options.h"
#include "ui/bridge/tasks.h"
#include "ui/models/failed_place.h"

namespace shardscope::ui {

class Suppressions;

class Session : public QObject {
    Q_OBJECT
  public:
    enum class State { empty, opening, open, run, failed };

    explicit Session(std::shared_ptr<EngineService> engine, QObject* parent = nullptr);
    ~Session() override;

    // Opens off the GUI thread; what is shown stays until the new one is there. When the checkpoint that is
    // shown cannot be opened with other options it stays, too, and openingRefused() says why.
    void open(const QString& path, const SourceOptions& options = {});
    void reload();
    void cancel();  // the opening, or the validation
    void close();

    State state() const { return state_; }
    // While it opens: "Listing the directory", "Reading metadata: 12 of 1 000 files", ...
    QString openingStage() const;
    // Other formats that fit what is in the same place; empty when a format was asked for.
    std::vector<FormatMatch> otherFormats() const;
    const QString& path() const { return path_; }
    const SourceOptions& options() const { return options_; }
    // "shardscope VERB PATH arguments...", with the options that it was opened with, as one line for a shell.
    QString command(const QString& verb, const QStringList& arguments = {}) const;
    // The directory that its files lie in, and one of its files as the user can open it.
    const QString& directory() const { return directory_; }
    QString filePath(std::string_view relative) const;
    // Empty, or where the data is when only an index is open: "an index of gpu07:/ckpt, made ...".
    QString dataElsewhere() const;
    const std::optional<Error>& error() const { return error_; }  // in state failed
    const FailedPlace& failedPlace() const { return failedPlace_; }
    // In state run: the path names the directory of a run, whose steps are checkpoints of their own.
    const RunPtr& run() const { return run_; }
    std::string openedHow() const;  // the options, as one text
    const CheckpointPtr& checkpoint() const { return checkpoint_; }
    const Catalog& catalog() const { return checkpoint_->catalog(); }     // only when there is a checkpoint
    const std::shared_ptr<const Facts>& facts() const { return facts_; }  // null until they are worked out
    bool hasFacts() const { return facts_ != nullptr; }

    // Tensors that the filter lets through, ascending; all of them without a filter.
    const std::vector<TensorId>& visible() const { return visible_; }
    bool filtered() const { return filtered_; }
    const std::shared_ptr<const ModuleTree>& visibleTree() const { return visibleTree_; }
    const QString& filterError() const { return filterError_; }

    // Why the checkpoint seems to be written still, as a sentence: its files grow, or traces of an unfinished
    // save or conversion are there. Empty otherwise. While it is not, nothing is validated: what a check
    // finds would not hold.
    QString beingWritten() const;
    // Opens the checkpoint anew; it counts as being written until its files were seen to stand still.
    void lookAgain();
    // The user knows that nobody writes there any more; holds until it is opened anew.
    void takeAsFinished();

    // Findings accepted there do not count against verdict(). Must outlive the session; may be null.
    void setSuppressions(const Suppressions* suppressions);
    // Those that hold for this checkpoint.
    std::vector<Suppression> suppressions() const;

    // What validating costs: "reads 2.1 TiB, about 38 min at 1 GB/s". Empty without a checkpoint.
    QString validationCost(ValidateLevel level) const;
    // Why a validation of this level cannot begin now, as a sentence; empty when it can.
    QString validationObstacle(ValidateLevel level) const;

    // Validation. Findings that the user has suppressed stay in the report; see suppressions.h.
    void validate(ValidateLevel level, const QString& expectPath = {});
    // Reading every value can be stopped with cancel() and continued, also after the program was ended
    // (scan_store.h); what was seen until then is in report().
    bool canGoOn() const;
    void goOn();
    const std::shared_ptr<ValueScan>& scan() const { return scan_; }
    bool validating() const { return validateTicket_.running(); }
    TaskStatus validationStatus() const { return validateTicket_.status(); }
    const std::shared_ptr<const ValidationReport>& report() const { return report_; }
    const std::optional<Error>& validationError() const { return validationError_; }
    // Of the report, without the findings that were accepted; none without a report. What every view shows.
    std::optional<Verdict> verdict() const;

    // How deep the knowledge goes: "metadata only", "files checked", "every value read".
    QString depth() const;
    // Set when files differ in size or time from what they were at opening.
    QString changedFiles() const { return changedFiles_; }
    QDateTime openedAt() const { return openedAt_; }

    EngineService& engine() { return *engine_; }
    std::shared_ptr<EngineService> enginePtr() const { return engine_; }
    Tasks& tasks() { return tasks_; }
    Selection& selection() { return selection_; }
    const Selection& selection() const { return selection_; }

    // Looks at sizes and times of the files again; also done every few seconds. Of files on another host,
    // at sizes, and less often.
    void checkForChanges();

    // Of a checkpoint on another host. What is shown stays when the connection is lost; whatever asks for
    // more connects again by itself, and reconnect() does so at once.
    bool connectionLost() const { return lost_; }
    bool reconnecting() const { return reconnectTicket_.running(); }
    const std::optional<Error>& connectionError() const { return connectionError_; }  // of reconnect()
    void reconnect();
    void cancelReconnecting() { reconnectTicket_.cancel(); }

  signals:
    void stateChanged();
    void factsChanged();  // worked out, or changed by findings
    void visibleChanged();
    void reportChanged();   // a validation began, ended or failed
    void verdictChanged();  // findings were accepted, or are accepted no longer
    void progressed();      // ten times a second while something runs
    void filesChanged();    // changedFiles() or beingWritten() is new
    void otherFormatsFound();
    void openingRefused(const shardscope::Error& error);
    void connectionChanged();                          // lost, found again, or an attempt began or ended
    void scanNotKept(const shardscope::Error& error);  // how far values were read could not be written

  private:
    struct Stamp {
        std::string path;
        int64_t size, modified;
    };
    struct Opened {
        RunPtr run;  // then there is nothing else
        CheckpointPtr checkpoint;
        std::shared_ptr<const ModuleTree> tree;
        QString directory;
        std::vector<Stamp> stamps;
        // Of an earlier run of the program.
        std::shared_ptr<ValueScan> scan;
        std::string scanKey;
    };
    struct Filtered {
        std::vector<TensorId> tensors;
        std::shared_ptr<const ModuleTree> tree;
    };
    static std::vector<Stamp> stampFiles(const Checkpoint& checkpoint, const StopToken& stop);
    void opened(Opened opened);
    void startFacts();
    void compareStamps(std::vector<Stamp> now);
    void startFilter();
    void startValidation(ValidateLevel level, const QString& expectPath);
    void keepScan();
    void lookAtConnection();

    std::shared_ptr<EngineService> engine_;
    Tasks tasks_;
    Selection selection_;
    const Suppressions* suppressions_ = nullptr;
    State state_ = State::empty;
    QString path_, directory_;
    SourceOptions options_;
    bool lost_ = false;
    std::optional<Error> connectionError_;
    std::optional<Error> error_, validationError_;
    FailedPlace failedPlace_;
    CheckpointPtr checkpoint_;
    RunPtr run_;
    std::shared_ptr<const Facts> facts_;
    std::shared_ptr<const ModuleTree> wholeTree_, visibleTree_;
    std::vector<TensorId> visible_;
    bool filtered_ = false;
    QString filterError_;
    std::shared_ptr<const ValidationReport> report_;
    std::shared_ptr<ValueScan> scan_;  // of the last reading of values
    // What the files were like when that began; shared with the thread that finds out.
    std::shared_ptr<std::string> scanKey_;
    std::shared_ptr<OpenProgress> openProgress_;
    QString expectPath_;
    Ticket openTicket_, factsTicket_, filterTicket_, validateTicket_, stampTicket_, keepTicket_,
        reconnectTicket_;
    // While it opens on another host: whether the host has answered.
    std::shared_ptr<std::atomic<bool>> connected_;
    QTimer filterTimer_, stampTimer_, keepTimer_, connectionTimer_;
    std::vector<Stamp> stamps_;
    QString changedFiles_;
    QString growth_;         // which files grow; empty = none
    bool settling_ = false;  // opened anew because they grew, and not looked at since
    bool finished_ = false;  // the user says so
    QDateTime openedAt_;
};

// Where a path is in the directory in which a conversion puts its result together, the result's path; else
// empty.
QString resultOfStaging(const QString& path);

// One line: "file at byte N: message", and the hint apart.
QString errorSentence(const Error& error);
QString errorHint(const Error& error);

}  // namespace shardscope::ui
