#include "cluster/worker.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "cluster/broadcast.h"
#include "cluster/file_owners.h"
#include "cluster/messages.h"

namespace shardscope {
namespace {

using Json = nlohmann::json;
using Clock = Channel::Clock;

}  // namespace

WorkerSession::WorkerSession(std::unique_ptr<Channel> channel, std::string version,
                             std::shared_ptr<FileSystem> files)
    : channel_(std::move(channel)), version_(std::move(version)), files_(std::move(files)) {}

WorkerSession::~WorkerSession() {
    ending_ = true;
    channel_->close();
    if (beats_.joinable()) beats_.join();
    if (listener_.joinable()) listener_.join();
}

Status WorkerSession::begin(const Frame& first) {
    SHARDSCOPE_ASSIGN(Json fields, parseMessage(first));
    std::optional<Frame> frame = first;
    if (fields["say"] == "serve") {
        SHARDSCOPE_TRY(startServing(first, fields));
        beats_ = std::thread([this] { beats(); });
        // The coordinator opens the source meanwhile.
        do {
            SHARDSCOPE_ASSIGN(
                frame, channel_->receive(Clock::now() + (silence_.count() ? silence_ : kOrphanTimeout)));
            if (!frame && silence_.count())
                return makeError(ErrorCode::remote, "nobody says what is to be done");
            if (!frame) continue;
            SHARDSCOPE_ASSIGN(fields, parseMessage(*frame));
        } while (!frame || fields["say"] == "beat");
    }
    if (fields["say"] == "end") return makeError(ErrorCode::cancelled, "there is nothing to be done");
    SHARDSCOPE_TRY(takeStart(*frame, fields));
    if (!beats_.joinable()) beats_ = std::thread([this] { beats(); });
    listener_ = std::thread([this] { listen(); });
    return {};
}

std::shared_ptr<FileSystem> WorkerSession::own() const {
    return files_ ? files_ : systemFileSystem();
}

Status WorkerSession::startServing(const Frame& frame, const Json& fields) {
    const auto length = numberOf(fields, "source");
    if (!length || *length > frame.body.size()) return damaged("malformed message about files to serve");
    silence_ = std::chrono::seconds(std::min<uint64_t>(numberOf(fields, "silence").value_or(0), 3600));
    const std::string source = frame.body.substr(0, *length);
    FileAccess access;
    access.readAll = false;
    access.compress = false;
    access.read = {source};
    // A file is opened in its directory.
    if (const auto entry = own()->stat(source); entry.ok() && entry->kind != DirectoryEntry::Kind::directory)
        access.read.push_back(splitPath(source).first);
    access.write = frame.body.substr(*length);
    auto server = PeerServer::start(textOf(fields, "listen", 300), textOf(fields, "token", 100), version_,
                                    own(), std::move(access));
    if (!server.ok()) {
        refuse(server.error());
        return std::move(server).error();
    }
    server_ = std::move(server).value();
    return channel_->send(message({{"say", "serving"}, {"port", server_->port()}}));
}

Status WorkerSession::takeStart(const Frame& frame, const Json& fields) {
    const std::string& body = frame.body;
    const size_t end = body.find('\0');
    const auto length = numberOf(fields, "request");
    if (fields["say"] != "start" || end == std::string::npos || !length || *length > body.size() - end - 1)
        return damaged("the coordinator gives no job");
    directory_ = body.substr(0, end);
    request_ = body.substr(end + 1, *length);
    const std::string_view table = std::string_view(body).substr(end + 1 + *length);
    silence_ = std::chrono::seconds(std::min<uint64_t>(numberOf(fields, "silence").value_or(0), 3600));
    neighbors_ =
        static_cast<unsigned>(std::clamp<uint64_t>(numberOf(fields, "neighbors").value_or(1), 1, 1024));
    SHARDSCOPE_ASSIGN(shared_, sharedJobFrom(fields.value("job", Json())));
    number_ = numberOf(fields, "worker").value_or(UINT64_MAX);
    if (number_ > 65536) return damaged("the coordinator gives no job");
    device_ = static_cast<int>(std::min<uint64_t>(numberOf(fields, "device").value_or(0), 1024));
    if (fields.value("gpu", Json()) == true) gpu_ = device_;
    if (!fields.contains("peers")) return {};
    SHARDSCOPE_ASSIGN(peers_, Peers::from(fields["peers"], static_cast<int>(number_), version_, own()));
    if (!table.empty()) {
        SHARDSCOPE_ASSIGN(PeerTable read, PeerTable::from(table));
        table_ = std::make_shared<const PeerTable>(std::move(read));
    }
    const Json disks = fields.value("disks", Json::array());
    for (const Json& disk : disks) {
        if (!disk.is_number_unsigned() || disk.get<uint64_t>() >= static_cast<uint64_t>(peers_->size()))
            return damaged("malformed list of disks");
        disks_.push_back(disk.get<int>());
    }
    if (!disks_.empty() && disks_.size() != static_cast<size_t>(peers_->size()))
        return damaged("malformed list of disks");
    return {};
}

void WorkerSession::beats() {
    auto next = Clock::now();
    while (!ending_) {
        if (Clock::now() >= next) {
            next += kBeat;
            if (!channel_
                     ->send(message(
                         {{"say", "beat"}, {"bytes", progress_.bytesDone()}, {"busy", progress_.busy()}}))
                     .ok()) {
                stop_.requestStop();
                return;
            }
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
}

Result<WorkerSession::Order> WorkerSession::orderFrom(const Json& fields) const {
    Order order;
    if (fields["say"] == "part") {
        SHARDSCOPE_ASSIGN(order.task, partTaskFrom(fields));
        return order;
    }
    if (fields["say"] != "group") return damaged("an order that is unknown here");
    const auto port = numberOf(fields, "port"), rank = numberOf(fields, "rank"),
               size = numberOf(fields, "size");
    if (!port || *port > UINT16_MAX || !rank || !size || *size > 65536 || *rank >= *size)
        return damaged("malformed process group");
    order.group =
        GroupSpec{textOf(fields, "host", 300), static_cast<uint16_t>(*port),  static_cast<int>(*rank),
                  static_cast<int>(*size),     textOf(fields, "backend", 20), device_};
    return order;
}

void WorkerSession::listen() {
    const auto end = [&] {
        stop_.requestStop();
        MutexLock lock(mutex_);
        ended_ = true;
        if (group_) group_->abort();
        changed_.notify_all();
    };
    PartWork before = PartWork::convert;
    for (;;) {
        auto frame = channel_->receive(Clock::now() + (silence_.count() ? silence_ : kOrphanTimeout));
        if (!frame.ok()) return end();
        if (!*frame && silence_.count()) return end();
        if (!*frame) continue;
        auto fields = parseMessage(**frame);
        if (fields.ok() && (*fields)["say"] == "beat") continue;
        if (fields.ok() && (*fields)["say"] == "ungroup") {
            MutexLock lock(mutex_);
            ungrouped_ = true;
            if (group_) group_->abort();
            continue;
        }
        if (!fields.ok()) return end();
        auto order = orderFrom(*fields);
        if (!order.ok()) return end();
        // Nothing is left of the other work by then.
        if (const PartWork work = order->task.work; work != std::exchange(before, work))
            progress_.begin(Progress::Phase::verify, 0);
        MutexLock lock(mutex_);
        if (order->group) ungrouped_ = false;
        orders_.push_back(std::move(order).value());
        changed_.notify_all();
    }
}

void WorkerSession::refuse(const Error& error) {
    (void)channel_->send(message({{"say", "failed"}, {"error", errorJson(error)}}));
}

Status WorkerSession::serve(const ConvertJob& job, const Resources& resources,
                            const WorkerAbilities& abilities) {
    return serve(resources, abilities, job.options, [&](const Resources& own, std::string name) {
        PartWorkerOptions options{.name = std::move(name), .compute = abilities.compute};
        if (peers_) options.homes = homesOf(job, peers_->size(), table_, disks_);
        return PartWorker::join(job, shared_, own, std::move(options));
    });
}

Status WorkerSession::serve(const PartReading& reading, const Resources& resources) {
    ConvertOptions atOnce;  // since a part is on disk when it ends
    atOnce.journalBytes = 0;
    return serve(resources, {}, atOnce, [&](const Resources& own, const std::string& name) {
        return PartWorker::join(reading, shared_, own, name);
    });
}

Status WorkerSession::serve(Resources resources, const WorkerAbilities& abilities,
                            const ConvertOptions& options, const Join& join) {
    resources.progress = &progress_;
    resources.stop = stop_;
    auto worker = join(resources, fmt::format("w{}", number_));
    if (!worker.ok()) {
        refuse(worker.error());
        return std::move(worker).error();
    }
    SHARDSCOPE_TRY(channel_->send(message({{"say", "ready"}, {"gpu", abilities.gpu}})));
    return runParts(**worker, options, abilities.group);
}

// Rank 0 reports what goes wrong in a group; this worker stays.
Status WorkerSession::joinGroup(PartWorker& worker, const GroupSpec& spec, const MakeGroup& make) {
    if (make) {
        auto group = make(spec, {.givenUp = [this] {
                              MutexLock lock(mutex_);
                              return ungrouped_ || ended_;
                          }});
        bool stays = group.ok();
        if (stays) {
            MutexLock lock(mutex_);
            group_ = group->get();
            if (ungrouped_ || ended_) group_->abort();
        }
        if (stays) (void)receiveBroadcast(**group, worker);
        MutexLock lock(mutex_);
        group_ = nullptr;
    }
    return channel_->send(message({{"say", "grouped"}}));
}

Status WorkerSession::runParts(PartWorker& worker, const ConvertOptions& options, const MakeGroup& group) {
    struct Done {
        uint64_t id;
        PartDone result;
    };
    std::vector<Done> finished;  // not yet on disk
    CommitCadence cadence(options);
    const auto report = [&]() -> Status {
        SHARDSCOPE_TRY(worker.keep());
        for (const Done& done : std::exchange(finished, {}))
            SHARDSCOPE_TRY(channel_->send(message({{"say", "done"},
                                                   {"id", done.id},
                                                   {"read", done.result.bytesRead},
                                                   {"moved", done.result.bytesMoved},
                                                   {"busy", progress_.busy()}})));
        cadence.restart();
        return {};
    };
    for (;;) {
        std::optional<Order> order;
        {
            MutexLock lock(mutex_);
            if (orders_.empty() && !ended_ && finished.empty())
                changed_.wait(lock, [&]() SHARDSCOPE_REQUIRES(mutex_) { return !orders_.empty() || ended_; });
            if (ended_) return {};
            if (!orders_.empty()) {
                order = std::move(orders_.front());
                orders_.pop_front();
            }
        }
        if (!order) {  // nothing more to do for now
            SHARDSCOPE_TRY(report());
            continue;
        }
        if (order->group) {
            SHARDSCOPE_TRY(joinGroup(worker, *order->group, group));
            continue;
        }
        const PartTask& task = order->task;
        const uint64_t moved = peers_ ? peers_->bytesMoved() : 0, before = progress_.bytesDone();
        auto result = worker.run(task.work, task.order);
        if (!result.ok()) {
            if (result.error().code == ErrorCode::cancelled) return {};
            SHARDSCOPE_TRY(channel_->send(
                message({{"say", "failed"}, {"id", task.id}, {"error", errorJson(result.error())}})));
            continue;
        }
        if (peers_ && task.work == PartWork::convert) result->bytesMoved = peers_->bytesMoved() - moved;
        cadence.add(progress_.bytesDone() - before);
        finished.push_back({task.id, *result});
        if (cadence.due()) SHARDSCOPE_TRY(report());
    }
}

}  // namespace shardscope
