#include "base/own_program.h"

#include <array>

#include <unistd.h>

namespace shardscope {

std::string ownProgram() {
    std::array<char, 4096> path{};
    const ssize_t length = readlink("/proc/self/exe", path.data(), path.size() - 1);
    return length > 0 ? std::string(path.data(), static_cast<size_t>(length)) : "shardscope";
}

std::string besideOwnProgram(const std::string& name) {
    const std::string program = ownProgram();
    return program.substr(0, program.rfind('/') + 1) + name;
}

}  // namespace shardscope
