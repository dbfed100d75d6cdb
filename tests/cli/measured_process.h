// Runs the built program as a child process and measures it: time, memory, the signal that ended it. With a
// source for its conversions, and their digests.
#pragma once

#include <QFile>
#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>
#include <sys/types.h>

namespace shardscope::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;  // which costs memory and time of its own
#else
inline constexpr bool kSanitized = false;
#endif

struct Measured {
    bool started = false;
    bool timedOut = false;  // killed by us
    int exitCode = -1;      // -1 when a signal ended it
    int signal = 0;
    double seconds = 0;  // processor time, of user and system
    double wallSeconds = 0;
    uint64_t peakBytes = 0;  // of resident memory, sampled
    std::string out, err;

    nlohmann::json json() const { return nlohmann::json::parse(out, nullptr, false); }
    std::string describe() const;
};

struct MeasuredOptions {
    std::string program;             // empty = shardscope
    std::string workingDirectory;    // empty = as it is
    std::string temporaryDirectory;  // TMPDIR of the child; empty = as it is
    double timeoutSeconds = 60;      // ten times that under a sanitizer
    // Called with the child's process id every millisecond or so, until it returns false.
    std::function<bool(pid_t, double elapsedSeconds)> watch;
};

Measured runMeasured(const std::vector<std::string>& arguments, const MeasuredOptions& options = {});

// Digests by tensor name, as `digest --json` gives them; the run's own words when it fails.
nlohmann::json digestsOf(const std::string& path);

// The words of a conversion to DCP that cuts every tensor unevenly in three by columns, with a report as
// JSON.
std::vector<std::string> convertWords(const std::string& source, const std::string& target,
                                      const std::vector<std::string>& more = {});

// A safetensors file of tensors layer.<i>.weight, of 4 bytes an element, with bits drawn from the seed.
bool writeRandomSource(const std::string& path, int tensors, uint64_t rows, uint64_t columns, uint32_t seed,
                       const std::string& dtype = "I32");

// Whether a process has ended, also one that nobody has waited for yet.
inline bool gone(pid_t process) {
    QFile file(QString("/proc/%1/stat").arg(process));
    if (!file.open(QIODevice::ReadOnly)) return true;
    const QByteArray text = file.readAll();
    return text.mid(text.lastIndexOf(')') + 2, 1) == "Z";
}

}  // namespace shardscope::test
