// The end of a channel that does what the program at the other end says: units of a conversion, files, or one
// verb (cluster/messages.h).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "cluster/channel.h"
#include "cluster/process_group.h"
#include "execute/tile_compute.h"

namespace shardscope::cli {

// What this program can do beyond what every worker can; it opens that once it knows which GPU it is to use.
struct Abilities {
    std::unique_ptr<TileCompute> compute{};
    std::string gpu{};  // UUID
    MakeGroup group{};
};
using OpenAbilities = std::function<Result<Abilities>(std::optional<int> gpu)>;

// Returns the exit code once the other end has no more to say. `open` may be null.
Result<int> serveAgent(std::unique_ptr<Channel> channel, const OpenAbilities& open);
// Over standard input and output, which then lead nowhere.
Result<int> serveStandardStreams(const OpenAbilities& open);

}  // namespace shardscope::cli
