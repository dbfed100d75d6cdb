// The connection to the host of an open checkpoint. Whatever asks that host for more connects again by
// itself; reconnect() does so at once.
#pragma once

#include <QObject>
#include <QTimer>
#include <memory>
#include <optional>
#include <string>

#include "ui/bridge/engine_service.h"
#include "ui/bridge/tasks.h"

namespace shardscope::ui {

class HostConnection : public QObject {
    Q_OBJECT
  public:
    HostConnection(std::shared_ptr<EngineService> engine, Tasks& tasks, QObject* parent = nullptr);

    // Watches the connection that `path` ("ssh://host/...") is read over; a path of this machine needs none.
    void begin(const std::string& path);
    void end();

    bool lost() const { return lost_; }
    bool reconnecting() const { return ticket_.running(); }
    const std::optional<Error>& error() const { return error_; }  // of reconnect()
    void reconnect();
    void cancel() { ticket_.cancel(); }
    // At once, besides the looks of the timer.
    void look();

  signals:
    void changed();  // lost, found again, or an attempt began or ended
    void found();    // by reconnect()

  private:
    std::shared_ptr<EngineService> engine_;
    Tasks& tasks_;
    std::string path_;
    bool lost_ = false;
    std::optional<Error> error_;
    Ticket ticket_;
    QTimer timer_;
};

}  // namespace shardscope::ui
