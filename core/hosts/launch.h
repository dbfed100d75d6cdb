// How an agent is started: a child of this process, or of the user's ssh.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "hosts/channel.h"
#include "hosts/process.h"

namespace shardscope {

struct HostSpec {
    std::string host{};  // empty = this machine; with "user@" where that is wanted
    uint16_t port = 0;   // 0 = as ssh is configured
};

// What is started as an agent.
struct AgentProgram {
    std::string version;        // of this program; workers must have the same
    std::string program;        // to run here
    std::string remoteProgram;  // the same on other hosts; empty = the static one is copied there
};

struct Launched {
    std::unique_ptr<Process> process;
    std::unique_ptr<Channel> channel;  // greeted
    std::string token{};               // that the other end asks for (peers.h)
};

// "ssh://[user@]host[:port]/absolute/path", as it is; nothing in it is decoded. Errors: usage.
struct SshPath {
    HostSpec host;
    std::string path;
};
bool isSshPath(std::string_view text);
bool isElsewhere(std::string_view text);  // on another host, in a bucket, on the hub or a web server
Result<SshPath> parseSshPath(std::string_view text);
std::string hostText(const HostSpec& host);  // "ssh://user@host:port", without a path

// A host as ssh takes it. Errors: usage (it begins with '-', or holds what no host name has).
Status checkHost(std::string_view host);

// Starts an agent here or through ssh. `stopping` is polled several times a second; true gives up. Errors:
// notFound, remote with what ssh or the host said, cancelled.
Result<Launched> launchAgent(const HostSpec& host, const AgentProgram& agent,
                             const std::function<bool()>& stopping = {});

// The same with any program in between that passes the streams on. `who` begins an error's sentence;
// `prepare` sees the process before the greeting.
Result<Launched> launchProgram(const std::string& who, const std::vector<std::string>& words,
                               std::chrono::seconds patience,
                               const std::function<void(Process&)>& prepare = {},
                               const std::function<bool()>& stopping = {});

// The end of what it wrote to standard error, in one line.
std::string stderrTail(Process& process, size_t most);

// The error of a connection that failed or ended, with what ssh or the program said on its way out. Waits for
// that at most half a second. `who` begins the sentence.
Error endOf(const std::string& who, Error error, Process& process);

}  // namespace shardscope
