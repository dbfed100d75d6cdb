// Access to files, behind an interface so that tests can hold them in memory and make any operation fail.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace shardscope {

// What identifies a file and its state; two equal fingerprints mean "not touched in between".
struct Fingerprint {
    uint64_t device = 0;
    uint64_t inode = 0;
    uint64_t size = 0;
    int64_t modifiedNs = 0;
    int64_t changedNs = 0;
    bool operator==(const Fingerprint&) const = default;
};

// An open file that is read by position. Thread-safe; closes when destroyed. Never mapped into memory: a
// mapping of a file that shrinks kills the process.
class ReadFile {
  public:
    virtual ~ReadFile() = default;

    virtual const std::string& path() const = 0;  // as the user can open it, for messages
    virtual uint64_t size() const = 0;            // when it was opened
    // Fills the whole buffer. Errors: changed ("the file shrank") when it ends early, io, all with file and
    // offset.
    virtual Status readAt(uint64_t offset, std::span<std::byte> buffer) const = 0;
    // As readAt, for bulk tensor data: may bypass the page cache when the bytes are not in it. `buffer`
    // should be in an AlignedBuffer; anything works.
    virtual Status readBulk(uint64_t offset, std::span<std::byte> buffer) const {
        return readAt(offset, buffer);
    }
    // Copies the first bytes, as far as they are in the page cache, without waiting for the device; returns
    // how many. A caller that works on bytes in pieces reads small pieces with it, which stay in the
    // processor's cache, and the rest with readBulk.
    virtual size_t readCached(uint64_t /*offset*/, std::span<std::byte> /*buffer*/) const { return 0; }
    virtual Result<Fingerprint> fingerprint() const = 0;  // of the present state, through the open handle
    // The file descriptor, for zero-copy system calls; -1 where the bytes are not a file of the kernel.
    virtual int descriptor() const { return -1; }
};

// A file that is being produced. Thread-safe for disjoint ranges.
class WriteFile {
  public:
    virtual ~WriteFile() = default;

    virtual const std::string& path() const = 0;
    // Reserves space so that a full disk shows before the first byte. Errors: noSpace.
    virtual Status allocate(uint64_t size) = 0;
    virtual Status writeAt(uint64_t offset, std::span<const std::byte> bytes) = 0;
    // As writeAt, for bulk tensor data: goes past the page cache where offset, address and file system allow
    // it.
    virtual Status writeBulk(uint64_t offset, std::span<const std::byte> bytes) {
        return writeAt(offset, bytes);
    }
    // After a failed sync the file's content is unknown: it must be written again or given up, never synced
    // again.
    virtual Status sync() = 0;
    // Advisory lock against other jobs, held until the file is closed or its process ends; false when another
    // holds it. Where the file system cannot lock, everyone gets it.
    virtual Result<bool> tryLock() { return true; }
};

struct DirectoryEntry {
    enum class Kind : uint8_t { file, directory, other };
    std::string name;
    Kind kind = Kind::file;
    uint64_t size = 0;       // bytes; 0 for anything but a file
    int64_t modifiedNs = 0;  // since 1970; 0 = unknown
    // What a copy or a replaced file does not share; 0 = unknown.
    uint64_t inode = 0;
    int64_t changedNs = 0;
};

enum class IoMode : uint8_t { automatic, direct, buffered };

// One directory, opened once; all names are relative to it.
class Directory {
  public:
    virtual ~Directory() = default;

    virtual const std::string& path() const = 0;
    virtual Result<std::vector<DirectoryEntry>> list(std::string_view subdirectory = "") const = 0;

    // For reading. `name` comes from untrusted metadata. Absolute paths, "..", empty components, devices,
    // sockets and pipes are refused with `unsafe`. So are symbolic links that leave the directory, except
    // those of a Hugging Face cache (models--*/snapshots/*/x -> ../../blobs/*). Nothing blocks.
    virtual Result<std::shared_ptr<const ReadFile>> openFile(std::string_view name) const = 0;
    // Kind and size without opening; notFound when absent.
    virtual Result<DirectoryEntry> stat(std::string_view name) const = 0;
    // The target of the symbolic link of this name in the directory itself; empty for anything else and where
    // it cannot be read. Untrusted text.
    virtual std::string linkTarget(std::string_view /*name*/) const { return {}; }

