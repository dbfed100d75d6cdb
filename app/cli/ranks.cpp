#include "cli/ranks.h"

#include <csignal>
#include <cstdlib>
#include <filesystem>

#include <fmt/format.h>

#include "base/numbers.h"
#include "base/own_program.h"
#include "base/units.h"
#include "cli/agent.h"
#include "cli/help.h"
#include "cli/part_option.h"
#include "cluster/rendezvous.h"

namespace shardscope::cli {
namespace {

constexpr int kPatience = 120;  // seconds

// Where rank 0 listens, and where it is found.
struct Meeting {
    std::string host;
    uint16_t port = 0;
};

Result<Meeting> meetingFrom(const std::string& text) {
    Meeting meeting;
    const size_t colon = text.rfind(':');
    const auto port = colon == std::string::npos
                          ? std::nullopt
                          : parseNumber<uint16_t>(std::string_view(text).substr(colon + 1));
    if (!port || colon == 0) return makeError(ErrorCode::usage, "--master wants HOST:PORT");
    meeting.port = *port;
    meeting.host = text.substr(0, colon);
    return meeting;
}

// One run of `convert --on ranks` by one rank.
class RankRun {
  public:
    RankRun(const Context& context, const ConvertCommand& command, const Ranks& ranks)
        : context_(context), command_(command), ranks_(ranks), accelerator_(acceleratorOf(context)) {}

    Status prepare() {
        if (const std::string& directory = command_.ranks.torchLibrary; !directory.empty())
            setenv("SHARDSCOPE_TORCH_LIBRARY", std::filesystem::absolute(directory).c_str(), 1);  // all ranks
        if (ranks_.gpus) {
            ranks_.count = gpusHere();
            if (ranks_.count == 0)
                return makeError(ErrorCode::impossible, "this machine shows no GPU (/dev/nvidia0, ...)")
                    .withHint("--on ranks:N works without one");
            backend_ = "nccl";
        }
        if (command_.request.ownDisks && backend_ == "nccl")
            return makeError(ErrorCode::usage, "--own-disks goes over Gloo alone")
                .withHint("leave out --backend nccl; --compute gpu uses GPUs too");
        return findRank();
    }

    int rank() const { return info_.rank; }

    // A rank that is not the first: the worker of rank 0.
    Result<int> follow() {
        const auto deadline = Channel::Clock::now() + patience();
        Meeting meeting{info_.host, info_.port};
        if (info_.storeThere) {
            SHARDSCOPE_ASSIGN(const std::string said,
                              accelerator_.shareThroughStore(info_, std::nullopt, patience()));
            SHARDSCOPE_ASSIGN(meeting, meetingFrom(said));
        }
        SHARDSCOPE_ASSIGN(auto channel, joinRankZero(info_, meeting.host, meeting.port, wordsOfAll(),
                                                     command_.ranks.address, deadline,
                                                     [&] { return context_.stop.stopRequested(); }));
        return serveAgent(std::move(channel), accelerator_);
    }

    Result<Coordinator> coordinator() {
        Coordinator coordinator;
        coordinator.mode = ranks_.mode;
        coordinator.ownDisks = command_.request.ownDisks;
        CoordinatorOptions& all = coordinator.options;
        all.version = SHARDSCOPE_VERSION;
        all.program = ownProgram();
        all.peers = true;
        all.patience = patience();
        all.backend = backend_;
        for (int r = 0; r < info_.size; ++r)
            all.workers.push_back({.rank = r});
        SHARDSCOPE_TRY(useGpus(coordinator));
        SHARDSCOPE_TRY(useGroup(all));
        if (ranks_.count == 0 && info_.size > 1) SHARDSCOPE_TRY(listen(all));
        return coordinator;
    }

  private:
    std::chrono::seconds patience() const {
        return std::chrono::seconds(command_.ranks.joinTimeout.value_or(kPatience));
    }

    Status findRank() {
        SHARDSCOPE_ASSIGN(info_, rankInfo());
        if (ranks_.count > 0 && info_.size > 1)
            return makeError(ErrorCode::usage,
                             fmt::format("--on {} starts ranks, but {} has started {} already",
                                         command_.request.on, info_.launcher, info_.size))
                .withHint("'--on ranks' without a number is for these");
        if (ranks_.count > 0) info_.size = static_cast<int>(ranks_.count);
        if (info_.storeThere && !accelerator_.findTorch().ok()) info_.leaveStore();
        if (command_.ranks.master.empty()) return {};
        SHARDSCOPE_ASSIGN(const Meeting meeting, meetingFrom(command_.ranks.master));
        info_.host = meeting.host;
        info_.port = meeting.port;
        info_.ports = 1;
        info_.storeThere = false;
        return {};
    }

