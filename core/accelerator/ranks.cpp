#include "accelerator/ranks.h"

#include <array>
#include <charconv>
#include <cstdlib>

#include <fmt/format.h>

#include "cluster/process.h"

namespace shardscope {
namespace {

struct Launcher {
    const char* name;
    const char* rank;
    const char* size;
    const char* localRank;
    const char* group;
};
// torchrun inside a step of Slurm or MPI has the last word; so has our own launcher anywhere.
constexpr std::array<Launcher, 4> kLaunchers{{
    {"shardscope", "SHARDSCOPE_RANK", "SHARDSCOPE_WORLD_SIZE", "SHARDSCOPE_LOCAL_RANK", "SHARDSCOPE_GROUP"},
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "TORCHELASTIC_RUN_ID"},
    {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "PMIX_NAMESPACE"},
    {"srun", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_JOB_ID"},
}};
// Where nobody says: torch's own default, and for Slurm one that differs from job to job.
constexpr uint16_t kPort = 29500;

Result<uint64_t> number(const char* name, const std::string& text, uint64_t most) {
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size() || value > most)
        return makeError(ErrorCode::usage, fmt::format("{} is '{}', which is not a number up to {}", name,
                                                       text.substr(0, 40), most));
    return value;
}

}  // namespace

Result<RankInfo> rankPlace(const std::function<std::optional<std::string>(const char* name)>& variable,
                           const std::function<Result<std::string>(const std::string& list)>& firstHost) {
    RankInfo place;
    place.launcher = "alone";
    for (const Launcher& launcher : kLaunchers) {
        const auto rank = variable(launcher.rank), size = variable(launcher.size);
        if (!rank || !size) continue;
        SHARDSCOPE_ASSIGN(const uint64_t ranks, number(launcher.size, *size, 65536));
        SHARDSCOPE_ASSIGN(const uint64_t own, number(launcher.rank, *rank, 65535));
        if (own >= ranks)
            return makeError(ErrorCode::usage,
                             fmt::format("{} is {}, but {} is {}", launcher.rank, own, launcher.size, ranks));
        place.launcher = launcher.name;
        place.rank = static_cast<int>(own);
        place.size = static_cast<int>(ranks);
        if (const auto local = variable(launcher.localRank)) {
            SHARDSCOPE_ASSIGN(const uint64_t index, number(launcher.localRank, *local, 65535));
            place.localRank = static_cast<int>(index);
        }
        place.group = variable(launcher.group).value_or("");
        break;
    }
    if (place.size == 1) return place;

    const bool own = place.launcher == "shardscope";
    if (const auto host = variable(own ? "SHARDSCOPE_MASTER_ADDR" : "MASTER_ADDR")) place.host = *host;
    if (const auto port = variable(own ? "SHARDSCOPE_MASTER_PORT" : "MASTER_PORT")) {
        SHARDSCOPE_ASSIGN(const uint64_t value, number("the port of rank 0", *port, 65535));
        place.port = static_cast<uint16_t>(value);
    }
    // torchrun's own store listens at MASTER_PORT; where it does not lend it, ranks meet next to it.
    place.storeThere =
        place.launcher == "torchrun" && variable("TORCHELASTIC_USE_AGENT_STORE").value_or("") == "True";
    if (place.launcher == "torchrun" && place.port != 0 && !place.storeThere)
        place.port = place.port == 65535 ? kPort : static_cast<uint16_t>(place.port + 1);
    if (place.launcher == "srun") {
        if (place.host.empty()) {
            const auto list = variable("SLURM_STEP_NODELIST");
            const auto job = list ? list : variable("SLURM_JOB_NODELIST");
            if (job) {
                SHARDSCOPE_ASSIGN(place.host, firstHost(*job));
            }
        }
        if (place.port == 0 && !place.group.empty()) {
            SHARDSCOPE_ASSIGN(const uint64_t id, number("SLURM_JOB_ID", place.group, UINT64_MAX));
            place.port = static_cast<uint16_t>(20000 + id % 20000);
        }
        if (const auto step = variable("SLURM_STEP_ID")) place.group += "." + *step;
    }
    if (place.launcher == "mpirun" && place.host.empty()) {
        // mpirun tells nobody where rank 0 is; on one machine that is known.
        const auto local = variable("OMPI_COMM_WORLD_LOCAL_SIZE");
        if (local && *local == std::to_string(place.size)) place.host = "127.0.0.1";
    }
    if (place.host.empty())
        return makeError(ErrorCode::usage, fmt::format("{} started {} ranks, but nobody says where rank 0 is",
                                                       place.launcher, place.size))
            .withHint("set MASTER_ADDR to a host name of rank 0, and MASTER_PORT, or use --master HOST:PORT");
    if (place.port == 0) place.port = kPort;
    return place;
}

Result<RankInfo> rankPlace() {
    const auto variable = [](const char* name) -> std::optional<std::string> {
        const char* value = std::getenv(name);
        return value && *value ? std::optional<std::string>(value) : std::nullopt;
    };
    const auto firstHost = [](const std::string& list) -> Result<std::string> {
        SHARDSCOPE_ASSIGN(std::string text,
                          outputOf({"scontrol", "show", "hostnames", list}, std::chrono::seconds(10)));
        text.resize(std::min(text.size(), text.find('\n')));
        if (text.empty())
            return makeError(ErrorCode::remote, "scontrol does not say the hosts of " + list)
                .withHint("set MASTER_ADDR to the host of rank 0");
        return text;
    };
    return rankPlace(variable, firstHost);
}

}  // namespace shardscope
