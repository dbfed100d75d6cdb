#include "hosts/agent_messages.h"

#include <fmt/format.h>
#include <unistd.h>
#include <zstd.h>

#include "base/option_words.h"
#include "base/text.h"
#include "base/units.h"

namespace shardscope {
namespace {

using Json = nlohmann::json;

std::optional<ErrorCode> errorCodeFrom(std::string_view name) {
    for (int code = 0; code <= static_cast<int>(ErrorCode::internal); ++code) {
        if (errorCodeName(static_cast<ErrorCode>(code)) == name) return static_cast<ErrorCode>(code);
    }
    return std::nullopt;
}

constexpr size_t kMostWhy = 300;  // of why a worker was lost

}  // namespace

std::optional<uint64_t> numberOf(const Json& json, const char* key) {
    const auto it = json.find(key);
    if (it == json.end() || !it->is_number_unsigned()) return std::nullopt;
    return it->get<uint64_t>();
}

std::optional<Progress::Busy> busyFrom(const Json& json) {
    Progress::Busy busy{};
    const auto it = json.find("busy");
    if (it == json.end() || !it->is_array() || it->size() != busy.size()) return std::nullopt;
    for (size_t i = 0; i < busy.size(); ++i) {
        if (!(*it)[i].is_number_unsigned()) return std::nullopt;
        busy[i] = (*it)[i].get<uint64_t>();
    }
    return busy;
}

std::string_view phaseName(WorkerState::Phase phase) {
    constexpr std::string_view names[] = {"starting", "working", "idle", "lost", "ended"};
    return names[static_cast<size_t>(phase)];
}

std::string workersText(const std::vector<WorkerState>& workers) {
    Json all = Json::array();
    for (const WorkerState& worker : workers)
        all.push_back({{"name", worker.name},
                       {"slurm_job", worker.slurmJob},
                       {"phase", static_cast<unsigned>(worker.phase)},
                       {"bytes", worker.bytes},
                       {"units", worker.units},
                       {"busy", worker.busy},
                       {"why", worker.why.substr(0, kMostWhy)}});
    return dumpJson(all);
}

Result<std::vector<WorkerState>> workersFrom(std::string_view text) {
    const Json all = Json::parse(text, nullptr, false);
    if (!all.is_array()) return damaged("malformed worker list");
    std::vector<WorkerState> workers;
    for (const Json& each : all) {
        if (!each.is_object()) return damaged("malformed worker entry");
        const auto phase = numberOf(each, "phase"), bytes = numberOf(each, "bytes"),
                   units = numberOf(each, "units");
        const auto busy = busyFrom(each);
        if (!phase || *phase > static_cast<unsigned>(WorkerState::Phase::ended) || !bytes || !units || !busy)
            return damaged("malformed worker entry");
        workers.push_back({.name = textOf(each, "name", 200),
                           .slurmJob = textOf(each, "slurm_job", 200),
                           .phase = static_cast<WorkerState::Phase>(*phase),
                           .bytes = *bytes,
                           .units = *units,
                           .busy = *busy,
                           .why = textOf(each, "why", kMostWhy)});
    }
    return workers;
}

Progress::Busy since(const Progress::Busy& now, const Progress::Busy& before) {
    Progress::Busy fresh{};
    for (size_t i = 0; i < fresh.size(); ++i)
        fresh[i] = now[i] > before[i] ? now[i] - before[i] : 0;
    return fresh;
}

std::string textOf(const Json& json, const char* key, size_t most) {
    const auto it = json.find(key);
    if (it == json.end() || !it->is_string()) return {};
    return oneLine(it->get_ref<const std::string&>(), most);
}

Result<Json> parseMessage(const Frame& frame) {
    Json json = Json::parse(frame.text, nullptr, false);
    if (!json.is_object() || !json.contains("say") || !json["say"].is_string())
        return damaged("not a valid protocol message");
    return json;
}

Frame message(const Json& json, std::string body) {
    return {dumpJson(json), std::move(body)};
}

Status Silence::check(Clock::time_point heard) {
    const auto now = Clock::now();
    if (heard > heard_) {
        counted_ = {};
        heard_ = asked_ = heard;
    }
    counted_ += std::min<Clock::duration>(now - asked_, kBeat);
    asked_ = now;
    if (counted_ < kLease) return {};
    return makeError(ErrorCode::remote,
                     fmt::format("it has been silent for {} seconds", kLease / std::chrono::seconds(1)));
}

Result<Frame> introduceAgent(Channel& channel, const std::string& version) {
    SHARDSCOPE_TRY(channel.greet(Channel::Clock::now() + kStart));
    char host[256] = {};
    gethostname(host, sizeof host - 1);
    SHARDSCOPE_TRY(channel.send(message({{"say", "hello"},
                                         {"version", version},
                                         {"protocol", kProtocol},
                                         {"host", host},
                                         {"pid", getpid()}})));
    SHARDSCOPE_ASSIGN(auto frame, channel.receive(Channel::Clock::now() + kStart));
    if (!frame) return makeError(ErrorCode::remote, "nobody says what is to be done");
    return std::move(*frame);
}

Status checkHello(const Json& hello, const std::string& version, bool sameVersion) {
    if (textOf(hello, "say", 40) != "hello") return damaged("not a valid protocol message");
    const std::string said = textOf(hello, "version", 40), theirs = said.empty() ? "unknown" : said;
    std::string why;
    if (numberOf(hello, "protocol") != uint64_t{kProtocol})
        why = fmt::format("shardscope there is version {} and talks in another way than this one, {}", theirs,
                          version);
    else if (sameVersion && said != version)
        why = fmt::format("shardscope there is version {} and this one {}, which cannot share a conversion",
                          theirs, version);
    if (why.empty()) return {};
    return makeError(ErrorCode::remote, std::move(why))
        .withHint(fmt::format("install this version there, or leave out {}: then it is copied",
                              option("remote-program")));
}

Status meetAgent(Channel& channel, const std::string& version) {
    SHARDSCOPE_ASSIGN(const auto frame, channel.receive(Channel::Clock::now() + kHello));
    if (!frame) return makeError(ErrorCode::remote, "shardscope there says nothing");
    if (frame->text.size() > kMostText) return damaged("not a valid protocol message");
    SHARDSCOPE_ASSIGN(const Json hello, parseMessage(*frame));
    return checkHello(hello, version, false);
}

std::string pack(std::string bytes, bool& packed) {
    packed = false;
    constexpr size_t kWorthIt = 256;
    if (bytes.size() < kWorthIt) return bytes;
    std::string less(ZSTD_compressBound(bytes.size()), '\0');
    const size_t size = ZSTD_compress(less.data(), less.size(), bytes.data(), bytes.size(), 1);
    if (ZSTD_isError(size) || size > bytes.size() - bytes.size() / 16) return bytes;
    less.resize(size);
    packed = true;
    return less;
}

Result<std::string> unpack(std::string body, bool packed, uint64_t size) {
    if (size > Channel::kMaxFrame) return damaged(fmt::format("a message of {}", counted(size, "byte")));
    if (packed) {
        std::string bytes(size, '\0');
        if (ZSTD_decompress(bytes.data(), bytes.size(), body.data(), body.size()) != size)
            return damaged("a message whose compressed bytes are damaged");
        return bytes;
    }
    if (body.size() != size)
        return damaged(
            fmt::format("a message with {} instead of {}", counted(body.size(), "byte"), countText(size)));
    return body;
}

Json errorJson(const Error& error) {
    Json json{{"code", errorCodeName(error.code)},
              {"message", error.message},
              {"hint", error.hint},
              {"file", error.location.file},
              {"tensor", error.location.tensor},
              {"rule", error.location.rule}};
    if (error.location.offset) json["offset"] = *error.location.offset;
    return json;
}

Error errorFrom(const Json& json) {
    if (!json.is_object()) return makeError(ErrorCode::remote, "it failed without saying why");
    ErrorCode code = errorCodeFrom(textOf(json, "code", 40)).value_or(ErrorCode::remote);
    // A worker that was told to stop, or that is at odds with itself, says nothing about the job.
    if (code == ErrorCode::cancelled) code = ErrorCode::remote;
    Error error = makeError(code, textOf(json, "message", 2000));
    error.hint = textOf(json, "hint", 2000);
    error.location.file = textOf(json, "file", 4096);
    error.location.tensor = textOf(json, "tensor", 4096);
    error.location.rule = textOf(json, "rule", 60);
    error.location.offset = numberOf(json, "offset");
    return error;
}

}  // namespace shardscope
