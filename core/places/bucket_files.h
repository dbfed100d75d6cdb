// The destination of a conversion in a bucket. What a job writes is on this machine until it is sent: the
// parts of large files as soon as they are written, everything else to publish it. Data goes under its final
// keys, the file that makes a checkpoint of it last, under the condition that its key is new. Readers see no
// checkpoint before that, or all of it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/progress.h"
#include "base/stop.h"
#include "storage/file_system.h"
#include "storage/object_place.h"
#include "storage/shared_staging.h"

namespace shardscope {

struct BucketJob {
    // What this process does of the job. In parts (storage/shared_staging.h) all of them send to the same
    // uploads: each what is whole in what it writes, and the rest as objects beside the destination, out of
    // which the one that finishes makes the rest of the files.
    enum class Role : uint8_t { all, part, finish };
    std::string destination;         // "s3://bucket/run/step-100"
    std::vector<std::string> seals;  // names in it that are written last, in their order; may be empty
    // Files of it that are sent while they are written, so that this machine holds only what is not sent yet.
    std::vector<std::string> streamed;
    Progress* progress = nullptr;  // told of the upload; may be null
    StopToken stop;
    Role role = Role::all;
    uint32_t part = 0;  // which one this process does
};

// Files of this machine in a directory that belongs to the destination ($TMPDIR/shardscope-uploads-UID), so
// that a job that was interrupted is resumed from there. Streamed files are read from the bucket, and the
// first one that is read ends writing them all. rename() to the destination uploads the rest. What is at the
// destination is never replaced.
Result<std::shared_ptr<FileSystem>> bucketFileSystem(const BucketJob& job);

// The same for one process of a job in parts.
struct BucketParts {
    std::shared_ptr<FileSystem> files;
    std::shared_ptr<SharedStaging> shared;
};
Result<BucketParts> bucketParts(const BucketJob& job);

// Of a job that is to replace what is there.
Error nothingIsReplaced(const std::string& destination);

}  // namespace shardscope
