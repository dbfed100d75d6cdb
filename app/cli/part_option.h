// Which part of a conversion this process does: as --part says it, or the scheduler that started it.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "execute/parts.h"

namespace shardscope::cli {

// "3/8", counted from 0. Errors: usage.
Result<PartSpec> parsePart(std::string_view text);

// From the variables that schedulers set: SHARDSCOPE_PART, Slurm's steps and arrays, Open MPI, PMI, torchrun,
// Kubernetes' indexed jobs (with SHARDSCOPE_PARTS for their number), SkyPilot. A world of one says nothing
// where another one says more. Errors: usage where there is none, or two that disagree.
using Variables = std::function<const char*(const char* name)>;
Result<PartSpec> partFromEnvironment(const Variables& variables);

}  // namespace shardscope::cli
