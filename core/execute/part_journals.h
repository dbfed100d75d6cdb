// What the processes of one job in parts share, in a directory that all of them see: what they agree on, and
// a journal for each part. Private to this room; its users are staging.h (conversions) and part_reading.h.
//
//   lock             held while the first part sets up, and by the process that finishes
//   parts            what all parts must agree on; written last by the set-up
//   part-3.journal   see journal.h; locked by the process that does the part
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "base/stop.h"
#include "execute/journal.h"
#include "execute/parts.h"

namespace shardscope {

class PartJournals {
  public:
    static constexpr const char* kLockName = "lock";

    // Of the job with this header; nothing is read yet.
    PartJournals(std::shared_ptr<Directory> directory, const JournalHeader& header, const PartSpec& part)
        : directory_(std::move(directory)), header_(header), part_(part) {}

    // The number of parts of the job that has begun here, if one has. Errors: io.
    static Result<std::optional<uint32_t>> count(const Directory& directory);
    // Whether `name` is that of a file of this kind of directory.
    static bool isOwnName(std::string_view name);

    // Whether a part has begun; notFound's opposite. Errors: changed, when it is another job's.
    Result<bool> check() const;
    bool isThere() const;
    // Goes on once one process has set up: this one, with `setUp` before it says so, or another one. `wait`
    // is asked while another one holds the lock; its error ends the waiting. Errors: changed, cancelled, io.
    Status begin(const StopToken& stop, const std::function<Status()>& setUp,
                 const std::function<Status()>& wait) const;
    // Null while another process holds it.
    Result<std::shared_ptr<WriteFile>> tryLock() const;

    // Locks the journal of this part, hands out the records in it, and continues after them. `continued`:
    // there were some. Errors: exists (another process does this part), io.
    Result<std::unique_ptr<JournalWriter>> startOwn(const TakeRecord& take, bool& continued) const;
    // Hands out the records of all parts; says which have begun. Errors: changed, io.
    Result<std::set<uint32_t>> readAll(const TakeRecord& take) const;

    Status removeMarker() const;
    Status removeJournals() const;

  private:
    Status writeMarker() const;

    std::shared_ptr<Directory> directory_;
    const JournalHeader header_;
    const PartSpec part_;
};

}  // namespace shardscope
