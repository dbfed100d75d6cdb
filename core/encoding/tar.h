// Tar archives as directories. Their files are read in place; nothing is unpacked.
//
// Source: POSIX.1-2001 pax (ustar header, extended headers `path` and `size`); GNU tar's long names and
// binary sizes.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "storage/file_system.h"

namespace shardscope {

// Whether `head`, the first 512 bytes of a file or more, is a ustar header with a correct checksum.
bool isTarStart(std::string_view head);

// Opens an archive as a read-only directory, which keeps `file`. Links and devices are listed but cannot be
// opened. Of several entries of one name the last one counts, as in unpacking. Opening a file that ends past
// the end of the archive fails with file.truncated. Errors: damaged for invalid headers (meta.inconsistent),
// unsafe for names that leave the directory (security.path), limit for more than a million entries or too
// long names.
Result<std::shared_ptr<Directory>> openTar(std::shared_ptr<const ReadFile> file);

// If `path` is an archive (NAME.nemo or NAME.tar) or is in one, a file system that shows the archive as a
// directory; else `files`. Errors: those of openTar() and of reading, unsupported for a compressed archive.
Result<std::shared_ptr<FileSystem>> withArchive(std::shared_ptr<FileSystem> files, const std::string& path);

// Whether the archive of a file system from withArchive() has its end mark; false if it is truncated. True
// for any other file system.
bool isWholeArchive(const FileSystem& files);

}  // namespace shardscope
