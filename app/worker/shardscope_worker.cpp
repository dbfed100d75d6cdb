// shardscope-worker: a conversion by ranks that torchrun, mpirun, srun or this program itself has started.
// Rank 0 coordinates, the others are its workers. The words of the conversion are those of `shardscope
// convert`; only this program links libtorch.
#include <chrono>
#include <csignal>
#include <map>
#include <optional>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "accelerator/torch_library.h"
#include "base/numbers.h"
#include "base/own_program.h"
#include "cli/agent.h"
#include "cli/application.h"
#include "cli/convert.h"
#include "cli/one_of.h"
#include "cluster/places.h"
#include "cluster/rendezvous.h"

namespace shardscope::cli {
namespace {

struct Options {
    int ranks = 0;
    bool gpus = false;
    SourceMode mode = SourceMode::automatic;
    std::string backend = "gloo";
    std::string compute = "auto";
    std::string master, address;
    int patience = 120;
    bool ownDisks = false;
    std::vector<std::string> words;
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

Result<RankInfo> placeOf(const Options& options) {
    SHARDSCOPE_ASSIGN(RankInfo place, rankPlace());
    if (options.ranks > 0 && place.launcher != "shardscope") {
        if (place.size > 1)
            return makeError(ErrorCode::usage,
                             fmt::format("--ranks starts ranks, but {} has started {} already",
                                         place.launcher, place.size));
        place.size = options.ranks;
    }
    if (!options.master.empty()) {
        SHARDSCOPE_ASSIGN(const Meeting meeting, meetingFrom(options.master));
        place.host = meeting.host;
        place.port = meeting.port;
        place.storeThere = false;
    }
    return place;
}

// What must be the same with all ranks, as far as it is not the default.
std::string wordsOfAll(const Options& options) {
    std::string words;
    if (options.mode != SourceMode::automatic)
        words += fmt::format(" --mode {}", sourceModeName(options.mode));
    if (options.backend != "gloo") words += " --backend " + options.backend;
    if (options.ownDisks) words += " --own-disks";
    return words.empty() ? words : words.substr(1);
}

// What every rank can do once it knows its GPU.
Result<Abilities> abilities(std::optional<int> gpu) {
    Abilities found;
    found.group = makeTorchGroup;
    if (!gpu) return found;
    auto compute = openGpu(*gpu);
    if (!compute.ok()) {
        Error error = std::move(compute).error();
        error.code = ErrorCode::impossible;
        return error;
    }
    found.compute = std::move(compute->compute);
    found.gpu = std::move(compute->uuid);
    return found;
}

// A rank that is not the first: the worker of rank 0.
Result<int> follow(const Options& options, const RankInfo& place, const StopToken& stop) {
    const std::chrono::seconds patience(options.patience);
    const auto deadline = Channel::Clock::now() + patience;
    Meeting meeting{place.host, place.port};
    if (place.storeThere) {
        SHARDSCOPE_ASSIGN(const std::string said, shareThroughStore(place, std::nullopt, patience));
        SHARDSCOPE_ASSIGN(meeting, meetingFrom(said));
    }
    SHARDSCOPE_ASSIGN(auto channel,
                      joinRankZero(place, meeting.host, meeting.port, wordsOfAll(options), options.address,
                                   deadline, [&] { return stop.stopRequested(); }));
    return serveAgent(std::move(channel), abilities);
}

Result<Coordinator> coordinatorOf(const Options& options, const RankInfo& place) {
    Coordinator coordinator;
    coordinator.mode = options.mode;
    coordinator.ownDisks = options.ownDisks;
    CoordinatorOptions& all = coordinator.options;
    all.version = SHARDSCOPE_VERSION;
    all.program = ownProgram();
    all.peers = true;
    all.patience = std::chrono::seconds(options.patience);
    all.group = makeTorchGroup;
    all.backend = options.backend;
    all.gpus = options.compute == "gpu" || (options.compute == "auto" && options.backend == "nccl");
    if (all.gpus)
        coordinator.openCompute = [device = place.localRank]() -> Result<std::shared_ptr<TileCompute>> {
            SHARDSCOPE_ASSIGN(Abilities own, abilities(device));
            return std::shared_ptr<TileCompute>(std::move(own.compute));
        };
    for (int r = 0; r < place.size; ++r) {
        all.places.emplace_back();
        all.places.back().rank = r;
    }
    if (options.backend == "nccl") {
        SHARDSCOPE_ASSIGN(const int devices, ncclDevices());
        if (devices <= 0)
            return makeError(ErrorCode::impossible, "rank 0 has no GPU that can be used")
                .withHint("use --backend gloo, or start ranks only where GPUs are");
    }
    if (options.ranks > 0 || place.size == 1) return coordinator;  // all of them are started here
    Meeting meeting{place.host, place.port};
    if (place.storeThere) {
        meeting.port = 0;
        SHARDSCOPE_ASSIGN(meeting.host, addressTowards(place.host, place.port));
    }
    SHARDSCOPE_ASSIGN(all.ranks, RankListener::open(place, meeting.host, meeting.port, wordsOfAll(options)));
    if (place.storeThere)
        SHARDSCOPE_TRY(
            shareThroughStore(place, fmt::format("{}:{}", meeting.host, all.ranks->port()), all.patience));
    all.hostHere = options.address.empty() ? meeting.host : options.address;
    return coordinator;
}

int work(const Options& options) {
    Context context;
    stopOnInterrupt(context);
    std::signal(SIGPIPE, SIG_IGN);
    context.words = options.words;
    // Whatever is wrong before the words are read; `--json` counts for that too.
    for (const std::string& word : options.words)
        context.json = context.json || word == "--json";
    if (options.gpus && options.ranks == 0)
        return reportError(context,
                           makeError(ErrorCode::impossible, "this machine shows no GPU (/dev/nvidia0, ...)")
                               .withHint("--ranks N works without one"));
    if (options.ownDisks && options.backend == "nccl")
        return reportError(context, makeError(ErrorCode::usage, "--own-disks goes over Gloo alone")
                                        .withHint("leave out --backend nccl; --compute gpu uses GPUs too"));
    if (const Status status = wordsForRanks(options.words); !status.ok())
        return reportError(context, status.error());
    const auto place = placeOf(options);
    if (!place.ok()) return reportError(context, place.error());
    if (place->rank != 0) {
        // Rank 0 speaks for all; the others say what went wrong with them.
        context.json = false;
        const auto done = follow(options, *place, context.stop);
        return done.ok() ? *done : reportError(context, done.error());
    }
    context.json = false;
    return runWords(context, {}, [&](const CLI::App&) -> Result<std::optional<int>> {
        if (context.conversion && context.conversion->inParts())
            return makeError(ErrorCode::usage,
                             "ranks work together; --part and --finish are for "
                             "'shardscope convert' without ranks");
        if (!context.conversion)
            return makeError(
                ErrorCode::usage,
                "ranks do 'plan', 'convert', 'reshard' and 'average'; everything else is for shardscope");
        SHARDSCOPE_ASSIGN(const Coordinator coordinator, coordinatorOf(options, *place));
        SHARDSCOPE_ASSIGN(const int done, convert(context, *context.conversion, coordinator));
        return std::optional(done);
    });
}

}  // namespace
}  // namespace shardscope::cli

int main(int argc, char** argv) {
    using namespace shardscope;
    using namespace shardscope::cli;
    Options options;
    CLI::App app("Does a conversion with several ranks: each byte of the source is read once.",
                 "shardscope-worker");
    app.set_version_flag("--version", [] {
        return fmt::format("shardscope-worker {} (libtorch {})", SHARDSCOPE_VERSION, torchVersion());
    });
    app.add_option("--ranks", options.ranks,
                   "Start this many ranks on this machine (without torchrun, mpirun or srun)")
        ->check(CLI::Range(1, 1024).description(""))
        ->type_name("N");
    static const std::map<std::string, SourceMode> modes{{"auto", SourceMode::automatic},
                                                         {"direct", SourceMode::direct},
                                                         {"broadcast", SourceMode::broadcast},
                                                         {"exchange", SourceMode::exchange}};
    app.add_flag("--gpus", options.gpus, "One rank for each GPU of this machine, over NCCL")
        ->excludes("--ranks");
    app.add_option("--mode", options.mode,
                   "direct (each rank reads what it writes), broadcast (rank 0 reads for all), exchange "
                   "(each rank reads "
                   "the files that it has) or auto (as the source is stored; the default)")
        ->transform(oneOf(modes))
        ->type_name("MODE");
    app.add_option("--backend", options.backend,
                   "How rank 0 hands on what it reads in broadcast mode: gloo (TCP) or nccl (between GPUs)")
        ->check(CLI::IsMember({"gloo", "nccl"}).description(""))
        ->capture_default_str()
        ->type_name("NAME");
    app.add_option(
           "--compute", options.compute,
           "Who casts, scans and hashes: cpu, gpu (one for each rank) or auto (the GPU with --backend "
           "nccl, else the processor; the default)")
        ->check(CLI::IsMember({"auto", "cpu", "gpu"}).description(""))
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
        "checkpoint; libtorch, where it is loaded, takes about 130 MiB more.");
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
    if (!options.words.empty() && options.words.front() == "agent") {  // a worker that this program started
        const auto done = serveStandardStreams(abilities);
        if (done.ok()) return *done;
        fmt::print(stderr, "{}\n", describe(done.error()));
        return exitCode(done.error().code);
    }
    return work(options);
}
