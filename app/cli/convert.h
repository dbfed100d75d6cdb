// plan, convert and reshard: what their command lines ask for, and carrying it out.
#pragma once

#include <optional>
#include <string>

#include "cli/context.h"
#include "cli/json.h"
#include "cli/part_option.h"
#include "engine/run_conversion.h"
#include "jobs/jobs.h"

namespace shardscope::cli {

// What is said of the ranks beside --on, by each process for itself.
struct RankWords {
    std::string master, address;
    std::optional<int> joinTimeout{};  // seconds
    std::string torchLibrary{};
    const char* given() const;  // one of the options, or null
};

struct ConvertCommand {
    ConversionRequest request;
    std::vector<std::string>
        ends;             // of `average`: the sources and the destination, before they are told apart
    std::string report;   // a file for the report; empty = none
    bool dryRun = false;  // only the plan is shown
    PartWords parts;
    RankWords ranks;
    bool inParts() const { return parts.given(); }
};

// As `shardscope convert`: alone, or with the workers or ranks that `on` names. The other as what `execution`
// says.
Result<int> convert(const Context& context, const ConvertCommand& command);
Result<int> convert(const Context& context, const ConvertCommand& command, const Execution& execution);

// Who works, as the options say; workers run `program`. Errors: usage (ranks, too).
Result<Execution> executionOf(const Context& context, const ConvertCommand& command,
                              const std::string& program);
// Carries it out without a word; the report, or what this part has done.
Result<Json> runToReport(const Context& context, Conversion& conversion, const ConvertCommand& command);

// Starts it as a job of this program; its id. Errors: usage, those of JobDirectory::start().
Result<std::string> startAsJob(JobOrder order);

// What is shown before, and after (convert_report.cpp). Paths are shown as the user gave them.
int showPlan(const Context& context, const Conversion& conversion);
void sayLeftOut(const Plan& plan);
Json reportJson(const Context& context, const Conversion& conversion, const ConvertReport& report,
                std::chrono::system_clock::time_point started, Verify verify);
// What one part has done, where it has not finished the conversion.
void sayPart(const Context& context, const Conversion& conversion, const Parts& parts);
void showReport(const Context& context, const Conversion& conversion, const ConvertReport& report,
                Verify verify);

}  // namespace shardscope::cli
