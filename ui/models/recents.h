// Checkpoints that were opened lately, newest first, with what was last known of them; kept with the user's
// settings.
#pragma once

#include <QDateTime>
#include <QObject>
#include <QString>
#include <vector>

#include "ui/bridge/source_options.h"

namespace shardscope::ui {

struct Recent {
    QString path;
    QString format;     // title
    QString verdict;    // "safe", "care", "unsafe"; of a run, the step to resume from; empty = not validated
    quint64 bytes = 0;  // of the tensors, or of all steps; 0 = not known
    QDateTime time;
    SourceOptions options;  // with which it was opened
};

class Recents : public QObject {
    Q_OBJECT
  public:
    static constexpr int kMost = 20;
    explicit Recents(QObject* parent = nullptr);

    const std::vector<Recent>& list() const { return list_; }
    void opened(const QString& path, const QString& format, const SourceOptions& options = {},
                quint64 bytes = 0);
    SourceOptions optionsOf(const QString& path) const;
    // Where several formats fit a place: the name of the one that was chosen; empty when nobody was asked
    // yet.
    static QString chosenFormat(const QString& path);
    static void chooseFormat(const QString& path, const QString& format);  // empty forgets it
    void validated(const QString& path, const QString& verdict);
    void remove(const QString& path);
    void clear();

  signals:
    void changed();

  private:
    void save();
    std::vector<Recent> list_;
};

}  // namespace shardscope::ui
