// shardscope-worker: a conversion by several ranks in step, started by torchrun, mpirun, srun or itself. The
// words of the conversion are those of `shardscope convert`; only this program links libtorch.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <random>
#include <thread>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "accelerator/c10d_group.h"
#include "base/mutex.h"
#include "base/text.h"
#include "cli/application.h"
#include "cli/convert.h"
#include "cli/one_of.h"
#include "cli/own_program.h"
#include "cli/words.h"
#include "cluster/channel.h"
#include "cluster/process.h"
#include "cluster/rank_launch.h"
#include "execute/process_group.h"

namespace shardscope::cli {
namespace {

struct Options {
    int ranks = 0;
    bool gpus = false;
    GroupMode mode = GroupMode::automatic;
    std::string backend = "gloo";
    GroupCompute compute = GroupCompute::automatic;
    std::string master, address;
    int patience = 120;
    unsigned lanes = 2;
    bool ownDisks = false;
    std::vector<std::string> words;
};

// The ranks beside this one that it has started itself; they end with it.
class OwnRanks {
  public:
    Status start(const Options& options, const RankInfo& place, uint16_t port,
                 const std::vector<std::string>& words) {
        for (int r = 1; r < options.ranks; ++r) {
            std::vector<std::string> line{"env",
                                          fmt::format("SHARDSCOPE_RANK={}", r),
                                          fmt::format("SHARDSCOPE_WORLD_SIZE={}", options.ranks),
                                          fmt::format("SHARDSCOPE_LOCAL_RANK={}", r),
                                          fmt::format("SHARDSCOPE_GROUP={}", place.group),
                                          fmt::format("SHARDSCOPE_STARTED_BY={}", getpid()),
                                          "SHARDSCOPE_MASTER_ADDR=127.0.0.1",
                                          fmt::format("SHARDSCOPE_MASTER_PORT={}", port),
                                          ownProgram()};
            line.insert(line.end(), words.begin(), words.end());
            SHARDSCOPE_ASSIGN(auto process, Process::start(line));
            MutexLock lock(mutex_);
            processes_.push_back(std::move(process));
        }
        return {};
    }
    // Before the group stands, from another thread: the first one that ended, a moment ago. What all end with
    // (a rank without a GPU) the group tells this one as well, and better.
    std::optional<Error> lost() {
        MutexLock lock(mutex_);
        const auto now = std::chrono::steady_clock::now();
        for (size_t i = 0; i < processes_.size() && !first_; ++i)
            if (processes_[i]->waitFor(std::chrono::milliseconds(0))) first_ = {i, now};
        if (!first_ || now - first_->second < std::chrono::seconds(1)) return std::nullopt;
        Process& process = *processes_[first_->first];
        const std::string said = oneLine(process.said());
        return makeError(ErrorCode::remote,
                         fmt::format("rank {} ended before the group stood: {}", first_->first + 1,
                                     said.empty() ? process.ending() : said));
    }
    // Those that have not ended by themselves in that time are killed. What one said that failed is passed
    // on.
    void end(std::chrono::milliseconds patience, bool failed) {
        std::vector<std::unique_ptr<Process>> processes;
        {
            MutexLock lock(mutex_);
            processes.swap(processes_);
        }
        for (size_t i = 0; i < processes.size(); ++i) {
            const bool ended = processes[i]->waitFor(patience);
            const std::string said =
                failed && ended && processes[i]->exitCode() > 0 ? oneLine(processes[i]->said()) : "";
            if (!said.empty()) fmt::print(stderr, "rank {}: {}\n", i + 1, said);
        }
    }

  private:
    Mutex mutex_;
    std::vector<std::unique_ptr<Process>> processes_ SHARDSCOPE_GUARDED_BY(mutex_);
    // The first that ended, and when.
    std::optional<std::pair<size_t, std::chrono::steady_clock::time_point>> first_
        SHARDSCOPE_GUARDED_BY(mutex_);
};

// Words that are for one process that speaks to others, or reads from other hosts.
Status wordsForRanks(const std::vector<std::string>& words) {
    for (const std::string& word : words) {
        if (word == "--on" || word.starts_with("--on="))
            return makeError(ErrorCode::usage, "--on cannot be used with ranks")
                .withHint(
                    "'shardscope convert --on' starts workers, 'shardscope jobs run --on ranks:4' ranks");
        if (word.starts_with("ssh://"))
            return makeError(ErrorCode::usage, "ranks take no ssh:// paths")
                .withHint("start shardscope-worker on that host");
    }
    return {};
}

Result<RankInfo> placeOf(const Options& options) {
    SHARDSCOPE_ASSIGN(RankInfo place, rankPlace());
    if (options.ranks > 0 && place.launcher != "shardscope") {
        if (place.size > 1)
            return makeError(ErrorCode::usage,
                             fmt::format("--ranks starts ranks, but {} has started {} already",
                                         place.launcher, place.size));
        place.size = options.ranks;
        place.host = "127.0.0.1";
        std::random_device random;
        place.group = fmt::format("{:08x}{:08x}", random(), random());
    }
    if (!options.master.empty()) {
        const size_t colon = options.master.rfind(':');
        const std::string port = colon == std::string::npos ? "" : options.master.substr(colon + 1);
        const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), place.port);
        if (port.empty() || error != std::errc{} || end != port.data() + port.size() || colon == 0)
            return makeError(ErrorCode::usage, "--master wants HOST:PORT");
        place.host = options.master.substr(0, colon);
    }
    return place;
}

