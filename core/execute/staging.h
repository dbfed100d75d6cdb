// The staging directory of a conversion: its files, its journal, its lock, and how it becomes the
// destination. Private to this room.
//
//   .<name>.shardscope-partial/lock      held by the job that works here
//                              /journal  see journal.h
//                              /data/    the destination as it will be (or, for one file, the file in it)
//   .<name>.shardscope-old       the former destination while it is replaced, where that takes two steps
// and, for a conversion in parts, what parts.h says.
#pragma once

#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "execute/executor.h"
#include "execute/journal.h"
#include "execute/part_journals.h"
#include "execute/part_worker.h"
#include "execute/parts.h"
#include "storage/parents.h"

namespace shardscope {

class Staging {
  public:
    static constexpr const char* kLockName = PartJournals::kLockName;

    // Checks the destination, makes or takes over the staging directory, and reserves the space. Errors:
    // exists, noSpace, permission, changed (the source or the plan is not that of the interrupted job), io.
    static Result<std::unique_ptr<Staging>> open(const ConvertJob& job, const JournalHeader& header);

    // As open(), for parts that this process gives out to others (part_worker.h): `any` says how many.
    static Result<std::unique_ptr<Staging>> openTogether(const ConvertJob& job, const JournalHeader& header,
                                                         const PartSpec& any);
    // Does parts of another process's job, whose id must stand here, and books them in a journal of its own.
    // Errors: remote (another staging directory, or none, is seen here), io.
    static Result<std::unique_ptr<Staging>> join(const ConvertJob& job, const JournalHeader& header,
                                                 const PartSpec& worker, const std::string& id);
    // Does one part of a conversion: makes the staging directory unless another part has, with `header` as
    // what all agree on. Waits while another part sets up. Errors: exists, changed, noSpace, permission, io.
    static Result<std::unique_ptr<Staging>> openPart(const ConvertJob& job, const JournalHeader& header,
                                                     const PartSpec& part, const StopToken& stop);
    // See publishedPart() in parts.h.
    static bool isPublished(const ConvertJob& job, const JournalHeader& header);
    // How many parts the conversion to this destination has. Errors: notFound (none has begun), io.
    static Result<uint32_t> partCount(const ConvertJob& job);
    // Whether one process alone has done some of it, and was interrupted. Errors: io.
    static Result<bool> isOfOneProcess(const ConvertJob& job);
    // Takes over what all parts have done (takeReusable()), to publish it. Errors: as openPart.
    static Result<std::unique_ptr<Staging>> openFinish(const ConvertJob& job, const JournalHeader& header,
                                                       const PartSpec& any);
    // The tiles in the journals of all parts. Errors: changed, io.
    Result<std::vector<JournalTile>> readParts();
    // The parts whose journals were there: this one's when it opened, or those that readParts() found.
    const std::set<uint32_t>& begunParts() const { return begunParts_; }
    // Marks the files as whole, so that parts may read them back. Errors: io.
    Status seal();
    bool isSealed() const;
    std::string verifyPath() const;  // where what they read is recorded
    std::string rereadPath() const;  // and what is read once more of the source
    const std::shared_ptr<FileSystem>& fileSystem() const { return job_.fileSystem; }
    const PartSpec& part() const { return part_; }
    // Whether the staging directory is still there, and that of a conversion in parts.
    bool isInParts() const { return parts_->isThere(); }
    std::string setUpBy() const { return parts_->setUpBy(); }
    Status awaitAllParts(const StopToken& stop) const { return parts_->awaitAll(begunParts_, stop); }
    // Of a shared job; see PartJournals.
    Status tellDone() const { return parts_->tellDone(); }

    // What workers must know to find this directory; makes journals for `workers` of them and for this
    // process. Errors: io.
    Result<SharedJob> share(size_t workers) const { return parts_->share(workers); }
    // Brings to disk what was written to the files so far.
    Status syncData();

