#include "engine/whole_file.h"

#include <span>

#include <fmt/format.h>
#include <unistd.h>

namespace shardscope {

Status putWholeFile(FileSystem& fileSystem, const std::string& file, std::string_view bytes, bool replace) {
    const auto [parent, name] = splitPath(file);
    const std::string partial = fmt::format(".{}.{}.partial", name, getpid());
    SHARDSCOPE_ASSIGN(const auto directory, fileSystem.openDirectory(parent));
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

}  // namespace shardscope
