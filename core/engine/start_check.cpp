#include "engine/start_check.h"

#include <fmt/format.h>

#include "base/units.h"
#include "execute/executor.h"
#include "places/bucket_files.h"
#include "storage/parents.h"
#include "storage/url.h"

namespace shardscope {

namespace {

DestinationPlace lookAtBucket(const std::string& destination) {
    DestinationPlace place;
    const auto files = bucketFileSystem({destination});
    if (!files.ok()) {
        place.refused = fmt::format("{}.", files.error().message);
        return place;
    }
    place.exists = (*files)->stat(destination).ok();
    place.unfinished = (*files)->stat(stagingPath(destination)).ok();
    return place;
}

}  // namespace

DestinationPlace lookAtDestination(FileSystem& files, const std::string& destination) {
    if (!schemeOf(destination).empty()) return lookAtBucket(destination);
    DestinationPlace place;
    place.exists = files.stat(destination).ok();
    place.unfinished = files.stat(stagingPath(destination)).ok();
    const std::string above = nearestAbove(files, destination);
    const auto parent = files.stat(above);
    place.parentMissing = parent.ok() ? parent->kind != DirectoryEntry::Kind::directory
                                      : parent.error().code == ErrorCode::notFound;
    const auto free = files.freeBytes(above);
    place.freeBytes = free.ok() ? *free : 0;
    return place;
}

std::vector<std::string> startObstacles(const Plan& plan, const DestinationPlace& place,
                                        const ConversionRequest& request) {
    std::vector<std::string> list;
    for (const PlanLeftOut& entry : plan.impossible)
        list.push_back(entry.name.empty() ? entry.why : fmt::format("{}: {}", entry.name, entry.why));
    if (request.strict && !plan.leftOut.empty())
        list.push_back(fmt::format("{} would be left out, which 'strict' refuses.",
                                   counted(plan.leftOut.size(), "entry")));
    if (!place.refused.empty()) list.push_back(place.refused);
    if (place.unfinished && !request.resume)
        list.emplace_back("An interrupted job has left its work beside the destination: resume it.");
    if (place.exists && !request.overwrite)
        list.emplace_back("The destination exists: choose another one, or overwrite it.");
    if (place.parentMissing) list.emplace_back("What is to hold the destination is not a directory.");
    if (place.freeBytes && plan.bytesWritten > place.freeBytes)
        list.push_back(fmt::format("The result needs {}, but only {} are free there.",
                                   bytesText(plan.bytesWritten), bytesText(place.freeBytes)));
    return list;
}

}  // namespace shardscope
