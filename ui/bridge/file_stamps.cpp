#include "ui/bridge/file_stamps.h"

#include <map>

#include "storage/file_system.h"
#include "storage/url.h"

namespace shardscope::ui {

namespace {

FileStamp stampOf(const DirectoryEntry& entry) {
    if (entry.kind != DirectoryEntry::Kind::file) return {};
    return {static_cast<int64_t>(entry.size), entry.modifiedNs};
}

}  // namespace

Result<std::vector<FileStamp>> stampsOf(FileSystem& files, const std::string& directory,
                                        const Catalog& catalog, const StopToken& stop) {
    std::map<std::string, std::map<std::string, FileStamp>> listed;  // by directory
    std::vector<FileStamp> stamps(catalog.files().size());
    for (size_t f = 0; f < stamps.size(); ++f) {
        SHARDSCOPE_TRY(stop.poll());
        const FileInfo& file = catalog.files()[f];
        if (!checkRelativeName(file.path).ok()) continue;
        const auto [parent, name] = splitPath(directory + "/" + file.path);
        const auto [known, added] = listed.try_emplace(parent);
        if (added) {
            const auto opened = files.openDirectory(parent);
            if (!opened.ok() && (parent == directory || opened.error().code == ErrorCode::remote))
                return opened.error();
            if (opened.ok()) {
                SHARDSCOPE_ASSIGN(const auto entries, (*opened)->list());
                for (const DirectoryEntry& entry : entries)
                    known->second[entry.name] = stampOf(entry);
            }
        }
        if (const auto found = known->second.find(name); found != known->second.end())
            stamps[f] = found->second;
    }
    return stamps;
}

Result<std::vector<FileStamp>> stampsOf(const Checkpoint& checkpoint, bool anew, const StopToken& stop) {
    auto files = checkpoint.fileSystem ? checkpoint.fileSystem : systemFileSystem();
    const std::string_view scheme = schemeOf(checkpoint.path);
    const bool inBucket = scheme == "s3" || scheme == "gs";
    if (!scheme.empty() && !inBucket) return std::vector<FileStamp>();
    if (anew && inBucket) {
        SHARDSCOPE_ASSIGN(const Source source, sourceFor(checkpoint.path));
        files = source.fileSystem;
    }
    if (checkpoint.reader->dataElsewhere().empty())
        return stampsOf(*files, directoryOf(checkpoint), checkpoint.catalog(), stop);
    const auto entry = files->stat(checkpoint.path);
    return std::vector{entry.ok() ? stampOf(*entry) : FileStamp{}};
}

}  // namespace shardscope::ui
