#include <chrono>
#include <csignal>

#include <fmt/format.h>

#include "base/own_program.h"
#include "cli/application.h"
#include "cli/convert.h"
#include "cli/output_file.h"
#include "cli/part_option.h"
#include "cli/ranks.h"
#include "engine/whole_file.h"

namespace shardscope::cli {

Result<int> convert(const Context& context, const ConvertCommand& command) {
    SHARDSCOPE_ASSIGN(const auto ranks, ranksOf(command.request, command.ranks.given()));
    if (ranks && !command.inParts()) return convertByRanks(context, command, *ranks);
    SHARDSCOPE_ASSIGN(const Execution execution,
                      executionOf(command.request, command.parts,
                                  {SHARDSCOPE_VERSION, ownProgram(), context.remoteProgram}));
    return convert(context, command, execution);
}

namespace {

Replace replacesReport(const ConvertCommand& command) {
    if (command.request.overwrite) return Replace::yes;
    // A scheduler may run a part again that has written it.
    return command.inParts() ? Replace::earlierReport : Replace::no;
}

Status prepareReportFile(const ConvertCommand& command, Parents& parents) {
    const std::string& file = command.report;
    if (file.empty()) return {};
    SHARDSCOPE_TRY(checkBeside(file, command.request.destination));
    if (!command.request.objectsFile.empty()) SHARDSCOPE_TRY(checkBeside(file, command.request.objectsFile));
    for (const std::string& other : command.request.average)
        SHARDSCOPE_TRY(checkOutside(file, other));
    return prepareOutputFile(file, command.request.source, replacesReport(command), parents);
}

}  // namespace

Result<int> convert(const Context& context, const ConvertCommand& command, const Execution& execution) {
    const Verify verify = command.request.verify;
    Parents parents;  // of the report; after a failure they go again
    SHARDSCOPE_TRY(prepareReportFile(command, parents));
    // The reader of the progress may go away; the job continues.
    std::signal(SIGPIPE, SIG_IGN);
    SHARDSCOPE_ASSIGN(const auto conversion, Conversion::prepare(command.request, execution, context.stop));
    if (command.dryRun)
        return conversion->speaks() ? showPlan(context, *conversion, command.flow) : Result<int>(0);

    // Before the job starts, not only in its report.
    const auto* parts = std::get_if<Parts>(&execution);
    const bool first = !parts || !parts->part || parts->part->index == 0;
    if (conversion->speaks() && first && !context.json && context.progress != ProgressMode::json)
        sayBefore(conversion->prepared().plan);
    const auto started = std::chrono::system_clock::now();
    Result<ConvertReport> report = runWatched(context, *conversion);
    if (!report.ok()) return std::move(report).error();
    if (!conversion->speaks()) return 0;
    const bool whole = conversion->finished();
    Json json;
    if (context.json || context.progress == ProgressMode::json || !command.report.empty())
        json = outcomeJson(context, *conversion, *report, started, verify);
    if (!command.report.empty())
        SHARDSCOPE_TRY(writeOutputFile(
            command.report, harmlessJson(json.dump(2, ' ', false, Json::error_handler_t::replace)) + "\n",
            replacesReport(command)));
    if (context.progress == ProgressMode::json) {
        if (whole) {
            for (const Json& finding : json["findings"])
                printLine(stderr, Json{{"event", "finding"}, {"finding", finding}});
        }
        printLine(stderr, Json{{"event", "done"}, {"report", json}});
    }
    if (context.json)
        printJson(json);
    else if (!whole)
        sayPart(context, *conversion, *parts);
    else
        showReport(context, *conversion, *report, verify);
    return 0;
}

}  // namespace shardscope::cli
