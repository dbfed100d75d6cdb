// Names that nobody guesses and no two processes choose alike.
#pragma once

#include <string>

namespace shardscope {

// 128 random bits as text.
std::string newToken();

}  // namespace shardscope
