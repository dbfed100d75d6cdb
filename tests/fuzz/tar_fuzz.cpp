// Any bytes as a tar archive: an error, or a directory whose files are read inside of it.
#include "encoding/tar.h"
#include "fuzz_file.h"

using namespace shardscope;

namespace {

void look(const Directory& directory, const std::string& below, int levels) {
    const auto listed = directory.list(below);
    if (!listed.ok()) return;
    size_t looks = 0;
    for (const DirectoryEntry& entry : *listed) {
        if (++looks > 100) return;
        const std::string path = below.empty() ? entry.name : below + '/' + entry.name;
        if (!checkRelativeName(path).ok() || !directory.stat(path).ok()) __builtin_trap();
        if (entry.kind == DirectoryEntry::Kind::directory && levels > 0) look(directory, path, levels - 1);
        const auto file = directory.openFile(path);
        if (!file.ok()) continue;
        if ((*file)->size() != entry.size) __builtin_trap();
        std::byte bytes[16];
        const uint64_t size = (*file)->size();
        if (size >= sizeof(bytes) && !(*file)->readAt(size - sizeof(bytes), bytes).ok()) __builtin_trap();
        if ((*file)->readAt(size, bytes).ok()) __builtin_trap();
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const auto archive = openTar(std::make_shared<fuzz::BytesFile>(data, size));
    if (archive.ok()) look(**archive, "", 8);
    return 0;
}
