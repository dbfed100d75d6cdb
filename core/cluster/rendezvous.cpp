#include "cluster/rendezvous.h"

#include <span>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/numbers.h"
#include "base/option_words.h"
#include "base/units.h"
#include "cluster/messages.h"
#include "hosts/process.h"

namespace shardscope {
namespace {

// The port where no variable states one: torch's own default, and for Slurm one that differs from job to job.
constexpr uint16_t kPort = 29500;
// Nobody has kept them free for the ranks.
constexpr uint16_t kPortsAfterStore = 8;
constexpr uint32_t kMostJoined = 65536;

Result<uint64_t> number(const char* name, const std::string& text, uint64_t most) {
    if (const auto value = parseNumber<uint64_t>(text, 0, most)) return *value;
    return makeError(ErrorCode::usage, fmt::format("{} is '{}', which is not a number up to {}", name,
                                                   text.substr(0, 40), most));
}

}  // namespace

void RankInfo::leaveStore() {
    storeThere = false;
    port = port > 65535 - kPortsAfterStore ? kPort : static_cast<uint16_t>(port + 1);
    ports = kPortsAfterStore;
}

Result<RankInfo> rankInfo(const Variables& variable,
                          const std::function<Result<std::string>(const std::string& list)>& firstHost) {
    RankInfo info;
    auto found = launchedAs(variable, LaunchOf::ranks);
    if (!found.ok())
        return std::move(found).error().withHint("SHARDSCOPE_RANK and SHARDSCOPE_WORLD_SIZE win over others");
    if (!*found || (*found)->count == 1) {
        info.launcher = *found ? (*found)->launcher : "alone";
        return info;
    }
    const LaunchedAs& as = **found;
    if (as.count > kMostJoined)
        return makeError(ErrorCode::usage,
                         fmt::format("{}: more than {} cannot meet", as.by, counted(kMostJoined, "rank")));
    info.launcher = as.launcher;
    info.rank = static_cast<int>(as.index);
    info.size = static_cast<int>(as.count);
    info.localRank = static_cast<int>(as.local.value_or(0));
    info.group = as.group;

    const bool own = info.launcher == "shardscope";
    if (const auto host = variable(own ? "SHARDSCOPE_MASTER_ADDR" : "MASTER_ADDR")) info.host = *host;
    if (const auto port = variable(own ? "SHARDSCOPE_MASTER_PORT" : "MASTER_PORT")) {
        SHARDSCOPE_ASSIGN(const uint64_t value, number("the port of rank 0", *port, 65535));
        info.port = static_cast<uint16_t>(value);
    }
    // torchrun's own store listens at MASTER_PORT.
    info.storeThere = info.launcher == "torchrun" && info.port != 0;
    if (info.storeThere && variable("TORCHELASTIC_USE_AGENT_STORE").value_or("") != "True") info.leaveStore();
    if (info.launcher == "srun") {
        if (info.host.empty()) {
            const auto list = variable("SLURM_STEP_NODELIST");
            const auto job = list ? list : variable("SLURM_JOB_NODELIST");
            if (job) {
                SHARDSCOPE_ASSIGN(info.host, firstHost(*job));
            }
        }
        if (info.port == 0 && !info.group.empty()) {
            SHARDSCOPE_ASSIGN(const uint64_t id, number("SLURM_JOB_ID", info.group, UINT64_MAX));
            info.port = static_cast<uint16_t>(20000 + id % 20000);
        }
        if (const auto step = variable("SLURM_STEP_ID")) info.group += "." + *step;
    }
    // mpirun tells nobody where rank 0 is; on one machine that is known.
    if (info.host.empty() && as.localCount == as.count) info.host = "127.0.0.1";
    if (info.host.empty())
        return makeError(ErrorCode::usage, fmt::format("{} started {}, but nobody says where rank 0 is",
                                                       info.launcher, counted(info.size, "rank")))
            .withHint(
                fmt::format("set MASTER_ADDR to a host name of rank 0, and MASTER_PORT, or use {} HOST:PORT",
                            option("master")));
    if (info.port == 0) info.port = kPort;
    return info;
}

Result<RankInfo> rankInfo() {
    const auto firstHost = [](const std::string& list) -> Result<std::string> {
        SHARDSCOPE_ASSIGN(std::string text,
                          outputOf({"scontrol", "show", "hostnames", list}, std::chrono::seconds(10)));
        text.resize(std::min(text.size(), text.find('\n')));
        if (text.empty())
            return makeError(ErrorCode::remote, "scontrol does not say the hosts of " + list)
                .withHint("set MASTER_ADDR to the host of rank 0");
        return text;
    };
    return rankInfo(environmentVariable, firstHost);
}

// ------------------------------------------------------------------ meeting

namespace {

using Json = nlohmann::json;

constexpr std::chrono::seconds kIntroduction{10};

std::string quotedOptions(const std::string& words) {
    return words.empty() ? "none of these options" : fmt::format("'{}'", words);
}

}  // namespace

RankListener::RankListener(std::unique_ptr<Listener> listener, const RankInfo& info, std::string words)
    : listener_(std::move(listener)), info_(info), words_(std::move(words)), thread_([this] { listen(); }) {}

Result<std::unique_ptr<RankListener>> RankListener::open(const RankInfo& info, const std::string& host,
                                                         uint16_t port, std::string words) {
    auto listener = Listener::open(host, port);
    for (uint16_t i = 1; i < info.ports && !listener.ok(); ++i)
        listener = Listener::open(host, static_cast<uint16_t>(port + i));
    if (!listener.ok())
        return std::move(listener).error().withHint(
            "another job may have the port: give this one its own by MASTER_PORT or " + option("master"));
    return std::unique_ptr<RankListener>(
        new RankListener(std::move(listener).value(), info, std::move(words)));
}

RankListener::~RankListener() {
    listener_->close();
    thread_.join();
}

void RankListener::listen() {
    for (;;) {
        auto accepted = listener_->accept(Channel::Clock::now() + std::chrono::seconds(5));
        if (!accepted.ok()) return;
        // One after the other: each says at once who it is.
        if (*accepted) receive(std::move(**accepted));
    }
}

void RankListener::receive(Listener::Accepted accepted) {
    Channel& channel = *accepted.channel;
    const auto deadline = Channel::Clock::now() + kIntroduction;
    if (!channel.greet(deadline).ok()) return;
    auto frame = channel.receive(deadline);
    if (!frame.ok() || !*frame) return;
    const auto fields = parseMessage(**frame);
    if (!fields.ok() || (*fields)["say"] != "join" || textOf(*fields, "group", 300) != info_.group) return;
    const auto rank = numberOf(*fields, "rank");
    if (!rank || *rank == 0 || *rank >= static_cast<uint64_t>(info_.size)) return;
    const std::string words = textOf(*fields, "words", 1000);
    Status status;
    if (words != words_)
        status = makeError(ErrorCode::usage, fmt::format("rank 0 was started with {}, rank {} with {}",
                                                         quotedOptions(words_), *rank, quotedOptions(words)))
                     .withHint("start all ranks with the same options");
    Json answer{{"say", status.ok() ? "joined" : "refused"}};
    if (!status.ok()) answer["error"] = errorJson(status.error());
    if (!channel.send(message(answer)).ok()) return;
    Result<Joined> joined = [&]() -> Result<Joined> {
        SHARDSCOPE_TRY(std::move(status));
        // The worker greets as one that was started over pipes does.
        SHARDSCOPE_TRY(channel.greet(deadline));
        Joined one;
        one.launched.channel = std::move(accepted.channel);
        one.address = textOf(*fields, "address", 300);
        if (one.address.empty()) one.address = accepted.address;
        one.localRank = static_cast<int>(numberOf(*fields, "local_rank").value_or(0));
        return one;
    }();
    MutexLock lock(mutex_);
    joined_.insert_or_assign(static_cast<int>(*rank), std::move(joined));
    came_.insert(static_cast<int>(*rank));
    changed_.notify_all();
}

// "rank 2", "ranks 1, 2 and 5 more".
std::string RankListener::missingRanks() const {
    constexpr size_t kMost = 8;
    std::vector<int> missing;
    for (int rank = 1; rank < info_.size; ++rank)
        if (!came_.contains(rank)) missing.push_back(rank);
    const size_t shown = std::min(missing.size(), kMost);
    std::string text = fmt::format("rank{} {}", missing.size() == 1 ? "" : "s",
                                   fmt::join(std::span(missing).first(shown), ", "));
    if (shown < missing.size()) text += fmt::format(" and {} more", countText(missing.size() - shown));
    return text;
}

Result<RankListener::Joined> RankListener::accept(int rank, Channel::Clock::time_point deadline,
                                                  const std::function<bool()>& stopping) {
    MutexLock lock(mutex_);
    for (;;) {
        if (const auto found = joined_.find(rank); found != joined_.end()) {
            Result<Joined> joined = std::move(found->second);
            joined_.erase(found);
            return joined;
        }
        lock.unlock();
        const bool stop = stopping && stopping();
        lock.lock();
        if (stop) return makeError(ErrorCode::cancelled, "canceled");
        if (Channel::Clock::now() >= deadline)
            return makeError(ErrorCode::remote, fmt::format("the {} did not come together: no sign of {}",
                                                            counted(info_.size, "rank"), missingRanks()))
                .withHint("all ranks must run, and reach the host and port of rank 0");
        changed_.wait_for(lock, std::chrono::milliseconds(50));
    }
}

Result<std::unique_ptr<Channel>> joinRankZero(const RankInfo& info, const std::string& host, uint16_t port,
                                              const std::string& words, const std::string& address,
                                              Channel::Clock::time_point deadline,
                                              const std::function<bool()>& stopping) {
    // What is found may be another job's rank 0 that is about to end, or something else at a port that rank 0
    // could not take, so it is tried again.
    for (uint16_t i = 0;; i = static_cast<uint16_t>((i + 1) % info.ports)) {
        const auto patience =
            info.ports == 1 ? deadline : std::min(deadline, Channel::Clock::now() + std::chrono::seconds(1));
        auto connected = connectTo(host, static_cast<uint16_t>(port + i), patience, stopping);
        if (!connected.ok() && (patience == deadline || connected.error().code == ErrorCode::cancelled))
            return std::move(connected).error();
        if (!connected.ok()) continue;
        const std::unique_ptr<Channel>& channel = *connected;
        Status greeted = channel->greet(std::min(deadline, Channel::Clock::now() + kIntroduction), stopping);
        if (greeted.ok())
            greeted = channel->send(message({{"say", "join"},
                                             {"rank", info.rank},
                                             {"local_rank", info.localRank},
                                             {"group", info.group},
                                             {"address", address},
                                             {"words", words}}));
        auto answer = greeted.ok()
                          ? channel->receive(std::min(deadline, Channel::Clock::now() + kIntroduction))
                          : Result<std::optional<Frame>>(greeted.error());
        if (answer.ok() && *answer) {
            SHARDSCOPE_ASSIGN(const Json fields, parseMessage(**answer));
            if (fields["say"] == "refused") return errorFrom(fields.value("error", Json()));
            if (fields["say"] == "joined") return connected;
        }
        if (stopping && stopping()) return makeError(ErrorCode::cancelled, "canceled");
        if (Channel::Clock::now() >= deadline)
            return makeError(ErrorCode::remote,
                             fmt::format("rank 0 does not answer at {} port {}", host, port))
                .withHint("all ranks must run, and reach the host and port of rank 0");
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
}

}  // namespace shardscope
