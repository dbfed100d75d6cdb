// open_there PROGRAM ssh://HOST/CHECKPOINT: opens it as the window does and reads one of its files again and
// again, through an agent. Says "reading" once it does; at the first error says that, and in how many seconds
// it came after the last answer; after a line on standard input reads on, which connects anew, and says
// "again".
#include <array>
#include <cstdio>

#include "engine/engine.h"
#include "hosts/remote_file_system.h"

using namespace shardscope;

namespace {

int failed(const Error& error) {
    std::fprintf(stderr, "%s\n", error.message.c_str());
    return 1;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 3) return 2;
    AgentProgram program;
    program.version = SHARDSCOPE_VERSION;
    program.program = argv[1];
    const auto there = parseSshPath(argv[2]);
    if (!there.ok()) return failed(there.error());
    const auto host = remoteHost(there->host, program);
    if (!host.ok()) return failed(host.error());
    CheckpointOptions options;
    options.fileSystem = remoteFileSystem(*host);
    const auto checkpoint = openCheckpoint(there->path, options);
    if (!checkpoint.ok()) return failed(checkpoint.error());
    const auto [parent, name] = splitPath(there->path);
    const auto directory = options.fileSystem->openDirectory(parent);
    if (!directory.ok()) return failed(directory.error());
    const auto file = (*directory)->openFile(name);
    if (!file.ok()) return failed(file.error());

    std::array<std::byte, 4096> bytes;
    uint64_t at = 0;
    const auto read = [&] {
        at = (at + 1'000'003) % ((*file)->size() - bytes.size());
        return (*file)->readAt(at, bytes);
    };
    auto last = Channel::Clock::now();
    for (bool first = true;; first = false) {
        if (const Status status = read(); !status.ok()) {
            const double seconds = std::chrono::duration<double>(Channel::Clock::now() - last).count();
            std::printf("%.1f %s\n", seconds, status.error().message.c_str());
            break;
        }
        last = Channel::Clock::now();
        if (first) std::puts("reading");
        std::fflush(stdout);
    }
    std::fflush(stdout);
    if (std::getchar() == EOF) return 1;
    if (const Status status = read(); !status.ok()) return failed(status.error());
    std::puts("again");
    return 0;
}
