// A program that runs beside this one, with pipes to its standard input and output, and the end of what it
// writes to standard error.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <sys/types.h>

#include "base/result.h"

namespace shardscope {

class Process {
  public:
    // Found in PATH unless it holds a slash. A process group of its own, so that Ctrl-C reaches only this
    // program. `input` >= 0 is its standard input (not taken over); otherwise a pipe. Errors: as systemError.
    static Result<std::unique_ptr<Process>> start(const std::vector<std::string>& words, int input = -1);
    ~Process();  // kills what still runs
    Process(const Process&) = delete;
    Process& operator=(const Process&) = delete;

    // The caller closes a descriptor that it takes.
    int takeInput() { return std::exchange(input_, -1); }    // to write to; -1 when it was given
    int takeOutput() { return std::exchange(output_, -1); }  // to read from

    // Waits until it has ended, and no longer than that. True when it has.
    bool waitFor(std::chrono::milliseconds time);
    void kill();
    // How kill() and the end of this object end it: this signal, and SIGKILL if it continues after that time.
    void endWith(int signal, std::chrono::milliseconds grace) { endSignal_ = signal, grace_ = grace; }
    // How it ended, as a clause: "exit code 255", "killed by signal 9 (Killed)", "it still runs".
    std::string ending();
    int exitCode() const { return exited_ ? exitCode_ : -1; }
    // The last 32 KiB that it wrote to standard error, raw.
    std::string said();

  private:
    Process() = default;
    void drain();

    pid_t pid_ = -1;
    int input_ = -1, output_ = -1, error_ = -1;
    bool exited_ = false;
    int exitCode_ = -1, signal_ = 0;
    int endSignal_ = 0;
    std::chrono::milliseconds grace_{0};
    std::mutex mutex_;  // said_
    std::string said_;
    std::atomic<bool> ending_{false}, drained_{false};
    std::thread drainer_;
};

// What a program writes to standard output, at most 1 MiB of it. When this thread's StopScope stops, it is
// killed. Errors: notFound, cancelled, remote with what it said when it fails or takes longer.
Result<std::string> outputOf(const std::vector<std::string>& words, std::chrono::milliseconds time);

}  // namespace shardscope
