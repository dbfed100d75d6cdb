// write_manual DIRECTORY VERSION DATE: writes the manual pages; a step of the build, not installed.
#include <cstdio>
#include <fstream>

#include "cli/application.h"
#include "man/manual.h"

int main(int argc, char** argv) {
    using namespace shardscope;
    if (argc != 4) {
        std::fprintf(stderr, "usage: %s DIRECTORY VERSION DATE\n", argv[0]);
        return 2;
    }
    cli::Context context;
    const auto app = cli::makeApp(context);
    for (const manual::Page& page : manual::pages(*app, {argv[2], argv[3]})) {
        const std::string path = std::string(argv[1]) + "/" + page.name + ".1";
        std::ofstream out(path, std::ios::binary);
        out << page.roff;
        if (!out.flush()) {
            std::fprintf(stderr, "cannot write %s\n", path.c_str());
            return 4;
        }
    }
    return 0;
}
