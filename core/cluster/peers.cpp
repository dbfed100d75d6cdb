#include "cluster/peers.h"

#include <algorithm>

#include <fmt/format.h>

#include "cluster/messages.h"
#include "hosts/remote_session.h"

namespace shardscope {
namespace {

using Json = nlohmann::json;

constexpr std::chrono::seconds kPeerAnswer{10};
constexpr size_t kMostConnections = 4096;
constexpr size_t kMostPeers = 65536;

}  // namespace

// ------------------------------------------------------------------ to others

Peers::Peers(std::vector<Peer> all, int self, std::string token, std::string version,
             std::shared_ptr<FileSystem> own)
    : all_(std::move(all)), self_(self), token_(std::move(token)), own_(std::move(own)) {
    for (const Peer& peer : all_) {
        // Paths there are shown as "rank 2 on node7:/data/x".
        hosts_.push_back(std::make_shared<RemoteHost>(
            peer.name + ":", version, [peer, token = token_]() -> Result<Launched> {
                const auto deadline = Channel::Clock::now() + kPeerAnswer;
                Launched launched;
                launched.token = token;
                // One attempt: a peer listens before others hear of it, so one that refuses is gone.
                auto channel = connectTo(peer.host, peer.port, deadline, [] { return true; });
                if (channel.ok()) {
                    launched.channel = std::move(channel).value();
                    if (Status status = launched.channel->greet(deadline); status.ok()) return launched;
                }
                return makeError(ErrorCode::remote, fmt::format("{} cannot be reached", peer.name))
                    .withHint("the hosts of a conversion must reach each other by TCP, at any port");
            }));
        files_.push_back(remoteFileSystem(hosts_.back(), true));
    }
}

std::shared_ptr<FileSystem> Peers::files(int peer) const {
    return peer == self_ ? own_ : files_[static_cast<size_t>(peer)];
}

uint64_t Peers::bytesMoved() const {
    uint64_t sum = 0;
    for (const auto& host : hosts_) {
        const RemoteHost::Traffic traffic = host->traffic();
        sum += traffic.received + traffic.sent;
    }
    return sum;
}

Result<double> Peers::tryLinks(const StopToken& stop) const {
    constexpr int kBlocks = 4;
    std::vector<std::shared_ptr<RemoteSession>> sessions;
    for (int peer = 0; peer < size(); ++peer) {
        if (peer == self_) continue;
        // A peer that is gone costs its parts, not the job: the scheduler finds out by itself.
        auto session = host(peer).session();
        if (session.ok()) sessions.push_back(std::move(session).value());
    }
    const auto received = [&](int blocks) -> Result<uint64_t> {
        std::vector<std::pair<RemoteSession*, uint64_t>> asked;
        for (const auto& session : sessions) {
            for (int i = 0; i < blocks; ++i) {
                const auto id =
                    session->post("echo", {{"length", FileService::kBlock}}, {}, FileService::kBlock);
                if (id.ok()) asked.emplace_back(session.get(), *id);
            }
        }
        uint64_t bytes = 0;
        for (const auto& [session, id] : asked) {
            SHARDSCOPE_TRY(stop.poll());
            if (const auto answer = session->wait(id); answer.ok()) bytes += answer->body.size();
        }
        return bytes;
    };
    SHARDSCOPE_TRY(received(1));  // so that the links are warm
    const auto begin = Channel::Clock::now();
    SHARDSCOPE_ASSIGN(const uint64_t bytes, received(kBlocks));
    const double seconds = std::chrono::duration<double>(Channel::Clock::now() - begin).count();
    return static_cast<double>(bytes) / std::max(seconds, 1e-6);
}

Json Peers::json() const {
    Json list = Json::array();
    for (const Peer& peer : all_)
        list.push_back({{"name", peer.name}, {"host", peer.host}, {"port", peer.port}});
    return {{"token", token_}, {"list", std::move(list)}};
}

Result<std::shared_ptr<Peers>> Peers::from(const Json& json, int self, std::string version,
                                           std::shared_ptr<FileSystem> own) {
    const Json list = json.is_object() ? json.value("list", Json()) : Json();
    if (!list.is_array() || list.size() > kMostPeers || self >= static_cast<int>(list.size()))
        return damaged("malformed list of peers");
    std::vector<Peer> all;
    for (const Json& each : list) {
        const auto port = each.is_object() ? numberOf(each, "port") : std::nullopt;
        if (!port || *port > UINT16_MAX) return damaged("malformed list of peers");
        all.push_back({textOf(each, "name", 300), textOf(each, "host", 300), static_cast<uint16_t>(*port)});
    }
    return std::make_shared<Peers>(std::move(all), self, textOf(json, "token", 100), std::move(version),
                                   std::move(own));
}

// ------------------------------------------------------------------ from others

PeerServer::PeerServer(std::unique_ptr<Listener> listener, std::string token, std::string version,
                       std::shared_ptr<FileSystem> files, FileAccess access)
    : listener_(std::move(listener)),
      token_(std::move(token)),
      version_(std::move(version)),
      files_(std::move(files)),
      access_(std::move(access)),
      thread_([this] { listen(); }) {}

Result<std::unique_ptr<PeerServer>> PeerServer::start(const std::string& address, std::string token,
                                                      std::string version, std::shared_ptr<FileSystem> files,
                                                      FileAccess access) {
    SHARDSCOPE_ASSIGN(auto listener, Listener::open(address, 0));
    return std::unique_ptr<PeerServer>(new PeerServer(
        std::move(listener), std::move(token), std::move(version), std::move(files), std::move(access)));
}

PeerServer::~PeerServer() {
    listener_->close();
    thread_.join();
    for (Connection& connection : connections_)
        connection.channel->close();
    for (Connection& connection : connections_)
        connection.thread.join();
}

void PeerServer::listen() {
    for (;;) {
        auto accepted = listener_->accept(Channel::Clock::now() + std::chrono::seconds(5));
        if (!accepted.ok()) return;
        forgetEnded();
        if (!*accepted || connections_.size() >= kMostConnections) continue;
        Connection& connection = connections_.emplace_back();
        connection.channel = std::move((*accepted)->channel);
        connection.thread = std::thread([this, &connection] {
            // A connection that ends, or that does not know the token, is not an error here.
            (void)serve(*connection.channel);
            connection.ended = true;
        });
    }
}

void PeerServer::forgetEnded() {
    for (auto it = connections_.begin(); it != connections_.end();) {
        if (!it->ended) {
            ++it;
            continue;
        }
        it->thread.join();
        it = connections_.erase(it);
    }
}

Status PeerServer::serve(Channel& channel) {
    SHARDSCOPE_ASSIGN(const Frame first, introduceAgent(channel, version_));
    SHARDSCOPE_ASSIGN(const Json wanted, parseMessage(first));
    if (wanted["say"] != "files" || textOf(wanted, "token", 100) != token_)
        return makeError(ErrorCode::permission, "it does not know the token");
    FileService service(channel, files_, access_);
    return service.serve();
}

}  // namespace shardscope
