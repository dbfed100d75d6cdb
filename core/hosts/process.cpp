#include "hosts/process.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/stop.h"
#include "base/text.h"
#include "hosts/channel.h"

extern char** environ;

namespace shardscope {
namespace {

constexpr size_t kSaid = size_t{32} << 10;

struct Pipe {
    int read = -1, write = -1;
    ~Pipe() {
        if (read >= 0) ::close(read);
        if (write >= 0) ::close(write);
    }
    bool open() {
        int ends[2];
        if (pipe2(ends, O_CLOEXEC) != 0) return false;
        read = ends[0];
        write = ends[1];
        return true;
    }
};

}  // namespace

Result<std::unique_ptr<Process>> Process::start(const std::vector<std::string>& words, int input) {
    Pipe in, out, err;
    if ((input < 0 && !in.open()) || !out.open() || !err.open()) return systemError(errno, "make a pipe", "");
    std::vector<std::string> copies = words;
    std::vector<char*> arguments;
    for (std::string& word : copies)
        arguments.push_back(word.data());
    arguments.push_back(nullptr);

    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, input < 0 ? in.read : input, 0);
    posix_spawn_file_actions_adddup2(&actions, out.write, 1);
    posix_spawn_file_actions_adddup2(&actions, err.write, 2);
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    sigset_t defaults;
    sigemptyset(&defaults);
    for (const int signal : {SIGPIPE, SIGINT, SIGTERM})
        sigaddset(&defaults, signal);
    posix_spawnattr_setsigdefault(&attributes, &defaults);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
    std::unique_ptr<Process> process(new Process);
    const int failed =
        posix_spawnp(&process->pid_, arguments[0], &actions, &attributes, arguments.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    if (failed != 0) {
        process->pid_ = -1;
        return systemError(failed, "start the program", words[0]);
    }
    process->input_ = std::exchange(in.write, -1);
    process->output_ = std::exchange(out.read, -1);
    process->error_ = std::exchange(err.read, -1);
    process->drainer_ = std::thread([p = process.get()] { p->drain(); });
    return process;
}

Process::~Process() {
    if (input_ >= 0) ::close(input_);
    if (output_ >= 0) ::close(output_);
    if (pid_ > 0 && !exited_) {
        kill();
        waitFor(std::chrono::seconds(10));
    }
    ending_ = true;  // a grandchild may hold the pipe open for ever
    if (drainer_.joinable()) drainer_.join();
    if (error_ >= 0) ::close(error_);
}

void Process::drain() {
    std::array<char, 4096> bytes;
    while (!ending_) {
        pollfd wait{error_, POLLIN, 0};
        if (poll(&wait, 1, 100) == 0) continue;
        const ssize_t got = ::read(error_, bytes.data(), bytes.size());
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) break;
        std::lock_guard lock(mutex_);
        said_.append(bytes.data(), static_cast<size_t>(got));
        if (said_.size() > kSaid) said_.erase(0, said_.size() - kSaid);
    }
    drained_ = true;
}

bool Process::waitFor(std::chrono::milliseconds time) {
    const auto deadline = std::chrono::steady_clock::now() + time;
    while (!exited_) {
        int status = 0;
        const pid_t got = waitpid(pid_, &status, WNOHANG);
        if (got == pid_ || (got < 0 && errno != EINTR)) {
            exited_ = true;
            if (got == pid_ && WIFEXITED(status)) exitCode_ = WEXITSTATUS(status);
            if (got == pid_ && WIFSIGNALED(status)) signal_ = WTERMSIG(status);
            break;
        }
        if (std::chrono::steady_clock::now() >= deadline) return false;
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    // Its last words are still on their way; for a grandchild's nobody waits.
    for (int i = 0; i < 100 && !drained_; ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
    return true;
}

void Process::kill() {
    if (pid_ <= 0 || exited_) return;
    if (endSignal_) {
        ::kill(pid_, endSignal_);
        if (waitFor(grace_)) return;
    }
    ::kill(-pid_, SIGKILL);
}

std::string Process::ending() {
    if (!exited_) return "it still runs";
    if (signal_) return fmt::format("killed by signal {} ({})", signal_, strsignal(signal_));
    return fmt::format("exit code {}", exitCode_);
}

std::string Process::said() {
    std::lock_guard lock(mutex_);
    return said_;
}

Result<std::string> outputOf(const std::vector<std::string>& words, std::chrono::milliseconds time) {
    using namespace std::chrono_literals;
    constexpr size_t kMost = size_t{1} << 20;
    const auto deadline = std::chrono::steady_clock::now() + time;
    const StopToken stop = StopScope::current();
    // Until the next look at `stop`.
    const auto left = [&] {
        return std::clamp(
            std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()), 0ms,
            100ms);
    };
    SHARDSCOPE_ASSIGN(const std::unique_ptr<Process> process, Process::start(words));
    ::close(process->takeInput());
    const int output = process->takeOutput();
    std::string text;
    std::array<char, 65536> bytes;
    while (left() > 0ms && text.size() <= kMost && !stop.stopRequested()) {
        pollfd wait{output, POLLIN, 0};
        if (poll(&wait, 1, static_cast<int>(left().count())) < 0 && errno != EINTR) break;
        if (!wait.revents) continue;
        const ssize_t got = ::read(output, bytes.data(), bytes.size());
        if (got == 0 || (got < 0 && errno != EINTR)) break;
        if (got > 0) text.append(bytes.data(), static_cast<size_t>(got));
    }
    ::close(output);
    while (!process->waitFor(left()) && left() > 0ms && !stop.stopRequested()) {
    }
    if (process->exitCode() == 0) return text;
    SHARDSCOPE_TRY(stop.poll());
    const std::string said = oneLine(process->said(), 300);
    return makeError(ErrorCode::remote,
                     fmt::format("{}: {}", words[0], said.empty() ? process->ending() : said));
}

}  // namespace shardscope
