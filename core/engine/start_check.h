// Whether a planned conversion can be started: what window and page ask before they offer it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace shardscope {

// What a file system says about the place where a result is to go.
struct DestinationPlace {
    bool exists = false;
    bool unfinished = false;     // an interrupted job has left its work beside it
    bool parentMissing = false;  // no directory holds it, and none can be made
    uint64_t freeBytes = 0;      // 0 = not known
    std::string refused;         // why nothing can be written there; empty = it can
};
DestinationPlace lookAtDestination(FileSystem& files, const std::string& destination);

// Why it cannot start, as sentences; none when it can.
std::vector<std::string> startObstacles(const Plan& plan, const DestinationPlace& place,
                                        const ConversionRequest& request);

}  // namespace shardscope
