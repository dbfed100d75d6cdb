// The Hugging Face cache of this machine. Private to this room.
// Source: https://huggingface.co/docs/huggingface_hub/guides/manage-cache
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "storage/file_system.h"
#include "storage/object_place.h"

namespace shardscope {

// $HF_HOME, else $XDG_CACHE_HOME/huggingface, else ~/.cache/huggingface. It may not exist.
std::string hubHome();

// The cached files of one repository. Thread-safe.
class HubCache {
  public:
    // `kind` and `id` as in a URL: "models", "org/name".
    HubCache(const std::string& kind, const std::string& id);

    // The commit of a branch or tag when it was last downloaded; a commit stands for itself. Empty when the
    // cache does not hold that commit.
    std::string commitOf(const std::string& revision) const;
    // A file of a commit; null when it is not in the cache or has another size.
    std::shared_ptr<const ReadFile> find(const std::string& commit, const ObjectState& object);
    // All cached files of a commit, by key in byte order.
    std::vector<ObjectState> list(const std::string& commit) const;

  private:
    const std::string path_;
    Mutex mutex_;
    std::map<std::string, std::shared_ptr<const ReadFile>> open_
        SHARDSCOPE_GUARDED_BY(mutex_);  // null = not cached
};

}  // namespace shardscope
