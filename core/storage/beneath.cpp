#include "storage/beneath.h"

#include <cerrno>
#include <climits>
#include <vector>

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace shardscope {
namespace {

constexpr int kMaxLinks = 40;  // as the kernel

std::vector<std::string> componentsOf(std::string_view path) {
    std::vector<std::string> parts;
    while (!path.empty()) {
        const size_t slash = path.find('/');
        const std::string_view part = path.substr(0, slash);
        if (!part.empty() && part != ".") parts.emplace_back(part);
        if (slash == std::string_view::npos) break;
        path.remove_prefix(slash + 1);
    }
    return parts;
}

// Target of a symbolic link; empty with errno set when it is not one.
std::string readLink(int directory, const char* name) {
    char buffer[PATH_MAX];
    const ssize_t n = ::readlinkat(directory, name, buffer, sizeof buffer);
    if (n <= 0) return {};
    if (n == static_cast<ssize_t>(sizeof buffer)) {
        errno = ENAMETOOLONG;
        return {};
    }
    return std::string(buffer, static_cast<size_t>(n));
}

Descriptor fail(int error) {
    errno = error;
    return {};
}

// Walks one component at a time and never lets the kernel follow a link, so that every step is seen.
Descriptor openStepwise(int directory, const std::string& name, int flags, mode_t mode) {
    std::vector<std::string> pending = componentsOf(name);
    std::vector<std::string> todo(pending.rbegin(), pending.rend());
    std::vector<Descriptor> stack;  // directories entered so far
    int links = 0;
    const auto current = [&] { return stack.empty() ? directory : stack.back().get(); };
    while (!todo.empty()) {
        const std::string part = std::move(todo.back());
        todo.pop_back();
        if (part == "..") {
            if (stack.empty()) return fail(EXDEV);
            stack.pop_back();
            continue;
        }
        struct stat info {};
        const bool there = ::fstatat(current(), part.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0;
        if (there && S_ISLNK(info.st_mode)) {
            if (flags & O_NOFOLLOW) return fail(ELOOP);
            if (++links > kMaxLinks) return fail(ELOOP);
            const std::string target = readLink(current(), part.c_str());
            if (target.empty()) return {};
            if (target.front() == '/') return fail(EXDEV);
            const std::vector<std::string> parts = componentsOf(target);
            todo.insert(todo.end(), parts.rbegin(), parts.rend());
            continue;
        }
        if (todo.empty()) return Descriptor(::openat(current(), part.c_str(), flags | O_NOFOLLOW, mode));
        Descriptor next(::openat(current(), part.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
        if (!next.valid()) return {};
        stack.push_back(std::move(next));
    }
    // The name ended in a directory reached through "..".
    return Descriptor(::openat(current(), ".", flags, mode));
}

}  // namespace

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
    if (this != &other) {
        if (fd_ >= 0) ::close(fd_);
        fd_ = other.fd_;
        other.fd_ = -1;
    }
    return *this;
}

Descriptor::~Descriptor() {
    if (fd_ < 0) return;
    const int saved = errno;
    ::close(fd_);
    errno = saved;
}

Descriptor openBeneath(int directory, const std::string& name, int flags, mode_t mode, BeneathMethod method) {
    if (method == BeneathMethod::automatic) {
        struct open_how how {};
        how.flags = static_cast<unsigned>(flags);
        how.mode = flags & O_CREAT ? mode : 0;
        how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS;
        // EAGAIN: something was renamed meanwhile, so the kernel could not tell whether the path stays
        // inside.
        for (int attempt = 0; attempt < 32; ++attempt) {
            const long fd = ::syscall(SYS_openat2, directory, name.c_str(), &how, sizeof how);
            if (fd >= 0) return Descriptor(static_cast<int>(fd));
            if (errno == EAGAIN || errno == EINTR) continue;
            break;
        }
        // Old sandboxes answer EPERM to calls that they do not know; the slow way then says what is really
        // wrong.
        if (errno != ENOSYS && errno != EPERM) return {};
    }
    return openStepwise(directory, name, flags, mode);
}

Descriptor openCacheBlob(int directory, const std::string& name, int flags) {
    const std::string self = "/proc/self/fd/" + std::to_string(directory);
    const std::string absolute = readLink(AT_FDCWD, self.c_str());
    const std::vector<std::string> where = componentsOf(absolute);
    if (where.size() < 3 || where[where.size() - 2] != "snapshots" ||
        !where[where.size() - 3].starts_with("models--")) {
        return fail(EXDEV);
    }
    const std::string target = readLink(directory, name.c_str());
    if (target.empty() || target.front() == '/') return fail(EXDEV);
    // Lexically, from the cache's root: snapshots/<revision>/<folders of name>/<target>.
    std::vector<std::string> path = {"snapshots", where.back()};
    std::vector<std::string> folders = componentsOf(name);
    folders.pop_back();
    path.insert(path.end(), folders.begin(), folders.end());
    for (const std::string& part : componentsOf(target)) {
        if (part != "..") {
            path.push_back(part);
        } else if (path.empty()) {
            return fail(EXDEV);
        } else {
            path.pop_back();
        }
    }
    if (path.size() != 2 || path[0] != "blobs") return fail(EXDEV);
    const Descriptor root(::openat(directory, "../..", O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!root.valid()) return {};
    return openBeneath(root.get(), "blobs/" + path[1], flags | O_NOFOLLOW);
}

}  // namespace shardscope
