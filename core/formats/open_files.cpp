#include "formats/open_files.h"

#include "base/rule.h"

namespace shardscope {

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
