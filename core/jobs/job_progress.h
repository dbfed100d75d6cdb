// How far a job is, from the events that it prints (docs/jobs.md). The share, rate and remaining time of a
// job are worked out here alone, for the command line, the window and the browser page.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace shardscope {

struct JobProgress {
    std::string phase;       // "open", "write", "verify", "commit"; empty before the first event
    uint64_t bytesDone = 0;  // of this phase
    uint64_t bytesTotal = 0;
    double share = -1;        // 0..1 of the whole job, writing and verifying; negative = not known
    double rate = 0;          // bytes a second; the mean of this phase
    double secondsLeft = -1;  // of the whole job; negative = not known

    // "35 %, converting, 1.2 GiB/s, 12 s left"; empty before the first event.
    std::string text() const;
    bool operator==(const JobProgress&) const = default;
};

// From the last progress event of a running job (null = none yet) and the job's words. Those say how often
// all bytes are gone through: to write them, to verify the destination, and with `--verify full` to read the
// source again. The passes to come are taken to be as fast as the present one.
JobProgress jobProgress(const nlohmann::json& event, const std::vector<std::string>& arguments);

// A field of what jobs print, which may be anything: empty or 0 where it is missing or of another type.
std::string textIn(const nlohmann::json& object, const char* key);
double numberIn(const nlohmann::json& object, const char* key);  // not negative

std::string_view jobPhaseText(const std::string& phase);  // "converting"
std::string jobShareText(double share);                   // "35 %"; nearly all is not "100 %"

}  // namespace shardscope
