// Sizes, counts and times as people write and read them; one form for command line and window.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace shardscope {

// "512MiB", "5GB", "1.5g", "4096": decimal units are powers of 1000, binary ones (KiB, or a bare K) of 1024.
std::optional<uint64_t> parseBytes(std::string_view text);

std::string bytesText(uint64_t bytes);  // "1.25 GiB"
std::string countText(uint64_t count);  // "1,234,567"
// A count with its noun: "1 file", "1,234 files", "2 entries", "0 axes". `noun` is singular and may have
// words before it ("damaged shard").
std::string counted(uint64_t count, std::string_view noun);
std::string durationText(double seconds);  // "3.2 s", "4 min 10 s"

}  // namespace shardscope