    // What must be the same with all ranks, as far as it is not the default.
    std::string wordsOfAll() const {
        std::string words;
        if (ranks_.mode != SourceMode::automatic)
            words += fmt::format(" --on ranks,{}", sourceModeName(ranks_.mode));
        if (backend_ != "gloo") words += " --backend " + backend_;
        if (command_.request.ownDisks) words += " --own-disks";
        return words.empty() ? words : words.substr(1);
    }

    Status useGpus(Coordinator& coordinator) const {
        const std::string& compute = command_.request.compute;
        coordinator.options.gpus = compute == "gpu" || (compute == "auto" && backend_ == "nccl");
        if (coordinator.options.gpus)
            coordinator.openCompute = [open = accelerator_.openGpu,
                                       device = info_.localRank]() -> Result<std::shared_ptr<TileCompute>> {
                SHARDSCOPE_ASSIGN(GpuCompute own, open(device));
                return std::shared_ptr<TileCompute>(std::move(own.compute));
            };
        if (backend_ != "nccl") return {};
        SHARDSCOPE_ASSIGN(const int devices, accelerator_.ncclDevices());
        if (devices > 0) return {};
        return makeError(ErrorCode::impossible, "rank 0 has no GPU that can be used")
            .withHint("use --backend gloo, or start ranks only where GPUs are");
    }

    // What rank 0 reads for all goes through libtorch where that is; only who asks for it needs it.
    Status useGroup(CoordinatorOptions& all) const {
        const auto found = accelerator_.findTorch();
        if (found.ok()) all.group = accelerator_.makeGroup;
        return found.ok() || ranks_.mode != SourceMode::broadcast ? Status() : found.error();
    }

    Status listen(CoordinatorOptions& all) const {
        Meeting meeting{info_.host, info_.port};
        if (info_.storeThere) {
            meeting.port = 0;
            SHARDSCOPE_ASSIGN(meeting.host, addressTowards(info_.host, info_.port));
        }
        SHARDSCOPE_ASSIGN(all.ranks, RankListener::open(info_, meeting.host, meeting.port, wordsOfAll()));
        if (info_.storeThere)
            SHARDSCOPE_TRY(accelerator_.shareThroughStore(
                info_, fmt::format("{}:{}", meeting.host, all.ranks->port()), patience()));
        all.hostHere = command_.ranks.address.empty() ? meeting.host : command_.ranks.address;
        return {};
    }

    const Context& context_;
    const ConvertCommand& command_;
    Ranks ranks_;
    const Accelerator accelerator_;
    std::string backend_ = command_.request.backend;
    RankInfo info_;
};

}  // namespace

std::string RankWords::given() const {
    if (!master.empty()) return "--master";
    if (!address.empty()) return "--address";
    if (joinTimeout) return "--join-timeout";
    return torchLibrary.empty() ? "" : "--torch-library";
}

Accelerator acceleratorOf(const Context& context) {
    return context.accelerator ? *context.accelerator : Accelerator();
}

void addRankWords(CLI::App& verb, ConvertCommand& command) {
    RankWords& words = command.ranks;
    const auto add = [&](const char* name, auto& value, const char* type, const char* help) {
        return verb.add_option(name, value, help)->type_name(type)->group(kForRanks);
    };
    add("--master", words.master, "ADDRESS",
        "HOST:PORT of rank 0, if the launcher of the ranks does not say");
    add("--address", words.address, "ADDRESS",
        "Address of this rank for the others (default: towards rank 0)");
    add("--join-timeout", words.joinTimeout, "SECONDS", "Seconds to wait for all ranks")
        ->check(CLI::Range(1, 86400).description(""))
        ->default_str(fmt::to_string(kPatience));
    add("--torch-library", words.torchLibrary, "DIR",
        "Directory of libtorch, for broadcast, NCCL and torchrun (default: that of the active Python "
        "environment, or "
        "beside the program)");
}

Result<int> convertByRanks(const Context& context, const ConvertCommand& command, Ranks ranks) {
    std::signal(SIGPIPE, SIG_IGN);
    RankRun run(context, command, ranks);
    SHARDSCOPE_TRY(run.prepare());
    if (run.rank() == 0) {
        SHARDSCOPE_ASSIGN(Coordinator coordinator, run.coordinator());
        return convert(context, command, Execution(std::move(coordinator)));
    }
    // Rank 0 speaks for all; the others say what went wrong with them.
    const auto done = run.follow();
    if (done.ok()) return done;
    return reportError(Context(), done.error());
}

}  // namespace shardscope::cli
