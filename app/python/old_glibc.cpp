// What the libraries and headers of this system ask of its C library and an older one lacks. Linked into the
// module, for itself alone, so that it runs with the glibc for which cmake/glibc_stubs.py stands. Versions
// are those of glibc's first release with a name.
#include <cerrno>
#include <cstdint>
#include <ctime>

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <sys/random.h>
#include <sys/stat.h>

// Before 2.33, stat and its kin were inline functions that called these with the version of the structure.
extern "C" {
int __xstat(int version, const char* path, struct stat* to);
int __lxstat(int version, const char* path, struct stat* to);
int __fxstat(int version, int file, struct stat* to);
int __fxstat64(int version, int file, struct stat64* to);
int __fxstatat(int version, int directory, const char* path, struct stat* to, int flags);
}

namespace {

// glibc, sysdeps/unix/sysv/linux/{x86,generic}/bits: _STAT_VER.
#ifdef __x86_64__
constexpr int kStatVersion = 1;
#else
constexpr int kStatVersion = 0;
#endif

struct ObjectSearch {
    uintptr_t at = 0;
    dl_find_object* found = nullptr;
};

int isObjectOf(dl_phdr_info* object, size_t, void* data) {
    ObjectSearch& search = *static_cast<ObjectSearch*>(data);
    const ElfW(Phdr)* frames = nullptr;
    bool inside = false;
    uintptr_t first = UINTPTR_MAX, last = 0;
    for (size_t i = 0; i < object->dlpi_phnum; ++i) {
        const ElfW(Phdr)& part = object->dlpi_phdr[i];
        const uintptr_t begin = object->dlpi_addr + part.p_vaddr, end = begin + part.p_memsz;
        if (part.p_type == PT_GNU_EH_FRAME) frames = &part;
        if (part.p_type != PT_LOAD) continue;
        inside = inside || (search.at >= begin && search.at < end);
        first = begin < first ? begin : first;
        last = end > last ? end : last;
    }
    if (!inside || !frames) return 0;
    *search.found = {};
    search.found->dlfo_map_start = reinterpret_cast<void*>(first);
    search.found->dlfo_map_end = reinterpret_cast<void*>(last);
    search.found->dlfo_eh_frame = reinterpret_cast<void*>(object->dlpi_addr + frames->p_vaddr);
    return 1;
}

}  // namespace

extern "C" {

int stat(const char* path, struct stat* to) noexcept {
    return __xstat(kStatVersion, path, to);
}
int lstat(const char* path, struct stat* to) noexcept {
    return __lxstat(kStatVersion, path, to);
}
int fstat(int file, struct stat* to) noexcept {
    return __fxstat(kStatVersion, file, to);
}
int fstat64(int file, struct stat64* to) noexcept {
    return __fxstat64(kStatVersion, file, to);
}
int fstatat(int directory, const char* path, struct stat* to, int flags) noexcept {
    return __fxstatat(kStatVersion, directory, path, to, flags);
}

// 2.35; the unwinder of GCC 12 finds the tables of exceptions by it.
int _dl_find_object(void* at, dl_find_object* found) noexcept {
    ObjectSearch search{reinterpret_cast<uintptr_t>(at), found};
    return dl_iterate_phdr(isObjectOf, &search) == 1 ? 0 : -1;
}

// 2.32; false is always right, and a little slower where there is one thread.
char __libc_single_threaded = 0;

// 2.30: waits until a time of `clock`. The waits of the standard library look again at their own clock when
// they wake.
int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                           const timespec* until) {
    timespec now{}, real{};
    clock_gettime(clock, &now);
    clock_gettime(CLOCK_REALTIME, &real);
    constexpr int64_t kSecond = 1'000'000'000;
    const int64_t left = (until->tv_sec - now.tv_sec) * kSecond + until->tv_nsec - now.tv_nsec;
    const int64_t end = real.tv_nsec + (left > 0 ? left : 0);
    const timespec then{real.tv_sec + end / kSecond, static_cast<long>(end % kSecond)};
    return pthread_cond_timedwait(condition, mutex, &then);
}

// 2.36; std::random_device.
uint32_t arc4random() noexcept {
    uint32_t number = 0;
    while (getrandom(&number, sizeof number, 0) != sizeof number) {
    }
    return number;
}
}
