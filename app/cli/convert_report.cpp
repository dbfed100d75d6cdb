#include <ctime>
#include <fstream>

#include <fmt/format.h>
#include <sys/resource.h>

#include "base/rule.h"
#include "base/units.h"
#include "cli/convert.h"
#include "cli/text.h"

namespace shardscope::cli {
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

std::string groupText(const GroupReport& group) {
    return fmt::format("{} ranks over {}, {}{}", group.ranks, group.backend, sourceModeName(group.mode),
                       group.compute == "cpu" ? "" : ", casts by GPUs");
}

Plan shownPlan(const Context& context, Plan plan) {
    plan.sourcePath = context.shown(plan.sourcePath);
    for (PlanAveraged& input : plan.averaged)
        input.path = context.shown(input.path);
    plan.targetPath = context.shown(plan.targetPath);
    return plan;
}

uint64_t rateOf(const ConvertReport& report) {
    return report.seconds > 0
               ? static_cast<uint64_t>(static_cast<double>(report.bytesWritten) / report.seconds)
               : 0;
}

}  // namespace

Json reportJson(const Context& context, const Conversion& conversion, const ConvertReport& report,
                std::chrono::system_clock::time_point started, Verify verify) {
    Json json;
    json["schema"] = "shardscope.report/1";
    json["plan"] = planJson(shownPlan(context, conversion.prepared().plan));
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
    json["left_out"] = json["plan"]["left_out"];
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
    for (const auto& [name, why] : report.checksums.wrong)
        json["findings"].push_back(
            {{"rule", rule::integrityCrc}, {"severity", "error"}, {"tensor", name}, {"message", why}});
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

void sayPart(const Context& context, const Conversion& conversion, const Parts& parts) {
    const PartReport& part = *conversion.part();
    if (!parts.part) {
        fmt::print("{} the destination was published by an earlier run: {}\n",
                   Style{context.colored()}.green("done:"), bytesText(part.bytes));
        return;
    }
    const std::string read = bytesText(part.bytesRead);
    const bool seals = parts.seal && !part.readBack;
    showPart(
        context, part,
        part.readBack ? fmt::format("{} read back", read)
                      : fmt::format("{} written, {} read", bytesText(part.bytes - part.bytesReused), read),
        seals ? "run them again with --finish auto: each verifies its share"
              : allPartsDone(parts.finish,
                             "completes " + printable(context.shown(conversion.prepared().destination))));
}

int showPlan(const Context& context, const Conversion& conversion) {
    const Plan plan = shownPlan(context, conversion.prepared().plan);
    const auto& group = conversion.group();
    if (context.json) {
        Json json = planJson(plan);
        if (group) json["group"] = groupJson(*group);
        printJson(json);
    } else {
        std::string text;
        const std::string plain = planText(plan);
        for (size_t begin = 0; begin < plain.size();) {
            const size_t end = plain.find('\n', begin);
            text += printable(std::string_view(plain).substr(begin, end - begin)) + "\n";
            begin = end + 1;
        }
        if (group)
            text += fmt::format("{}: at most {} between them at {}/s, {} expected\n", groupText(*group),
                                bytesText(group->expected.bytesMoved),
                                bytesText(static_cast<uint64_t>(group->expected.linkRate)),
                                durationText(group->expected.seconds));
        fmt::print("{}", text);
    }
    return plan.runnable() ? 0 : exitCode(ErrorCode::impossible);
}

void sayLeftOut(const Plan& plan) {
    constexpr size_t kMost = 20;
    for (size_t i = 0; i < std::min(kMost, plan.leftOut.size()); ++i)
        fmt::print(stderr, "left out: {}: {}\n", printable(plan.leftOut[i].name),
                   printable(plan.leftOut[i].why));
    if (plan.leftOut.size() > kMost)
        fmt::print(stderr, "left out: ... and {} more (all of them with 'shardscope plan --json')\n",
                   plan.leftOut.size() - kMost);
}

void showReport(const Context& context, const Conversion& conversion, const ConvertReport& report,
                Verify verify) {
    const PreparedConversion& prepared = conversion.prepared();
    const Style style{context.colored()};
    fmt::print("{} {}\n", style.green("done:"), printable(context.shown(prepared.destination)));
    fmt::print("  {} tensors, {} objects; {} read, {} written in {} ({}/s)\n",
               countText(prepared.plan.tensors), countText(prepared.plan.objects),
               bytesText(report.bytesRead), bytesText(report.bytesWritten), durationText(report.seconds),
               bytesText(rateOf(report)));
    if (const auto& group = conversion.group()) {
        fmt::print("  {}: {} moved between them; {} were expected\n", groupText(*group),
                   bytesText(group->bytesMoved), durationText(group->expected.seconds));
        for (const GroupReport::DiskShare& share : group->disks)
            fmt::print("  on the disk of {}: {} files, {}\n", printable(share.name), countText(share.files),
                       bytesText(share.bytes));
    }
    if (report.bytesReused) fmt::print("  {} were already done and reused\n", bytesText(report.bytesReused));
    if (verify == Verify::none) {
        fmt::print("  reopened; values not verified (--verify none)\n");
    } else {
        fmt::print("  verified: every tensor of the destination has the digest of what was written ({})\n",
                   durationText(report.verifySeconds));
    }
    if (!report.counts.empty())
        fmt::print("  {} {} tensors hold NaN or Inf, such as {}\n", style.yellow("warning:"),
                   report.counts.size(), printable(report.counts[0].first));
    if (prepared.plan.replicas > 0)
        fmt::print(
            "  replicas not compared: {} chunks of the source ('validate --level values' compares them)\n",
            countText(prepared.plan.replicas));
    for (const auto& [name, why] : report.checksums.wrong)
        fmt::print("  {} {}: {}\n", style.yellow("warning:"), printable(name), why);
    if (const std::string text = report.checksums.text(); !text.empty()) fmt::print("  {}\n", text);
    if (!prepared.plan.fromMasters.empty())
        fmt::print("  {} weights have the values of their fp32 masters\n",
                   countText(prepared.plan.fromMasters.size()));
    if (!prepared.plan.leftOut.empty())
        fmt::print("  {} entries were left out\n", prepared.plan.leftOut.size());
}

}  // namespace shardscope::cli
