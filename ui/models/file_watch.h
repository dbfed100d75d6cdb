// Looks at the files of an open checkpoint every few seconds. Are they as they were when it was opened, and
// does somebody still write them?
#pragma once

#include <QObject>
#include <QString>
#include <QTimer>
#include <vector>

#include "ui/bridge/engine_service.h"
#include "ui/bridge/file_stamps.h"
#include "ui/bridge/tasks.h"
#include "ui/models/host_connection.h"

namespace shardscope::ui {

class FileWatch : public QObject {
    Q_OBJECT
  public:
    // While `connection` is lost it does not look: a look would connect again, and nobody would have known.
    FileWatch(Tasks& tasks, HostConnection& connection, QObject* parent = nullptr);

    // `stamps` are those of the opening; `again`: the same checkpoint was watched before.
    void begin(CheckpointPtr checkpoint, std::vector<FileStamp> stamps, bool again);
    void end();
    // At once, besides the looks of the timer.
    void look();

    // Set when files differ from what they were at the opening: "'x' changed at 10:42."
    const QString& changes() const { return changes_; }
    // Which files grow, as a sentence; empty when all stand still.
    const QString& growth() const { return growth_; }
    // Before it is opened anew because files grew: they count as growing until they were seen to stand still.
    void expectGrowth() { settling_ = !growth_.isEmpty(); }

  signals:
    void changed();

  private:
    void compare(std::vector<FileStamp> now);

    Tasks& tasks_;
    HostConnection& connection_;
    CheckpointPtr checkpoint_;
    std::vector<FileStamp> stamps_;
    QString changes_, growth_;
    bool settling_ = false;  // opened anew because they grew, and not looked at since
    Ticket ticket_;
    QTimer timer_;
};

}  // namespace shardscope::ui
