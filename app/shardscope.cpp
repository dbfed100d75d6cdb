#include "cli/application.h"

int main(int argc, char** argv) {
    return shardscope::cli::run(argc, argv);
}
