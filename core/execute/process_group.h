// A conversion that several processes, its ranks, do in step: one reads what another needs, and each byte of
// the source is read once. Rank 0 runs runConversion() with a GroupScheduler; the others call serveGroup().
// How bytes go from rank to rank is a ProcessGroup's (core/accelerator has one over Gloo and NCCL).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "execute/tile_compute.h"
#include "execute/units.h"

namespace shardscope {

// The ranks of a group. Every rank makes the same calls in the same order on a lane; lanes are independent of
// each other, and one thread at a time uses one. Errors: remote, with which rank is gone; every later call
// then fails too.
class ProcessGroup {
  public:
    virtual ~ProcessGroup() = default;
    virtual int rank() const = 0;
    virtual int size() const = 0;
    virtual size_t lanes() const = 0;
    // What is in `root`'s bytes comes into everyone's.
    virtual Status broadcast(size_t lane, std::span<std::byte> bytes, int root) = 0;
    // `send` holds a part for each rank one after the other, sendBytes[rank] long; so does `receive` from
    // each.
    virtual Status allToAll(size_t lane, std::span<const std::byte> send,
                            const std::vector<uint64_t>& sendBytes, std::span<std::byte> receive,
                            const std::vector<uint64_t>& receiveBytes) = 0;
    virtual bool broken() const = 0;               // a call has failed
    virtual uint64_t bytesSent() const = 0;        // by this rank to others, so far
    virtual std::string name(int rank) const = 0;  // for people: "rank 2 on node7"
    // What does this rank's tiles; null = the processor.
    virtual TileCompute* compute() { return nullptr; }
};

// A text of `root`'s comes to everyone; one of each rank comes to everyone, in the order of ranks.
Status broadcastText(ProcessGroup& group, size_t lane, std::string& text, int root);
Result<std::vector<std::string>> allGatherTexts(ProcessGroup& group, size_t lane, const std::string& text);
// texts[r] goes to rank r, and one of each rank comes here, in their order; at most `most` bytes each.
Result<std::vector<std::string>> allToAllTexts(ProcessGroup& group, size_t lane,
                                               const std::vector<std::string>& texts, uint64_t most);
// Good when it is good everywhere, else the error of the lowest rank that has one, with the rank's name.
Status agree(ProcessGroup& group, size_t lane, const Status& mine);

enum class GroupMode : uint8_t {
    automatic,  // as the source is stored: direct where all ranks see it, broadcast where rank 0 does, else
                // exchange
    direct,     // each rank reads what it writes; all see the source
    broadcast,  // rank 0 reads, and each rank is sent what it keeps
    exchange,   // each file is read by the rank that has it, which sends the others what they need
};
std::string_view groupModeName(GroupMode mode);

// What a mode is expected to cost.
struct GroupForecast {
    uint64_t bytesMoved = 0;  // between ranks, at most
    double linkRate = 0;      // bytes a second that all ranks together can send, as tried just now
    double seconds = 0;       // as the plan says, or for what goes between ranks where that takes longer
};
// Called by all ranks.
Result<GroupForecast> forecast(ProcessGroup& group, GroupMode mode, const Plan& plan);

class GroupFiles;  // group_files.h
class GroupDisks;  // group_disks.h

struct GroupConversion {
    ProcessGroup* ranks = nullptr;
    GroupFiles* files = nullptr;      // that job.source was opened with
    const ConvertJob* job = nullptr;  // its file system is this rank's own
    Resources resources;
    // The ranks share no file system for the destination: each of its files is on the disk of a rank. The
    // group's last lane is for that.
    bool ownDisks = false;

    size_t tileLanes() const { return ranks->lanes() - (ownDisks ? 1 : 0); }
};
// Where the files of the destination lie in that case: the rank of each, by its number in the layout.
std::vector<int> fileRanks(const GroupConversion& conversion);

// Rank 0's end. The others are told to end when it goes, if not before.
class GroupScheduler final : public UnitScheduler {
  public:
    explicit GroupScheduler(GroupConversion conversion);
    ~GroupScheduler() override;
    size_t workerCount() const override { return static_cast<size_t>(conversion_.ranks->size()); }
    size_t tilesPerUnit() const override { return workerCount(); }
    Status run(const JobIdentity& identity, const std::vector<Unit>& units,
               const std::function<Status(size_t unit, UnitResult result)>& done, Progress* progress,
               const StopToken& stop) override;
    void end() override;
    std::shared_ptr<FileSystem> fileSystem() override;
    uint64_t bytesMoved() const { return bytesMoved_; }  // between ranks, to convert
    // For each rank the lowest one that writes to the same disk; empty where all share one.
    std::vector<int> places() const;

  private:
    GroupConversion conversion_;
    std::shared_ptr<GroupDisks> disks_;
    uint64_t bytesMoved_ = 0;
    bool ended_ = false;
};

// Another rank's end: does its part until rank 0 ends it. Errors: those of UnitWorker::join() and of reading
// and writing, of any rank; remote.
Status serveGroup(const GroupConversion& conversion);

}  // namespace shardscope
