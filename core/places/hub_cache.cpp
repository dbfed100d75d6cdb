#include "places/hub_cache.h"

#include <algorithm>

#include "places/credentials.h"
#include "places/http.h"

namespace shardscope {
namespace {

constexpr size_t kMostOpen = 256;  // files
constexpr size_t kDeepest = 16;    // directories

void addFiles(const Directory& directory, const std::string& below, size_t depth,
              std::vector<ObjectState>& files) {
    const auto entries = directory.list(below);
    if (!entries.ok() || depth > kDeepest) return;
    for (const DirectoryEntry& entry : *entries) {
        const std::string name = below.empty() ? entry.name : below + "/" + entry.name;
        if (entry.kind == DirectoryEntry::Kind::directory) {
            addFiles(directory, name, depth + 1, files);
            continue;
        }
        // They are links to files that are named by their content.
        const auto file = directory.openFile(name);
        if (file.ok()) files.push_back({name, (*file)->size(), entry.modifiedNs, {}, {}});
    }
}

}  // namespace

std::string hubHome() {
    if (std::string home = environment("HF_HOME"); !home.empty()) return home;
    const std::string cache = environment("XDG_CACHE_HOME");
    return (cache.empty() ? environment("HOME") + "/.cache" : cache) + "/huggingface";
}

HubCache::HubCache(const std::string& kind, const std::string& id)
    : path_([&] {
          std::string cache = environment("HF_HUB_CACHE"), name = kind + "--" + id;
          if (cache.empty()) cache = hubHome() + "/hub";
          if (const size_t slash = name.find('/'); slash != std::string::npos) name.replace(slash, 1, "--");
          return cache + "/" + name;
      }()) {}

std::string HubCache::commitOf(const std::string& revision) const {
    if (!checkRelativeName(revision).ok()) return {};
    const std::string commit(trimmedText(contentOf(path_ + "/refs/" + revision)));
    const std::string& known = commit.empty() ? revision : commit;
    if (!checkRelativeName(known).ok() || known.find('/') != std::string::npos) return {};
    return systemFileSystem()->stat(path_ + "/snapshots/" + known).ok() ? known : std::string();
}

std::shared_ptr<const ReadFile> HubCache::find(const std::string& commit, const ObjectState& object) {
    MutexLock lock(mutex_);
    const auto known = open_.find(object.key);
    if (known != open_.end()) return known->second;
    if (open_.size() >= kMostOpen) open_.clear();
    auto& file = open_[object.key];
    const auto directory = systemFileSystem()->openDirectory(path_ + "/snapshots/" + commit);
    if (!directory.ok()) return nullptr;
    const auto opened = (*directory)->openFile(object.key);
    if (opened.ok() && (*opened)->size() == object.size) file = *opened;
    return file;
}

std::vector<ObjectState> HubCache::list(const std::string& commit) const {
    std::vector<ObjectState> files;
    const auto directory = systemFileSystem()->openDirectory(path_ + "/snapshots/" + commit);
    if (directory.ok()) addFiles(**directory, "", 0, files);
    std::ranges::sort(files, {}, &ObjectState::key);
    return files;
}

}  // namespace shardscope
