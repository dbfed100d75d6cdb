#include "survey/file_state.h"

#include <fmt/format.h>

#include "base/units.h"

namespace shardscope {

uint64_t missingTail(const FileInfo& file, const FileFacts& facts) {
    return facts.end > file.size ? facts.end - file.size : 0;
}

Health fileHealth(const FileInfo& file, const FileFacts* facts) {
    if (file.referenced && file.state != FileInfo::State::present) return Health::missing;
    return facts ? facts->health : Health::unread;
}

std::string fileStateText(const FileInfo& file, const FileFacts* facts) {
    switch (file.state) {
        case FileInfo::State::missing:
            return "missing";
        case FileInfo::State::unreadable:
            return "unreadable";
        case FileInfo::State::wrongKind:
            return "not a regular file";
        case FileInfo::State::present:
            break;
    }
    if (const uint64_t tail = facts ? missingTail(file, *facts) : 0)
        return fmt::format("truncated by {}", bytesText(tail));
    if (file.metadata) return "metadata";
    if (!file.referenced) return file.size == 0 ? "empty, not referenced" : "not referenced";
    return facts ? healthName(facts->health) : "";
}

}  // namespace shardscope
