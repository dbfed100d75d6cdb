// Jobs that ranks do: "ranks:4", "ranks:4,broadcast", "local-gpus[,MODE]". They are done by
// shardscope-worker, which is built only where libtorch is.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace shardscope {

struct RankLaunch {
    unsigned ranks = 0;  // 0 = one for each GPU of this machine
    std::string mode;    // "auto", "direct", "broadcast", "exchange"; empty = as the source allows
    // What shardscope-worker takes before the words of the conversion.
    std::vector<std::string> words() const;
};
// Nothing where the text means other places (parsePlaces() of core/cluster). Errors: usage.
Result<std::optional<RankLaunch>> parseRankPlaces(std::string_view text);

// shardscope-worker beside `program`. Errors: notFound, with how to get it.
Result<std::string> workerBeside(const std::string& program);

// GPUs that the driver of this machine shows.
unsigned gpusHere();

}  // namespace shardscope
