// Preloaded (LD_PRELOAD) into a program: as if it ran on a host in a poor state.
//
//   SHARDSCOPE_TEST_CLOCK=SECONDS   the time of day is that much ahead of, then behind, the true one,
//   changing ten times a second; the
//                                   time since the start is that much more
//   SHARDSCOPE_TEST_AHEAD=MS        the time since the start runs ahead by so much at every look
//   SHARDSCOPE_TEST_DISK=BYTES      the disk is full after so many bytes have been written at places of files
//   SHARDSCOPE_TEST_WRITE=MS        each such writing takes so many milliseconds
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <ctime>

#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

namespace {

long setting(const char* name) {
    const char* value = std::getenv(name);
    return value ? std::atol(value) : 0;
}

long skew() {
    static const long seconds = setting("SHARDSCOPE_TEST_CLOCK");
    return seconds;
}

void runAhead(timespec* time) {
    static const long step = setting("SHARDSCOPE_TEST_AHEAD");
    static std::atomic<long> ahead{0};
    if (step == 0) return;
    const long milliseconds = ahead += step;
    time->tv_nsec += milliseconds % 1000 * 1'000'000;
    time->tv_sec += milliseconds / 1000 + time->tv_nsec / 1'000'000'000;
    time->tv_nsec %= 1'000'000'000;
}

int realClock(clockid_t clock, timespec* time) {
    return static_cast<int>(syscall(SYS_clock_gettime, clock, time));
}

std::atomic<long> written{0};

}  // namespace

extern "C" {

__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, timespec* time) noexcept {
    const int result = realClock(clock, time);
    if (result != 0) return result;
    if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)
        time->tv_sec += time->tv_nsec / 100'000'000 % 2 ? -skew() : skew();
    else if (clock == CLOCK_MONOTONIC)
        time->tv_sec += skew(), runAhead(time);
    return 0;
}

__attribute__((visibility("default"))) time_t time(time_t* result) noexcept {
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    if (result) *result = now.tv_sec;
    return now.tv_sec;
}

__attribute__((visibility("default"))) int gettimeofday(timeval* result, void*) noexcept {
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    *result = {now.tv_sec, now.tv_nsec / 1000};
    return 0;
}

__attribute__((visibility("default"))) ssize_t pwrite(int file, const void* bytes, size_t size,
                                                      off_t offset) {
    static const long disk = setting("SHARDSCOPE_TEST_DISK"), slow = setting("SHARDSCOPE_TEST_WRITE");
    if (slow > 0) usleep(static_cast<useconds_t>(slow * 1000));
    if (disk > 0 && written.fetch_add(static_cast<long>(size)) >= disk) {
        errno = ENOSPC;
        return -1;
    }
    return syscall(SYS_pwrite64, file, bytes, size, offset);
}
}
