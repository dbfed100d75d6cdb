// The command line within the Python module of a wheel, which therefore holds everything once. launcher.cpp
// calls it.
#include <cstdlib>
#include <memory>

#include <dlfcn.h>

#include "base/own_library.h"
#include "cli/application.h"

extern "C" {
__attribute__((visibility("default"))) extern const char shardscope_version[];
const char shardscope_version[] = SHARDSCOPE_VERSION;

__attribute__((visibility("default"))) int shardscope_main(int argc, char** argv) {
    return shardscope::cli::run(argc, argv, nullptr);
}
}

namespace {

// Other hosts need both, the program and this library.
[[maybe_unused]] const bool known = [] {
    Dl_info own{};
    if (dladdr(shardscope_version, &own) == 0) return false;
    const std::unique_ptr<char, void (*)(void*)> path(realpath(own.dli_fname, nullptr), std::free);
    if (path) shardscope::setOwnLibrary(path.get());
    return path != nullptr;
}();

}  // namespace