// What must be the same with all ranks, as far as it is not the default.
std::string wordsOfAll(const Options& options) {
    std::string words;
    if (options.mode != GroupMode::automatic) words += fmt::format(" --mode {}", groupModeName(options.mode));
    if (options.backend != "gloo") words += " --backend " + options.backend;
    if (options.lanes != Options().lanes) words += fmt::format(" --lanes {}", options.lanes);
    if (options.ownDisks) words += " --own-disks";
    return words.empty() ? words : words.substr(1);
}

int work(const Options& options, const std::vector<std::string>& all) {
    Context context;
    stopOnInterrupt(context);
    std::signal(SIGPIPE, SIG_IGN);
    context.words = options.words;
    // Whatever is wrong before the group stands; `--json` counts for that too.
    for (const std::string& word : options.words)
        context.json = context.json || word == "--json";
    if (options.gpus && options.ranks == 0)
        return reportError(context,
                           makeError(ErrorCode::impossible, "this machine shows no GPU (/dev/nvidia0, ...)")
                               .withHint("--ranks N works without one"));
    // Between GPUs there is one lane, and disks want one of their own.
    if (options.ownDisks && options.backend == "nccl")
        return reportError(context, makeError(ErrorCode::usage, "--own-disks goes over Gloo alone")
                                        .withHint("leave out --backend nccl; --compute gpu uses GPUs too"));
    if (const Status status = wordsForRanks(options.words); !status.ok())
        return reportError(context, status.error());
    const auto place = placeOf(options);
    if (!place.ok()) return reportError(context, place.error());
    // Ranks that rank 0 has started do not outlive it.
    if (const char* parent = std::getenv("SHARDSCOPE_STARTED_BY");
        parent && place->launcher == "shardscope") {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (std::to_string(getppid()) != parent) _exit(exitCode(ErrorCode::remote));
        context.json = false;  // its standard error is what rank 0 passes on
    }

    GroupOptions group;
    group.place = *place;
    group.backend = options.backend == "nccl" ? GroupBackend::nccl : GroupBackend::gloo;
    group.compute = options.compute;
    group.address = options.address;
    group.patience = std::chrono::seconds(options.patience);
    group.lanes = options.lanes + (options.ownDisks ? 1 : 0);
    group.words = wordsOfAll(options);
    OwnRanks own;
    group.startupError = [&own] { return own.lost(); };
    group.stuck = [&context](const Error& error) {
        const int code = reportError(context, error);
        std::fflush(nullptr);
        _exit(code);  // the ranks of our own end with their parent
    };
    const bool starts = options.ranks > 1 && place->launcher != "shardscope";
    auto ranks = makeGroup(group, [&](uint16_t port) -> Status {
        return starts ? own.start(options, *place, port, all) : Status();
    });
    const auto end = [&](int code, std::chrono::milliseconds patience) {
        own.end(patience, code != 0);
        std::fflush(nullptr);
        return code;
    };
    constexpr std::chrono::milliseconds kMoment{100}, kWhile{5000};
    // What waits for a lost rank would wait for ever.
    if (!ranks.ok()) _exit(end(reportError(context, ranks.error()), kMoment));

    context.json = false;
    if (place->rank != 0) {
        // Rank 0 speaks for all; the others say what went wrong with them, and where.
        context.words = wordsWithout(context.words, {"--json"}, {"--progress", "--report"});
        context.words.insert(context.words.end(), {"--progress", "none"});
        if (!freopen("/dev/null", "w", stdout)) return end(exitCode(ErrorCode::io), kMoment);
    }
    const Rank rank{ranks->get(), options.mode, options.ownDisks,
                    std::string(groupBackendName(group.backend))};
    const int code = runWords(context, {}, [&](const CLI::App&) -> Result<std::optional<int>> {
        if (context.conversion && context.conversion->inParts())
            return makeError(ErrorCode::usage,
                             "ranks work in step; --part and --finish are for "
                             "'shardscope convert' without ranks");
        if (!context.conversion)
            return makeError(ErrorCode::usage,
                             "ranks do 'plan', 'convert' and 'reshard'; everything else is for shardscope");
        SHARDSCOPE_ASSIGN(const int done, convert(context, *context.conversion, rank));
        return std::optional(done);
    });
    if ((*ranks)->broken()) _exit(end(code, kMoment));
    ranks->reset();
    return end(code, kWhile);
}

}  // namespace
}  // namespace shardscope::cli

