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
// A step as a report has it; null: the step that the tracker names and that is not there.
JudgedPath judgedPath(const Context& context, const Run& run, const RunStep* step,
                      const StepVerdict& verdict);
// With a finding for a step that does not open.
ValidationReport reportOf(const StepVerdict& verdict);

}  // namespace shardscope::cli
