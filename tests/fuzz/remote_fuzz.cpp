// Any frames as what an agent answers, and as what it is asked: an error, or files that can be read. The
// bytes are cut into frames: u8 length of the text, u16 of the body, text, body; the first byte of all says
// which side they go to.
#include <csignal>
#include <thread>

#include <sys/socket.h>

#include "cluster/messages.h"
#include "fuzz_file.h"
#include "hosts/file_service.h"
#include "hosts/remote_file_system.h"
#include "hosts/run_service.h"

using namespace shardscope;
using namespace std::chrono_literals;

namespace {

class OneFile final : public FileSystem {
  public:
    explicit OneFile(std::shared_ptr<Directory> directory) : directory_(std::move(directory)) {}
    Result<std::shared_ptr<Directory>> openDirectory(const std::string&) override { return directory_; }
    Status makeDirectory(const std::string&) override { __builtin_trap(); }
    Result<DirectoryEntry> stat(const std::string&) override { return directory_->stat("fuzz"); }
    Status rename(const std::string&, const std::string&) override { __builtin_trap(); }
    Status exchange(const std::string&, const std::string&) override { __builtin_trap(); }
    Status removeTree(const std::string&) override { __builtin_trap(); }
    Status syncDirectory(const std::string&) override { __builtin_trap(); }
    Result<uint64_t> freeBytes(const std::string&) override { __builtin_trap(); }
    Result<std::shared_ptr<WriteFile>> createScratch(const std::string&) override { __builtin_trap(); }
    Result<std::shared_ptr<const ReadFile>> reopen(const std::shared_ptr<WriteFile>&) override {
        __builtin_trap();
    }

  private:
    std::shared_ptr<Directory> directory_;
};

std::vector<Frame> framesOf(const uint8_t* data, size_t size) {
    std::vector<Frame> frames;
    for (size_t at = 0; size - at >= 3 && frames.size() < 64;) {
        size_t text = data[at], body = data[at + 1] | size_t{data[at + 2]} << 8;
        at += 3;
        text = std::min(text, size - at);
        body = std::min(body, size - at - text);
        const char* from = reinterpret_cast<const char*>(data) + at;
        frames.push_back({std::string(from, text), std::string(from + text, body)});
        at += text + body;
    }
    return frames;
}

std::optional<Frame> heard(Channel& channel, std::chrono::milliseconds patience = 10s) {
    auto frame = channel.receive(Channel::Clock::now() + patience);
    return frame.ok() ? std::move(*frame) : std::nullopt;
}

void toService(const std::vector<Frame>& frames, const uint8_t* data, size_t size) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return;
    std::thread agent([fd = ends[1], data, size] {
        Channel channel(fd, fd);
        if (!channel.greet(Channel::Clock::now() + 10s).ok()) return;
        auto directory =
            std::make_shared<fuzz::BytesDirectory>(std::make_shared<fuzz::BytesFile>(data, size));
        FileService service(channel, std::make_shared<OneFile>(std::move(directory)));
        (void)service.serve();
    });
    {
        Channel channel(ends[0], ends[0]);
        (void)channel.greet(Channel::Clock::now() + 10s);
        for (const Frame& frame : frames)
            (void)channel.send(frame);
    }
    agent.join();
}

void toClient(const std::vector<Frame>& frames) {
    std::thread agent;
    const auto host = std::make_shared<RemoteHost>("ssh://fuzz", "v", [&]() -> Result<Launched> {
        if (agent.joinable()) return makeError(ErrorCode::remote, "once is enough");
        int ends[2];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return damaged("no sockets");
        agent = std::thread([fd = ends[1], &frames] {
            Channel channel(fd, fd);
            if (!channel.greet(Channel::Clock::now() + 10s).ok()) return;
            (void)channel.send(message({{"say", "hello"}, {"version", "v"}, {"protocol", kProtocol}}));
            (void)heard(channel);  // files
            for (const Frame& frame : frames) {
                if (!heard(channel, 20ms)) return;  // a whole request is on its way at once
                (void)channel.send(frame);
            }
        });
        Launched launched;
        launched.channel = std::make_unique<Channel>(ends[0], ends[0]);
        SHARDSCOPE_TRY(launched.channel->greet(Channel::Clock::now() + 10s));
        return launched;
    });
    const auto directory = remoteFileSystem(host)->openDirectory("/fuzz");
    if (directory.ok()) {
        const auto entries = (*directory)->list();
        for (size_t i = 0; entries.ok() && i < entries->size(); ++i) {
            if (!checkRelativeName((*entries)[i].name).ok()) __builtin_trap();
        }
        const auto file = (*directory)->openFile("fuzz");
        std::vector<std::byte> bytes(1000);
        for (uint64_t at = 0; file.ok() && at + bytes.size() <= (*file)->size() && at < 5000;
             at += bytes.size()) {
            if (!(*file)->readAt(at, bytes).ok()) break;
        }
    }
    host->close();
    if (agent.joinable()) agent.join();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    static const auto ignored = std::signal(SIGPIPE, SIG_IGN);  // of ends that are gone
    (void)ignored;
    if (size == 0) return 0;
    const std::vector<Frame> frames = framesOf(data + 1, size - 1);
    for (const Frame& frame : frames) {
        (void)runOrderFrom(frame);
        (void)unpack(frame.body, true, frame.text.size() * 100);
    }
    if (data[0] & 1)
        toService(frames, data, size);
    else
        toClient(frames);
    return 0;
}
