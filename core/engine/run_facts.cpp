#include "engine/run_facts.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "base/units.h"

namespace shardscope {

std::string StepFacts::sinceText() const {
    if (!secondsSincePrevious) return {};
    return *secondsSincePrevious < 1 ? "< 1 s" : durationText(*secondsSincePrevious);
}

std::string StepFacts::ranksText() const {
    if (ranks == 0) return {};
    const bool meshes = mesh != meshBefore && !mesh.empty() && !meshBefore.empty();
    const auto text = [&](uint32_t count, const std::string& axes) {
        return meshes ? fmt::format("{} ({})", count, axes) : fmt::format("{}", count);
    };
    return otherRanks() ? fmt::format("{}, before {}", text(ranks, mesh), text(ranksBefore, meshBefore))
                        : text(ranks, mesh);
}

RunFacts factsOf(const std::vector<SeenStep>& seen) {
    RunFacts facts;
    facts.steps.resize(seen.size());
    // Oldest first.
    std::vector<size_t> order(seen.size());
    std::iota(order.rbegin(), order.rend(), size_t{0});
    const auto time = [&](size_t i) { return seen[i].files->modifiedNs; };
    if (std::all_of(order.begin(), order.end(), [&](size_t i) { return time(i) != 0; }))
        std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return time(a) < time(b); });
    const StepVerdict* before = nullptr;  // the last one whose ranks are known
    for (size_t at = 0; at < order.size(); ++at) {
        StepFacts& step = facts.steps[order[at]];
        if (at > 0 && time(order[at - 1]) != 0 && time(order[at]) >= time(order[at - 1]))
            step.secondsSincePrevious = static_cast<double>(time(order[at]) - time(order[at - 1])) / 1e9;
        const StepVerdict* verdict = seen[order[at]].verdict;
        if (!verdict || verdict->ranks == 0) continue;
        step.ranks = verdict->ranks;
        step.mesh = verdict->mesh;
        const bool otherMesh =
            before && !before->mesh.empty() && !step.mesh.empty() && before->mesh != step.mesh;
        if (before && (before->ranks != step.ranks || otherMesh)) {
            step.ranksBefore = before->ranks;
            step.meshBefore = before->mesh;
        }
        before = verdict;
    }
    for (size_t i = seen.size(); i-- > 0;) {
        if (seen[i].verdict && seen[i].verdict->whole()) facts.newestWhole = i;
    }
    return facts;
}

}  // namespace shardscope
