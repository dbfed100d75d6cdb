// `shardscope` for other hosts: nothing in it is opened at run time, so no GPU and no libtorch.
#include "cli/application.h"

int main(int argc, char** argv) {
    return shardscope::cli::run(argc, argv, nullptr);
}
