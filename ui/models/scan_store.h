// Readings of all values that were not finished, kept beside the user's other data until they are resumed
// with. Each is bound to the files that it read, by path, size and time; when one of them differs it is
// dropped.
#pragma once

#include <memory>
#include <string>

#include "base/stop.h"
#include "ui/bridge/engine_service.h"

namespace shardscope::ui {

class ScanStore {
  public:
    // What a checkpoint opened in this way looks like now: all of its files. Empty when it cannot be said, as
    // for an index. Asks the file system.
    static std::string keyOf(const Checkpoint& checkpoint, const std::string& openedHow,
                             const StopToken& stop);

    // No scan when nothing is kept, or when it is of other files; then it is removed.
    struct Kept {
        std::shared_ptr<ValueScan> scan;
        std::string key;
    };
    static Kept load(const Checkpoint& checkpoint, const std::string& openedHow, const StopToken& stop);
    // Errors: io, permission. Nothing is written for an empty key.
    static Status save(const Checkpoint& checkpoint, const std::string& openedHow, const std::string& key,
                       const ValueScan& scan);
    static void remove(const Checkpoint& checkpoint, const std::string& openedHow);
    // Where it is kept.
    static std::string fileOf(const Checkpoint& checkpoint, const std::string& openedHow);
};

}  // namespace shardscope::ui
