// Agents that tests are: threads at the other end of a pair of sockets, which serve files as they are or say
// whatever a test wants them to.
#pragma once

#include <QFile>
#include <QTemporaryDir>
#include <atomic>
#include <list>
#include <optional>
#include <thread>

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cluster/messages.h"
#include "engine/engine.h"
#include "engine/report.h"
#include "formats/index/index.h"
#include "hosts/file_service.h"
#include "hosts/remote_file_system.h"

namespace shardscope::test {

using namespace std::chrono_literals;
using Json = nlohmann::json;
using Clock = Channel::Clock;

inline const std::string kHost = "ssh://there";
// Seconds in which an end is seen that nothing waits for: less than any patience (30 s and more), and much
// more than it takes, however busy the machine is.
inline constexpr double kSoon = 25;

struct Ends {
    int client = -1, agent = -1;
};
inline Ends makeEnds() {
    int ends[2] = {-1, -1};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return {};
    return {ends[0], ends[1]};
}

// Agents that run as threads of the test, one for each connection, each doing `serve` with its greeted
// channel.
class Agents {
  public:
    using Serve = std::function<void(Channel&)>;
    explicit Agents(Serve serve, std::string noise = {})
        : serve_(std::move(serve)), noise_(std::move(noise)) {}
    ~Agents() {
        for (auto& thread : threads_)
            thread.join();
    }

    Result<Launched> connect() {
        const Ends ends = makeEnds();
        if (!noise_.empty() && write(ends.agent, noise_.data(), noise_.size()) < 0)
            return damaged("no noise");
        threads_.emplace_back([this, fd = ends.agent] {
            Channel channel(fd, fd);
            if (channel.greet(Clock::now() + 10s).ok()) serve_(channel);
        });
        Launched launched;
        launched.channel = std::make_unique<Channel>(ends.client, ends.client);
        SHARDSCOPE_TRY(launched.channel->greet(Clock::now() + 10s));
        ++connections;
        return launched;
    }
    std::shared_ptr<RemoteHost> host() {
        return std::make_shared<RemoteHost>(kHost, "v", [this] { return connect(); });
    }

    std::atomic<int> connections{0};

  private:
    Serve serve_;
    std::string noise_;
    std::list<std::thread> threads_;
};

inline void sayHello(Channel& channel) {
    (void)channel.send(message({{"say", "hello"}, {"version", "v"}, {"protocol", kProtocol}}));
}
// The next request, or nothing when there is none for a while.
inline std::optional<Frame> heard(Channel& channel, std::chrono::milliseconds patience = 10s) {
    auto frame = channel.receive(Clock::now() + patience);
    return frame.ok() ? std::move(*frame) : std::nullopt;
}

inline void untilGone(Channel& channel) {
    while (channel.receive(Clock::now() + 10s).ok()) {
    }
}

inline void serveFiles(Channel& channel) {
    sayHello(channel);
    if (!heard(channel)) return;
    FileService service(channel, systemFileSystem());
    (void)service.serve();
}

inline CheckpointOptions onHost(const std::shared_ptr<RemoteHost>& host) {
    CheckpointOptions options;
    options.fileSystem = remoteFileSystem(host);
    return options;
}

inline std::string withoutHost(std::string text) {
    for (size_t at = 0; (at = text.find(kHost, at)) != std::string::npos;)
        text.erase(at, kHost.size());
    return text;
}

// What opening, validating every byte and the index make of it, as text.
inline std::string everythingOf(const std::string& path, const CheckpointOptions& options) {
    const auto checkpoint = openCheckpoint(path, options);
    if (!checkpoint.ok()) return "error " + withoutHost(describe(checkpoint.error()));
    ThreadPool pool(2);
    MemoryBudget memory(uint64_t{256} << 20);
    Resources resources;
    resources.pool = &pool;
    resources.memory = &memory;
    ValidateOptions how;
    how.level = ValidateLevel::values;
    const auto report = validateCheckpoint(*checkpoint, how, resources);
    std::string text = report.ok() ? validationJson(*report) : describe(report.error());
    std::vector<TensorId> ids;
    for (TensorId t = 0; t < checkpoint->catalog().tensorCount(); ++t)
        ids.push_back(t);
    const auto digests = digestTensors(*checkpoint->reader, ids, {}, resources);
    if (!digests.ok())
        text += "\ndigests: " + describe(digests.error());
    else
        for (const TensorDigest& d : *digests)
            text += "\n" + d.digest.hex();
    bool readable = true;
    for (ObjectId o = 0; o < checkpoint->catalog().objects().size(); ++o) {
        const auto value = checkpoint->reader->objectValue(o);
        text += "\n" + (value.ok() ? valueRepr(*value) : describe(value.error()));
        readable = readable && value.ok();
    }
    // All that the metadata says. Why an object cannot be read is kept in it with the path, which differs.
    const auto index = encodeIndex(*checkpoint->reader, IndexOrigin{});
    if (!index.ok())
        text += "\nindex: " + describe(index.error());
    else if (readable)
        text += "\n" + *index;
    return withoutHost(text);
}

inline std::string writeFile(const QTemporaryDir& directory, const QString& name, const QByteArray& bytes) {
    QFile file(directory.filePath(name));
    if (!file.open(QIODevice::WriteOnly)) return {};
    file.write(bytes);
    return file.fileName().toStdString();
}

inline double secondsSince(Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
}

// An agent that says hello and then answers each request as `reply` says; nothing = it says nothing more.
using Reply = std::function<std::optional<Frame>(const Json& request, const std::string& body)>;
inline Agents::Serve scripted(Reply reply) {
    return [reply = std::move(reply)](Channel& channel) {
        sayHello(channel);
        while (const auto frame = heard(channel)) {
            const auto json = parseMessage(*frame);
            if (!json.ok() || (*json)["say"] == "close" || (*json)["say"] == "files") continue;
            if (const auto answer = reply(*json, frame->body)) (void)channel.send(*answer);
        }
    };
}

inline std::string entry(const std::string& name, uint8_t kind = 0, uint64_t size = 1) {
    std::string bytes(1, static_cast<char>(kind));
    bytes.append(reinterpret_cast<const char*>(&size), sizeof size);
    const int64_t modified = 0;
    bytes.append(reinterpret_cast<const char*>(&modified), sizeof modified);
    const auto length = static_cast<uint16_t>(name.size());
    bytes.append(reinterpret_cast<const char*>(&length), sizeof length);
    return bytes + name;
}
inline Frame page(const Json& request, const std::string& entries, bool more = false) {
    return message({{"say", "list"}, {"id", request["id"]}, {"more", more}, {"size", entries.size()}},
                   entries);
}
inline Frame openedFile(const Json& request, uint64_t size, uint64_t length = 0) {
    return message({{"say", "open"},
                    {"id", request["id"]},
                    {"file", 1},
                    {"size", size},
                    {"print", {1, 2, size, 4, 5}},
                    {"length", length}},
                   std::string(length, 'x'));
}

}  // namespace shardscope::test
