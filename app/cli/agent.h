// The end of a channel that does what the program at the other end says: units of a conversion, files, or one
// verb (cluster/messages.h).
#pragma once

#include <memory>

#include "cluster/accelerator.h"
#include "hosts/channel.h"

namespace shardscope::cli {

// Returns the exit code once the other end has no more to say.
Result<int> serveAgent(std::unique_ptr<Channel> channel, const Accelerator& accelerator);

}  // namespace shardscope::cli
