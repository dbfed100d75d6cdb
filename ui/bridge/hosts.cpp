#include "ui/bridge/hosts.h"

#include <QCoreApplication>
#include <QFileInfo>
#include <QStandardPaths>
#include <chrono>
#include <future>
#include <thread>

#include "storage/named_path.h"
#include "storage/url.h"

namespace shardscope::ui {

namespace {

constexpr std::chrono::milliseconds kStopLook{50};

QString withoutSlashes(QString path) {
    while (path.size() > 1 && path.endsWith('/'))
        path.chop(1);
    return path;
}

}  // namespace

QString wholePath(const QString& path) {
    if (const auto there = parseSshPath(path.toStdString()); there.ok())
        return QString::fromStdString(hostText(there->host)) +
               withoutSlashes(QString::fromStdString(there->path));
    const QString named = QString::fromStdString(namedPath(path.toStdString()));
    const QFileInfo info(named);
    // The file system is asked about relative paths only: this is the GUI thread.
    return info.isAbsolute() || info.exists() ? info.absoluteFilePath() : named;
}

QString withoutSecrets(const QString& path) {
    return QString::fromStdString(shardscope::withoutSecrets(path.toStdString()));
}

QString hostOf(const QString& path) {
    const auto there = parseSshPath(path.toStdString());
    if (!there.ok()) return {};
    return QString::fromStdString(hostText(there->host)).mid(6);  // without "ssh://"
}

QString pathThere(const QString& path) {
    const auto there = parseSshPath(path.toStdString());
    return there.ok() ? QString::fromStdString(there->path) : path;
}

QStringList sshWords(const QString& path) {
    const auto there = parseSshPath(path.toStdString());
    if (!there.ok()) return {};
    QStringList words{QStringLiteral("ssh")};
    if (there->host.port) words << QStringLiteral("-p") << QString::number(there->host.port);
    return words << QString::fromStdString(there->host.host);
}

QString titleOf(const QString& path) {
    const QString name = withoutSlashes(path).section('/', -1);
    const QString host = hostOf(path);
    if (host.isEmpty()) return name.isEmpty() ? path : name;
    return QCoreApplication::translate("Hosts", "%1 on %2").arg(name.isEmpty() ? path : name, host);
}

Result<QString> commandLineProgram() {
    const QString beside = QCoreApplication::applicationDirPath() + "/shardscope";
    if (QFileInfo(beside).isFile() && QFileInfo(beside).isExecutable()) return beside;
    const QString found = QStandardPaths::findExecutable(QStringLiteral("shardscope"));
    if (!found.isEmpty()) return found;
    return makeError(ErrorCode::notFound,
                     "the program 'shardscope', which runs jobs and reads on other hosts, was not found")
        .withHint("install it beside this program or in a directory of PATH");
}

std::string ownVersion() {
    return SHARDSCOPE_VERSION;
}

Result<std::shared_ptr<RemoteHost>> Hosts::hostFor(const std::string& path) {
    SHARDSCOPE_ASSIGN(const SshPath there, parseSshPath(path));
    return hostFor(there.host);
}

Result<std::shared_ptr<RemoteHost>> Hosts::hostFor(const HostSpec& spec) {
    const std::string name = hostText(spec);
    std::vector<std::shared_ptr<RemoteHost>> unused;  // their ends are waited for without the lock
    {
        MutexLock lock(mutex_);
        if (const auto known = hosts_.find(name); known != hosts_.end()) return known->second;
        std::erase_if(hosts_, [&](auto& known) {
            if (known.second.use_count() > 1) return false;
            unused.push_back(std::move(known.second));
            return true;
        });
    }
    AgentProgram program;
    program.version = ownVersion();
    QString file = program_;
    if (file.isEmpty()) {
        SHARDSCOPE_ASSIGN(file, commandLineProgram());
    }
    program.program = file.toStdString();
    SHARDSCOPE_ASSIGN(auto host, remoteHost(spec, program));
    MutexLock lock(mutex_);
    return hosts_.emplace(name, std::move(host)).first->second;
}

Status Hosts::connect(const std::shared_ptr<RemoteHost>& host, bool anew, const StopToken& stop) {
    if (!anew && host->connected()) return {};
    // ssh cannot be interrupted while it connects; a cancelled open does not wait for it.
    std::promise<Status> promise;
    std::future<Status> answer = promise.get_future();
    std::thread([host, anew, promise = std::move(promise)]() mutable {
        promise.set_value(anew ? host->reconnect() : host->connect());
    }).detach();
    while (answer.wait_for(kStopLook) != std::future_status::ready)
        SHARDSCOPE_TRY(stop.poll());
    return answer.get();
}

bool Hosts::lost(const std::string& path) const {
    const auto there = parseSshPath(path);
    if (!there.ok()) return false;
    MutexLock lock(mutex_);
    const auto known = hosts_.find(hostText(there->host));
    return known != hosts_.end() && known->second->traffic().received > 0 && !known->second->connected();
}

}  // namespace shardscope::ui
