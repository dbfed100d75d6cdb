// Which of several processes this one is, as the program that started all of them says in the environment.
// Ranks meet (rendezvous.h); parts of a job do not (`--part auto`).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/result.h"

namespace shardscope {

// Reads one variable; one that is empty is not set.
using Variables = std::function<std::optional<std::string>(const char* name)>;
std::optional<std::string> environmentVariable(const char* name);

struct LaunchedAs {
    std::string launcher;  // "srun"
    std::string by;        // that and its variables, for messages
    uint32_t index = 0, count = 1;
    std::optional<uint32_t> local, localCount;  // among those of this host
    std::string group;                          // what tells these processes from others; may be empty
    bool atOnce = false;  // they all run at the same time, for sure: their launcher has started them
};

enum class LaunchOf : uint8_t {
    ranks,  // which run at the same time and can reach each other
    parts,  // which need neither: tasks of an array, nodes, indexed jobs
};
// nullopt without a launcher. A launcher of one process gives way to one of several. A launcher that has
// started the agents of another, one on each host, does not disagree with it. Errors: usage, where two
// launchers disagree or a value is impossible; for parts also where only their number is missing.
Result<std::optional<LaunchedAs>> launchedAs(const Variables& variable, LaunchOf what);

}  // namespace shardscope
