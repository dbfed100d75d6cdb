#include <chrono>
#include <csignal>

#include <fmt/format.h>

#include "base/own_program.h"
#include "cli/application.h"
#include "cli/convert.h"
#include "cli/output_file.h"
#include "cli/part_option.h"
#include "cli/progress.h"
#include "cli/ranks.h"
#include "cluster/places.h"
#include "engine/whole_file.h"

namespace shardscope::cli {

Result<Execution> executionOf(const Context& context, const ConvertCommand& command,
                              const std::string& program) {
    if (command.inParts()) {
        if (!command.request.on.empty())
            return makeError(ErrorCode::usage,
                             "--part and --finish are for processes that a scheduler starts, "
                             "--on for those that this one starts");
        SHARDSCOPE_ASSIGN(const Parts parts, partsOf(command.parts));
        if (parts.seal && command.request.verify == Verify::none)
            return makeError(ErrorCode::usage,
                             "--finish seal is for parts that verify, --verify none for nobody who does");
        return Execution(parts);
    }
    if (command.request.on.empty()) return Execution(Alone{});
    Coordinator coordinator;
    coordinator.options.version = SHARDSCOPE_VERSION;
    coordinator.options.program = program;
    coordinator.options.remoteProgram = context.remoteProgram;
    SHARDSCOPE_ASSIGN(Places places, parsePlaces(command.request.on));
    if (places.ranks)
        return makeError(ErrorCode::usage, fmt::format("'{}' is for the command line", command.request.on))
            .withHint("'shardscope convert ... --on ranks:4' starts ranks");
    coordinator.options.places = std::move(places.workers);
    return Execution(std::move(coordinator));
}

Result<int> convert(const Context& context, const ConvertCommand& command) {
    SHARDSCOPE_ASSIGN(const auto ranks, ranksOf(command.request, command.ranks));
    if (ranks && !command.inParts()) return convertByRanks(context, command, *ranks);
    SHARDSCOPE_ASSIGN(const Execution execution, executionOf(context, command, ownProgram()));
    return convert(context, command, execution);
}

namespace {

Replace replacesReport(const ConvertCommand& command) {
    if (command.request.overwrite) return Replace::yes;
    // A scheduler may run a part again that has written it.
    return command.inParts() ? Replace::earlierReport : Replace::no;
}

Status checkReportFile(const ConvertCommand& command) {
    const std::string& file = command.report;
    if (file.empty()) return {};
    SHARDSCOPE_TRY(checkBeside(file, command.request.destination));
    if (!command.request.objectsFile.empty()) SHARDSCOPE_TRY(checkBeside(file, command.request.objectsFile));
    for (const std::string& other : command.request.average)
        SHARDSCOPE_TRY(checkOutside(file, other));
    return checkOutputFile(file, command.request.source, replacesReport(command));
}

Result<ConvertReport> runShown(const Context& context, Conversion& conversion) {
    Progress progress;
    const ProgressPrinter printer(context, progress, [&] { return conversion.workers(); });
    return conversion.run(&progress);
}

}  // namespace

Result<Json> runToReport(const Context& context, Conversion& conversion, const ConvertCommand& command) {
    const auto started = std::chrono::system_clock::now();
    SHARDSCOPE_ASSIGN(const ConvertReport report, runShown(context, conversion));
    return conversion.finished() ? reportJson(context, conversion, report, started, command.request.verify)
                                 : partJson(*conversion.part());
}

Result<int> convert(const Context& context, const ConvertCommand& command, const Execution& execution) {
    const Verify verify = command.request.verify;
    SHARDSCOPE_TRY(checkReportFile(command));
    // The reader of the progress may go away; the job continues.
    std::signal(SIGPIPE, SIG_IGN);
    SHARDSCOPE_ASSIGN(const auto conversion, Conversion::prepare(command.request, execution, context.stop));
    if (command.dryRun) return conversion->speaks() ? showPlan(context, *conversion) : 0;

    // Before the job starts, not only in its report.
    const auto* parts = std::get_if<Parts>(&execution);
    const bool first = !parts || !parts->part || parts->part->index == 0;
    if (conversion->speaks() && first && !context.json && context.progress != ProgressMode::json)
        sayLeftOut(conversion->prepared().plan);
    const auto started = std::chrono::system_clock::now();
    Result<ConvertReport> report = runShown(context, *conversion);
    if (!report.ok()) return std::move(report).error();
    if (!conversion->speaks()) return 0;
    const bool whole = conversion->finished();
    Json json;
    if (context.json || context.progress == ProgressMode::json || !command.report.empty())
        json = whole ? reportJson(context, *conversion, *report, started, verify)
                     : partJson(*conversion->part());
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
