#include "storage/files_below.h"

#include <algorithm>

namespace shardscope {

namespace {

constexpr size_t kMostEntries = 1'000'000;  // directories, too: links may lead round in circles

struct Walk {
    const Directory& directory;
    const std::string& root;
    const Closed closed;
    std::vector<DirectoryEntry> files;
    size_t entries = 0;

    Status add(const std::string& below, int levels) {
        const std::string place = root.empty() || below.empty() ? root + below : joinPath(root, below);
        auto listed = directory.list(place);
        if (!listed.ok()) {
            const ErrorCode code = listed.error().code;
            const bool skip = closed == Closed::skip && !below.empty() &&
                              (code == ErrorCode::unsafe || code == ErrorCode::permission);
            return skip ? Status() : Status(std::move(listed).error());
        }
        for (DirectoryEntry& entry : *listed) {
            if (++entries > kMostEntries)
                return makeError(ErrorCode::limit, "holds more than a million files")
                    .inFile(directory.path());
            if (!below.empty()) entry.name = joinPath(below, entry.name);
            if (entry.kind == DirectoryEntry::Kind::directory && levels > 0)
                SHARDSCOPE_TRY(add(entry.name, levels - 1));
            if (entry.kind == DirectoryEntry::Kind::file) files.push_back(std::move(entry));
        }
        return {};
    }
};

}  // namespace

Result<std::vector<DirectoryEntry>> filesBelow(const Directory& directory, const std::string& root,
                                               int levels, Closed closed) {
    Walk walk{directory, root, closed, {}};
    SHARDSCOPE_TRY(walk.add("", levels));
    std::ranges::sort(walk.files, {}, &DirectoryEntry::name);
    return std::move(walk.files);
}

bool leadsTo(const Directory& directory, std::string below, int steps,
             const std::function<bool(const DirectoryEntry&)>& fits) {
    for (int step = 0; step < steps; ++step) {
        const auto listed = directory.list(below);
        if (!listed.ok()) return false;
        const DirectoryEntry* next = nullptr;
        for (const DirectoryEntry& entry : *listed) {
            if (fits(entry)) return true;
            if (entry.kind == DirectoryEntry::Kind::directory && (!next || entry.name < next->name))
                next = &entry;
        }
        if (!next) return false;
        below = joinPath(below, next->name);
    }
    return false;
}

std::string_view lastNameOf(std::string_view path) {
    while (path.size() > 1 && path.ends_with('/'))
        path.remove_suffix(1);
    return path.substr(path.rfind('/') + 1);  // npos + 1 = 0
}

std::string_view directoryOf(std::string_view path) {
    const size_t slash = path.rfind('/');
    return path.substr(0, slash == path.npos ? 0 : slash);
}

}  // namespace shardscope
