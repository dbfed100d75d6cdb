#include <climits>
#include <ctime>
#include <filesystem>

#include <fmt/format.h>
#include <unistd.h>

#include "engine/engine.h"
#include "engine/whole_file.h"
#include "formats/index/index.h"

namespace shardscope {
namespace {

// Nothing is ever written into a checkpoint.
bool liesInside(const std::string& file, const std::string& checkpoint) {
    std::error_code error;
    auto from = std::filesystem::weakly_canonical(checkpoint, error);
    if (error) return false;
    const auto to = std::filesystem::weakly_canonical(file, error);
    if (error) return false;
    if (!std::filesystem::is_directory(from, error)) return from == to;
    return std::mismatch(from.begin(), from.end(), to.begin(), to.end()).first == from.end();
}

IndexOrigin originOf(const Checkpoint& checkpoint) {
    IndexOrigin origin;
    char host[HOST_NAME_MAX + 1] = {};
    if (gethostname(host, sizeof host - 1) == 0) origin.host = host;
    std::error_code error;
    const auto absolute = std::filesystem::weakly_canonical(checkpoint.path, error);
    origin.path = error ? checkpoint.path : absolute.string();
    origin.madeAt = std::time(nullptr);
    return origin;
}

}  // namespace

Result<std::string> indexBytes(const Checkpoint& checkpoint, const StopToken& stop) {
    return encodeIndex(*checkpoint.reader, originOf(checkpoint), stop);
}

Result<uint64_t> writeIndex(const Checkpoint& checkpoint, const std::string& file, bool overwrite,
                            const StopToken& stop) {
    if (liesInside(file, checkpoint.path)) {
        return makeError(ErrorCode::usage,
                         "the index would lie inside the checkpoint, which is never written into")
            .inFile(file)
            .withHint("name a file outside of it");
    }
    const auto fileSystem = systemFileSystem();
    const bool there = fileSystem->stat(file).ok();
    if (there && !overwrite) return makeError(ErrorCode::exists, "the file is already there").inFile(file);
    SHARDSCOPE_ASSIGN(const std::string bytes, indexBytes(checkpoint, stop));
    SHARDSCOPE_TRY(putWholeFile(*fileSystem, file, bytes, there));
    return uint64_t{bytes.size()};
}

Status needData(const Checkpoint& checkpoint, std::string_view what) {
    const std::string elsewhere = checkpoint.reader->dataElsewhere();
    if (elsewhere.empty()) return {};
    return unsupported(fmt::format("{} needs the data, which is not here: this is {}", what, elsewhere))
        .inFile(checkpoint.path)
        .withHint("do it where the checkpoint lies");
}

}  // namespace shardscope
