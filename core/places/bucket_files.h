// The destination of a conversion in a bucket. A job writes its files on this machine. It sends the parts of
// large files as soon as they are written, and everything else at publication. Data gets its final keys
// first; the file that makes it a checkpoint comes last, on condition that its key is new. Readers see all of
// a checkpoint or none of it.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/progress.h"
#include "base/stop.h"
#include "storage/file_system.h"
#include "storage/object_place.h"
#include "storage/shared_staging.h"

namespace shardscope {

// Files of so many bytes or fewer are sent in one request, once everything is written.
constexpr uint64_t kSentWhole = uint64_t{8} << 20;

struct BucketJob {
    // What this process does of the job. All processes of a job in parts (storage/shared_staging.h) send to
    // the same multipart uploads. Each process sends the upload parts that it has written in full, and the
    // rest of its bytes as objects beside the destination. The process that finishes completes the files from
    // these objects.
    enum class Role : uint8_t { all, part, finish };
    std::string destination;         // "s3://bucket/run/step-100"
    std::vector<std::string> seals;  // files of it that are written last, in this order; may be empty
    // Files of it that are sent while they are written; this machine holds only their unsent bytes.
    std::vector<std::string> streamed;
    // The data file that makes a checkpoint of the rest, where no file of `seals` does. It is streamed, by
    // parts, too, and completed last on condition that its key is new, if the store refuses parts with wrong
    // checksums: it can be seen before it is read back, but never with other bytes than were sent. Empty =
    // none, or too small to be sent in parts.
    std::string last;
    bool singleFile = false;       // the destination is one file, of the name that its key ends with
    Progress* progress = nullptr;  // of the upload; not owned, may be null
    // Bytes that are read for the transfers under way, at most; one part is always sent.
    uint64_t memory = uint64_t{64} << 20;
    StopToken stop;
    Role role = Role::all;
    uint32_t part = 0;  // index of the part that this process does; for Role::part only
    // Whether a store without conditional writes will do, for Role::all only. Another job that wants the same
    // destination is then seen only if it has begun well before.
    bool unguarded = false;
};

class BucketFiles : public FileSystem {
  public:
    // Whether the store was found to have no conditional writes.
    virtual bool isUnguarded() const = 0;
};

// Maps the destination to a private directory of this machine ($TMPDIR/shardscope-uploads-UID), from which an
// interrupted job is resumed. Reads streamed files from the bucket; the first read of one completes all of
// them. rename() to the destination uploads the rest. What is at the destination is never replaced. Errors:
// impossible (the destination is not below a bucket), unsafe (others may write to the directory), those of
// the place.
Result<std::shared_ptr<BucketFiles>> bucketFileSystem(const BucketJob& job);

// The same for one process of a job in parts.
struct BucketParts {
    std::shared_ptr<FileSystem> files;
    std::shared_ptr<SharedStaging> shared;
};
Result<BucketParts> bucketParts(const BucketJob& job);

// One object of bytes in memory ("s3://bucket/run/report.json"), new, read back, or not there at all. Errors:
// impossible (not a place in a bucket), exists, verificationFailed, those of the place.
Status putObject(const std::string& url, std::span<const std::byte> bytes);
// What would stop that before it sends anything. Errors: impossible, exists, those of the place.
Status checkMayPutObject(const std::string& url);

// The error `impossible` for a job that is to replace its destination.
Error nothingIsReplaced(const std::string& destination);

}  // namespace shardscope
