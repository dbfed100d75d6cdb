#include "engine/whole_file.h"

#include <algorithm>
#include <filesystem>
#include <span>

#include <fmt/format.h>
#include <unistd.h>

namespace shardscope {

Status putWholeFile(FileSystem& fileSystem, const std::string& file, std::string_view bytes, bool replace) {
    const std::string parent = splitPath(file).first;
    const std::string partial = fmt::format(".{}.{}.partial", splitPath(file).second, getpid());
    auto opened = fileSystem.openDirectory(parent);
    if (!opened.ok() && opened.error().code == ErrorCode::notFound) {
        return makeError(ErrorCode::io, "the directory that is to hold the file does not exist").inFile(file);
    }
    SHARDSCOPE_ASSIGN(const auto directory, std::move(opened));
    const auto write = [&]() -> Status {
        SHARDSCOPE_ASSIGN(const auto out, directory->createFile(partial));
        SHARDSCOPE_TRY(out->allocate(bytes.size()));
        SHARDSCOPE_TRY(out->writeAt(0, std::as_bytes(std::span(bytes))));
        SHARDSCOPE_TRY(out->sync());
        if (replace) return fileSystem.exchange(parent + "/" + partial, file);
        return fileSystem.rename(parent + "/" + partial, file);
    };
    const Status written = write();
    // What is left under the name is what could not be put in place, or the file that was replaced.
    if (replace || !written.ok()) (void)directory->removeFile(partial);
    return written;
}

Status checkOutside(const std::string& file, const std::string& checkpoint) {
    std::error_code error;
    const auto from = std::filesystem::weakly_canonical(checkpoint, error);
    if (error) return {};
    const auto to = std::filesystem::weakly_canonical(file, error);
    if (error) return {};
    const bool inside =
        std::filesystem::is_directory(from, error)
            ? std::mismatch(from.begin(), from.end(), to.begin(), to.end()).first == from.end()
            : from == to;
    if (!inside) return {};
    return makeError(ErrorCode::usage, "the file would be inside the checkpoint, which is never written into")
        .inFile(file)
        .withHint("name a file outside of it");
}

}  // namespace shardscope
