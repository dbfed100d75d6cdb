// The files of another host, read through an agent there (file_service.h) that the user's own ssh starts. All
// decoders work on them unchanged, and what they read is as untrusted as any file; so is what the agent
// answers.
//
// A listing comes with sizes in one request, a file with its first bytes in another
// (FileService::kFirstBytes; of safetensors the whole header). Small reads that follow each other are read
// ahead. Large ones go in blocks, several of which are under way, compressed where that is smaller. A
// connection that was lost is an error (`remote`) for what was under way; what is asked next connects again.
// A file that is a symbolic link out of its directory is refused.
//
// The program must ignore SIGPIPE. Paths are shown as "ssh://host/path". Unless the other side lets this one
// write (FileAccess), every writing operation is refused with `impossible`. Only scratch files are not: they
// are made on this machine. freeBytes() answers for the host.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/mutex.h"
#include "hosts/launch.h"
#include "storage/file_system.h"

namespace shardscope {

class RemoteSession;

// A host and the connection to it, which is opened when first needed and again after it was lost.
// Thread-safe.
class RemoteHost {
  public:
    using Connect = std::function<Result<Launched>()>;  // a greeted channel to an agent

    // `name` as in "ssh://node7". `version` is this program's.
    RemoteHost(std::string name, std::string version, Connect connect);
    ~RemoteHost();

    const std::string& name() const { return name_; }
    // Makes sure that a connection stands; what else asks for files does so by itself. Errors: remote, with
    // the host's name and what ssh said; cancelled after close().
    Status connect();
    // Gives up the connection, or a close(), and makes a new one. Files that are open stay usable: each is
    // opened again when it is next read. One that is no longer the same is an error (`changed`).
    Status reconnect();
    bool connected() const;
    // Ends the connection; pending and later requests are told `cancelled`.
    void close();

    // Bytes that came and went over all connections.
    struct Traffic {
        uint64_t received = 0, sent = 0;
    };
    Traffic traffic() const;

    // Private to this room: the standing connection, or a new one. Errors are also those of an attempt that
    // has just failed, but with `ownAttempt`.
    Result<std::shared_ptr<RemoteSession>> session(bool ownAttempt = false);

  private:
    // Returns the former one, which is to go without the mutex.
    std::shared_ptr<RemoteSession> replaceSession(std::shared_ptr<RemoteSession> next)
        SHARDSCOPE_REQUIRES(mutex_);

    const std::string name_, version_;
    const Connect connect_;
    Mutex connecting_;  // one connects, the others wait for what comes of it
    mutable Mutex mutex_;
    std::shared_ptr<RemoteSession> session_ SHARDSCOPE_GUARDED_BY(mutex_);
    Traffic before_ SHARDSCOPE_GUARDED_BY(mutex_);  // of connections that ended
    bool closed_ SHARDSCOPE_GUARDED_BY(mutex_) = false;
    std::optional<Error> failed_ SHARDSCOPE_GUARDED_BY(mutex_);
    Channel::Clock::time_point failedAt_ SHARDSCOPE_GUARDED_BY(mutex_);
};

// Through ssh. Nothing is connected yet. Errors: usage (not a valid host).
Result<std::shared_ptr<RemoteHost>> remoteHost(const HostSpec& host, const AgentProgram& agent);

// Takes paths with and without the host's name: "/data/x" and "ssh://host/data/x" are the same.
// `writes`: the other side allows it.
std::shared_ptr<FileSystem> remoteFileSystem(std::shared_ptr<RemoteHost> host, bool writes = false);

// Whether a directory can be written to, and how much space it has. Errors: notFound (also when it is no
// directory), permission; those of the connection.
struct DiskSpace {
    bool writable = false;
    uint64_t freeBytes = 0;
};
Result<DiskSpace> roomHere(const std::string& directory, FileSystem& files = *systemFileSystem());
Result<DiskSpace> roomThere(RemoteHost& host, const std::string& directory);

}  // namespace shardscope
