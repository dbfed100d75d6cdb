// What is at a path of a place, as tests of core/places look at it.
#pragma once

#include <QString>
#include <string>
#include <vector>

#include "places/places.h"

namespace shardscope::test {

inline QString textOf(const Error& error) {
    return QString::fromStdString(describe(error) + error.hint);
}

inline Result<std::string> contentAt(const std::string& path) {
    SHARDSCOPE_ASSIGN(const Place place, placeOf(path));
    SHARDSCOPE_TRY(place.files->stat(place.path));
    const auto [parent, name] = splitPath(place.path);
    SHARDSCOPE_ASSIGN(const auto directory, place.files->openDirectory(parent));
    SHARDSCOPE_ASSIGN(const auto file, directory->openFile(name));
    std::string bytes(file->size(), '\0');
    SHARDSCOPE_TRY(file->readBulk(0, std::as_writable_bytes(std::span(bytes))));
    return bytes;
}

inline Result<std::vector<std::string>> namesIn(const std::string& path, const std::string& sub = "") {
    SHARDSCOPE_ASSIGN(const Place place, placeOf(path));
    SHARDSCOPE_ASSIGN(const auto directory, place.files->openDirectory(place.path));
    SHARDSCOPE_ASSIGN(const auto entries, directory->list(sub));
    std::vector<std::string> names;
    for (const DirectoryEntry& entry : entries)
        names.push_back(entry.name + (entry.kind == DirectoryEntry::Kind::directory ? "/" : ""));
    return names;
}

inline std::string xmlError(const std::string& code, const std::string& more = {}) {
    return "<Error><Code>" + code + "</Code><Message>m</Message>" + more + "</Error>";
}

}  // namespace shardscope::test
