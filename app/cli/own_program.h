// The program that runs, for those that are to run it again: workers, jobs, other hosts.
#pragma once

#include <string>

namespace shardscope::cli {

std::string ownProgram();  // its path; "shardscope" where that cannot be known

}  // namespace shardscope::cli
