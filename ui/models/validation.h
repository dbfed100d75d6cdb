// What was found out about an open checkpoint by validating it. It is begun, stopped, continued and
// remembered here. Findings that the user accepted are taken off.
#pragma once

#include <QObject>
#include <QString>
#include <QTimer>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/ready.h"
#include "engine/report.h"
#include "ui/bridge/engine_service.h"
#include "ui/bridge/tasks.h"

namespace shardscope::ui {

class Suppressions;

class Validation : public QObject {
    Q_OBJECT
  public:
    // `unfinished`: why the checkpoint seems to be written still; then nothing is validated.
    Validation(std::shared_ptr<EngineService> engine, Tasks& tasks, std::function<QString()> unfinished,
               QObject* parent = nullptr);

    // `openedHow`: the options that it was opened with, as one text. `scan` and `scanKey` are what an earlier
    // reading of all values left (scan_store.h); `scan` may be null.
    void begin(CheckpointPtr checkpoint, const QString& path, const std::string& openedHow,
               std::shared_ptr<ValueScan> scan, std::string scanKey);
    void end();

    // Findings accepted there do not count against verdict(). Must outlive this; may be null.
    void setSuppressions(const Suppressions* suppressions);
    // Those that hold for this checkpoint.
    std::vector<Suppression> suppressions() const;

    // "reads 2.1 TiB, about 38 min at 1 GB/s". Empty without a checkpoint.
    QString cost(ValidateLevel level) const;
    // Why a validation of this level cannot begin now, as a sentence; empty when it can.
    QString obstacle(ValidateLevel level) const;

    void start(ValidateLevel level, const QString& expectPath = {});
    // Once for each checkpoint, unless one was started already: at level metadata, and then at level files
    // where that is little work.
    void startByItself();
    // Drops the report and stops a running validation: the files are being written.
    void forget();
    // Reading every value can be stopped with cancel() and continued, also after the program was ended; what
    // was seen until then is in report().
    bool canContinue() const;
    void continueReading();
    void cancel() { ticket_.cancel(); }
    bool running() const { return ticket_.running(); }
    TaskStatus status() const { return ticket_.status(); }

    const std::shared_ptr<ValueScan>& scan() const { return scan_; }
    const std::shared_ptr<const ValidationReport>& report() const { return report_; }
    const std::optional<Error>& error() const { return error_; }
    // Of the report, without the findings that were accepted; none without a report. What every view shows.
    std::optional<Verdict> verdict() const;
    // Of the report, without the findings that were accepted; null without a report.
    const std::shared_ptr<const ReadyCard>& card() const { return card_; }
    // "metadata only", "files checked", "every value read"
    QString depth() const;

  signals:
    void changed();                                    // began, ended or failed
    void verdictChanged();                             // findings were accepted, or are accepted no longer
    void cardChanged();                                // follows verdictChanged()
    void scanNotKept(const shardscope::Error& error);  // how far values were read could not be written

  private:
    using CardPtr = std::shared_ptr<const ReadyCard>;
    bool filesAreLittleWork() const;
    void run(ValidateLevel level);
    void keepScan();
    void makeCard();

    std::shared_ptr<EngineService> engine_;
    Tasks& tasks_;
    std::function<QString()> unfinished_;
    const Suppressions* suppressions_ = nullptr;
    CheckpointPtr checkpoint_;
    QString path_, expectPath_;
    std::string openedHow_;
    std::shared_ptr<const ValidationReport> report_;
    CardPtr card_;
    bool begun_ = false;   // of this checkpoint
    bool deeper_ = false;  // files are checked next, without being asked for
    std::optional<Error> error_;
    std::shared_ptr<ValueScan> scan_;  // of the last reading of values
    // What the files were like when that began; shared with the thread that finds out.
    std::shared_ptr<std::string> scanKey_;
    Ticket ticket_, keepTicket_, cardTicket_;
    QTimer keepTimer_;
};

}  // namespace shardscope::ui
