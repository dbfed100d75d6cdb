// Findings that the user has accepted, for views that follow them.
#pragma once

#include <QObject>
#include <QString>
#include <vector>

#include "engine/suppressions.h"

namespace shardscope::ui {

class Suppressions : public QObject {
    Q_OBJECT
  public:
    // As SuppressionStore; the default is in the application's configuration directory, where the store's
    // own default is.
    explicit Suppressions(QString file = {}, QObject* parent = nullptr);

    // Those that hold for one checkpoint: its own, and those for every checkpoint.
    std::vector<Suppression> of(const QString& checkpoint) const;
    void add(const QString& checkpoint, const Finding& finding, const QString& reason);
    void remove(const QString& checkpoint, const Finding& finding);
    // Why the last change was not written; empty when it was.
    const QString& problem() const { return problem_; }

  signals:
    void changed();

  private:
    void changedWith(const Status& written);

    SuppressionStore store_;
    QString problem_;
};

}  // namespace shardscope::ui
