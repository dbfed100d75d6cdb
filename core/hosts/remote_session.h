// One connection to an agent that reads files for this side: requests with numbers, answers matched by them,
// several under way at a time. Private to this room; remote_file_system.h is what others use.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <thread>

#include <nlohmann/json.hpp>

#include "base/mutex.h"
#include "hosts/launch.h"

namespace shardscope {

class RemoteSession {
  public:
    // `name` begins the sentences of its errors: "ssh://node7".
    RemoteSession(std::string name, Launched launched);
    ~RemoteSession();
    RemoteSession(const RemoteSession&) = delete;
    RemoteSession& operator=(const RemoteSession&) = delete;

    // Checks who is there and begins. Errors: remote, damaged.
    Status begin(const std::string& version);

    struct Answer {
        nlohmann::json json;
        std::string body;
        bool delivered = false;  // it is in the buffer that was given for it
    };
    // Sends a request; `say` is also what the answer must say. At most `mostBody` bytes may come back.
    // What comes is put in `into` if it has just that size and is not packed; that stays until wait() is
    // done.
    Result<uint64_t> post(const char* say, nlohmann::json request, std::string_view body, uint64_t mostBody,
                          std::span<std::byte> into = {});
    // Waits for its answer. Errors: what the agent says went wrong; remote when the connection ended or was
    // silent for ten heartbeats; cancelled after close().
    Result<Answer> wait(uint64_t id);
    Result<Answer> ask(const char* say, nlohmann::json request, std::string_view body, uint64_t mostBody);
    // What needs no answer.
    void tell(const char* say, nlohmann::json request);

    bool over() const;
    // Ends it; pending requests are told that it was cancelled. Thread-safe.
    void close();
    uint64_t bytesReceived() const { return launched_.channel->bytesReceived(); }
    uint64_t bytesSent() const { return launched_.channel->bytesSent(); }

  private:
    struct Pending {
        std::string say;
        uint64_t mostBody = 0;
        std::span<std::byte> into;
        std::optional<Result<Answer>> answer;
    };

    void listen();
    std::span<char> bufferOf(const std::string& text, size_t size);
    Status take(Frame frame, bool delivered);
    // `ended`: the stream did, so that ssh may have said why.
    void end(Error error, bool ended);

    const std::string name_;
    Launched launched_;
    std::thread listener_;
    mutable Mutex mutex_;
    Condition changed_;
    std::map<uint64_t, Pending> pending_ SHARDSCOPE_GUARDED_BY(mutex_);
    uint64_t last_ SHARDSCOPE_GUARDED_BY(mutex_) = 0;
    bool closed_ SHARDSCOPE_GUARDED_BY(mutex_) = false;
    std::optional<Error> over_ SHARDSCOPE_GUARDED_BY(mutex_);
};

}  // namespace shardscope
