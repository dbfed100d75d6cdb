// The source of a conversion whose files are on the disks of several processes: who has which file, and one
// file system over all.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/stop.h"
#include "cluster/peers.h"

namespace shardscope {

// How the processes of a conversion get at its source.
enum class SourceMode : uint8_t {
    automatic,  // direct where all see the whole source, broadcast where the first one does, else exchange
    direct,     // each opens and reads it by itself
    broadcast,  // the first one reads it for all
    exchange,   // each file is read by the one that has it, for all
};
std::string_view sourceModeName(SourceMode mode);

class PeerTable {
  public:
    static constexpr size_t kMostFiles = size_t{1} << 20;

    // Asks all peers what they have of the source, a directory or a file, and decides on the mode. Errors:
    // notFound (nobody has it), changed (a file for one and a directory for another), impossible (`direct`
    // where somebody lacks a file), limit, remote.
    static Result<PeerTable> ask(const Peers& peers, const std::string& source, SourceMode mode,
                                 const StopToken& stop);

    SourceMode mode() const { return mode_; }          // never automatic
    const std::string& root() const { return root_; }  // the directory that names are relative to
    // The peer that reads a file for others; 0 where nobody has it.
    int ownerOf(const std::string& name) const;

    std::string packed() const;
    static Result<PeerTable> from(std::string_view packed);  // errors: damaged

    struct Entry {
        uint64_t size = 0;
        int64_t modified = 0;
        int owner = 0;
        int differs = -1;        // a peer with another file of that name; -1 = none
        uint64_t otherSize = 0;  // of that file
    };
    const std::map<std::string, Entry>& entries() const { return entries_; }

  private:
    SourceMode mode_ = SourceMode::direct;
    std::string root_;
    std::map<std::string, Entry> entries_;  // by name below root_
};

// A file system that reads a file which is not on this process's own disk from the peer that has it. While a
// file is unchanged since it was opened, its time of change is the table's, so that all processes see the
// same.
std::shared_ptr<FileSystem> peerFiles(std::shared_ptr<const Peers> peers,
                                      std::shared_ptr<const PeerTable> table);

}  // namespace shardscope
