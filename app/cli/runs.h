// What is printed of the steps of a run.
#pragma once

#include "answers/runs.h"
#include "cli/context.h"
#include "cli/validate_words.h"

namespace shardscope::cli {

// What `info` says of a run.
Result<int> showRun(const Context& context, const Run& run, const ValidateRequest& words, bool judge);
// What `validate` says of a run: 1 when a step has a finding of this severity or does not open.
Result<int> validateRun(const Context& context, const Run& run, const ValidateRequest& words, Severity failOn,
                        ReportForm form);
// With a finding for a step that does not open.
ValidationReport reportOf(const StepVerdict& verdict);

}  // namespace shardscope::cli
