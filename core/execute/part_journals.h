// What the processes of one job in parts share, in a directory that all see: what they agree on, and a
// journal for each part. Private to this room; its users are staging.h (conversions) and part_reading.h.
//
//   lock             held while the first part sets up, and by the process that finishes
//   parts            what all parts must agree on; written last by the set-up
//   part-3.journal   see journal.h; locked by the process that does the part
//   part-r1-w0.journal   the same of a worker to which a coordinator gives parts
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "base/stop.h"
#include "execute/journal.h"
#include "execute/part_worker.h"
#include "execute/parts.h"

namespace shardscope {

class PartJournals {
  public:
    static constexpr const char* kLockName = "lock";

    // Of the job with this header; nothing is read yet. `shared`: as ConvertJob::shared.
    PartJournals(std::shared_ptr<Directory> directory, const JournalHeader& header, const PartSpec& part,
                 SharedStaging* shared = nullptr)
        : directory_(std::move(directory)), header_(header), part_(part), shared_(shared) {}

    // What stands in the marker of the job that has begun here, if one has. Errors: io.
    struct Marker {
        uint32_t count = 0;        // of parts
        std::string plan, source;  // digests
        std::string version;
        std::string id;    // random
        std::string host;  // of the process that has set up, and the file system as that names it
    };
    static Result<std::optional<Marker>> marker(const Directory& directory);
    // Whether `name` is that of a file of this kind of directory.
    static bool isOwnName(std::string_view name);

    // Whether a part has begun. Errors: changed, when it is another job's.
    Result<bool> check() const;
    bool isThere() const;
    std::string setUpBy() const;  // Marker::host; empty where that cannot be read
    // Returns once one process has set up: this one, which calls `setUp` before it writes the marker, or
    // another one. `wait` is called while another process holds the lock; its error ends the waiting. Errors:
    // changed, cancelled, io.
    Status begin(const StopToken& stop, const std::function<Status()>& setUp,
                 const std::function<Status()>& wait) const;
    // Null while another process holds it.
    Result<std::shared_ptr<WriteFile>> tryLock() const;

    // Locks the journal of this part, hands out the records in it, and continues after them. `continued`:
    // there were some. Errors: exists (another process does this part), io.
    Result<std::unique_ptr<JournalWriter>> startOwn(const TakeRecord& take, bool& continued) const;
    // Hands out the records of all parts; says which have begun: all, where a coordinator gives them out.
    // Errors: changed, io.
    Result<std::set<uint32_t>> readAll(const TakeRecord& take) const;
    // Whether any part has done something, or a process that no coordinator has started does one. Errors: io,
    // changed.
    Result<bool> holdWork() const;
    // Hands out the records of workers alone; says whether there are workers. Errors: changed, io.
    Result<bool> readWorkers(const TakeRecord& take) const;
    // What workers must know to find this directory. Makes empty journals for `workers` of them and for this
    // process, so that their names are there for everyone before the work. Errors: io.
    Result<SharedJob> share(size_t workers) const;

    // Waits until all parts have begun; parts that were started at once must. Errors: remote, cancelled.
    Status awaitAll(const std::set<uint32_t>& begun, const StopToken& stop) const;

    // Which of so many parts have no journal among these names.
    static std::vector<uint32_t> openOf(uint32_t count, const std::set<std::string>& names);
    // Says that this part is done. Errors: those of SharedStaging, io.
    Status tellDone() const;

    Status writeMarker() const;
    Status removeMarker() const;
    Status removeJournals() const;

  private:
    // A name with which no journal begins yet, for those of a coordinator's workers.
    Result<std::string> freshRun() const;
    Result<bool> readJournalOf(const std::string& name, const TakeRecord& take) const;
    Result<std::vector<std::string>> workerJournals() const;

    std::shared_ptr<Directory> directory_;
    const JournalHeader header_;
    const PartSpec part_;
    SharedStaging* const shared_;
};

}  // namespace shardscope
