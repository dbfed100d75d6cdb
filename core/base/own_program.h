// The program that runs, for those that run it again (workers, jobs, other hosts) or need what it comes with.
#pragma once

#include <string>

namespace shardscope {

std::string ownProgram();  // its path; "shardscope" where that cannot be known
// The path of `name` in its directory, whether or not that exists.
std::string besideOwnProgram(const std::string& name);

}  // namespace shardscope
