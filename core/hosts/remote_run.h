// One verb of the command line, run by an agent on another host, beside the data. What comes is untrusted: it
// is bounded, but not made fit for a terminal here.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "hosts/remote_file_system.h"
#include "hosts/run_service.h"

namespace shardscope {

struct RunSinks {
    // Called with what the verb writes, as it arrives, in the caller's thread; they may block. An error
    // cancels the verb.
    std::function<Status(std::string_view)> out, err;
    Progress* progress = nullptr;                           // kept up to date; may be null
    std::function<void(std::vector<WorkerState>)> workers;  // whenever they do something else; may be null
};

// Waits for the verb's end and returns its exit code. `order.host` names the host in errors. Raising `stop`
// cancels the verb there, whose exit code is then 130; it is waited for some seconds. Errors: remote (no
// connection, or it ended, or was silent for ten heartbeats), cancelled, those of the sinks.
Result<int> runThere(const RemoteHost::Connect& connect, const std::string& version, const RunOrder& order,
                     const RunSinks& sinks, const StopToken& stop);

}  // namespace shardscope
