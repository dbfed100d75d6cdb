// Ranges of the bytes of a file. Private to this room.
#pragma once

#include <cstdint>
#include <map>

#include <nlohmann/json_fwd.hpp>

namespace shardscope {

using ByteRanges = std::map<uint64_t, uint64_t>;  // begin to end; no two of them touch

void addRange(ByteRanges& ranges, uint64_t begin, uint64_t end);
bool covers(const ByteRanges& ranges, uint64_t begin, uint64_t end);  // all of [begin, end)

nlohmann::json jsonOf(const ByteRanges& ranges);  // [[0,4096],[8192,9000]]
// Adds those of a file of `size` bytes, up to anything else that is among them; then false.
bool addRanges(ByteRanges& ranges, const nlohmann::json& json, uint64_t size);

}  // namespace shardscope
