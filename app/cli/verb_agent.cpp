#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <thread>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "answers/reading.h"
#include "base/thread_pool.h"
#include "cli/agent.h"
#include "cli/application.h"
#include "cli/ranks.h"
#include "cli/remote.h"
#include "cluster/messages.h"
#include "cluster/worker.h"
#include "engine/run_conversion.h"
#include "hosts/file_service.h"

namespace shardscope::cli {
namespace {

// Of this machine; under Slurm those that it has lent, which nothing need enforce.
unsigned ownCores() {
    const unsigned all = availableCores();
    const char* lent = std::getenv("SLURM_CPUS_ON_NODE");
    const unsigned long count = lent ? std::strtoul(lent, nullptr, 10) : 0;
    return count > 0 && count < all ? static_cast<unsigned>(count) : all;
}

// Does parts of a job for the program that coordinates it.
Result<int> work(std::unique_ptr<Channel> channel, const Frame& first, const Accelerator& accelerator) {
    WorkerSession session(std::move(channel), SHARDSCOPE_VERSION);
    SHARDSCOPE_TRY(session.begin(first));
    const auto refuse = [&](Error error) -> Error {
        session.refuse(error);
        return error;
    };
    if (chdir(session.directory().c_str()) != 0)
        return refuse(systemError(errno, "enter the coordinator's directory", session.directory())
                          .withHint("the paths of the job must be the same on all hosts"));
    const unsigned threads = std::max(1U, ownCores() / session.neighbors());
    if (isReading(session.request())) {
        SHARDSCOPE_TRY(serveReading(session, threads));
        return 0;
    }
    auto request = unpackRequest(session.request());
    if (!request.ok()) return refuse(std::move(request).error());
    if (request->threads == 0) request->threads = threads;
    GpuCompute gpu;
    if (session.gpu()) {
        auto opened = accelerator.openGpu(*session.gpu());
        if (!opened.ok()) {
            Error error = std::move(opened).error();
            error.code = ErrorCode::impossible;
            return refuse(std::move(error));
        }
        gpu = std::move(opened).value();
    }
    const auto done =
        runConversion(*request, Worker{&session, {gpu.compute.get(), gpu.uuid, accelerator.makeGroup}},
                      nullptr, session.stop());
    if (done.ok()) return 0;
    // What went wrong before the conversion was joined; said twice it does no harm.
    if (done.error().code != ErrorCode::cancelled) session.refuse(done.error());
    return done.error();
}

}  // namespace

Result<int> serveAgent(std::unique_ptr<Channel> channel, const Accelerator& accelerator) {
    SHARDSCOPE_ASSIGN(const Frame first, introduceAgent(*channel, SHARDSCOPE_VERSION));
    SHARDSCOPE_ASSIGN(const auto wanted, parseMessage(first));
    const std::string say = textOf(wanted, "say", 40);
    if (say == "files") {
        FileService service(*channel, systemFileSystem());
        SHARDSCOPE_TRY(service.serve(exitWithinSeconds));
        return 0;
    }
    if (say == "run") return serveRemote(*channel, first);
    if (say == "end") return 0;
    return work(std::move(channel), first, accelerator);
}

namespace {

// The channel takes the descriptors of standard input and output; what anything else prints goes nowhere.
Result<int> serveStandardStreams(const Accelerator& accelerator) {
    std::signal(SIGPIPE, SIG_IGN);
    std::signal(SIGHUP, SIG_IGN);  // the stream's end says the same
    const int in = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3), out = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
    const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (in < 0 || out < 0 || nothing < 0) return systemError(errno, "use the standard streams", "");
    dup2(nothing, STDIN_FILENO);
    dup2(nothing, STDOUT_FILENO);
    close(nothing);

    return serveAgent(std::make_unique<Channel>(in, out), accelerator);
}

}  // namespace

void addAgent(CLI::App& app, Context& context) {
    CLI::App* verb =
        app.add_subcommand("agent", "Do parts of another process's work; started by shardscope itself");
    verb->footer(
        "Example:\n  ssh node7 shardscope agent --stdio\n\nIt talks over standard input and output, listens "
        "nowhere, and ends when its input does.");
    auto stdio = std::make_shared<bool>(false);
    verb->add_flag("--stdio", *stdio, "Talk over standard input and output")->required();
    verb->callback([&context, stdio] {
        context.verb = [&context] { return serveStandardStreams(acceleratorOf(context)); };
    });
}

}  // namespace shardscope::cli
