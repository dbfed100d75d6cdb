// Checkpoints of other hosts: their paths, "ssh://[user@]host[:port]/path", and the connections to the hosts.
#pragma once

#include <QString>
#include <QStringList>
#include <map>
#include <memory>
#include <string>

#include "base/mutex.h"
#include "base/stop.h"
#include "hosts/remote_file_system.h"

namespace shardscope::ui {

// A path as sessions and lists keep it: absolute when something is there, one on another host in its shortest
// form.
QString wholePath(const QString& path);
// As it is shown and kept (storage/url.h).
QString withoutSecrets(const QString& path);
// "node7", "me@node7:2222"; empty for a path of this machine.
QString hostOf(const QString& path);
// The path as it is on its host; any other as it is.
QString pathThere(const QString& path);
// The words that run a command on a path's host: "ssh", "-p", "2222", "me@node7".
QStringList sshWords(const QString& path);
// The last component, and for one on another host the host: "step-1000 on node7".
QString titleOf(const QString& path);

// The shardscope beside this executable, else the one in PATH: it runs jobs, and is put on other hosts.
// Errors: notFound.
Result<QString> commandLineProgram();

std::string ownVersion();  // of this program; hosts must run the same

// One connection to each host, shared by all that is open there, and given up when nothing is. Thread-safe.
// Calls block, but for lost().
class Hosts {
  public:
    // `program` is put on hosts; empty = commandLineProgram().
    explicit Hosts(QString program = {}) : program_(std::move(program)) {}

    // The host of a path or of a worker. Nothing is connected yet. Errors: usage, notFound (the program).
    Result<std::shared_ptr<RemoteHost>> hostFor(const std::string& path);
    Result<std::shared_ptr<RemoteHost>> hostFor(const HostSpec& spec);
    // Makes sure that a connection stands; `anew` makes one although there is one already. A request to stop
    // is obeyed at once. Errors: cancelled, remote with what ssh said.
    static Status connect(const std::shared_ptr<RemoteHost>& host, bool anew, const StopToken& stop);
    // Whether there was a connection to this path's host, and is no longer.
    bool lost(const std::string& path) const;

  private:
    QString program_;
    mutable Mutex mutex_;
    std::map<std::string, std::shared_ptr<RemoteHost>> hosts_ SHARDSCOPE_GUARDED_BY(mutex_);
};

}  // namespace shardscope::ui
