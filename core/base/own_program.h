// The path of the running program, for code that starts it again (workers, jobs, other hosts) or needs files
// that are installed with it.
#pragma once

#include <string>

namespace shardscope {

std::string ownProgram();  // its path; "shardscope" where that cannot be known
// The path of `name` in the directory of the program; the file need not exist.
std::string besideOwnProgram(const std::string& name);

}  // namespace shardscope
