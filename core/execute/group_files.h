// The files of a source that is on the disks of several ranks, as one file system to read from; or on one
// rank's, so that the others read nothing themselves.
//
// First rank 0 opens the source: what it reads of other ranks' files it is sent, and what it reads of its own
// is kept for those that do not have the file, so that they can open the source in the same way. Later each
// lane reads within read(), by which the bytes of other ranks' files come in step.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "execute/process_group.h"
#include "storage/aligned_buffer.h"
#include "storage/read_only.h"

namespace shardscope {

// Parts of a file that are at hand.
class KnownBytes {
  public:
    void add(uint64_t offset, std::span<const std::byte> bytes);    // copies them
    void refer(uint64_t offset, std::span<const std::byte> bytes);  // they stay until clear()
    bool has(uint64_t offset, uint64_t length) const;
    bool read(uint64_t offset, std::span<std::byte> buffer) const;  // false when not all are known
    const std::map<uint64_t, std::span<const std::byte>>& parts() const { return parts_; }
    uint64_t bytes() const { return bytes_; }
    void clear();

  private:
    // The parts of [offset, offset + length) that are not known yet.
    std::vector<std::pair<uint64_t, uint64_t>> unknown(uint64_t offset, uint64_t length) const;

    std::map<uint64_t, std::span<const std::byte>> parts_;  // by offset; none overlaps another
    std::vector<std::vector<std::byte>> copies_;
    uint64_t bytes_ = 0;
};

class GroupFiles final : public ReadOnlyFileSystem, public std::enable_shared_from_this<GroupFiles> {
  public:
    static constexpr uint64_t kMostKept = uint64_t{1} << 30;       // of metadata
    static constexpr uint64_t kMostFetched = uint64_t{256} << 20;  // by a lane at a time
    static constexpr size_t kMostEntries = size_t{1} << 20;

    // Called by all ranks. `path` is the source, a directory or a file. With
    // `broadcast` only rank 0's files count. Errors: notFound (nobody has it), remote; that two ranks have
    // different files of one name is the error `changed` of whoever opens it.
    static Result<std::shared_ptr<GroupFiles>> make(ProcessGroup& ranks, std::shared_ptr<FileSystem> own,
                                                    const std::string& path, GroupMode mode);

    GroupMode mode() const { return mode_; }  // never automatic

    // Runs `open` on rank 0 while the others serve what it reads; then on them. Called by all ranks; the
    // answer is the same on all.
    Status openTogether(const std::function<Status()>& open);

    // How a rank's work finds out which bytes it needs of others.
    enum class Way : uint8_t {
        retry,   // a read of what is not here yet is the error `cancelled`; the work runs again until all is
                 // here. For work that looks at what it reads.
        survey,  // it runs once while reads do nothing (surveys() is true), then once with all here. For work
                 // that reads the same places whatever stands there.
    };
    // Runs `work`, whose effects other than what it reads must be none until it succeeds. Called by all ranks
    // on the lane in step; a rank without work passes nothing. What comes stays until the next forget().
    Status read(size_t lane, Way way, const std::function<Status()>& work);
    bool surveys(size_t lane) const { return lanes_[lane].surveys; }
    void forget(size_t lane);
    // Whether no rank needs anything of another's: then read() is the work alone.
    bool allHere() const { return allHere_; }
    // The rank that reads a file (a name within the source) for others; 0 where nobody has it.
    int ownerOf(const std::string& name) const;
    // Whether those of these files (names within the source) that are its own are as they were. For the end
    // of a job.
    Status checkUnchanged(const std::set<std::string>& names) const;
    // Bytes read from own files in read(), for others too, since the last call for that lane.
    uint64_t takeServed(size_t lane);

    Result<std::shared_ptr<Directory>> openDirectory(const std::string& path) override;
    Result<DirectoryEntry> stat(const std::string& path) override;

  private:
    friend class GroupFile;
    friend class GroupDirectory;

    struct Entry {
        uint64_t size = 0;
        int64_t modified = 0;
        int owner = 0;            // the rank that reads it for those that do not have it
        bool mine = false;        // this rank has it
        bool everywhere = false;  // every rank has it
        int differs = -1;         // a rank that has another one of that name, of this many bytes:
        uint64_t otherSize = 0;
        KnownBytes known;  // of the metadata in it; guarded by mutex_
    };
    struct Wanted {
        std::string name;
        uint64_t offset, length;
    };
    struct Lane {
        std::map<std::string, KnownBytes> fetched;  // of what is in `arrived`
        std::vector<AlignedBuffer> arrived, spare;
        AlignedBuffer answers;
        std::map<std::string, std::shared_ptr<const ReadFile>> open;  // own files that others asked for
        std::vector<Wanted> missing;
        Way way = Way::retry;
        bool surveys = false;
        uint64_t ahead = 0;  // fetched beyond what is asked for
        uint64_t served = 0;
    };

    GroupFiles(ProcessGroup& ranks, std::shared_ptr<FileSystem> own, std::string root);
    Status findOwn(const std::string& path, std::map<std::string, Entry>& found);
    // `file` is the source when that is one file, else empty.
    Status agreeOnFiles(std::map<std::string, Entry> found, const std::string& file, GroupMode mode);
    Status checkAlike(const std::string& name, const Entry& entry) const;
    Status shareKnown();
    Status serveLeader();
    Status ask(const std::string& name, uint64_t offset, std::span<std::byte> buffer);
    Result<std::shared_ptr<const ReadFile>> ownFile(const std::string& name);
    // A read of a file that this rank does not have, or that it reads for others as rank 0.
    Status readAt(const std::string& name, const ReadFile* own, uint64_t offset, std::span<std::byte> buffer,
                  bool bulk);
    Status fetch(size_t lane, bool& more);
    Status answer(Lane& lane, const std::vector<Wanted>& asked, std::span<std::byte> bytes);
    std::string relative(const std::string& path) const;
    Error refused(const std::string& path) const override;

    ProcessGroup& ranks_;
    const std::string root_;                // the directory that names are relative to
    std::shared_ptr<Directory> directory_;  // own; null when this rank has none
    std::map<std::string, Entry> entries_;  // by name; does not change once agreed on
    std::vector<Lane> lanes_;
    GroupMode mode_ = GroupMode::direct;
    bool allHere_ = false;
    std::mutex mutex_;  // known bytes
    std::mutex asking_;
    bool opening_ = false;
};

}  // namespace shardscope
