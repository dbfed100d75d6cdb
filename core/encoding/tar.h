// Tar archives as directories: the files in them are read where they are, nothing is unpacked.
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

// Whether these first 512 bytes are the header of an archive, with its checksum.
bool isTarStart(std::string_view head);

// The archive as a directory, which cannot be written to. Links and devices in it are of no kind that opens;
// of two entries of one name the last one counts, as in unpacking. A file that the archive ends before opens
// with file.truncated. Errors: damaged for headers that are none (meta.inconsistent), unsafe for names that
// leave the directory (security.path), limit for more than a million entries.
Result<std::shared_ptr<Directory>> openTar(std::shared_ptr<const ReadFile> file);

// `files`, or where `path` names an archive, NAME.nemo or NAME.tar, or something in one, a file system that
// shows the archive as a directory. Errors: those of openTar() and of reading; unsupported for an archive
// that is compressed.
Result<std::shared_ptr<FileSystem>> withArchive(std::shared_ptr<FileSystem> files, const std::string& path);

// Of what withArchive() gave: whether the archive ends where one may end, or was cut. True for any other.
bool isWholeArchive(const FileSystem& files);

}  // namespace shardscope
