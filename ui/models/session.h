// One open checkpoint: its catalog, the facts worked out from it, the filter's result, what validation said.
// Views listen to its signals and keep no copies.
#pragma once

#include <QDateTime>
#include <QObject>
#include <QString>
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
#include "ui/models/failed_path.h"
#include "ui/models/file_watch.h"
#include "ui/models/filtered_tensors.h"
#include "ui/models/host_connection.h"
#include "ui/models/validation.h"

namespace shardscope::ui {

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
    // The directory that its files are in, and one of its files as the user can open it.
    const QString& directory() const { return directory_; }
    QString filePath(std::string_view relative) const;
    // Empty, or where the data is when only an index is open: "an index of gpu07:/ckpt, made ...".
    QString dataElsewhere() const;
    const std::optional<Error>& error() const { return error_; }  // in state failed
    const FailedPath& failedPath() const { return failedPath_; }
    // In state run: the path names the directory of a run, whose steps are checkpoints of their own.
    const RunPtr& run() const { return run_; }
    std::string openedHow() const;  // the options, as one text
    const CheckpointPtr& checkpoint() const { return checkpoint_; }
    const Catalog& catalog() const { return checkpoint_->catalog(); }     // only when there is a checkpoint
    const std::shared_ptr<const Facts>& facts() const { return facts_; }  // null until they are worked out
    bool hasFacts() const { return facts_ != nullptr; }

    // What the filter lets through, what validating found, and the connection to the host of a checkpoint
    // that is on another one.
    const FilteredTensors& filtered() const { return filtered_; }
    Validation& validation() { return validation_; }
    const Validation& validation() const { return validation_; }
    HostConnection& connection() { return connection_; }

    // Why the checkpoint seems to be written still, as a sentence: its files grow, or traces of an unfinished
    // save or conversion are there. Empty otherwise. While it is not, nothing is validated: what a check
    // finds would not hold.
    QString beingWritten() const;
    // Opens the checkpoint anew; it counts as being written until its files were seen to stand still.
    void lookAgain();
    // The user knows that nobody writes there any more; holds until it is opened anew.
    void takeAsFinished();

    // What changed since it was opened is checked once it is opened anew.
    void validateByItself() {
        if (changedFiles().isEmpty()) validation_.startByItself();
    }

    // Set when files differ in size or time from what they were at opening.
    QString changedFiles() const { return watch_.changes(); }
    QDateTime openedAt() const { return openedAt_; }

    EngineService& engine() { return *engine_; }
    std::shared_ptr<EngineService> enginePtr() const { return engine_; }
    Tasks& tasks() { return tasks_; }
    Selection& selection() { return selection_; }
    const Selection& selection() const { return selection_; }

    // Looks at sizes and times of the files again; also done every few seconds. Of files on another host,
    // at sizes, and less often.
    void checkForChanges() { watch_.look(); }

  signals:
    void stateChanged();
    void factsChanged();  // worked out, or changed by findings
    void visibleChanged();
    void reportChanged();   // a validation began, ended or failed
    void verdictChanged();  // findings were accepted, or are accepted no longer
    void cardChanged();     // for that reason; soon after
    void progressed();      // ten times a second while something runs
    void filesChanged();    // changedFiles() or beingWritten() is new
    void otherFormatsFound();
    void openingRefused(const shardscope::Error& error);
    void connectionChanged();                          // lost, found again, or an attempt began or ended
    void scanNotKept(const shardscope::Error& error);  // how far values were read could not be written

  private:
    struct Opened {
        RunPtr run;        // then there is nothing else
        std::string path;  // of the only step of a run; empty = as asked
        CheckpointPtr checkpoint;
        std::shared_ptr<const ModuleTree> tree;
        QString directory;
        std::vector<FileStamp> stamps;
        // Of an earlier run of the program.
        std::shared_ptr<ValueScan> scan;
        std::string scanKey;
    };
    void opened(Opened opened);
    void startFacts();
    void takeFindings();

    std::shared_ptr<EngineService> engine_;
    Tasks tasks_;
    Selection selection_;
    HostConnection connection_;
    FileWatch watch_;
    Validation validation_;
    FilteredTensors filtered_;
    State state_ = State::empty;
    QString path_, directory_;
    QString signed_;  // what is opened: path_, with the signature of a web address, which is never shown
    SourceOptions options_;
    std::optional<Error> error_;
    FailedPath failedPath_;
    CheckpointPtr checkpoint_;
    RunPtr run_;
    std::shared_ptr<const Facts> facts_;
    std::shared_ptr<const ValidationReport> reportOfFacts_;  // whose findings are in facts_
    std::shared_ptr<OpenProgress> openProgress_;
    Ticket openTicket_, factsTicket_;
    // While it opens on another host: whether the host has answered.
    std::shared_ptr<std::atomic<bool>> connected_;
    bool finished_ = false;  // nobody writes there any more, the user says
    QDateTime openedAt_;
};

// Where a path is in the directory in which a conversion puts its result together, the result's path; else
// empty.
QString resultOfStaging(const QString& path);

// One line: "file at byte N: message", and the hint apart.
QString errorSentence(const Error& error);
QString errorHint(const Error& error);
QString errorText(const Error& error);  // both

}  // namespace shardscope::ui
