// What the steps of a run say only together: the time between saves, ranks that are not there any more, and
// the newest whole step.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/run_verdicts.h"

namespace shardscope {

inline constexpr size_t kNoStep = SIZE_MAX;

// A step as far as it is known; both outlive the call they are given to.
struct SeenStep {
    const StepFiles* files = nullptr;
    const StepVerdict* verdict = nullptr;  // null = not judged
};

struct StepFacts {
    // From the save before it to this one, by the times of their newest files. It is nullopt for the first
    // one, and where a time is unknown.
    std::optional<double> secondsSincePrevious;
    uint32_t ranks = 0;  // that wrote it; 0 = not judged, or the format does not say
    std::string mesh;    // "dp=2,tp=4" as the checkpoint declares it; may be empty
    // Of the last save before it whose ranks are known, where they are others; else 0 and empty.
    uint32_t ranksBefore = 0;
    std::string meshBefore;

    bool otherRanks() const { return ranksBefore != 0; }
    bool lostRanks() const { return ranks < ranksBefore; }
    // "2 h 15 min"; empty where it is not known.
    std::string sinceText() const;
    // "63, before 64"; "64 (dp=8,tp=8), before 64 (dp=16,tp=4)"; empty where nothing is known.
    std::string ranksText() const;
};

struct RunFacts {
    std::vector<StepFacts> steps;  // in the run's order
    // The newest step that was judged and has no errors, as `latest --good` chooses; kNoStep = none.
    size_t newestWhole = kNoStep;
};

// `seen` are the steps of the run in its order, newest first. "Before" is by time of saving, because a run
// that went back to an older step saves lower numbers later. Where a time is unknown it is by the run's
// order.
RunFacts factsOf(const std::vector<SeenStep>& seen);

}  // namespace shardscope
