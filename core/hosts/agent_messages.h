// What an agent and the program that started it say to each other. Each message is one frame whose text is a
// JSON object with "say".
//
// The agent says hello {version, protocol, host, pid} first, unasked. The first message to it says what it is
// for: "files" lets it read files (file_service.h), "run" has it run one verb (run_service.h), "start" or
// "serve" makes it a worker (cluster/messages.h). From then on it says beat every second, and hears beat for
// each of them if it is on another host. It ends when the stream does, or when it has heard nothing for
// kOrphanTimeout.
#pragma once

#include <nlohmann/json.hpp>

#include "hosts/channel.h"
#include "hosts/worker_state.h"

namespace shardscope {

constexpr int kProtocol = 10;
constexpr std::chrono::milliseconds kBeat{1000};
constexpr std::chrono::milliseconds kLease = 10 * kBeat;

// How long the other end, which sends heartbeats, has been silent. Call check() at least once a beat. Of the
// time since its last call at most one beat counts. So a process that stood still does not take its own pause
// for the other's. One thread at a time.
class Silence {
  public:
    using Clock = Channel::Clock;
    // `heard`: when something last came. Errors: remote, after kLease without anything.
    Status check(Clock::time_point heard);

  private:
    Clock::time_point heard_{}, asked_{};
    Clock::duration counted_{0};
};
// How long an agent waits for the greeting and for its first message.
constexpr std::chrono::seconds kStart{60};
// How long an agent that has greeted may take to say hello: it runs and was greeted, so nothing but the
// network is in between. One that never understands the greeting is found by this.
constexpr std::chrono::seconds kHello{15};
// A link that is cut says nothing: an agent of another host that hears nothing for so long ends.
constexpr std::chrono::seconds kOrphanTimeout{60};
constexpr size_t kMostText = size_t{64} << 10;  // of a message's text, where nothing longer is expected

// The object of a frame; errors: damaged.
Result<nlohmann::json> parseMessage(const Frame& frame);
Frame message(const nlohmann::json& json, std::string body = {});

// A field of a message; empty when it is absent or of another type. Texts are passed through oneLine().
std::optional<uint64_t> numberOf(const nlohmann::json& json, const char* key);
std::optional<Progress::Busy> busyFrom(const nlohmann::json& json);
// What the workers of a run are doing, for who watches it from elsewhere. Errors: damaged.
std::string workersText(const std::vector<WorkerState>& workers);
Result<std::vector<WorkerState>> workersFrom(std::string_view text);
// What was added since `before`; 0 for what has become less.
Progress::Busy since(const Progress::Busy& now, const Progress::Busy& before);
std::string textOf(const nlohmann::json& json, const char* key, size_t most);

// The agent's end: greets, says hello, and waits for what it is for. Errors: remote, damaged.
Result<Frame> introduceAgent(Channel& channel, const std::string& version);
// The other end: takes the hello and checks it. Errors: remote, with both versions.
Status meetAgent(Channel& channel, const std::string& version);
Status checkHello(const nlohmann::json& hello, const std::string& version, bool sameVersion);

// The bytes of a body, compressed when that makes them smaller; `packed` says whether. unpack() is the
// reverse: `size` is the length that must result. Errors: damaged.
std::string pack(std::string bytes, bool& packed);
Result<std::string> unpack(std::string body, bool packed, uint64_t size);

nlohmann::json errorJson(const Error& error);
// What a worker says went wrong; never trusted to be short or printable.
Error errorFrom(const nlohmann::json& json);

}  // namespace shardscope
