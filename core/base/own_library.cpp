#include "base/own_library.h"

#include <utility>

namespace shardscope {
namespace {

std::string& library() {
    static std::string path;
    return path;
}

}  // namespace

std::string ownLibrary() {
    return library();
}

void setOwnLibrary(std::string path) {
    library() = std::move(path);
}

}  // namespace shardscope
