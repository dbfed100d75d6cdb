#include "ui/bridge/host_check.h"

#include <map>

#include "storage/file_system.h"

namespace shardscope::ui {

Result<std::vector<int64_t>> sizesOfFiles(FileSystem& files, const std::string& directory,
                                          const Catalog& catalog, const StopToken& stop) {
    std::map<std::string, std::map<std::string, int64_t>> listed;  // by directory
    std::vector<int64_t> sizes;
    sizes.reserve(catalog.files().size());
    for (const FileInfo& file : catalog.files()) {
        SHARDSCOPE_TRY(stop.poll());
        if (!checkRelativeName(file.path).ok()) {
            sizes.push_back(-1);
            continue;
        }
        const auto [parent, name] = splitPath(directory + "/" + file.path);
        auto known = listed.find(parent);
        if (known == listed.end()) {
            known = listed.emplace(parent, std::map<std::string, int64_t>()).first;
            const auto opened = files.openDirectory(parent);
            if (!opened.ok() && (parent == directory || opened.error().code == ErrorCode::remote))
                return opened.error();
            if (opened.ok()) {
                SHARDSCOPE_ASSIGN(const auto entries, (*opened)->list());
                for (const DirectoryEntry& entry : entries) {
                    if (entry.kind == DirectoryEntry::Kind::file)
                        known->second[entry.name] = static_cast<int64_t>(entry.size);
                }
            }
        }
        const auto found = known->second.find(name);
        sizes.push_back(found == known->second.end() ? -1 : found->second);
    }
    return sizes;
}

}  // namespace shardscope::ui
