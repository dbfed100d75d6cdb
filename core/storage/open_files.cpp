#include "storage/open_files.h"

#include <algorithm>
#include <span>

#include <fmt/format.h>

#include "base/rule.h"
#include "base/units.h"

namespace shardscope {

std::string startOf(const Directory& directory, std::string_view name, uint64_t most) {
    const auto file = directory.openFile(name);
    if (!file.ok()) return {};
    std::string bytes(static_cast<size_t>(std::min(most, (*file)->size())), '\0');
    if (!(*file)->readAt(0, std::as_writable_bytes(std::span(bytes))).ok()) return {};
    return bytes;
}

std::string smallFile(const Directory& directory, std::string_view name, uint64_t most) {
    std::string bytes = startOf(directory, name, most + 1);
    return bytes.size() > most ? std::string() : bytes;
}

Result<std::string> wholeText(const ReadFile& file, uint64_t most) {
    if (file.size() > most)
        return makeError(ErrorCode::limit, fmt::format("it has {}, more than the {} that are read",
                                                       counted(file.size(), "byte"), countText(most)))
            .inFile(file.path());
    std::string text(static_cast<size_t>(file.size()), '\0');
    SHARDSCOPE_TRY(file.readAt(0, std::as_writable_bytes(std::span(text))));
    return text;
}

Result<std::shared_ptr<const ReadFile>> OpenFiles::open(const std::string& path) const {
    {
        std::lock_guard lock(mutex_);
        if (const auto it = byPath_.find(path); it != byPath_.end()) {
            recent_.splice(recent_.begin(), recent_, it->second);
            return it->second->second;
        }
    }
    auto file = directory_->openFile(path);  // without the lock: it may take long on a network's file system
    if (!file.ok()) {
        Error error = std::move(file).error();
        if (error.code == ErrorCode::notFound) error.location.rule = rule::fileMissing;
        return error;
    }
    std::lock_guard lock(mutex_);
    if (const auto it = byPath_.find(path); it != byPath_.end()) return it->second->second;
    recent_.emplace_front(path, *file);
    byPath_[path] = recent_.begin();
    if (recent_.size() > most_) {
        byPath_.erase(recent_.back().first);
        recent_.pop_back();
    }
    return file;
}

}  // namespace shardscope
