// The disks of several ranks as one file system to write a destination to, where they share none: each of its
// files is on the disk of the rank that writes it.
//
// Rank 0 works with it as with any file system, so that staging, resuming, verifying and publishing are those
// of one process; the other ranks do what it asks in serveDisks(), on a lane that nothing else uses. Only
// tiles do not go this way: each rank writes its own. Ranks that see one disk are found out, and share a
// place there.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "execute/process_group.h"
#include "storage/file_system.h"

namespace shardscope {

class DiskService;  // what one rank does for rank 0

class GroupDisks final : public FileSystem, public std::enable_shared_from_this<GroupDisks> {
  public:
    // On rank 0. `fileRanks` says which rank has the file of a name within the destination; `destination` is
    // its path, the same on all ranks.
    GroupDisks(ProcessGroup& ranks, size_t lane, std::shared_ptr<FileSystem> own, std::string destination,
               std::map<std::string, int> fileRanks);
    ~GroupDisks() override;
    // Tells the other ranks that nothing more comes.
    void end();

    // For each rank the lowest one that sees the same disk; once the staging directory has been made.
    const std::vector<int>& places() const { return places_; }

    Result<std::shared_ptr<Directory>> openDirectory(const std::string& path) override;
    Status makeDirectory(const std::string& path) override;
    Result<DirectoryEntry> stat(const std::string& path) override;
    // On each disk that has files of the destination; where one fails, it is undone on the others.
    Status rename(const std::string& from, const std::string& to) override;
    Status exchange(const std::string& a, const std::string& b) override;
    Status removeTree(const std::string& path) override;
    Status syncDirectory(const std::string& path) override;
    Result<uint64_t> freeBytes(const std::string& path) override;  // of all disks together
    Result<std::shared_ptr<WriteFile>> createScratch(const std::string& directory) override;
    Result<std::shared_ptr<const ReadFile>> reopen(const std::shared_ptr<WriteFile>& file) override;

  private:
    friend class DisksDirectory;
    friend class DisksReadFile;
    friend class DisksWriteFile;

    // The answers in the order of `to`; each is an error or what that rank found.
    std::vector<Result<nlohmann::json>> ask(const std::vector<int>& to, nlohmann::json request);
    Result<nlohmann::json> askOne(int rank, nlohmann::json request);
    Status askAll(const std::vector<int>& to, const nlohmann::json& request);  // the first error
    std::vector<int> leaders(bool withFilesOnly = false) const;
    Status findPlaces(bool fresh, int& asked);  // `asked`: ranks whose place is known by its end
    Status moveAll(const char* how, const std::string& from, const std::string& to);
    // The first rank that has it.
    Result<std::pair<int, DirectoryEntry>> find(const std::string& directory, const std::string& name);

    ProcessGroup& ranks_;
    const size_t lane_;
    const std::shared_ptr<FileSystem> own_;
    const std::string destination_;
    const std::map<std::string, int> fileRanks_;
    const std::unique_ptr<DiskService> service_;  // rank 0's own
    std::vector<int> places_;
    std::mutex mutex_;  // one question at a time
    bool ended_ = false;
};

// The other ranks' end: until rank 0 ends it. Touches nothing but `destination` and its staging directory.
// Errors: remote.
Status serveDisks(ProcessGroup& ranks, size_t lane, std::shared_ptr<FileSystem> own,
                  const std::string& destination);

}  // namespace shardscope