int main(int argc, char** argv) {
    using namespace shardscope;
    using namespace shardscope::cli;
    Options options;
    CLI::App app("Does a conversion with several ranks in step: each byte of the source is read once.",
                 "shardscope-worker");
    app.set_version_flag(
        "--version", fmt::format("shardscope-worker {} (libtorch {})", SHARDSCOPE_VERSION, torchVersion()));
    app.add_option("--ranks", options.ranks,
                   "Start this many ranks on this machine (without torchrun, mpirun or srun)")
        ->check(CLI::Range(1, 1024).description(""))
        ->type_name("N");
    static const std::map<std::string, GroupMode> modes{{"auto", GroupMode::automatic},
                                                        {"direct", GroupMode::direct},
                                                        {"broadcast", GroupMode::broadcast},
                                                        {"exchange", GroupMode::exchange}};
    app.add_flag("--gpus", options.gpus, "One rank for each GPU of this machine, over NCCL")
        ->excludes("--ranks");
    app.add_option("--mode", options.mode,
                   "direct (each rank reads what it writes), broadcast (rank 0 reads for all), exchange "
                   "(each rank reads "
                   "the files that it has) or auto (as the source is stored; the default)")
        ->transform(oneOf(modes))
        ->type_name("MODE");
    app.add_option("--backend", options.backend,
                   "How bytes go between ranks: gloo (TCP) or nccl (between GPUs)")
        ->check(CLI::IsMember({"gloo", "nccl"}).description(""))
        ->capture_default_str()
        ->type_name("NAME");
    static const std::map<std::string, GroupCompute> computes{
        {"auto", GroupCompute::automatic}, {"cpu", GroupCompute::cpu}, {"gpu", GroupCompute::gpu}};
    app.add_option(
           "--compute", options.compute,
           "Who casts, scans and hashes: cpu, gpu (one for each rank) or auto (the GPU with --backend "
           "nccl, else the processor; the default)")
        ->transform(oneOf(computes))
        ->type_name("WHO");
    app.add_option("--master", options.master, "Where rank 0 is, if the launcher does not say")
        ->type_name("HOST:PORT");
    app.add_option("--address", options.address,
                   "Address of this rank for the others (default: towards rank 0)")
        ->type_name("ADDRESS");
    app.add_option("--join-timeout", options.patience, "Seconds to wait for all ranks")
        ->check(CLI::Range(1, 86400).description(""))
        ->capture_default_str()
        ->type_name("SECONDS");
    app.add_option("--lanes", options.lanes, "Tiles under way at a time in each rank")
        ->check(CLI::Range(1, 16).description(""))
        ->capture_default_str()
        ->type_name("N");
    app.add_flag("--own-disks", options.ownDisks,
                 "The ranks share no file system for the destination: each of its files stays on the disk of "
                 "the rank that writes it");
    app.prefix_command();
    app.footer(
        "What follows the options are the words of 'shardscope convert', 'reshard' or 'plan'.\n\n"
        "Examples:\n  shardscope-worker --ranks 4 convert model.pt model-dcp --to dcp --mesh tp=4 --shard "
        "'*:tp=0'\n"
        "  torchrun --no-python --nproc-per-node 8 shardscope-worker --mode exchange convert "
        "/local/step-1000 "
        "/shared/model --to safetensors\n  srun -N 4 shardscope-worker --mode broadcast reshard "
        "/node0/step-1000 "
        "/shared/step-1000-tp8 --mesh tp=8 --shard '*:tp=0'\n\n--memory counts what a rank holds of the "
        "checkpoint; libtorch takes about 130 MiB more in each.");
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
        Context context;
        context.json = std::find(argv + 1, argv + argc, std::string_view("--json")) != argv + argc;
        if (context.json) return reportError(context, makeError(ErrorCode::usage, error.what()));
        app.exit(error);
        return exitCode(ErrorCode::usage);
    }
    options.words = app.remaining();
    if (options.gpus) {
        options.ranks = static_cast<int>(gpusHere());
        options.backend = "nccl";
    }
    return work(options, {argv + 1, argv + argc});
}
