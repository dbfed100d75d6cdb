// What must hold after a conversion in which something was made to go wrong: a verified result, or a clear
// error, nothing published, and a conversion that continues from there.
#pragma once

#include <string>
#include <vector>

#include "cli/measured_process.h"

namespace shardscope::test {

// The workers or ranks that a program has started: the children of its threads.
std::vector<pid_t> childrenOf(pid_t parent);

// Processes that run a copy of the program as a worker or for another host ("agent --stdio"), and whose
// environment holds `mark`.
std::vector<pid_t> agentsWith(const std::string& mark);

// Bytes that these processes have read so far: how far the work is.
uint64_t bytesRead(const std::vector<pid_t>& processes);

// From then on everything that this test starts has a secret in its environment, as users have of theirs.
constexpr const char* kSecret = "not-for-any-log-7b1f";
void keepSecret();
// Empty, or where it is told: in what the program printed, or in the records of jobs (XDG_STATE_HOME).
std::string secretTold(const Measured& run);

// Empty, or what does not hold. `again` are the words that resume the conversion; `target` is what it makes.
std::string afterFault(const Measured& run, const std::string& target, const nlohmann::json& expected,
                       const std::vector<std::string>& again);

}  // namespace shardscope::test
