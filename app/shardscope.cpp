#include "accelerator/accelerator.h"
#include "cli/application.h"

int main(int argc, char** argv) {
    const shardscope::Accelerator accelerator = shardscope::accelerator();
    return shardscope::cli::run(argc, argv, &accelerator);
}
