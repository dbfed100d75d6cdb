// The Hugging Face cache of this machine: https://huggingface.co/docs/huggingface_hub/guides/manage-cache.
// Private to this room.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "storage/file_system.h"
#include "storage/object_place.h"

namespace shardscope {

// $HF_HOME, else ~/.cache/huggingface; not there for sure.
std::string hubHome();

// What the cache has of one repository. Thread-safe.
class HubCache {
  public:
    // `kind` and `id` as in a URL: "models", "org/name".
    HubCache(const std::string& kind, const std::string& id);

    // The commit that a branch or tag was when it was last downloaded, or that a commit is itself; empty when
    // the cache does not know.
    std::string commitOf(const std::string& revision) const;
    // A file of a commit; null when it is not here, or has another size.
    std::shared_ptr<const ReadFile> find(const std::string& commit, const ObjectState& object);
    // All that is here of a commit, in byte order of their keys.
    std::vector<ObjectState> list(const std::string& commit) const;

  private:
    const std::string path_;
    Mutex mutex_;
    std::map<std::string, std::shared_ptr<const ReadFile>> open_
        SHARDSCOPE_GUARDED_BY(mutex_);  // null = none
};

}  // namespace shardscope
