// The processes of one conversion as each other's file servers. What is not on this one's disk is read from,
// or written to, the one that has it. Each of them listens (PeerServer); who connects must know the token
// that the coordinator has made for this conversion.
#pragma once

#include <atomic>
#include <list>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "base/mutex.h"
#include "base/stop.h"
#include "hosts/file_service.h"
#include "hosts/remote_file_system.h"
#include "hosts/socket.h"

namespace shardscope {

struct Peer {
    std::string name;  // for people: "rank 2 on node7"
    std::string host;  // that others reach it at
    uint16_t port = 0;
};

// Thread-safe once made.
class Peers {
  public:
    // `self` is this process among them, or -1: the coordinator. `own` is its file system.
    Peers(std::vector<Peer> all, int self, std::string token, std::string version,
          std::shared_ptr<FileSystem> own);

    int size() const { return static_cast<int>(all_.size()); }
    int self() const { return self_; }
    const std::string& name(int peer) const { return all_[static_cast<size_t>(peer)].name; }
    const std::shared_ptr<FileSystem>& own() const { return own_; }
    // This process's own file system, or that of a peer, which allows as much as its FileAccess.
    std::shared_ptr<FileSystem> files(int peer) const;
    RemoteHost& host(int peer) const { return *hosts_[static_cast<size_t>(peer)]; }
    uint64_t bytesMoved() const;  // to and from others so far
    // Measures how many bytes a second arrive here from all reachable peers at once; 0 = none is reachable.
    // Errors: cancelled.
    Result<double> tryLinks(const StopToken& stop) const;

    nlohmann::json json() const;  // all but `self`
    // Errors: damaged.
    static Result<std::shared_ptr<Peers>> from(const nlohmann::json& json, int self, std::string version,
                                               std::shared_ptr<FileSystem> own);

  private:
    const std::vector<Peer> all_;
    const int self_;
    const std::string token_;
    const std::shared_ptr<FileSystem> own_;
    std::vector<std::shared_ptr<RemoteHost>> hosts_;
    std::vector<std::shared_ptr<FileSystem>> files_;
};

// Lets others of the conversion use files of this process until it goes.
class PeerServer {
  public:
    // `address` is where it listens, empty for everywhere. Errors: remote.
    static Result<std::unique_ptr<PeerServer>> start(const std::string& address, std::string token,
                                                     std::string version, std::shared_ptr<FileSystem> files,
                                                     FileAccess access);
    ~PeerServer();
    uint16_t port() const { return listener_->port(); }

  private:
    struct Connection {
        std::unique_ptr<Channel> channel;
        std::thread thread;
        std::atomic<bool> ended{false};
    };

    PeerServer(std::unique_ptr<Listener> listener, std::string token, std::string version,
               std::shared_ptr<FileSystem> files, FileAccess access);
    void listen();
    Status serve(Channel& channel);
    void forgetEnded();

    const std::unique_ptr<Listener> listener_;
    const std::string token_, version_;
    const std::shared_ptr<FileSystem> files_;
    const FileAccess access_;
    std::list<Connection> connections_;  // of the listening thread, until that has ended
    std::thread thread_;
};

}  // namespace shardscope
