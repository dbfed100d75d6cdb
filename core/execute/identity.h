// What tells one conversion from another. Private to this room.
#pragma once

#include <string_view>
#include <vector>

#include "execute/executor.h"

namespace shardscope {

// Errors: internal (not fully described), impossible.
Status checkJob(const ConvertJob& job);

// A digest of everything that decides which byte goes where.
Digest128 planFingerprint(const ConvertJob& job);

struct SourceFile {
    const Reader* reader;  // whose file it is; outlives this
    FileId id;
    Fingerprint print;
    const std::string& path() const { return reader->catalog().files()[id].path; }
};
// The files that hold chunks of the tensors that are read, as they are now.
Result<std::vector<SourceFile>> sourceFiles(const ConvertJob& job);
// Some of its files, as they are now.
Result<std::vector<SourceFile>> sourceFiles(const Reader& reader, const std::vector<FileId>& files);

// A digest of the files as this host knows them: any change shows.
Digest128 sourceFingerprint(const std::vector<SourceFile>& files);
// A digest of what every host that mounts the same file system sees alike: names, sizes and times of
// modification.
Digest128 sharedFingerprint(const std::vector<SourceFile>& files);

// A digest of everything that decides what a reading finds: the catalog, and the words that ask for it.
Digest128 readingFingerprint(const Catalog& catalog, std::string_view words);

// Errors: changed, with the file.
Status checkUnchanged(const std::vector<SourceFile>& before);

}  // namespace shardscope
