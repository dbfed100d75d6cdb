// Files that appear whole or not at all, and where none may appear.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "storage/file_system.h"
#include "storage/parents.h"

namespace shardscope {

// One file on its way. It is written under a new name beside its own, so that no link is followed and nothing
// of that name is touched. Then it is brought to disk and put in its place. Directories above it are made.
// One thread.
class WholeFile {
  public:
    // `size` in bytes is reserved. With `replace` a file may be there already, and is gone once this one is
    // in its place. Errors: exists (something is there and `replace` is not set, or it is not a file),
    // noSpace, permission, io, impossible (a place with a scheme).
    static Result<std::unique_ptr<WholeFile>> begin(std::shared_ptr<FileSystem> fileSystem,
                                                    const std::string& file, uint64_t size, bool replace);
    ~WholeFile();  // removes what has not been put in place
    WholeFile(const WholeFile&) = delete;
    WholeFile& operator=(const WholeFile&) = delete;

    // Somewhere, or after what was appended before; `size` bytes in all, zeros where nothing was written.
    // Errors: those of writing.
    Status writeAt(uint64_t offset, std::span<const std::byte> bytes);
    Status append(std::span<const std::byte> bytes);
    // The last call: renames the file to its name, and brings the name to disk, too. Errors: exists, those of
    // writing.
    Status putInPlace();

  private:
    WholeFile(std::shared_ptr<FileSystem> fileSystem, const std::string& file, bool replace);
    Status create(uint64_t size);

    const std::shared_ptr<FileSystem> fileSystem_;
    const std::string file_, parent_;
    const bool replace_;
    Parents parents_;
    std::string partial_;  // a name in the parent; empty = nothing to remove
    std::shared_ptr<Directory> directory_;
    std::shared_ptr<WriteFile> out_;
    uint64_t written_ = 0;
};

// A WholeFile of bytes in memory, or an object in a bucket, where nothing is replaced.
Status putWholeFile(const std::shared_ptr<FileSystem>& fileSystem, const std::string& file,
                    std::string_view bytes, bool replace);

// Errors: impossible, for a place with a scheme.
Status checkOnDisk(const std::string& file);

// Errors: impossible, for a place with a scheme that is not a bucket; io, when there is no directory to hold
// `file` and none can be made.
Status checkParent(FileSystem& fileSystem, const std::string& file);
// What would stop a WholeFile at its end. Errors: exists, io (no directory to hold it).
Status checkMayPut(FileSystem& fileSystem, const std::string& file, bool replace);

// The content of a file that the user names. Never blocks. Errors: notFound, unsafe (a pipe, a device, a
// directory), limit (more than `most` bytes), those of reading.
Result<std::string> readWholeFile(const std::string& file, uint64_t most);

// Nothing is ever written into a checkpoint. Errors: usage when `file` is inside `checkpoint`, or is it.
Status checkOutside(const std::string& file, const std::string& checkpoint);
// The same of a destination that is about to be written, its staging directory included. Errors: usage.
Status checkBeside(const std::string& file, const std::string& destination);

}  // namespace shardscope
