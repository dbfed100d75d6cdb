// Who does a conversion, as --on and jobs say it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cluster/coordinator.h"

namespace shardscope {

// Ranks that shardscope-worker starts on this machine; it is built only where libtorch is.
struct RankLaunch {
    unsigned ranks = 0;  // 0 = one for each GPU of this machine
    std::string mode;    // "auto", "direct", "broadcast", "exchange"; empty = as the source allows
    // What shardscope-worker takes before the words of the conversion.
    std::vector<std::string> words() const;
};
struct Places {
    std::vector<WorkerSpec> workers;  // that this program starts; or
    std::optional<RankLaunch> ranks;  // these, alone
};
// "local:4", "ssh:HOST[,HOST...]", "slurm[:KEY=VALUE,...]", several of them joined by '+'; or "ranks:4",
// "ranks:4,broadcast", "local-gpus[,MODE]". Errors: usage.
Result<Places> parsePlaces(std::string_view text);

// shardscope-worker beside `program`. Errors: notFound, with how to get it.
Result<std::string> workerBeside(const std::string& program);

// GPUs that the driver of this machine shows.
unsigned gpusHere();

}  // namespace shardscope
