// `shardscope` for other hosts: nothing in it is opened at run time, so no GPU and no libtorch.
#include <nss.h>

#include "cli/application.h"

int main(int argc, char** argv) {
    // What nsswitch.conf names beyond these is a shared library of the host's own libc, which may not fit.
    __nss_configure_lookup("hosts", "files dns");
    return shardscope::cli::run(argc, argv, nullptr);
}
