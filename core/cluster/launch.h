// How a worker is started: a child of this process, or of the user's ssh.
#pragma once

#include <memory>

#include "cluster/channel.h"
#include "cluster/farm.h"
#include "cluster/process.h"

namespace shardscope {

struct Launched {
    std::unique_ptr<Process> process;
    std::unique_ptr<Channel> channel;  // greeted
};

// A host as ssh takes it. Errors: usage (it begins with '-', or holds what no host name has).
Status checkHost(std::string_view host);

// Errors: notFound, remote with what ssh or the host said.
Result<Launched> launchWorker(const WorkerPlace& place, const FarmOptions& options);

}  // namespace shardscope
