// The destination of a conversion in a bucket. What a job writes is on this machine until it is whole and
// verified; publishing it is its upload: data under its final keys first, the file that makes a checkpoint of
// it last, under the condition that its key is new. Readers see no checkpoint before that, or all of it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/progress.h"
#include "base/stop.h"
#include "storage/file_system.h"
#include "storage/object_place.h"

namespace shardscope {

struct BucketJob {
    std::string destination;         // "s3://bucket/run/step-100"
    std::vector<std::string> seals;  // names in it that are written last, in their order; may be empty
    Progress* progress = nullptr;    // told of the upload; may be null
    StopToken stop;
};

// Files of this machine in a directory that belongs to the destination ($TMPDIR/shardscope-uploads), so that
// a job that was interrupted is resumed from there. rename() to the destination uploads. What is at the
// destination is never replaced.
Result<std::shared_ptr<FileSystem>> bucketFileSystem(const BucketJob& job);

}  // namespace shardscope
