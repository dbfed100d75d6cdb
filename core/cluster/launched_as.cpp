#include "cluster/launched_as.h"

#include <cstdlib>

#include <fmt/format.h>

#include "base/numbers.h"

namespace shardscope {
namespace {

struct Launcher {
    const char* name;
    bool ranks;  // else its processes are parts alone
    const char* index;
    const char* count;
    const char* local = nullptr;  // null = it does not say
    const char* localCount = nullptr;
    const char* group = nullptr;
};
// The first one wins wherever it is. Of the others inner ones come before those that may have started their
// agents; of two that agree the first one speaks. Sources: torchrun; Open MPI's and MPICH's launchers (Intel
// MPI's is one of these), whose PMI Slurm has, too; srun(1), "Output environment variables"; kubernetes.io,
// "Indexed Job"; SkyPilot, "Distributed jobs".
constexpr const char *kTask = "SLURM_PROCID", *kArrayTask = "SLURM_ARRAY_TASK_ID";
constexpr Launcher kLaunchers[] = {
    {"shardscope", true, "SHARDSCOPE_RANK", "SHARDSCOPE_WORLD_SIZE", "SHARDSCOPE_LOCAL_RANK", nullptr,
     "SHARDSCOPE_GROUP"},
    {"torchrun", true, "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "TORCHELASTIC_RUN_ID"},
    {"mpirun", true, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE", "PMIX_NAMESPACE"},
    {"srun", true, kTask, "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", nullptr, "SLURM_JOB_ID"},
    {"mpiexec", true, "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {"a Slurm array", false, kArrayTask, "SLURM_ARRAY_TASK_COUNT"},
    {"Kubernetes", false, "JOB_COMPLETION_INDEX", "SHARDSCOPE_PARTS"},
    {"SkyPilot", false, "SKYPILOT_NODE_RANK", "SKYPILOT_NUM_NODES"},
};

std::optional<std::string> launchText(const Variables& variable, const char* name) {
    return name ? variable(name) : std::nullopt;
}

Result<std::optional<uint32_t>> launchNumber(const Variables& variable, const char* name) {
    const auto text = launchText(variable, name);
    const auto value = parseNumber<uint32_t>(text.value_or(""));
    if (text && !value)
        return makeError(ErrorCode::usage,
                         fmt::format("{} is '{}', which is not a number", name, text->substr(0, 40)));
    return value;
}

// Indices of an array need not begin at 0 or follow each other one by one.
Result<uint32_t> indexInArray(const Variables& variable, uint32_t task) {
    SHARDSCOPE_ASSIGN(const auto first, launchNumber(variable, "SLURM_ARRAY_TASK_MIN"));
    SHARDSCOPE_ASSIGN(const auto step, launchNumber(variable, "SLURM_ARRAY_TASK_STEP"));
    const uint32_t stride = step.value_or(1);
    if (!first || stride == 0 || task < *first || (task - *first) % stride != 0)
        return makeError(ErrorCode::usage, fmt::format("a Slurm array says no part: its task is {}", task));
    return (task - *first) / stride;
}

// nullopt where the launcher has not started this process; the count is 0 where no variable states it.
Result<std::optional<LaunchedAs>> stated(const Variables& variable, const Launcher& launcher) {
    // Of a step's tasks an older Slurm says how many by the job's variable; in the script of a batch job that
    // is set, too, but nobody has started so many.
    const bool older = launcher.index == kTask && !variable(launcher.count) && variable("SLURM_STEP_ID");
    const char* const counts = older ? "SLURM_NTASKS" : launcher.count;
    SHARDSCOPE_ASSIGN(const auto index, launchNumber(variable, launcher.index));
    SHARDSCOPE_ASSIGN(const auto count, launchNumber(variable, counts));
    if (!index) return std::optional<LaunchedAs>();
    LaunchedAs as{launcher.name, fmt::format("{} ({}, {})", launcher.name, launcher.index, counts), *index,
                  count.value_or(0)};
    if (!count) return std::optional(std::move(as));
    if (launcher.index == kArrayTask) {
        SHARDSCOPE_ASSIGN(as.index, indexInArray(variable, *index));
    }
    if (as.index >= as.count)
        return makeError(ErrorCode::usage,
                         fmt::format("{} is {}, but {} is {}", launcher.index, as.index, counts, as.count));
    SHARDSCOPE_ASSIGN(as.local, launchNumber(variable, launcher.local));
    SHARDSCOPE_ASSIGN(as.localCount, launchNumber(variable, launcher.localCount));
    as.group = launchText(variable, launcher.group).value_or("");
    // Variables of ours, and torchrun's without a run, are also set by people, one process after the other.
    const std::string_view name = launcher.name;
    as.atOnce = launcher.ranks && name != "shardscope" && (name != "torchrun" || !as.group.empty());
    return std::optional(std::move(as));
}

// Whether `outer` has started one agent of the other's on each host.
bool startedBy(const LaunchedAs& outer, const LaunchedAs& inner) {
    return inner.localCount && uint64_t{outer.count} * *inner.localCount == inner.count;
}

}  // namespace

std::optional<std::string> environmentVariable(const char* name) {
    const char* value = std::getenv(name);
    return value && *value ? std::optional<std::string>(value) : std::nullopt;
}

Result<std::optional<LaunchedAs>> launchedAs(const Variables& variable, LaunchOf what) {
    std::optional<LaunchedAs> chosen;
    std::string incomplete;
    for (const Launcher& launcher : kLaunchers) {
        if (what == LaunchOf::ranks && !launcher.ranks) continue;
        SHARDSCOPE_ASSIGN(auto as, stated(variable, launcher));
        if (!as) continue;
        if (as->count == 0)
            incomplete = as->by;
        else if (!chosen || (chosen->count == 1 && as->count > 1) || startedBy(*chosen, *as))
            chosen = std::move(as);
        else if (as->count > 1 && !startedBy(*as, *chosen) &&
                 (as->index != chosen->index || as->count != chosen->count))
            return makeError(ErrorCode::usage,
                             fmt::format("{} says {} of {}, {} says {} of {}", chosen->by, chosen->index,
                                         chosen->count, as->by, as->index, as->count));
        if (chosen && &launcher == &kLaunchers[0]) return chosen;
    }
    if (!chosen && !incomplete.empty() && what == LaunchOf::parts)
        return makeError(ErrorCode::usage, fmt::format("{}: the number of parts is not set", incomplete));
    return chosen;
}

}  // namespace shardscope
