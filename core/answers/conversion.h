// A conversion as verbs, page, jobs and Python carry it out, and what they say of it.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "answers/access.h"
#include "answers/json.h"
#include "answers/part_request.h"
#include "cluster/worker_list.h"
#include "engine/run_conversion.h"
#include "jobs/jobs.h"

namespace shardscope {

// Who works, as `on` or `parts` say; workers run `program`. Errors: usage, also for ranks.
Result<Execution> executionOf(const std::string& on, const PartRequest& parts, const AgentProgram& program);
// The same of a conversion.
Result<Execution> executionOf(const ConversionRequest& request, const PartRequest& parts,
                              const AgentProgram& program);
// The ranks that the request names. `given` is an option for ranks alone that stands beside it, or empty.
// Errors: usage, also where something is given that is for ranks alone.
Result<std::optional<Ranks>> ranksOf(const ConversionRequest& request, const std::string& given = {});

// Runs the conversion and prints nothing; returns the report, or what this part has done.
Result<Json> runToReport(const Access& access, Conversion& conversion, Verify verify);
Result<ConvertReport> runWatched(const Access& access, Conversion& conversion);
// The outcome of runWatched(): shardscope.report/1, or shardscope.part/1 where it is not whole.
Json outcomeJson(const Access& access, const Conversion& conversion, const ConvertReport& report,
                 std::chrono::system_clock::time_point started, Verify verify);

Plan shownPlan(const Access& access, const Conversion& conversion);  // paths as the user gave them
Json planJson(const Access& access, const Conversion& conversion);   // shardscope.plan/1 with its ranks

// Starts the conversion as a job of this program; returns the job's id. Errors: usage, those of
// JobDirectory::start().
Result<std::string> startAsJob(JobOrder order);

}  // namespace shardscope
