#include "storage/parents.h"

#include <unistd.h>

#include "storage/url.h"

namespace shardscope {

std::string nearestAbove(FileSystem& files, const std::string& path) {
    std::string above = splitPath(path).first;
    while (!files.stat(above).ok()) {
        std::string next = splitPath(above).first;
        if (next == above) break;
        above = std::move(next);
    }
    return above;
}

Parents::~Parents() {
    // rmdir() leaves a directory that is not empty, so nothing of another process is lost.
    for (auto path = made_.rbegin(); path != made_.rend(); ++path)
        if (::rmdir(path->c_str()) != 0) return;
}

Status makeParents(FileSystem& files, const std::string& path, std::vector<std::string>* list) {
    if (!schemeOf(path).empty()) return {};
    std::vector<std::string> missing;
    const std::string there = nearestAbove(files, path);
    for (std::string above = splitPath(path).first; above != there; above = splitPath(above).first)
        missing.push_back(above);
    for (auto next = missing.rbegin(); next != missing.rend(); ++next) {
        Status made = files.makeDirectory(*next);
        if (!made.ok() && made.error().code == ErrorCode::exists) continue;  // by another process
        if (!made.ok()) {
            Error error = std::move(made).error();
            if (error.code == ErrorCode::notFound) error.code = ErrorCode::io;  // no source is missing
            return error;
        }
        if (list) list->push_back(*next);
        SHARDSCOPE_TRY(files.syncDirectory(splitPath(*next).first));
    }
    return {};
}

}  // namespace shardscope
