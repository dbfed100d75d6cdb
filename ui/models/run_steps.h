// The steps of the run that a session names. They are listed again every few seconds. Each is judged once its
// save is complete, newest first. What did not change is not read again.
#pragma once

#include <QObject>
#include <QTimer>
#include <vector>

#include "engine/run_facts.h"
#include "survey/value_charts.h"
#include "ui/models/session.h"

namespace shardscope::ui {

class RunSteps : public QObject {
    Q_OBJECT
  public:
    enum class State { unchecked, saving, waiting, checking, checked };

    explicit RunSteps(Session& session, QObject* parent = nullptr);

    const std::vector<RunRow>& rows() const { return rows_; }
    State state(size_t row) const;
    QString path(size_t row) const;
    QString savedText(size_t row) const;
    // "not checked", "being saved", "✓ whole", "✕ does not open"
    QString stateText(size_t row) const;
    // What was found, a line each; empty where nothing was.
    QString details(size_t row) const;
    // What is known of the step only in comparison with the others.
    const StepFacts& facts(size_t row) const { return facts_.steps[row]; }
    size_t newestWhole() const { return facts_.newestWhole; }  // row; kNoStep = none is known
    // "Resume from step-380, the newest whole step; 1 newer one is not checked yet."
    QString advice() const;
    // Norms over the steps whose every value was checked; null with fewer than two.
    const std::shared_ptr<const ValueCharts>& charts() const { return charts_; }
    // All that is known of a step but its findings, a line each.
    QString description(size_t row) const;
    // "12 steps; 'latest' names global_step12", and how many were checked.
    QString summary() const;

    ValidateLevel level() const { return level_; }
    void setLevel(ValidateLevel level);
    bool checking() const { return checking_; }
    void setChecking(bool on);

    // How often the directory is looked at, and for how long a step must stand still; for tests.
    void setTimes(std::chrono::milliseconds interval, std::chrono::seconds settle);
    void refresh();

  signals:
    void changed();

  private:
    void follow();
    void tell();  // works out the facts; rows_ have changed
    void followValues();
    void taken(const RunListingPtr& listing);
    void next();

    Session& session_;
    RunPtr run_;             // that the session names
    RunListingPtr listing_;  // the last one
    std::vector<RunRow> rows_;
    RunFacts facts_;  // of rows_
    std::unique_ptr<SaveWatch> saves_;
    std::vector<bool> complete_;  // by row
    ValidateLevel level_ = ValidateLevel::files;
    bool checking_ = true;
    size_t current_ = SIZE_MAX;  // row that is being judged
    std::shared_ptr<const ValueCharts> charts_;
    std::vector<Digest128> chartsOf_;  // identities of their steps
    Ticket listTicket_, judgeTicket_, chartsTicket_;
    QTimer timer_;
};

}  // namespace shardscope::ui