    // Uploads that were begun and neither completed nor abandoned, which no listing shows: name in the
    // directory, bytes so far, time of the start. Empty for a storage without uploads.
    virtual Result<std::vector<DirectoryEntry>> unfinishedUploads() const {
        return std::vector<DirectoryEntry>();
    }

    // For writing. Creates parents inside the directory. The file must not exist unless `existing` is true
    // (resume).
    virtual Result<std::shared_ptr<WriteFile>> createFile(std::string_view name, bool existing = false) = 0;
    virtual Status removeFile(std::string_view name) = 0;
    virtual Status sync() = 0;  // the directory itself and its sub-directories
};

// Operations on whole paths.
class FileSystem {
  public:
    virtual ~FileSystem() = default;

    virtual Result<std::shared_ptr<Directory>> openDirectory(const std::string& path) = 0;
    // Errors: exists when there is a directory already, unsafe when something else stands there, links
    // included.
    virtual Status makeDirectory(const std::string& path) = 0;
    // Follows symbolic links; a dangling one has the kind `other`, as in list().
    virtual Result<DirectoryEntry> stat(const std::string& path) = 0;
    // Replaces nothing: errors with `exists` when `to` is there.
    virtual Status rename(const std::string& from, const std::string& to) = 0;
    // Swaps `a` with `b`, which exists. The former `b` is at `a` afterwards, or gone when both are files.
    // Atomic where the kernel can swap. Elsewhere a directory stands at asidePath(b) in between. It stays
    // there when the process ends at that moment, or renaming back fails (the error's hint says so).
    virtual Status exchange(const std::string& a, const std::string& b) = 0;
    virtual Status removeTree(const std::string& path) = 0;
    virtual Status syncDirectory(const std::string& path) = 0;
    virtual Result<uint64_t> freeBytes(const std::string& path) = 0;
    // An extended attribute of a file or directory: a short text that renaming keeps and that no reader of
    // the content sees. At most 256 bytes; copies need not have it. Errors: unsupported or io where
    // the file system stores none; notFound for one that is not set.
    virtual Status setAttribute(const std::string& path, const std::string& name, const std::string& value);
    virtual Result<std::string> attribute(const std::string& path, const std::string& name);
    // Whether the storage checks checksums and refuses bytes that were changed on the way; known after the
    // first write.
    virtual bool provesWrites() const { return false; }
    // Whether what was written to a file can be read before the file is whole.
    virtual bool showsUnfinished() const { return true; }
    // The real location of a path, for messages: a staging directory may be on another storage.
    virtual std::string shown(const std::string& path) const { return path; }
    // An unnamed file for intermediate data, gone when closed. `directory` empty = the system's temporary
    // directory.
    virtual Result<std::shared_ptr<WriteFile>> createScratch(const std::string& directory) = 0;
    // Reading side of a scratch file or of a file being written.
    virtual Result<std::shared_ptr<const ReadFile>> reopen(const std::shared_ptr<WriteFile>& file) = 0;
};

// The machine's own file system.
std::shared_ptr<FileSystem> systemFileSystem(IoMode mode = IoMode::automatic);

// Lexical check of a name from metadata; see Directory::openFile. Errors: unsafe.
Status checkRelativeName(std::string_view name);

// Splits "/a/b/c" in parent and last component; "." for a bare name. A place (storage/url.h) is its own
// parent: "s3://bucket" and "".
std::pair<std::string, std::string> splitPath(const std::string& path);
// The absolute path, with links resolved as far as it exists; unchanged where that fails. A place loses only
// the slashes at its end.
std::string canonicalPath(const std::string& path);
// "/a/b" and "c" to "/a/b/c".
std::string joinPath(std::string_view directory, std::string_view name);
// The staging directory of a destination, beside it: ".NAME.shardscope-partial".
std::string stagingPath(const std::string& destination);
// Where the former content of a path stands while it is replaced: ".NAME.shardscope-old" beside it.
std::string asidePath(const std::string& path);

// The directory for state that outlives a process: $XDG_STATE_HOME/shardscope/NAME. It may not exist yet.
std::string stateDirectory(std::string_view name);

}  // namespace shardscope
