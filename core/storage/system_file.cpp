#include "storage/system_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/rule.h"
#include "base/units.h"
#include "storage/aligned_buffer.h"

namespace shardscope {
namespace {

// Smaller transfers are not worth a trip past the page cache.
constexpr size_t kDirectMinimum = size_t{512} << 10;
// Piece of a transfer whose memory does not suit direct I/O; stays in the second-level cache while it is
// copied.
constexpr size_t kBounceBytes = size_t{1} << 20;
// One system call moves at most this much (the kernel's own limit is a little below 2 GiB).
constexpr size_t kMaxTransfer = size_t{1} << 30;

// File offsets of direct transfers are whole pages, so that no page is ever written both ways.
size_t pageBytes() {
    static const size_t bytes = std::max<size_t>(kIoAlignment, static_cast<size_t>(::sysconf(_SC_PAGESIZE)));
    return bytes;
}

std::atomic<int> directDescriptors{0};

// Half of the descriptors that the process may have.
int directDescriptorLimit() {
    static const int limit = [] {
        struct rlimit files {};
        if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return 256;
        return static_cast<int>(std::min<rlim_t>(files.rlim_cur / 2, 1 << 16));
    }();
    return limit;
}

AlignedBuffer& bounceBuffer() {
    thread_local AlignedBuffer buffer;
    buffer.reset(kBounceBytes);
    return buffer;
}

bool refused(int error) {
    return error == EINVAL || error == EOPNOTSUPP;
}

ssize_t readSome(int fd, std::byte* to, size_t size, uint64_t offset) {
    for (;;) {
        const ssize_t n = ::pread(fd, to, std::min(size, kMaxTransfer), static_cast<off_t>(offset));
        if (n >= 0 || errno != EINTR) return n;
    }
}

// Writes everything; 0 or errno. `done` counts what was written.
int writeAll(int fd, const std::byte* from, size_t size, uint64_t offset, size_t& done) {
    done = 0;
    while (done < size) {
        const ssize_t n =
            ::pwrite(fd, from + done, std::min(size - done, kMaxTransfer), static_cast<off_t>(offset + done));
        if (n < 0) {
            if (errno == EINTR) continue;
            return errno;
        }
        if (n == 0) return EIO;
        done += static_cast<size_t>(n);
    }
    return 0;
}

// Whether most of a range is in the page cache; nullopt where the kernel cannot say (before 6.5).
std::optional<bool> mostlyCached(int fd, uint64_t offset, uint64_t length) {
    struct {
        uint64_t offset, length;
    } range{offset, length};
    struct {
        uint64_t cached, dirty, writeback, evicted, recentlyEvicted;
    } state{};
#ifdef SYS_cachestat
    constexpr long kCachestat = SYS_cachestat;
#else
    constexpr long kCachestat = 451;  // the same number on every architecture
#endif
    static std::atomic<bool> missing{false};
    if (missing.load(std::memory_order_relaxed)) return std::nullopt;
    if (::syscall(kCachestat, fd, &range, &state, 0) != 0) {
        if (errno == ENOSYS) missing = true;
        return std::nullopt;
    }
    return state.cached * pageBytes() * 2 >= length;
}

}  // namespace

// ------------------------------------------------------------------ direct descriptor

DirectDescriptor::~DirectDescriptor() {
    if (counted_) --directDescriptors;
}

int DirectDescriptor::get() const {
    if (!wanted_.load(std::memory_order_relaxed)) return -1;
    std::call_once(once_, [&] {
        counted_ = true;
        if (++directDescriptors <= directDescriptorLimit()) {
            const std::string self = "/proc/self/fd/" + std::to_string(buffered_);
            fd_ = Descriptor(::open(self.c_str(), access_ | O_DIRECT | O_CLOEXEC));
        }
        if (!fd_.valid()) giveUp();
    });
    return wanted_.load(std::memory_order_relaxed) ? fd_.get() : -1;
}

// ------------------------------------------------------------------ reading

SystemReadFile::SystemReadFile(Descriptor fd, std::string path, uint64_t size, IoMode mode)
    : fd_(std::move(fd)),
      path_(std::move(path)),
      size_(size),
      mode_(mode),
      direct_(fd_.get(), O_RDONLY, mode != IoMode::buffered) {}

Status SystemReadFile::endedEarly(uint64_t at, uint64_t wantedEnd) const {
    if (wantedEnd > size_) {
        return damaged(fmt::format("the file has {}, but bytes up to {} are needed", counted(size_, "byte"),
                                   countText(wantedEnd)),
                       at)
            .inFile(path_)
            .byRule(rule::fileTruncated);
    }
    return makeError(ErrorCode::changed,
                     fmt::format("the file shrank while it was read: it had {} and now ends at byte {}",
                                 counted(size_, "byte"), countText(at)))
        .inFile(path_)
        .at(at);
}

Status SystemReadFile::readAt(uint64_t offset, std::span<std::byte> buffer) const {
    if (!rangeFits(offset, buffer.size(), INT64_MAX)) return endedEarly(size_, UINT64_MAX);
    size_t done = 0;
    while (done < buffer.size()) {
        const ssize_t n = readSome(fd_.get(), buffer.data() + done, buffer.size() - done, offset + done);
        if (n < 0) return systemError(errno, "read", path_).at(offset + done);
        if (n == 0) return endedEarly(offset + done, offset + buffer.size());
        done += static_cast<size_t>(n);
    }
    return {};
}

Status SystemReadFile::readBulk(uint64_t offset, std::span<std::byte> buffer) const {
    if (buffer.size() < kDirectMinimum || !rangeFits(offset, buffer.size(), size_))
        return readAt(offset, buffer);
    const int fd = direct_.get();
    if (fd < 0) return readAt(offset, buffer);
    size_t done = 0;
    if (mode_ == IoMode::automatic) {
        const std::optional<bool> cached = mostlyCached(fd_.get(), offset, buffer.size());
        if (cached.value_or(false)) return readAt(offset, buffer);
        if (!cached) done = readCached(offset, buffer);
    }
    while (done < buffer.size()) {
        size_t delivered = 0;
        const std::span<std::byte> rest = buffer.subspan(done);
        if (rest.size() >= kDirectMinimum) SHARDSCOPE_TRY(readDirect(fd, offset + done, rest, delivered));
        done += delivered;
        if (delivered < rest.size()) return readAt(offset + done, buffer.subspan(done));
    }
    return {};
}

size_t SystemReadFile::readCached(uint64_t offset, std::span<std::byte> buffer) const {
    if (mode_ == IoMode::direct || !rangeFits(offset, buffer.size(), size_)) return 0;
    struct iovec part {
        buffer.data(), buffer.size()
    };
    const ssize_t n = ::preadv2(fd_.get(), &part, 1, static_cast<off_t>(offset), RWF_NOWAIT);
    return n > 0 ? static_cast<size_t>(n) : 0;
}

Status SystemReadFile::readDirect(int fd, uint64_t offset, std::span<std::byte> buffer, size_t& done) const {
    const size_t page = pageBytes();
    done = 0;
    while (done < buffer.size()) {
        const uint64_t at = offset + done;
        std::byte* to = buffer.data() + done;
        const size_t left = buffer.size() - done;
        const bool inPlace =
            at % page == 0 && reinterpret_cast<uintptr_t>(to) % kIoAlignment == 0 && left >= page;
        ssize_t n = 0;
        if (inPlace) {
            n = readSome(fd, to, left / page * page, at);
            if (n > 0) done += static_cast<size_t>(n);
        } else {
            // The range up to where memory and file are aligned together, or all of it where they never
            // are.
            AlignedBuffer& bounce = bounceBuffer();
            const uint64_t start = at / page * page;
            const size_t skip = static_cast<size_t>(at - start);
            size_t take = std::min(left, bounce.size() - skip);
            const bool samePhase = reinterpret_cast<uintptr_t>(to) % kIoAlignment == at % kIoAlignment;
            if (samePhase && skip != 0) take = std::min(take, page - skip);
            n = readSome(fd, bounce.data(), alignUp(skip + take, page), start);
            if (n >= 0) {
                const size_t got =
                    std::min<size_t>(take, static_cast<size_t>(n) > skip ? static_cast<size_t>(n) - skip : 0);
                std::memcpy(to, bounce.data() + skip, got);
                done += got;
                n = static_cast<ssize_t>(got);
            }
        }
        if (n < 0) {
            if (!refused(errno)) return systemError(errno, "read", path_).at(at);
            direct_.giveUp();
            return {};
        }
        if (n == 0) return endedEarly(at, offset + buffer.size());
    }
    return {};
}

Result<Fingerprint> SystemReadFile::fingerprint() const {
    return fingerprintOf(fd_.get(), path_);
}

Result<Fingerprint> fingerprintOf(int fd, const std::string& path) {
    struct stat info {};
    if (::fstat(fd, &info) != 0) return systemError(errno, "look at", path);
    Fingerprint print;
    print.device = info.st_dev;
    print.inode = info.st_ino;
    print.size = static_cast<uint64_t>(info.st_size);
    print.modifiedNs = int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec;
    print.changedNs = int64_t{info.st_ctim.tv_sec} * 1'000'000'000 + info.st_ctim.tv_nsec;
    return print;
}

bool isHole(const ReadFile& file, uint64_t offset, uint64_t length) {
    if (file.descriptor() < 0) return false;
    const off_t data = ::lseek(file.descriptor(), static_cast<off_t>(offset), SEEK_DATA);
    return data < 0 ? errno == ENXIO && offset < file.size() : static_cast<uint64_t>(data) - offset >= length;
}

Result<std::shared_ptr<const ReadFile>> makeReadFile(Descriptor fd, std::string path, IoMode mode) {
    struct stat info {};
    if (::fstat(fd.get(), &info) != 0) return systemError(errno, "look at", path);
    if (!S_ISREG(info.st_mode)) {
        const char* kind = S_ISDIR(info.st_mode)    ? "a directory"
                           : S_ISFIFO(info.st_mode) ? "a pipe"
                           : S_ISSOCK(info.st_mode) ? "a socket"
                                                    : "a device";
        return makeError(ErrorCode::unsafe, fmt::format("expected a regular file, found {}", kind))
            .inFile(path)
            .byRule(rule::securityPath);
    }
    return std::shared_ptr<const ReadFile>(std::make_shared<SystemReadFile>(
        std::move(fd), std::move(path), static_cast<uint64_t>(info.st_size), mode));
}

// ------------------------------------------------------------------ writing

SystemWriteFile::SystemWriteFile(Descriptor fd, std::string path, IoMode mode)
    : fd_(std::move(fd)), path_(std::move(path)), direct_(fd_.get(), O_WRONLY, mode != IoMode::buffered) {}

Status SystemWriteFile::allocate(uint64_t size) {
    if (size > INT64_MAX)
        return makeError(ErrorCode::noSpace, "the file would be larger than a file can be").inFile(path_);
    if (size > 0) {
        int result;
        do {
            result = ::fallocate(fd_.get(), 0, 0, static_cast<off_t>(size));
        } while (result != 0 && errno == EINTR);
        // File systems without preallocation (some network and overlay ones) only learn the size.
        if (result != 0 && errno != EOPNOTSUPP && errno != ENOSYS && errno != EINVAL) {
            return systemError(errno, fmt::format("reserve {}", counted(size, "byte")), path_);
        }
    }
    struct stat info {};
    if (::fstat(fd_.get(), &info) != 0) return systemError(errno, "look at", path_);
    if (static_cast<uint64_t>(info.st_size) != size &&
        ::ftruncate(fd_.get(), static_cast<off_t>(size)) != 0) {
        return systemError(errno, fmt::format("set the size to {}", counted(size, "byte")), path_);
    }
    return {};
}

Status SystemWriteFile::writeAt(uint64_t offset, std::span<const std::byte> bytes) {
    size_t done = 0;
    if (const int error = writeAll(fd_.get(), bytes.data(), bytes.size(), offset, done)) {
        return systemError(error, "write", path_).at(offset + done);
    }
    return {};
}

Status SystemWriteFile::writeBulk(uint64_t offset, std::span<const std::byte> bytes) {
    const size_t page = pageBytes();
    const uint64_t middle = alignUp(offset, page);
    const uint64_t end = (offset + bytes.size()) / page * page;
    if (bytes.size() < kDirectMinimum || end < middle + kDirectMinimum / 2) return writeAt(offset, bytes);
    const int fd = direct_.get();
    if (fd < 0) return writeAt(offset, bytes);

    const size_t head = static_cast<size_t>(middle - offset);
    const size_t tail = bytes.size() - static_cast<size_t>(end - offset);
    const std::byte* from = bytes.data() + head;
    size_t size = static_cast<size_t>(end - middle);
    uint64_t at = middle;
    const bool inPlace = reinterpret_cast<uintptr_t>(from) % kIoAlignment == 0;
    while (size > 0) {
        size_t part = size;
        const std::byte* memory = from;
        if (!inPlace) {
            AlignedBuffer& bounce = bounceBuffer();
            part = std::min(size, bounce.size());
            std::memcpy(bounce.data(), from, part);
            memory = bounce.data();
        }
        size_t done = 0;
        const int error = writeAll(fd, memory, part, at, done);
        from += done;
        at += done;
        size -= done;
        if (error == 0) continue;
        if (!refused(error)) return systemError(error, "write", path_).at(at);
        direct_.giveUp();
        SHARDSCOPE_TRY(writeAt(at, {from, size}));
        break;
    }
    // Pages that this range shares with its neighbors always go through the page cache.
    if (head > 0) SHARDSCOPE_TRY(writeAt(offset, bytes.first(head)));
    if (tail > 0) SHARDSCOPE_TRY(writeAt(end, bytes.last(tail)));
    return {};
}

Status SystemWriteFile::sync() {
    if (::fsync(fd_.get()) != 0) return systemError(errno, "put on disk", path_);
    return {};
}

Result<bool> SystemWriteFile::tryLock() {
    if (::flock(fd_.get(), LOCK_EX | LOCK_NB) == 0) return true;
    return errno != EWOULDBLOCK;
}

}  // namespace shardscope
