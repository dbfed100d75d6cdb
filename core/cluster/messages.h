// What an agent and the program that started it say to each other. Each message is one frame whose text is a
// JSON object with "say".
//
// The agent says hello {version, protocol, host, pid} first, unasked. The first message to it says what it is
// for: "start" makes it a worker (below), "files" lets it read files (file_service.h), "run" has it run one
// verb (run_service.h). From then on it says beat every second, and hears beat for each of them if it is on
// another host; it ends when the stream does, or when it has heard nothing for kOrphanTimeout.
//
// - worker: hello {version, protocol, host, pid}: first, unasked
// - coordinator: serve {silence, listen, token, source} and a body: two absolute paths, `source` says how
// long
//   the first one is: the worker listens at that address and lets those who know the token read the one and,
//   unless it is empty, write the other. Only where files are not on file systems that all share
// - worker: serving {port}
// - coordinator: start {neighbors, silence, identity, device, gpu, peers, self, places, request} and a body:
// the
//   directory where the job was given, a zero byte, the request as JSON (core/engine/request.h; paths need
//   not be UTF-8), `request` bytes long, and where the source is on several disks PeerTable::packed(); after
//   so many seconds in which it hears nothing (0 = none) the worker ends. `peers` is Peers::json(), `self`
//   the worker's number, `places` where files of the destination are (PeerDisks::places(); empty = one file
//   system); `device` the GPU that is its own, and `gpu` whether that makes tiles
// - worker: ready {gpu}: plan and source are the coordinator's; the UUID of its GPU
// - coordinator: group {host, port, rank, size, backend}: the worker joins that process group and writes what
//   rank 0 sends it; ungroup {}: it leaves it at once
// - worker: grouped {}: it has left it
// - coordinator: unit {id, work, bytes, spans: [[tensor, first, count], ...]}: several may be under way; work
// is
//   "convert" or, once all of that is done, "verify" or "reread"
// - worker: beat {bytes, busy}: every second: done so far of that work, and what threads spent their time on
// - coordinator: beat {}: for each of these, to another host
// - worker: done {id, read, moved, busy} and a body: on disk, if it is to be there; the body is
// UnitResult::tiles
// - worker: failed {id, error}: without an id when it is not one unit's fault
// - coordinator: end {}: the worker ends; so it does when the stream ends
#pragma once

#include <nlohmann/json.hpp>

#include "cluster/channel.h"
#include "cluster/coordinator.h"
#include "execute/units.h"

namespace shardscope {

constexpr int kProtocol = 8;
constexpr std::chrono::milliseconds kBeat{1000};
constexpr std::chrono::milliseconds kLease = 3 * kBeat;

// How long the other end, which sends heartbeats, has been silent. check() is to be asked about once a beat
// or more often; of the time since it was last asked no more than a beat counts, so a machine or process that
// stood still does not take its own stop for the other's. One thread at a time.
class Silence {
  public:
    using Clock = Channel::Clock;
    // `heard`: when something last came. Errors: remote, after kLease without anything.
    Status check(Clock::time_point heard);

  private:
    Clock::time_point heard_{}, asked_{};
    Clock::duration counted_{0};
};
// Until it has said hello: long enough for a host that starts the program from a slow disk.
constexpr std::chrono::seconds kStart{60};
// A link that is cut says nothing: an agent of another host that hears nothing for so long ends.
constexpr std::chrono::seconds kOrphanTimeout{60};
constexpr size_t kMostText = size_t{64} << 10;  // of a message's text, where nothing longer is expected

// The object of a frame; errors: damaged.
Result<nlohmann::json> parseMessage(const Frame& frame);
Frame message(const nlohmann::json& json, std::string body = {});

// A field of what somebody said; nothing when it is absent or of another kind. Texts come as oneLine().
std::optional<uint64_t> numberOf(const nlohmann::json& json, const char* key);
std::optional<Progress::Busy> busyFrom(const nlohmann::json& json);
// What the workers of a run are doing, for who watches it from elsewhere. Errors: damaged.
std::string workersText(const std::vector<WorkerState>& workers);
Result<std::vector<WorkerState>> workersFrom(std::string_view text);
// What was added since `before`; nothing of what has become less.
Progress::Busy since(const Progress::Busy& now, const Progress::Busy& before);
std::string textOf(const nlohmann::json& json, const char* key, size_t most);

// The agent's end: greets, says hello, and waits for what it is for. Errors: remote, damaged.
Result<Frame> introduceAgent(Channel& channel, const std::string& version);
// The other end: takes the hello and checks it. Errors: remote, with both versions.
Status meetAgent(Channel& channel, const std::string& version);
Status checkHello(const nlohmann::json& hello, const std::string& version, bool sameVersion);

// Bytes for a body, compressed when that is worth it; `packed` says whether. And back: `size` is what they
// must come to. Errors: damaged.
std::string pack(std::string bytes, bool& packed);
Result<std::string> unpack(std::string body, bool packed, uint64_t size);

nlohmann::json identityJson(const JobIdentity& identity);
Result<JobIdentity> identityFrom(const nlohmann::json& json);
nlohmann::json unitJson(size_t id, const Unit& unit);
Result<std::pair<uint64_t, Unit>> unitFrom(const nlohmann::json& json);
nlohmann::json errorJson(const Error& error);
// What a worker says went wrong; never trusted to be short or printable.
Error errorFrom(const nlohmann::json& json);

}  // namespace shardscope
