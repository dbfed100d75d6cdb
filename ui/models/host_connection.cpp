#include "ui/models/host_connection.h"

#include "ui/bridge/hosts.h"
#include "ui/models/texts.h"

namespace shardscope::ui {

namespace {
constexpr int kConnectionLook = 500;  // milliseconds from one look at the connection to the next
}

HostConnection::HostConnection(std::shared_ptr<EngineService> engine, Tasks& tasks, QObject* parent)
    : QObject(parent), engine_(std::move(engine)), tasks_(tasks) {
    timer_.setInterval(kConnectionLook);
    connect(&timer_, &QTimer::timeout, this, &HostConnection::look);
}

void HostConnection::begin(const std::string& path) {
    end();
    path_ = path;
    if (!hostOf(toQString(path)).isEmpty()) timer_.start();
}

void HostConnection::end() {
    ticket_.drop();
    timer_.stop();
    lost_ = false;
    error_.reset();
    path_.clear();
}

void HostConnection::look() {
    if (!timer_.isActive()) return;
    const bool lost = engine_->connectionLost(path_);
    if (lost == lost_) return;
    lost_ = lost;
    if (!lost) error_.reset();
    emit changed();
}

void HostConnection::reconnect() {
    if (path_.empty() || reconnecting()) return;
    error_.reset();
    ticket_ = tasks_.run<bool>(
        Work::metadata, tr("Connecting to %1").arg(hostOf(toQString(path_))),
        [engine = engine_, path = path_](const TaskContext& context) -> Result<bool> {
            SHARDSCOPE_TRY(engine->connect(path, true, context));
            return true;
        },
        [this](Result<bool> answer) {
            ticket_ = {};
            if (!answer.ok() && answer.error().code != ErrorCode::cancelled)
                error_ = std::move(answer).error();
            lost_ = engine_->connectionLost(path_);
            emit changed();
            if (!lost_) emit found();
        });
    emit changed();
}

}  // namespace shardscope::ui
