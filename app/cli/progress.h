// Shows a Progress while it lives: a bar on the terminal, lines now and then in a log, or JSON lines. Sampled
// ten times a second.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/progress.h"
#include "cli/context.h"

namespace shardscope::cli {

// How often a log gets a line.
class Pace {
  public:
    static constexpr std::chrono::seconds kUsual{30};
    explicit Pace(std::chrono::milliseconds period = kUsual)
        : period_(period), last_(std::chrono::steady_clock::now()) {}
    bool due();  // true once each period; the first time at its end

  private:
    const std::chrono::milliseconds period_;
    std::chrono::steady_clock::time_point last_;
};

class ProgressPrinter {
  public:
    ProgressPrinter(const Output& output, const Progress& progress, Access::Workers workers = nullptr,
                    Pace pace = Pace());
    ~ProgressPrinter();
    // Prints the event that is due, if there is one.
    void now();

  private:
    void run();
    void show(bool last);
    void sayJson(const std::vector<WorkerState>& states, std::chrono::steady_clock::time_point now);
    std::string line(std::string_view bar) const;

    struct Measured {
        uint64_t done = 0, total = 0;
        double rate = 0, left = 0;  // bytes and seconds, of this phase
    };

    const Output& output_;
    const Progress& progress_;
    const Access::Workers workers_;
    std::string saidOfProgress_, saidOfWorkers_;  // last, of what does not pass with time
    const bool bar_;
    const bool json_;
    const bool lines_;
    Pace pace_;
    Measured at_;
    std::chrono::steady_clock::time_point start_;
    Progress::Phase phase_ = Progress::Phase::open;
    int pass_ = 0;           // over all bytes: writing, verifying, reading the source again
    uint64_t lastDone_ = 0;  // of this phase, as last seen
    std::chrono::steady_clock::time_point phaseStart_;
    std::chrono::steady_clock::time_point said_;
    bool drawn_ = false;
    std::mutex mutex_;
    std::condition_variable wake_;
    bool ending_ = false;
    std::thread thread_;
};

}  // namespace shardscope::cli
