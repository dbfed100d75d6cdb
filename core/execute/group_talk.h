// What ranks say to each other beside the bytes of tensors. Private to this room.
#pragma once

#include <vector>

#include <nlohmann/json.hpp>

#include "execute/process_group.h"

namespace shardscope {

constexpr uint64_t kMostGroupText = uint64_t{1} << 31;  // of all ranks' together

// How many bytes each rank is about to send to this one, which sends `sending` to them. Errors: damaged, for
// one of more than `most`, or more than kMostGroupText in all.
Result<std::vector<uint64_t>> swapSizes(ProcessGroup& group, size_t lane,
                                        const std::vector<uint64_t>& sending, uint64_t most);

// What each rank has to say, with whether all is well there. Errors: the one that tells most, with the rank's
// name.
Result<std::vector<nlohmann::json>> gatherSaid(ProcessGroup& group, size_t lane, nlohmann::json mine,
                                               const Status& status);

}  // namespace shardscope
