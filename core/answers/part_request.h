// Which part of a job this process does: as its options or its scheduler's variables say.
#pragma once

#include <string>
#include <string_view>

#include "answers/json.h"
#include "base/result.h"
#include "cluster/launched_as.h"
#include "execute/part_reading.h"
#include "execute/parts.h"

namespace shardscope {

// "3/8", counted from 0. Errors: usage.
Result<PartSpec> parsePart(std::string_view text);

// From SHARDSCOPE_PART, else as launchedAs() says. Errors: usage where nobody says it, or two disagree.
Result<PartSpec> partFromEnvironment(const Variables& variables);

// --part, --finish, --records and --on, as they are given.
struct PartRequest {
    std::string part;  // "I/N" or "auto"
    std::string
        finish;  // "yes" (no part is done), "auto" (by the last part), "seal" (sealParts(), by the last part)
    // Of a job without a destination (execute/part_reading.h); a conversion says in its request who works.
    std::string records, on;
    bool given() const { return !part.empty() || !finish.empty(); }
};
// A directory as --records names it.
std::string recordsPath(std::string_view given);
// What they mean. Errors: usage.
Result<Parts> partsOf(const PartRequest& request);
// What one part has done, where it has not finished the job.
Json partJson(const PartReport& part);

}  // namespace shardscope
