#include "cluster/launched_as.h"

#include <cstdlib>
#include <vector>

#include <fmt/format.h>

#include "base/numbers.h"

namespace shardscope {
namespace {

struct Launcher {
    const char* name;
    bool ranks;  // else its processes are parts alone
    const char* index;
    const char* count;
    const char* local;  // null = it does not say
    const char* localCount;
    const char* group;
};
// Inner ones before those that may have started their agents; of two that agree the first one speaks.
// Sources: torchrun; Open MPI's and MPICH's launchers (Intel MPI's is one of these), whose PMI Slurm has,
// too; srun(1), "Output environment variables"; kubernetes.io, "Indexed Job"; SkyPilot, "Distributed jobs".
constexpr Launcher kLaunchers[] = {
    {"torchrun", true, "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "TORCHELASTIC_RUN_ID"},
    {"mpirun", true, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE", "PMIX_NAMESPACE"},
    {"srun", true, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", nullptr, "SLURM_JOB_ID"},
    {"mpiexec", true, "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", nullptr},
    {"a Slurm array", false, "SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_COUNT", nullptr, nullptr, nullptr},
    {"Kubernetes", false, "JOB_COMPLETION_INDEX", "SHARDSCOPE_PARTS", nullptr, nullptr, nullptr},
    {"SkyPilot", false, "SKYPILOT_NODE_RANK", "SKYPILOT_NUM_NODES", nullptr, nullptr, nullptr},
};
// Wins over all of them, wherever they are.
constexpr Launcher kOwn{
    "shardscope",      true, "SHARDSCOPE_RANK", "SHARDSCOPE_WORLD_SIZE", "SHARDSCOPE_LOCAL_RANK", nullptr,
    "SHARDSCOPE_GROUP"};

Result<uint32_t> launchNumber(const char* name, const std::string& text) {
    if (const auto value = parseNumber<uint32_t>(text)) return *value;
    return makeError(ErrorCode::usage,
                     fmt::format("{} is '{}', which is not a number", name, text.substr(0, 40)));
}

std::optional<std::string> saidText(const Variables& variable, const char* name) {
    return name ? variable(name) : std::nullopt;
}

Result<std::optional<uint32_t>> saidNumber(const Variables& variable, const char* name) {
    const auto text = saidText(variable, name);
    if (!text) return std::optional<uint32_t>();
    SHARDSCOPE_ASSIGN(const uint32_t value, launchNumber(name, *text));
    return std::optional(value);
}

// Indices of an array need not begin at 0 or follow each other one by one.
Result<uint32_t> indexInArray(const Variables& variable, uint32_t task) {
    SHARDSCOPE_ASSIGN(const auto first, saidNumber(variable, "SLURM_ARRAY_TASK_MIN"));
    SHARDSCOPE_ASSIGN(const auto step, saidNumber(variable, "SLURM_ARRAY_TASK_STEP"));
    const uint32_t stride = step.value_or(1);
    if (!first || stride == 0 || task < *first || (task - *first) % stride != 0)
        return makeError(ErrorCode::usage, fmt::format("a Slurm array says no part: its task is {}", task));
    return (task - *first) / stride;
}

// The number of processes of a step that does not say it is that of tasks; outside of steps, as in the script
// of a batch job, nobody has started so many.
std::optional<std::string> countOf(const Variables& variable, const Launcher& launcher) {
    auto count = variable(launcher.count);
    if (!count && launcher.index == std::string_view("SLURM_PROCID") && variable("SLURM_STEP_ID"))
        count = variable("SLURM_NTASKS");
    return count;
}

std::string nameOf(const Launcher& launcher) {
    return fmt::format("{} ({}, {})", launcher.name, launcher.index, launcher.count);
}

Result<LaunchedAs> stated(const Variables& variable, const Launcher& launcher, const std::string& index,
                          const std::string& count) {
    LaunchedAs as{launcher.name, nameOf(launcher)};
    SHARDSCOPE_ASSIGN(as.index, launchNumber(launcher.index, index));
    SHARDSCOPE_ASSIGN(as.count, launchNumber(launcher.count, count));
    if (launcher.index == std::string_view("SLURM_ARRAY_TASK_ID")) {
        SHARDSCOPE_ASSIGN(as.index, indexInArray(variable, as.index));
    }
    if (as.index >= as.count)
        return makeError(ErrorCode::usage, fmt::format("{} is {}, but {} is {}", launcher.index, as.index,
                                                       launcher.count, as.count));
    SHARDSCOPE_ASSIGN(as.local, saidNumber(variable, launcher.local));
    SHARDSCOPE_ASSIGN(as.localCount, saidNumber(variable, launcher.localCount));
    as.group = saidText(variable, launcher.group).value_or("");
    return as;
}

// Whether `outer` has started one agent of the other's on each host.
bool within(const LaunchedAs& inner, const LaunchedAs& outer) {
    return inner.localCount && uint64_t{outer.count} * *inner.localCount == inner.count;
}

Error disagreement(const LaunchedAs& a, const LaunchedAs& b) {
    return makeError(ErrorCode::usage, fmt::format("{} says {} of {}, {} says {} of {}", a.by, a.index,
                                                   a.count, b.by, b.index, b.count));
}

}  // namespace

std::optional<std::string> environmentVariable(const char* name) {
    const char* value = std::getenv(name);
    return value && *value ? std::optional<std::string>(value) : std::nullopt;
}

Result<std::optional<LaunchedAs>> launchedAs(const Variables& variable, LaunchOf what) {
    std::optional<LaunchedAs> chosen;
    const Launcher* incomplete = nullptr;
    std::vector<Launcher> all(std::begin(kLaunchers), std::end(kLaunchers));
    if (what == LaunchOf::ranks) {
        std::erase_if(all, [](const Launcher& launcher) { return !launcher.ranks; });
        if (variable(kOwn.index) && variable(kOwn.count)) all = {kOwn};
    }
    for (const Launcher& launcher : all) {
        const auto index = variable(launcher.index), count = countOf(variable, launcher);
        if (index && !count) incomplete = &launcher;
        if (!index || !count) continue;
        SHARDSCOPE_ASSIGN(LaunchedAs as, stated(variable, launcher, *index, *count));
        if (!chosen || chosen->count == 1) {
            if (!chosen || as.count > 1) chosen = std::move(as);
            continue;
        }
        if (as.count == 1 || within(*chosen, as)) continue;
        if (within(as, *chosen))
            chosen = std::move(as);
        else if (as.index != chosen->index || as.count != chosen->count)
            return disagreement(*chosen, as);
    }
    if (!chosen && incomplete && what == LaunchOf::parts)
        return makeError(ErrorCode::usage,
                         fmt::format("{}: the number of parts is not set", nameOf(*incomplete)));
    return chosen;
}

}  // namespace shardscope
