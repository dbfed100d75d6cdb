#include "answers/conversion.h"

#include <ctime>
#include <fstream>

#include <fmt/format.h>
#include <sys/resource.h>

#include "base/option_words.h"
#include "base/own_program.h"
#include "base/rule.h"
#include "base/units.h"

namespace shardscope {
namespace {

// What the system counted for this process, as a check on our own counts: all bytes passed to read and write
// calls.
Json systemCounts() {
    Json json = Json::object();
    std::ifstream in("/proc/self/io");
    std::string key;
    uint64_t value = 0;
    while (in >> key >> value) {
        if (!key.empty()) key.pop_back();
        json[key] = value;
    }
    return json;
}

// How the ranks of a group are going to work, or have worked.
Json groupJson(const GroupReport& group) {
    return {{"ranks", group.ranks},
            {"mode", sourceModeName(group.mode)},
            {"backend", group.backend},
            {"expected_bytes_moved", group.expected.bytesMoved},
            {"expected_seconds", group.expected.seconds},
            {"link_rate", group.expected.linkRate},
            {"compute", group.compute}};
}

// An option that only ranks take.
std::string onlyForRanks(const ConversionRequest& request, const std::string& given) {
    static const ConversionRequest usual;
    if (request.backend != usual.backend) return option("backend");
    if (request.compute != usual.compute) return option("compute");
    if (request.ownDisks) return option("own-disks");
    return given;
}

Json reportJson(const Access& access, const Conversion& conversion, const ConvertReport& report,
                std::chrono::system_clock::time_point started, Verify verify) {
    Json json;
    json["schema"] = "shardscope.report/1";
    json["plan"] = planJson(shownPlan(access, conversion));
    json["started"] = isoTime(std::chrono::system_clock::to_time_t(started));
    json["finished"] = isoTime(std::time(nullptr));
    json["bytes_read"] = report.bytesRead;
    json["bytes_written"] = report.bytesWritten;
    json["bytes_reused"] = report.bytesReused;
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    json["peak_rss"] = static_cast<uint64_t>(usage.ru_maxrss) * 1024;
    json["system_io"] = systemCounts();
    json["seconds"] = report.seconds;
    json["verify_seconds"] = report.verifySeconds;
    json["rate"] = report.seconds > 0 ? static_cast<double>(report.bytesWritten) / report.seconds : 0.0;
    json["verified"] = report.verified;
    json["verify"] = choiceName(verify);
    json["unguarded"] = report.unguarded;
    json["left_out"] = json["plan"]["left_out"];
    json["unknown"] = json["plan"]["unknown"];
    json["replicas_not_compared"] = json["plan"]["replicas_not_compared"];
    json["findings"] = Json::array();
    for (const auto& [name, counts] : report.counts) {
        const bool nan = counts.nan > 0;
        json["findings"].push_back({{"rule", nan ? rule::valueNan : rule::valueInf},
                                    {"severity", "warning"},
                                    {"tensor", name},
                                    {"nan", counts.nan},
                                    {"inf", counts.inf}});
    }
    for (const auto& [name, why, rule] : report.checksums.wrong)
        json["findings"].push_back(
            {{"rule", rule}, {"severity", "error"}, {"tensor", name}, {"message", why}});
    const std::string unchecked = report.checksums.text();
    json["checksums"] = {{"checked", report.checksums.checked},
                         {"unchecked", report.checksums.unchecked},
                         {"text", unchecked.empty() ? Json() : Json(unchecked)}};
    json["digests"] = Json::object();
    for (const auto& [name, digest] : report.digests)
        json["digests"][name] = digest.hex();
    if (const auto& group = conversion.group()) {
        json["group"] = groupJson(*group);
        json["group"]["bytes_moved"] = group->bytesMoved;
        for (const GroupReport::DiskShare& share : group->disks)
            json["group"]["disks"].push_back(
                {{"rank", share.rank}, {"files", share.files}, {"bytes", share.bytes}});
    }
    return json;
}

}  // namespace

Result<Execution> executionOf(const std::string& on, const PartRequest& part, const AgentProgram& program) {
    if (part.given()) {
        if (!on.empty())
            return makeError(
                ErrorCode::usage,
                fmt::format(
                    "{} and {} are for processes that a scheduler starts, {} for those that this one starts",
                    option("part"), option("finish"), option("on")));
        SHARDSCOPE_ASSIGN(const Parts parts, partsOf(part));
        return Execution(parts);
    }
    if (on.empty()) return Execution(Alone{});
    Coordinator coordinator;
    static_cast<AgentProgram&>(coordinator.options) = program;
    SHARDSCOPE_ASSIGN(WorkerList workers, parseWorkers(on));
    if (workers.ranks)
        return makeError(ErrorCode::usage, fmt::format("'{}' is for the command line", on))
            .withHint("'shardscope convert ... --on ranks:4' starts ranks");
    coordinator.options.workers = std::move(workers.workers);
    return Execution(std::move(coordinator));
}

Result<Execution> executionOf(const ConversionRequest& request, const PartRequest& part,
                              const AgentProgram& program) {
    auto by = executionOf(request.on, part, program);
    const auto* parts = by.ok() ? std::get_if<Parts>(&*by) : nullptr;
    if (parts && parts->seal && request.verify == Verify::none)
        return makeError(ErrorCode::usage,
                         fmt::format("{} seal is for parts that verify, {} for nobody who does",
                                     option("finish"), option("verify", "none")));
    return by;
}

Result<std::optional<Ranks>> ranksOf(const ConversionRequest& request, const std::string& given) {
    WorkerList workers;
    if (!request.on.empty()) {
        SHARDSCOPE_ASSIGN(workers, parseWorkers(request.on));
    }
    if (const std::string only = onlyForRanks(request, given); !only.empty() && !workers.ranks)
        return makeError(ErrorCode::usage, only + " is for ranks")
            .withHint(
                fmt::format("'{}' starts four, '{}' one", option("on", "ranks:4"), option("on", "ranks:1")));
    const std::string &backend = request.backend, &compute = request.compute;
    if ((backend != "gloo" && backend != "nccl") ||
        (compute != "auto" && compute != "cpu" && compute != "gpu"))
        return makeError(ErrorCode::usage,
                         fmt::format("ranks know no backend '{}' with '{}' to compute", backend, compute))
            .withHint("gloo or nccl; auto, cpu or gpu");
    return workers.ranks;
}

Plan shownPlan(const Access& access, const Conversion& conversion) {
    Plan plan = conversion.prepared().plan;
    plan.sourcePath = access.shown(plan.sourcePath);
    for (PlanAveraged& input : plan.averaged)
        input.path = access.shown(input.path);
    plan.targetPath = access.shown(plan.targetPath);
    return plan;
}

Json planJson(const Access& access, const Conversion& conversion) {
    Json json = planJson(shownPlan(access, conversion));
    if (conversion.group()) json["group"] = groupJson(*conversion.group());
    return json;
}

Json outcomeJson(const Access& access, const Conversion& conversion, const ConvertReport& report,
                 std::chrono::system_clock::time_point started, Verify verify) {
    return conversion.finished() ? reportJson(access, conversion, report, started, verify)
                                 : partJson(*conversion.part());
}

Result<ConvertReport> runWatched(const Access& access, Conversion& conversion) {
    Progress progress;
    const auto watching = access.watched(progress, [&] { return conversion.workers(); });
    return conversion.run(&progress);
}

Result<Json> runToReport(const Access& access, Conversion& conversion, Verify verify) {
    const auto started = std::chrono::system_clock::now();
    SHARDSCOPE_ASSIGN(const ConvertReport report, runWatched(access, conversion));
    return outcomeJson(access, conversion, report, started, verify);
}

Result<std::string> startAsJob(JobOrder order) {
    ConversionRequest& request = order.request;
    if (request.on.empty()) request.on = "local:1";
    JobRecord job;
    job.program = ownProgram();
    SHARDSCOPE_TRY(workersOfJob(request.on));
    SHARDSCOPE_TRY(ranksOf(request));
    job.title = request.average.empty()
                    ? fmt::format("{} to {}", request.source, request.destination)
                    : fmt::format("average of {} to {}", counted(request.average.size() + 1, "checkpoint"),
                                  request.destination);
    job.order = std::move(order);
    const std::string id = job.id = JobDirectory::newId();
    SHARDSCOPE_TRY(JobDirectory().start(std::move(job)));
    return id;
}

}  // namespace shardscope
