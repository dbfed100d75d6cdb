// What is found on a host where a conversion is to work, before it is started there.
#pragma once

#include <string>

#include "base/result.h"

namespace shardscope::ui {

struct HostQuestion {
    std::string source;       // as the workers are told it
    std::string destination;  // absolute
};

// Each answer is an Error where there is none.
struct HostFacts {
    double seconds = 0;   // until it answered; 0 = this machine
    std::string version;  // of shardscope there
    struct Source {
        size_t files = 0, missing = 0, different = 0;  // of the checkpoint's files; in size
    };
    Result<Source> source = Source{};
    std::string parent;  // where the destination is put
    struct Parent {
        bool writable = false, destinationExists = false;
        uint64_t freeBytes = 0;
    };
    Result<Parent> destination = Parent{};
};

}  // namespace shardscope::ui
