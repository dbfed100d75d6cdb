// The library that a program consists of, for code that copies the program to other hosts.
#pragma once

#include <string>

namespace shardscope {

// Path of the library that holds the code of the program, which finds it beside itself, too; empty = the
// program is complete. The library says so when it is loaded.
std::string ownLibrary();
void setOwnLibrary(std::string path);

}  // namespace shardscope
