// The machine's own files (file_system.h): directories that are opened once, operations on whole paths, and
// the names of paths.
#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <optional>

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/rule.h"
#include "storage/beneath.h"
#include "storage/file_system.h"
#include "storage/system_file.h"
#include "storage/url.h"

namespace shardscope {
namespace {

constexpr int kReadFlags = O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
constexpr int kFolderFlags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;

DirectoryEntry::Kind kindOf(const struct stat& info) {
    if (S_ISREG(info.st_mode)) return DirectoryEntry::Kind::file;
    if (S_ISDIR(info.st_mode)) return DirectoryEntry::Kind::directory;
    return DirectoryEntry::Kind::other;
}

int64_t nanoseconds(const struct timespec& time) {
    return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

DirectoryEntry entryOf(std::string name, const struct stat& info) {
    const bool file = S_ISREG(info.st_mode);
    return {std::move(name),           kindOf(info), file ? static_cast<uint64_t>(info.st_size) : 0,
            nanoseconds(info.st_mtim), info.st_ino,  nanoseconds(info.st_ctim)};
}

Status syncFolder(int fd, const std::string& path) {
    // Some network file systems cannot sync a directory; their renames are durable by themselves.
    if (::fsync(fd) != 0 && errno != EINVAL && errno != EOPNOTSUPP) {
        return systemError(errno, "put the directory on disk", path);
    }
    return {};
}

// Entries of an open directory without "." and "..", sorted by name.
Result<std::vector<std::string>> namesIn(int fd, const std::string& path) {
    const int own = ::fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (own < 0) return systemError(errno, "list the directory", path);
    DIR* stream = ::fdopendir(own);
    if (!stream) {
        const int error = errno;
        ::close(own);
        return systemError(error, "list the directory", path);
    }
    std::vector<std::string> names;
    int error = 0;
    for (;;) {
        errno = 0;
        const struct dirent* entry = ::readdir(stream);
        if (!entry) {
            error = errno;
            break;
        }
        const std::string_view name = entry->d_name;
        if (name != "." && name != "..") names.emplace_back(name);
    }
    ::closedir(stream);
    if (error != 0) return systemError(error, "list the directory", path);
    std::sort(names.begin(), names.end());
    return names;
}

// ------------------------------------------------------------------ Directory

class SystemDirectory final : public Directory {
  public:
    SystemDirectory(Descriptor fd, std::string path, IoMode mode)
        : fd_(std::move(fd)), path_(std::move(path)), mode_(mode) {}

    const std::string& path() const override { return path_; }

    Result<std::vector<DirectoryEntry>> list(std::string_view subdirectory) const override {
        const std::string shown = subdirectory.empty() ? path_ : join(subdirectory);
        SHARDSCOPE_ASSIGN(Descriptor folder, openFolder(subdirectory));
        const int at = folder.get();
        SHARDSCOPE_ASSIGN(const std::vector<std::string> names, namesIn(at, shown));
        std::vector<DirectoryEntry> entries;
        entries.reserve(names.size());
        for (const std::string& name : names) {
            struct stat info {};
            DirectoryEntry entry{name, DirectoryEntry::Kind::other};
            if (::fstatat(at, name.c_str(), &info, 0) == 0) {
                entry = entryOf(name, info);
            } else if (::fstatat(at, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
                continue;  // removed meanwhile
            }
            entries.push_back(std::move(entry));
        }
        return entries;
    }

    Result<std::shared_ptr<const ReadFile>> openFile(std::string_view name) const override {
        SHARDSCOPE_ASSIGN(Descriptor fd, resolve(name, kReadFlags));
        return makeReadFile(std::move(fd), join(name), mode_);
    }

    Result<DirectoryEntry> stat(std::string_view name) const override {
        SHARDSCOPE_ASSIGN(const Descriptor fd, resolve(name, O_PATH | O_CLOEXEC));
        struct stat info {};
        if (::fstat(fd.get(), &info) != 0) return systemError(errno, "look at", join(name));
        return entryOf(std::string(name), info);
    }

    std::string linkTarget(std::string_view name) const override {
        if (name.find('/') != std::string_view::npos) return {};
        std::string target(PATH_MAX, '\0');
        const ssize_t size = ::readlinkat(fd_.get(), std::string(name).c_str(), target.data(), target.size());
        target.resize(size < 0 ? 0 : static_cast<size_t>(size));
        return target;
    }

    Result<std::shared_ptr<WriteFile>> createFile(std::string_view name, bool existing) override {
        SHARDSCOPE_TRY(checkRelativeName(name));
        for (size_t slash = name.find('/'); slash != std::string_view::npos;
             slash = name.find('/', slash + 1)) {
            const std::string_view folder = name.substr(0, slash);
            const size_t parentEnd = folder.rfind('/');
            const std::string_view parent =
                parentEnd == std::string_view::npos ? "" : folder.substr(0, parentEnd);
            const std::string last(folder.substr(parentEnd == std::string_view::npos ? 0 : parentEnd + 1));
            SHARDSCOPE_ASSIGN(const Descriptor at, openFolder(parent));
            if (::mkdirat(at.get(), last.c_str(), 0777) != 0 && errno != EEXIST) {
                return systemError(errno, "make the directory", join(folder));
            }
        }
        int flags = O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
        if (!existing) flags |= O_EXCL;
        Descriptor fd = openBeneath(fd_.get(), std::string(name), flags, 0666);
        if (!fd.valid()) {
            return systemError(errno, "create", join(name));
        }
        struct stat info {};
        if (::fstat(fd.get(), &info) != 0) return systemError(errno, "look at", join(name));
        if (!S_ISREG(info.st_mode)) {
            return makeError(ErrorCode::unsafe, "expected a regular file to write").inFile(join(name));
        }
        return std::shared_ptr<WriteFile>(
            std::make_shared<SystemWriteFile>(std::move(fd), join(name), mode_));
    }

    Status removeFile(std::string_view name) override {
        SHARDSCOPE_TRY(checkRelativeName(name));
        const size_t slash = name.rfind('/');
        const std::string_view parent = slash == std::string_view::npos ? "" : name.substr(0, slash);
        const std::string last(name.substr(slash == std::string_view::npos ? 0 : slash + 1));
        SHARDSCOPE_ASSIGN(const Descriptor at, openFolder(parent));
        if (::unlinkat(at.get(), last.c_str(), 0) != 0) return systemError(errno, "remove", join(name));
        return {};
    }

    Status sync() override {
        std::vector<std::string> todo = {""};
        while (!todo.empty()) {
            const std::string folder = std::move(todo.back());
            todo.pop_back();
            const std::string shown = folder.empty() ? path_ : join(folder);
            SHARDSCOPE_ASSIGN(const Descriptor at, openFolder(folder));
            SHARDSCOPE_ASSIGN(const std::vector<std::string> names, namesIn(at.get(), shown));
            for (const std::string& name : names) {
                struct stat info {};
                if (::fstatat(at.get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 &&
                    S_ISDIR(info.st_mode)) {
                    todo.push_back(folder.empty() ? name : folder + "/" + name);
                }
            }
            SHARDSCOPE_TRY(syncFolder(at.get(), shown));
        }
        return {};
    }

  private:
    std::string join(std::string_view name) const { return joinPath(path_, name); }

    Result<Descriptor> openFolder(std::string_view name) const {
        // "." opens the directory afresh, with a reading position of its own.
        Descriptor fd = name.empty() ? Descriptor(::openat(fd_.get(), ".", kFolderFlags)) : Descriptor();
        if (!name.empty()) {
            SHARDSCOPE_TRY(checkRelativeName(name));
            fd = openBeneath(fd_.get(), std::string(name), kFolderFlags);
        }
        if (!fd.valid()) return systemError(errno, "open the directory", name.empty() ? path_ : join(name));
        return fd;
    }

    Result<Descriptor> resolve(std::string_view name, int flags) const {
        SHARDSCOPE_TRY(checkRelativeName(name));
        const std::string text(name);
        Descriptor fd = openBeneath(fd_.get(), text, flags);
        if (!fd.valid() && errno == EXDEV) {
            fd = openCacheBlob(fd_.get(), text, flags);
            if (!fd.valid() && errno == EXDEV) {
                return makeError(ErrorCode::unsafe, "a symbolic link leads out of the checkpoint's directory")
                    .inFile(join(name))
                    .byRule(rule::securityPath)
                    .withHint("copy the file that it points to into the directory");
            }
        }
        if (!fd.valid() && errno == ENXIO) {
            return makeError(ErrorCode::unsafe,
                             "expected a regular file, found a socket or a device without a driver")
                .inFile(join(name))
                .byRule(rule::securityPath);
        }
        if (!fd.valid()) {
            return systemError(errno, "open", join(name));
        }
        return fd;
    }

    const Descriptor fd_;
    const std::string path_;
    const IoMode mode_;
};

// ------------------------------------------------------------------ FileSystem

int renameWith(const std::string& from, const std::string& to, unsigned flags) {
    return static_cast<int>(::syscall(SYS_renameat2, AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), flags));
}
constexpr unsigned kNoReplace = 1;
constexpr unsigned kExchange = 2;

// What a user may set without privileges begins with "user." (xattr(7)).
std::string attributeName(const std::string& name) {
    return "user.shardscope." + name;
}

class SystemFileSystem final : public FileSystem {
  public:
    explicit SystemFileSystem(IoMode mode) : mode_(mode) { raiseFileLimit(); }

    Result<std::shared_ptr<Directory>> openDirectory(const std::string& path) override {
        Descriptor fd(::open(path.c_str(), kFolderFlags));
        if (!fd.valid()) {
            const int error = errno;
            if (error == ENOTDIR)
                return makeError(ErrorCode::notFound, "this is not a directory").inFile(path);
            return systemError(error, "open the directory", path);
        }
        return std::shared_ptr<Directory>(std::make_shared<SystemDirectory>(std::move(fd), path, mode_));
    }

    Status makeDirectory(const std::string& path) override {
        if (::mkdir(path.c_str(), 0777) == 0) return {};
        const int reason = errno;
        struct stat info {};
        if (reason == EEXIST && ::lstat(path.c_str(), &info) == 0 && !S_ISDIR(info.st_mode)) {
            return makeError(ErrorCode::unsafe, S_ISLNK(info.st_mode)
                                                    ? "a symbolic link stands where a directory is to be made"
                                                    : "something stands where a directory is to be made")
                .inFile(path)
                .withHint("look at it, and remove it if it is of no use");
        }
        return systemError(reason, "make the directory", path);
    }

    Result<DirectoryEntry> stat(const std::string& path) override {
        struct stat info {};
        if (::stat(path.c_str(), &info) != 0 && (errno != ENOENT || ::lstat(path.c_str(), &info) != 0))
            return systemError(errno, "look at", path);
        return entryOf(splitPath(path).second, info);
    }

    Status rename(const std::string& from, const std::string& to) override {
        if (renameWith(from, to, kNoReplace) == 0) return {};
        if (errno != EINVAL && errno != ENOSYS && errno != EPERM)
            return systemError(errno, "rename to " + to, from);
        struct stat info {};
        if (::lstat(to.c_str(), &info) == 0) return systemError(EEXIST, "rename to " + to, from);
        if (::rename(from.c_str(), to.c_str()) != 0) return systemError(errno, "rename to " + to, from);
        return {};
    }

    Status exchange(const std::string& a, const std::string& b) override {
        // A file is replaced in one call on every file system.
        if (!isDirectory(a) && !isDirectory(b))
            return ::rename(a.c_str(), b.c_str()) == 0 ? Status() : systemError(errno, "rename to " + b, a);
        if (renameWith(a, b, kExchange) == 0) return {};
        if (errno != EINVAL && errno != ENOSYS && errno != EPERM)
            return systemError(errno, "exchange with " + b, a);
        return exchangeByWayOf(asidePath(b), a, b);
    }

    Status removeTree(const std::string& path) override {
        std::error_code error;
        std::filesystem::remove_all(path, error);
        if (error) return systemError(error.value(), "remove", path);
        return {};
    }

    Status syncDirectory(const std::string& path) override {
        const Descriptor fd(::open(path.c_str(), kFolderFlags));
        if (!fd.valid()) return systemError(errno, "open the directory", path);
        return syncFolder(fd.get(), path);
    }

    Result<uint64_t> freeBytes(const std::string& path) override {
        struct statvfs info {};
        if (::statvfs(path.c_str(), &info) != 0) return systemError(errno, "ask for the free space of", path);
        return static_cast<uint64_t>(info.f_bavail) * info.f_frsize;
    }

    Status setAttribute(const std::string& path, const std::string& name, const std::string& value) override {
        if (::setxattr(path.c_str(), attributeName(name).c_str(), value.data(), value.size(), 0) == 0)
            return {};
        return systemError(errno, "set an extended attribute of", path);
    }

    Result<std::string> attribute(const std::string& path, const std::string& name) override {
        std::string value(256, '\0');
        const ssize_t size =
            ::getxattr(path.c_str(), attributeName(name).c_str(), value.data(), value.size());
        if (size < 0 && errno == ENODATA)
            return makeError(ErrorCode::notFound, "the extended attribute is not set").inFile(path);
        if (size < 0) return systemError(errno, "read an extended attribute of", path);
        value.resize(static_cast<size_t>(size));
        return value;
    }

    Result<std::shared_ptr<WriteFile>> createScratch(const std::string& directory) override {
        std::string folder = directory;
        if (folder.empty()) {
            std::error_code error;
            folder = std::filesystem::temp_directory_path(error).string();
            if (error) folder = "/tmp";
        }
        Descriptor fd(::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
        if (!fd.valid()) {
            std::string pattern = folder + "/.shardscope-scratch-XXXXXX";
            fd = Descriptor(::mkostemp(pattern.data(), O_CLOEXEC));
            if (!fd.valid()) return systemError(errno, "create a scratch file in", folder);
            ::unlink(pattern.c_str());
        }
        return std::shared_ptr<WriteFile>(
            std::make_shared<SystemWriteFile>(std::move(fd), folder + "/(scratch file)", mode_));
    }

    Result<std::shared_ptr<const ReadFile>> reopen(const std::shared_ptr<WriteFile>& file) override {
        const auto* own = dynamic_cast<const SystemWriteFile*>(file.get());
        if (!own) return makeError(ErrorCode::internal, "reopen: the file belongs to another file system");
        Descriptor fd(::fcntl(own->descriptor(), F_DUPFD_CLOEXEC, 0));
        if (!fd.valid()) return systemError(errno, "reopen", own->path());
        return makeReadFile(std::move(fd), own->path(), mode_);
    }

  private:
    static bool isDirectory(const std::string& path) {
        struct stat info {};
        return ::lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
    }

    // The names are on disk after each step, so that `b` or `aside` is what it was, whenever the power fails.
    Status exchangeByWayOf(const std::string& aside, const std::string& a, const std::string& b) {
        const std::string parent = splitPath(b).first;
        // Of an earlier replacement, as something stands at `b`.
        SHARDSCOPE_TRY(removeTree(aside));
        SHARDSCOPE_TRY(rename(b, aside));
        Status status = syncDirectory(parent);
        if (status.ok()) status = rename(a, b);
        if (!status.ok()) {
            if (!rename(aside, b).ok())
                return std::move(status).error().withHint("the former content of " + b + " is at " + aside);
            return status;
        }
        if (status = syncDirectory(parent); !status.ok())
            return std::move(status).error().withHint("the new content is at " + b + ", the former at " +
                                                      aside);
        (void)rename(aside, a);
        return {};
    }

    // A checkpoint of thousands of files needs more than the usual soft limit of 1024.
    static void raiseFileLimit() {
        struct rlimit files {};
        if (::getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
            files.rlim_cur = files.rlim_max;
            ::setrlimit(RLIMIT_NOFILE, &files);
        }
    }

    const IoMode mode_;
};

}  // namespace

Status FileSystem::setAttribute(const std::string&, const std::string&, const std::string&) {
    return unsupported("no extended attributes here");
}

Result<std::string> FileSystem::attribute(const std::string&, const std::string&) {
    return unsupported("no extended attributes here");
}

std::shared_ptr<FileSystem> systemFileSystem(IoMode mode) {
    return std::make_shared<SystemFileSystem>(mode);
}

Status checkRelativeName(std::string_view name) {
    const auto refuse = [&](std::string_view why) -> Status {
        return makeError(ErrorCode::unsafe, fmt::format("the name '{}' {}", name, why))
            .byRule(rule::securityPath);
    };
    if (name.empty()) return makeError(ErrorCode::unsafe, "a file name is empty").byRule(rule::securityPath);
    if (name.find('\0') != std::string_view::npos) return refuse("holds a zero byte");
    if (name.front() == '/') return refuse("is absolute");
    for (size_t begin = 0; begin <= name.size();) {
        const size_t end = std::min(name.find('/', begin), name.size());
        const std::string_view part = name.substr(begin, end - begin);
        if (part.empty()) return refuse("has an empty component");
        if (part == "." || part == "..") return refuse("has a '.' or '..' component");
        if (part.size() > 255) return refuse("has a component of more than 255 bytes");
        begin = end + 1;
    }
    if (name.size() > 4095) return refuse("is longer than a path can be");
    return {};
}

std::string stateDirectory(std::string_view name) {
    const char* state = std::getenv("XDG_STATE_HOME");
    const char* home = std::getenv("HOME");
    const std::string base = state && *state == '/' ? state : std::string(home ? home : "") + "/.local/state";
    return base + "/shardscope/" + std::string(name);
}

std::string joinPath(std::string_view directory, std::string_view name) {
    return fmt::format("{}{}{}", directory, directory.ends_with('/') ? "" : "/", name);
}

std::string stagingPath(const std::string& destination) {
    const auto [parent, name] = splitPath(destination);
    return joinPath(parent, fmt::format(".{}.shardscope-partial", name));
}

std::string asidePath(const std::string& path) {
    const auto [parent, name] = splitPath(path);
    return joinPath(parent, fmt::format(".{}.shardscope-old", name));
}

std::string canonicalPath(const std::string& path) {
    if (const size_t place = placeLength(path); place > 0) {
        std::string plain = path;
        while (plain.size() > place && plain.back() == '/')
            plain.pop_back();
        return plain;
    }
    std::error_code error;
    const auto canonical = std::filesystem::weakly_canonical(path, error);
    return error ? path : canonical.string();
}

std::pair<std::string, std::string> splitPath(const std::string& path) {
    std::string_view text = path;
    const size_t place = std::max<size_t>(placeLength(path), 1);
    while (text.size() > place && text.back() == '/')
        text.remove_suffix(1);
    if (place > 1 && text.size() == place) return {std::string(text), ""};
    const size_t slash = text.rfind('/');
    if (slash == std::string_view::npos) return {".", std::string(text)};
    std::string_view parent = text.substr(0, slash);
    while (parent.size() > 1 && parent.back() == '/')
        parent.remove_suffix(1);
    return {parent.empty() ? "/" : std::string(parent), std::string(text.substr(slash + 1))};
}

}  // namespace shardscope
