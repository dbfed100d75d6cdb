#include "cluster/slurm.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <set>
#include <thread>

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include "base/numbers.h"
#include "base/text.h"
#include "base/units.h"
#include "cluster/coordinator.h"

namespace shardscope {
namespace {

constexpr std::chrono::seconds kAnswer{30};  // of a step; a node may have to wake up
constexpr std::chrono::seconds kAsked{10};   // of squeue and its like
constexpr std::chrono::seconds kGrace{5};    // for srun and salloc to end what they have begun
constexpr size_t kMostWorkers = 1024;
constexpr std::string_view kGranted{"\0granted\0", 9};

enum class Kind : uint8_t { number, time, size, name, nodes, path };
struct Key {
    std::string_view name;
    Kind kind;
    std::string_view what;
};
// Of salloc, but for "job" and "scratch".
constexpr Key kKeys[] = {
    {"account", Kind::name, "a name"},
    {"constraint", Kind::name, "features of nodes"},
    {"cpus-per-task", Kind::number, "a number"},
    {"exclude", Kind::nodes, "names of nodes"},
    {"gres", Kind::name, "resources such as gpu:1"},
    {"immediate", Kind::number, "seconds"},
    {"job", Kind::number, "the number of a job"},
    {"mem", Kind::size, "a size such as 4G"},
    {"nodelist", Kind::nodes, "names of nodes"},
    {"nodes", Kind::number, "a number"},
    {"ntasks-per-node", Kind::number, "a number"},
    {"partition", Kind::name, "a name"},
    {"qos", Kind::name, "a name"},
    {"reservation", Kind::name, "a name"},
    {"scratch", Kind::path, "an absolute path"},
    {"time", Kind::time, "a time such as 00:10:00"},
};

bool fits(Kind kind, std::string_view value) {
    const auto digit = [](char c) { return c >= '0' && c <= '9'; };
    const auto word = [&](char c) { return digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
    const auto all = [&](std::string_view others, const auto& good) {
        return std::all_of(value.begin(), value.end(),
                           [&](char c) { return good(c) || others.find(c) != std::string_view::npos; });
    };
    if (value.empty() || value.size() > 1000 || value.front() == '-') return false;
    switch (kind) {
        case Kind::number:
            return value.size() < 10 && all("", digit) && value.front() != '0';
        case Kind::time:
            return value.size() < 30 && digit(value.front()) && all(":-", digit);
        case Kind::size:
            if (std::string_view("KMGT").find(value.back()) != std::string_view::npos) value.remove_suffix(1);
            return !value.empty() && value.size() < 12 && all("", digit);
        case Kind::name:
            return all("@._-:/=&|*()[],", word);
        case Kind::nodes:
            return all("._-[],", word);
        case Kind::path:
            return value.front() == '/' && all("@._-:/=", word);
    }
    return false;
}

std::string keyNames() {
    std::string names;
    for (const Key& key : kKeys)
        names += (names.empty() ? "" : ", ") + std::string(key.name);
    return names;
}

std::string variable(const char* name) {
    const char* value = std::getenv(name);
    return value ? value : "";
}

Error unavailable(Error error) {
    if (error.code != ErrorCode::notFound) return error;
    return makeError(ErrorCode::notFound, "there is no program " + error.location.file)
        .withHint("Slurm's commands salloc, srun, scontrol and squeue must be in PATH");
}

}  // namespace

Result<SlurmRequest> parseSlurm(std::string_view options) {
    SlurmRequest request;
    const auto wrong = [](std::string why) {
        return makeError(ErrorCode::usage, std::move(why)).withHint("slurm: takes " + keyNames());
    };
    std::set<std::string_view> seen;
    while (!options.empty()) {
        size_t end = 0;
        int open = 0;
        for (; end < options.size() && (options[end] != ',' || open > 0); ++end)
            open += options[end] == '[' ? 1 : options[end] == ']' ? -1 : 0;
        const std::string_view part = options.substr(0, end);
        options.remove_prefix(std::min(options.size(), end + 1));
        const size_t equals = std::min(part.find('='), part.size());
        const std::string_view name = part.substr(0, equals);
        const auto* key =
            std::find_if(std::begin(kKeys), std::end(kKeys), [&](const Key& k) { return k.name == name; });
        if (key == std::end(kKeys))
            return wrong(fmt::format("slurm: has no option '{}'", oneLine(part, 100)));
        const std::string_view value = part.substr(std::min(part.size(), equals + 1));
        if (!fits(key->kind, value) || open != 0)
            return wrong(fmt::format("slurm: '{}' takes {}, not '{}'", name, key->what, oneLine(value, 100)));
        if (!seen.insert(key->name).second) return wrong(fmt::format("slurm: '{}' stands there twice", name));
        const unsigned number = parseNumber<unsigned>(value).value_or(0);
        if (name == "nodes")
            request.nodes = number;
        else if (name == "ntasks-per-node")
            request.tasksPerNode = number;
        else if (name == "job")
            request.job = value;
        else if (name == "scratch")
            request.scratch = value;
        else
            request.words.push_back(fmt::format("--{}={}", name, value));
    }
    if (request.nodes > kMostWorkers || request.tasksPerNode > kMostWorkers ||
        request.workers() > kMostWorkers)
        return wrong(fmt::format("slurm: more than {}", counted(kMostWorkers, "worker")));
    if (!request.job.empty() && !request.words.empty())
        return wrong(fmt::format("slurm: '{}' is for a new allocation, not for that of job {}",
                                 request.words.front().substr(2), request.job));
    return request;
}

std::string slurmState(const std::string& job) {
    const std::vector<std::string> ways[] = {
        {"squeue", "--noheader", "--states=all", "--jobs=" + job, "--format=%T %r"},
        {"sacct", "--noheader", "--parsable2", "--allocations", "--jobs=" + job, "--format=State"}};
    for (const auto& words : ways) {
        const auto output = outputOf(words, kAsked);
        if (!output.ok()) continue;
        const std::string line = oneLine(std::string_view(*output).substr(0, output->find('\n')), 100);
        const size_t space = line.find(' ');
        if (line.empty()) continue;
        // Of sacct such as "CANCELLED by 0"; squeue adds a reason that may be none.
        if (space == std::string::npos || words[0] == "sacct") return line;
        const std::string reason = line.substr(space + 1);
        return line.substr(0, space) + (reason == "None" ? "" : fmt::format(" ({})", reason));
    }
    return {};
}

Result<std::unique_ptr<SlurmAllocation>> SlurmAllocation::obtain(const SlurmRequest& request,
                                                                 const std::function<bool()>& stopping,
                                                                 const Waiting& waiting) {
    std::unique_ptr<SlurmAllocation> allocation(new SlurmAllocation(request));
    allocation->job_ = request.job.empty() ? variable("SLURM_JOB_ID") : request.job;
    if (allocation->job_.empty()) {
        SHARDSCOPE_TRY(allocation->ask(stopping, waiting));
        return allocation;
    }
    if (!request.words.empty())
        return makeError(ErrorCode::usage,
                         fmt::format("'{}' is for a new allocation, and this process runs in that of job {}",
                                     request.words.front().substr(2), allocation->job_))
            .withHint("leave it out, or start outside of the job");
    waiting(allocation->job_, "");
    auto list = outputOf({"squeue", "--noheader", "--jobs=" + allocation->job_, "--format=%N"}, kAsked);
    if (!list.ok()) return unavailable(std::move(list).error());
    SHARDSCOPE_TRY(allocation->findNodes(oneLine(*list, 100'000)));
    return allocation;
}

// salloc asks for the allocation and gives it back when its command ends; the command is `cat`, which first
// shows its environment, where the job's number and nodes stand, and then ends with this process, whatever
// ends that. So no allocation outlives the conversion: steps of srun that ask each for their own could be
// granted at different times, or never, and what sbatch starts would have to be looked after from outside.
Status SlurmAllocation::ask(const std::function<bool()>& stopping, const Waiting& waiting) {
    std::vector<std::string> words{"salloc",
                                   "--job-name=shardscope",
                                   "--no-kill",
                                   "--no-bell",
                                   "--kill-command=KILL",
                                   fmt::format("--nodes={0}-{0}", request_.nodes),
                                   fmt::format("--ntasks-per-node={}", request_.tasksPerNode)};
    words.insert(words.end(), request_.words.begin(), request_.words.end());
    words.insert(words.end(), {"cat", "/proc/self/environ", "-"});
    auto started = Process::start(words);
    if (!started.ok()) return unavailable(std::move(started).error());
    salloc_ = std::move(started).value();
    salloc_->endWith(SIGTERM, kGrace);
    hold_ = salloc_->takeInput();
    const int output = salloc_->takeOutput();
    const struct Closing {
        int fd;
        ~Closing() { ::close(fd); }
    } closing{output};
    // One that has ended already says why below.
    if (::write(hold_, kGranted.data(), kGranted.size()) != static_cast<ssize_t>(kGranted.size()) &&
        errno != EPIPE)
        return systemError(errno, "talk to", "salloc");
    std::string have, told;
    std::array<char, 65536> bytes;
    while (have.find(kGranted) == std::string::npos) {
        if (stopping()) return makeError(ErrorCode::cancelled, "canceled");
        pollfd wait{output, POLLIN, 0};
        if (poll(&wait, 1, 100) > 0) {
            const ssize_t got = ::read(output, bytes.data(), bytes.size());
            if (got > 0) have.append(bytes.data(), static_cast<size_t>(got));
            if (got == 0 || have.size() > (size_t{4} << 20)) {
                salloc_->waitFor(kGrace);
                const std::string message = oneLine(salloc_->said(), 600);
                return makeError(
                    ErrorCode::remote,
                    fmt::format("Slurm gives no nodes: {}", message.empty() ? salloc_->ending() : message));
            }
        }
        const std::string message = oneLine(salloc_->said(), 300);
        if (message == told) continue;
        told = message;
        constexpr std::string_view kNumber = "job allocation ";
        if (const size_t at = message.find(kNumber); at != std::string::npos) {
            const size_t begin = at + kNumber.size();
            job_ = message.substr(
                begin, std::min(message.find_first_not_of("0123456789", begin), message.size()) - begin);
        }
        waiting(job_, message);
    }
    const auto value = [&](std::string_view name) {
        const std::string key = fmt::format("{}=", name);
        size_t at = have.compare(0, key.size(), key) == 0 ? 0 : have.find('\0' + key);
        if (at == std::string::npos) return std::string();
        at += key.size() + (at > 0 ? 1 : 0);
        return have.substr(at, have.find('\0', at) - at);
    };
    job_ = value("SLURM_JOB_ID");
    if (!fits(Kind::number, job_)) return damaged("salloc does not say which job it has begun");
    return findNodes(value("SLURM_JOB_NODELIST"));
}

Status SlurmAllocation::findNodes(const std::string& list) {
    if (!fits(Kind::nodes, list))
        return makeError(ErrorCode::remote, fmt::format("the Slurm job {} has no nodes", job_));
    auto names = outputOf({"scontrol", "show", "hostnames", list}, kAsked);
    if (!names.ok()) return unavailable(std::move(names).error());
    for (size_t at = 0; at < names->size();) {
        const size_t end = std::min(names->find('\n', at), names->size());
        if (end > at) nodes_.push_back(names->substr(at, end - at));
        at = end + 1;
    }
    for (const std::string& node : nodes_) {
        if (!fits(Kind::nodes, node)) return damaged("scontrol names nodes that cannot be");
    }
    if (nodes_.size() < request_.nodes)
        return makeError(ErrorCode::usage,
                         fmt::format("the Slurm job {} has fewer nodes than are asked for: {} of {}", job_,
                                     nodes_.size(), request_.nodes));
    return {};
}

Result<Launched> SlurmAllocation::launch(size_t worker, const AgentProgram& agent,
                                         const std::function<bool()>& stopping) const {
    // Unbuffered, or what has no line end stays on the node. The steps share what the allocation holds.
    std::vector<std::string> words{"srun",         "--jobid=" + job_, "--job-name=shardscope",
                                   "--nodes=1",    "--ntasks=1",      "--nodelist=" + nodeOf(worker),
                                   "--overlap",    "--mem=0",         "--mpi=none",
                                   "--unbuffered", "--no-kill",       "--chdir=/"};
    words.push_back(request_.scratch.empty() ? "--export=ALL" : "--export=ALL,TMPDIR=" + request_.scratch);
    words.insert(words.end(),
                 {agent.remoteProgram.empty() ? agent.program : agent.remoteProgram, "agent", "--stdio"});
    // Killed outright, srun would leave a worker that hangs where it is.
    return launchProgram(
        nodeOf(worker), words, kAnswer, [](Process& srun) { srun.endWith(SIGTERM, kGrace); }, stopping);
}

std::string SlurmAllocation::ending() {
    const bool ended = salloc_ && salloc_->waitFor(std::chrono::milliseconds(500));
    std::string state = slurmState(job_);
    // A job that ends says why a moment later.
    for (int i = 0; i < 20 && state.starts_with("COMPLETING"); ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        state = slurmState(job_);
    }
    if (!ended && (state.empty() || state.starts_with("RUNNING") || state.starts_with("PENDING"))) return {};
    std::string text =
        fmt::format("the Slurm job {} is {}", job_, state.empty() ? "not known any more" : state);
    if (ended) text += fmt::format("; {}", oneLine(salloc_->said(), 300));
    return text;
}

SlurmAllocation::~SlurmAllocation() {
    if (hold_ >= 0) ::close(hold_);
    if (!salloc_) return;
    // While it still waits for its nodes it reads nothing.
    if (nodes_.empty() || !salloc_->waitFor(kGrace)) salloc_->kill();
    if (salloc_->exitCode() != 0 && !job_.empty()) (void)outputOf({"scancel", "--quiet", job_}, kAsked);
}

// ------------------------------------------------------------------ those of one run

Result<const SlurmAllocation*> SlurmAllocations::of(const std::shared_ptr<const SlurmRequest>& request,
                                                    const std::function<bool()>& stopping,
                                                    const SlurmAllocation::Waiting& waiting) {
    Asked* asked = nullptr;
    {
        MutexLock lock(mutex_);
        auto& entry = asked_[request.get()];
        if (!entry) entry = std::make_unique<Asked>();
        asked = entry.get();
    }
    MutexLock lock(asked->mutex);
    if (!asked->allocation) asked->allocation.emplace(SlurmAllocation::obtain(*request, stopping, waiting));
    if (!asked->allocation->ok()) return asked->allocation->error();
    return asked->allocation->value().get();
}

std::string SlurmAllocations::endings() {
    MutexLock lock(mutex_);
    std::string words;
    for (const auto& [request, asked] : asked_) {
        MutexLock asking(asked->mutex);
        if (!asked->allocation || !asked->allocation->ok()) continue;
        if (const std::string ending = asked->allocation->value()->ending(); !ending.empty())
            words += "; " + ending;
    }
    return words;
}

void SlurmAllocations::giveBack() {
    MutexLock lock(mutex_);
    asked_.clear();
}

}  // namespace shardscope
