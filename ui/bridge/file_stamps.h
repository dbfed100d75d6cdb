// Size and time of a checkpoint's files, as they are now.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/stop.h"
#include "engine/engine.h"

namespace shardscope::ui {

struct FileStamp {
    int64_t size = -1;       // bytes; -1 = there is no such file
    int64_t modifiedNs = 0;  // since 1970; 0 = unknown
    bool operator==(const FileStamp&) const = default;
};

// Of a catalog's files as they are in `directory`, in its order, by one listing of each of their directories.
// May take long; not for the GUI thread. Errors: those of listing, cancelled.
Result<std::vector<FileStamp>> stampsOf(FileSystem& files, const std::string& directory,
                                        const Catalog& catalog, const StopToken& stop);
// Of an open checkpoint's files where they are; in a bucket as they were listed when it was opened, or, with
// `anew`, by another listing. Of a checkpoint whose files are elsewhere, such as an index: one stamp, of what
// was opened. None on the hub, where a revision never changes, and on web servers, which list nothing.
Result<std::vector<FileStamp>> stampsOf(const Checkpoint& checkpoint, bool anew, const StopToken& stop);

}  // namespace shardscope::ui
