#include "cluster/worker_link.h"

#include <utility>

#include <fmt/format.h>

#include "cluster/messages.h"
#include "cluster/rendezvous.h"
#include "cluster/slurm.h"

namespace shardscope {
namespace {

using Json = nlohmann::json;

// However late it is interrupted; beats come more often.
constexpr std::chrono::seconds kPatientLook{1};

}  // namespace

WorkerLink::WorkerLink(const CoordinatorOptions& options, size_t index, std::string name,
                       std::function<bool()> stopping)
    : options_(options),
      index_(index),
      name_(std::move(name)),
      stopping_(std::move(stopping)),
      device_(static_cast<int>(index)) {}

WorkerLink::~WorkerLink() = default;

Peer WorkerLink::peer() const {
    const WorkerSpec& spec = options_.workers[index_];
    Peer peer;
    peer.name = name_;
    peer.port = port_;
    // A host that ssh finds by another name than the others do is theirs to configure.
    peer.host = !address_.empty()   ? address_
                : spec.slurm        ? machine_
                : spec.host.empty() ? options_.hostHere
                                    : spec.host.substr(spec.host.rfind('@') + 1);
    return peer;
}

Status WorkerLink::launch(const SlurmAllocation* allocation, Clock::time_point comesBy) {
    const WorkerSpec& spec = options_.workers[index_];
    if (spec.rank > 0 && options_.ranks) {
        SHARDSCOPE_ASSIGN(auto joined, options_.ranks->accept(spec.rank, comesBy, stopping_));
        device_ = joined.localRank;
        address_ = joined.address;
        launched_ = std::move(joined.launched);
    } else if (allocation) {
        name_ = allocation->nodeOf(spec.task);
        if (spec.slurm->tasksPerNode > 1)
            name_ += fmt::format(" {}", spec.task % spec.slurm->tasksPerNode + 1);
        SHARDSCOPE_ASSIGN(launched_, allocation->launch(spec.task, options_, stopping_));
    } else {
        SHARDSCOPE_ASSIGN(launched_, launchAgent(spec, options_, stopping_));
    }
    MutexLock lock(mutex_);
    channel_ = launched_.channel.get();
    return {};
}

Status WorkerLink::meet(const std::string& token) {
    Json hello;
    for (const auto until = Clock::now() + kHello; hello.is_null();) {
        if (stopping_()) return {};
        if (Clock::now() >= until) return makeError(ErrorCode::remote, "it did not introduce itself");
        heard_ = Clock::now();
        SHARDSCOPE_ASSIGN(hello, next(std::min(until, Clock::now() + kPatientLook)));
    }
    if (Status fits = checkHello(hello, options_.version, true); !fits.ok()) {
        refused_ = true;
        return fits;
    }
    const WorkerSpec& spec = options_.workers[index_];
    machine_ = textOf(hello, "host", 300);
    if (spec.rank >= 0) name_ = fmt::format("rank {} on {}", spec.rank, machine_);
    if (!options_.peers) return {};
    const bool loopback = spec.host.empty() && !spec.slurm && options_.hostHere == "127.0.0.1";
    SHARDSCOPE_TRY(send({{"say", "serve"},
                         {"silence", silence()},
                         {"listen", loopback ? "127.0.0.1" : ""},
                         {"token", token},
                         {"source", options_.source.size()}},
                        options_.source + options_.destination));
    SHARDSCOPE_ASSIGN(const Json answer, answerTo("serving"));
    if (!answer.is_null()) port_ = static_cast<uint16_t>(numberOf(answer, "port").value_or(0));
    return {};
}

Result<std::string> WorkerLink::start(Json fields, std::string body) {
    fields["say"] = "start";
    fields["worker"] = index_;
    fields["silence"] = silence();
    fields["request"] = options_.request.size();
    fields["device"] = device_;
    fields["gpu"] = options_.gpus;
    heard_ = Clock::now();
    SHARDSCOPE_TRY(send(fields, options_.directory + '\0' + options_.request + body));
    SHARDSCOPE_ASSIGN(const Json ready, answerTo("ready"));
    return ready.is_null() ? std::string() : textOf(ready, "gpu", 100);
}

// Waits for one message, between heartbeats; null once the worker is not needed any more.
Result<Json> WorkerLink::answerTo(std::string_view what) {
    heard_ = Clock::now();
    for (;;) {
        if (stopping_()) return Json();
        SHARDSCOPE_ASSIGN(const Json answer, next(Clock::now() + kPatientLook));
        if (answer.is_null() || answer["say"] == "beat") continue;
        if (answer["say"] == what) return answer;
        if (answer["say"] == "failed") {
            refused_ = true;
            return errorFrom(answer.value("error", Json()));
        }
        return damaged("an answer that does not belong here");
    }
}

Result<Json> WorkerLink::next(Clock::time_point deadline) {
    SHARDSCOPE_ASSIGN(const auto frame, launched_.channel->receive(deadline));
    if (!frame) {
        SHARDSCOPE_TRY(silence_.check(heard_));
        return Json();
    }
    heard_ = Clock::now();
    SHARDSCOPE_ASSIGN(Json reply, parseMessage(*frame));
    // So that a worker of another host knows that the link stands.
    if (reply["say"] == "beat" && silence() > 0) launched_.channel->offer(message({{"say", "beat"}}));
    return reply;
}

Status WorkerLink::send(const Json& json, std::string body) {
    return launched_.channel->send(message(json, std::move(body)));
}

void WorkerLink::interrupt() {
    MutexLock lock(mutex_);
    if (channel_) channel_->interrupt();
}

void WorkerLink::end(bool idle) {
    if (launched_.channel) {
        (void)send({{"say", "end"}});
        launched_.channel->close();
    }
    if (!launched_.process) return;
    if (!idle || !launched_.process->waitFor(std::chrono::seconds(2))) launched_.process->kill();
    launched_.process->waitFor(std::chrono::seconds(10));
}

std::string WorkerLink::reasonOf(const Error& error) {
    std::string why = error.message;
    if (!launched_.process || error.code != ErrorCode::remote) return why;
    launched_.process->waitFor(std::chrono::milliseconds(200));
    const std::string output = stderrTail(*launched_.process, 300);
    if (launched_.channel)
        why += fmt::format(" ({}{}{})", launched_.process->ending(), output.empty() ? "" : ": ", output);
    return why;
}

// A worker ends after so many seconds without a message; 0 where its stream ends with this process.
uint64_t WorkerLink::silence() const {
    const WorkerSpec& spec = options_.workers[index_];
    return spec.host.empty() && spec.rank <= 0 ? 0 : static_cast<uint64_t>(kOrphanTimeout.count());
}

}  // namespace shardscope
