#include <climits>
#include <ctime>
#include <filesystem>

#include <fmt/format.h>
#include <unistd.h>

#include "engine/engine.h"
#include "engine/whole_file.h"
#include "formats/index/index.h"
#include "storage/url.h"

namespace shardscope {
namespace {

IndexOrigin originOf(const Checkpoint& checkpoint) {
    IndexOrigin origin;
    origin.madeAt = std::time(nullptr);
    origin.path = canonicalPath(checkpoint.path);
    char host[HOST_NAME_MAX + 1] = {};
    if (schemeOf(checkpoint.path).empty() && gethostname(host, sizeof host - 1) == 0) origin.host = host;
    return origin;
}

}  // namespace

Result<std::string> indexBytes(const Checkpoint& checkpoint, const StopToken& stop) {
    return encodeIndex(*checkpoint.reader, originOf(checkpoint), stop);
}

Result<uint64_t> writeIndex(const Checkpoint& checkpoint, const std::string& file, bool overwrite,
                            const StopToken& stop) {
    SHARDSCOPE_TRY(checkOutside(file, checkpoint.path));
    const auto fileSystem = systemFileSystem();
    SHARDSCOPE_TRY(checkMayPut(*fileSystem, file, overwrite));
    SHARDSCOPE_ASSIGN(const std::string bytes, indexBytes(checkpoint, stop));
    SHARDSCOPE_TRY(putWholeFile(fileSystem, file, bytes, overwrite));
    return uint64_t{bytes.size()};
}

Status needData(const Checkpoint& checkpoint, std::string_view what) {
    const std::string elsewhere = checkpoint.reader->dataElsewhere();
    if (elsewhere.empty()) return {};
    return unsupported(fmt::format("{} needs the data, which is not here: this is {}", what, elsewhere))
        .inFile(checkpoint.path)
        .withHint("do it on the host that has the checkpoint");
}

}  // namespace shardscope
