// Findings that the user has accepted, with the reason; kept beside the user's settings, never beside the
// checkpoint.
#pragma once

#include <QObject>
#include <QString>
#include <vector>

#include "engine/report.h"

namespace shardscope::ui {

class Suppressions : public QObject {
    Q_OBJECT
  public:
    // `file` is made on the first change; the default is in the application's configuration directory. One
    // that cannot be read counts as empty and is kept under another name before it is replaced.
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
    struct Entry {
        QString checkpoint;
        Suppression suppression;
    };
    void load();
    void save();

    QString file_;
    std::vector<Entry> entries_;
    bool unreadable_ = false;
    QString problem_;
};

}  // namespace shardscope::ui
