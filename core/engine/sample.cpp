#include "engine/sample.h"

#include "engine/embedded.h"
#include "engine/whole_file.h"

namespace shardscope {

Result<std::string> sampleCheckpoint() {
    constexpr std::string_view kSample = "sample/dcp-fsdp2-tp";
    const std::string directory = stateDirectory(kSample);
    const auto files = systemFileSystem();
    for (const EmbeddedFile& file : embeddedFiles()) {
        if (!file.name.starts_with(kSample)) continue;
        const std::string path = stateDirectory(file.name);
        const auto there = readWholeFile(path, file.text.size());
        if (there.ok() && *there == file.text) continue;
        if (Status written = putWholeFile(files, path, file.text, true); !written.ok())
            return std::move(written).error().withHint(
                "set XDG_STATE_HOME to a directory that can be written to");
    }
    return directory;
}

}  // namespace shardscope
