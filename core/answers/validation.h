// A validation as verbs, page and Python ask for it.
#pragma once

#include <string>
#include <vector>

#include "answers/access.h"
#include "engine/run_conversion.h"
#include "engine/suppressions.h"
#include "execute/part_reading.h"

namespace shardscope {

struct ValidateRequest {
    std::string path;
    ValidateLevel level = ValidateLevel::files;
    std::string expect;
    size_t examples = 100;    // most that are listed for a finding
    bool noAccepted = false;  // judge as if no finding had been accepted
    bool sums = false;        // with level `values`, ValidationReport::values, too
    bool accepted = false;    // structural findings that were accepted do not count either
};
inline constexpr ValidateLevel kLevels[] = {ValidateLevel::metadata, ValidateLevel::files,
                                            ValidateLevel::values};
// Errors: usage.
Result<ValidateLevel> levelNamed(std::string_view name);

// Those of the accepted findings that do not count.
std::vector<Suppression> honored(const ValidateRequest& request, std::vector<Suppression> accepted);
// The findings of a checkpoint that do not count.
std::vector<Suppression> acceptedBy(const ValidateRequest& request, const std::string& path);

// The path in the request is not looked at.
Result<ValidationReport> validateOpen(const Access& access, const Checkpoint& checkpoint,
                                      const ValidateRequest& request);
// The same by several, with level `values` (reading.h): the report is there unless this process has done a
// part alone.
struct ValidatedInParts {
    ReadInParts read;
    ValidationReport report;
};
Result<ValidatedInParts> validateBy(const Access& access, const Checkpoint& checkpoint,
                                    const ValidateRequest& request, const Execution& by,
                                    const std::string& records);

}  // namespace shardscope