    // What an interrupted job has finished; taken once.
    std::vector<JournalTile> takeReusable() { return std::move(reusable_); }
    const std::vector<JournalTile>& reusable() const { return reusable_; }
    const TileSizes& tiles() const { return header_.tiles; }

    // Writes to a file of the layout. Thread-safe for disjoint ranges.
    Status write(FileId file, uint64_t offset, std::span<const std::byte> bytes, bool bulk);

    // Records a finished tile; syncs files and journal from time to time.
    Status finished(JournalTile tile, uint64_t bytes);
    // Brings everything to disk, directories included.
    Status syncAll();
    // Where the staged destination can be opened, and where its files are.
    std::string dataPath() const;
    std::string dataDirectory() const;
    std::string fileName(FileId file) const;  // in that directory
    // Renames the staged files to the destination and removes the rest. After an error the destination is as
    // it was.
    Status publish();
    // After an error: keeps what can be resumed, removes what cannot, and says so in the error.
    Error giveUp(Error error);

  private:
    enum class Role : uint8_t { all, part, finish, coordinate, work };
    Staging(const ConvertJob& job, const JournalHeader& header, Role role, PartSpec part = {});
    static Result<std::unique_ptr<Staging>> begun(std::unique_ptr<Staging> staging, Status status);
    Status begin();
    Status checkDestination();
    Status restoreFormer();
    void removeLeftOver();
    Status makeStagingDirectory();  // `exists` where it is there
    Status takeLock(const char* whoElse);
    Error isBusy(const char* whoElse) const;
    Status takeOver();
    Status beginPart(const StopToken& stop);
    Status beginTogether();
    Result<bool> makeAndLock();
    Status takeOverParts();
    std::string shownPath() const { return system_.shown(path_); }  // for messages
    bool isWorthResuming() const;
    enum class Files : uint8_t { any, all, inFull };  // a directory for them; each; in its size
    bool holdsFiles(Files which) const;
    Status startOver();
    Error hasWork() const;
    Status startPartJournal();
    Status setUpParts();
    Status openPartFiles();
    Status openDirectory();
    Status removeSeal();
    Status makeFiles();
    Status makeData();
    Status checkStaged() const;
    Status replace();
    Status startJournal();
    Result<std::shared_ptr<WriteFile>> fileOf(FileId file);
    Status flush(std::unique_lock<std::mutex>& lock);
    Status syncFiles(const std::set<FileId>& files);
    std::set<FileId> allFiles() const;

    const ConvertJob& job_;
    FileSystem& system_;
    JournalHeader header_;
    const std::string path_;
    Parents parents_;  // of the destination
    std::string parent_, name_;
    bool replaces_ = false;  // a destination is there already
    bool owned_ = false;     // the staging directory is ours to remove
    const Role role_;        // what this process does of the job
    bool inParts() const { return role_ != Role::all; }
    bool doesParts() const { return role_ == Role::part || role_ == Role::work; }
    PartSpec part_;  // of a conversion in parts
    std::shared_ptr<Directory> directory_, data_;
    std::optional<PartJournals> parts_;  // of a conversion in parts
    std::set<uint32_t> begunParts_;
    std::shared_ptr<WriteFile> lock_;
    std::vector<JournalTile> reusable_;
    uint64_t journalEnd_ = 0;

    std::mutex filesMutex_;
    std::list<FileId> recent_;  // most recently used first
    struct OpenFile {
        std::shared_ptr<WriteFile> file;
        std::list<FileId>::iterator place;
    };
    std::unordered_map<FileId, OpenFile> open_;

    std::mutex mutex_;  // journal
    std::unique_ptr<JournalWriter> journal_;
    std::vector<JournalTile> pending_;
    std::set<FileId> dirty_;
    uint64_t pendingBytes_ = 0;
    double lastFlush_ = 0;
    bool flushing_ = false;
    bool lost_ = false;       // a sync failed: nothing here can be trusted
    bool resumable_ = false;  // the journal on disk claims something
};

// Seconds of a clock that never goes back.
double steadySeconds();

}  // namespace shardscope
