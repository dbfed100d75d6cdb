// The disks of several processes as one file system for a destination, where the processes share none. Each
// file of the destination is on the disk of the process that owns it, everything else on the first one's.
//
// Staging, resuming, verifying and publishing are those of any file system. Processes that see the same disk
// are found, and share a staging directory there.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cluster/peers.h"

namespace shardscope {

class PeerDisks final : public FileSystem, public std::enable_shared_from_this<PeerDisks> {
  public:
    // `owners` says which peer has the file of a name within the destination; `destination` is its path, the
    // same everywhere. `disks` as in diskByPeer(); empty where it is not yet known.
    PeerDisks(std::shared_ptr<const Peers> peers, std::string destination, std::map<std::string, int> owners,
              std::vector<int> disks = {});

    // A disk is known by the first peer that sees it; this has that number for each peer. Known once the
    // staging directory has been made.
    const std::vector<int>& diskByPeer() const { return disks_; }
    // The disk that a file of the destination is on.
    int diskOf(const std::string& name) const;

    Result<std::shared_ptr<Directory>> openDirectory(const std::string& path) override;
    Status makeDirectory(const std::string& path) override;
    Result<DirectoryEntry> stat(const std::string& path) override;
    // Renames on each disk that has files of the destination, on the first one last. So nothing is found
    // there before all is in place. A failure is undone on the other disks.
    Status rename(const std::string& from, const std::string& to) override;
    Status exchange(const std::string& a, const std::string& b) override;
    Status removeTree(const std::string& path) override;
    Status syncDirectory(const std::string& path) override;
    Result<uint64_t> freeBytes(const std::string& path) override;  // of all disks together
    Result<std::shared_ptr<WriteFile>> createScratch(const std::string& directory) override;
    Result<std::shared_ptr<const ReadFile>> reopen(const std::shared_ptr<WriteFile>& file) override;

  private:
    friend class PeerDisksDirectory;

    struct Moved {
        int disk;
        bool swapped;
    };

    FileSystem& files(int disk) const;
    std::vector<int> all() const;  // the disks, in order
    Status onAll(const std::function<Status(FileSystem& files)>& what) const;
    Status findDisks(bool fresh);
    Result<int> findDisk(int peer, const std::string& token, bool fresh);
    Status move(bool swap, const std::string& from, const std::string& to);
    Status moveOn(int disk, bool swap, const std::string& from, const std::string& to,
                  std::vector<Moved>& moved);
    // A path below the destination or its staged form, as a name in it; empty for anything else.
    std::string nameIn(const std::string& path) const;

    const std::shared_ptr<const Peers> peers_;
    const std::string destination_, staging_;
    const std::map<std::string, int> owners_;
    std::vector<int> disks_;
    std::map<int, std::shared_ptr<WriteFile>> locks_;  // the staging directories on the other disks, by disk
    std::vector<int> dropped_;                         // disks whose part of the destination is to go
};

}  // namespace shardscope
