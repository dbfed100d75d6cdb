// The rules that an error of a conversion names where its code says too little.
#pragma once

namespace shardscope {

// What was written is not what it should be; with the code `damaged`.
inline constexpr const char* kOutputRule = "output.verification";

}  // namespace shardscope
