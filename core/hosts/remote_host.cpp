#include <fmt/format.h>

#include "hosts/remote_file_system.h"
#include "hosts/remote_session.h"

namespace shardscope {
namespace {

// Many threads that ask at once are told of one failed attempt, and do not each make another.
constexpr std::chrono::milliseconds kSameAttempt{500};

// The name of a host in a sentence: "rank 2 on node7" where paths are shown as "rank 2 on node7:/data/x".
std::string spoken(std::string name) {
    if (name.ends_with(':')) name.pop_back();
    return name;
}

}  // namespace

RemoteHost::RemoteHost(std::string name, std::string version, Connect connect)
    : name_(std::move(name)), version_(std::move(version)), connect_(std::move(connect)) {}

RemoteHost::~RemoteHost() = default;

Result<std::shared_ptr<RemoteSession>> RemoteHost::session(bool ownAttempt) {
    const auto standing = [&]() -> Result<std::shared_ptr<RemoteSession>> {
        MutexLock lock(mutex_);
        if (closed_) return makeError(ErrorCode::cancelled, spoken(name_) + ": the connection was closed");
        if (session_ && !session_->over()) return session_;
        if (failed_ && !ownAttempt && Channel::Clock::now() - failedAt_ < kSameAttempt) return *failed_;
        return std::shared_ptr<RemoteSession>();
    };
    SHARDSCOPE_ASSIGN(auto session, standing());
    if (session) return session;
    MutexLock one(connecting_);
    SHARDSCOPE_ASSIGN(session, standing());
    if (session) return session;

    Status status;
    if (auto launched = connect_(); launched.ok()) {
        session = std::make_shared<RemoteSession>(spoken(name_), std::move(launched).value());
        status = session->begin(version_);
    } else {
        status = std::move(launched).error();
    }
    std::shared_ptr<RemoteSession> former;  // its thread is waited for without the lock
    MutexLock lock(mutex_);
    if (!status.ok()) {
        failed_ = status.error();
        failedAt_ = Channel::Clock::now();
        return std::move(status).error();
    }
    failed_.reset();
    former = replaceSession(session);
    if (closed_) {
        session->close();
        return makeError(ErrorCode::cancelled, spoken(name_) + ": the connection was closed");
    }
    return session;
}

std::shared_ptr<RemoteSession> RemoteHost::replaceSession(std::shared_ptr<RemoteSession> next) {
    std::shared_ptr<RemoteSession> former = std::exchange(session_, std::move(next));
    if (former) {
        before_.received += former->bytesReceived();
        before_.sent += former->bytesSent();
    }
    return former;
}

Status RemoteHost::connect() {
    SHARDSCOPE_ASSIGN(const auto session, session());
    (void)session;
    return {};
}

Status RemoteHost::reconnect() {
    close();
    std::shared_ptr<RemoteSession> former;  // as above
    {
        MutexLock lock(mutex_);
        closed_ = false;
        failed_.reset();
        // The closed one counts as over only once its thread has seen it.
        former = replaceSession(nullptr);
    }
    // An attempt that was given up may still be under way; what comes of it says nothing about this one.
    SHARDSCOPE_ASSIGN(const auto session, session(true));
    (void)session;
    return {};
}

bool RemoteHost::connected() const {
    MutexLock lock(mutex_);
    return session_ && !session_->over();
}

void RemoteHost::close() {
    MutexLock lock(mutex_);
    closed_ = true;
    if (session_) session_->close();
}

RemoteHost::Traffic RemoteHost::traffic() const {
    MutexLock lock(mutex_);
    Traffic all = before_;
    if (session_) {
        all.received += session_->bytesReceived();
        all.sent += session_->bytesSent();
    }
    return all;
}

Result<std::shared_ptr<RemoteHost>> remoteHost(const HostSpec& host, const AgentProgram& agent) {
    SHARDSCOPE_TRY(checkHost(host.host));
    return std::make_shared<RemoteHost>(hostText(host), agent.version,
                                        [host, agent] { return launchAgent(host, agent); });
}

}  // namespace shardscope
