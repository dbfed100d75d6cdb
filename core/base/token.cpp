#include "base/token.h"

#include <random>

#include <fmt/format.h>

namespace shardscope {

std::string newToken() {
    std::random_device random;
    return fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
}

}  // namespace shardscope
