#include <algorithm>
#include <functional>
#include <map>
#include <unordered_map>

#include <fmt/format.h>

#include "base/option_words.h"
#include "base/units.h"
#include "cli/convert.h"
#include "cli/part_option.h"
#include "cli/text.h"

namespace shardscope::cli {
namespace {

std::string groupText(const GroupReport& group) {
    return fmt::format("{} over {}, {}{}", counted(group.ranks, "rank"), group.backend,
                       sourceModeName(group.mode), group.compute == "cpu" ? "" : ", casts by GPUs");
}

// One line for each reason, with the first of its names.
void sayEntries(std::string_view title, const std::vector<PlanLeftOut>& entries) {
    constexpr size_t kMost = 20, kNames = 3;
    std::vector<std::pair<std::string, std::vector<const std::string*>>> reasons;
    std::unordered_map<std::string, size_t> places;
    for (const PlanLeftOut& entry : entries) {
        const auto [at, added] = places.emplace(entry.why, reasons.size());
        if (added) reasons.push_back({entry.why, {}});
        reasons[at->second].second.push_back(&entry.name);
    }
    bool folded = reasons.size() > kMost;
    for (size_t i = 0; i < std::min(kMost, reasons.size()); ++i) {
        const auto& [why, names] = reasons[i];
        std::string text;
        for (size_t n = 0; n < std::min(kNames, names.size()); ++n)
            text += (n ? ", " : "") + printable(*names[n]);
        if (names.size() > kNames) {
            folded = true;
            text += fmt::format(" and {} more", countText(names.size() - kNames));
        }
        fmt::print(stderr, "{}: {}: {}\n", title, text, printable(why));
    }
    if (reasons.size() > kMost)
        fmt::print(stderr, "{}: ... for {}\n", title, counted(reasons.size() - kMost, "more reason"));
    if (folded) fmt::print(stderr, "({}: all of them with 'shardscope plan --json')\n", title);
}

uint64_t rateOf(const ConvertReport& report) {
    return report.seconds > 0
               ? static_cast<uint64_t>(static_cast<double>(report.bytesWritten) / report.seconds)
               : 0;
}

}  // namespace

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

std::string flowText(const FlowPicture& flow) {
    constexpr size_t kMostRanks = 256, kNamed = 4;
    std::map<uint32_t, std::vector<const Flow::Row*>> ranks;
    for (const Flow::Row& row : flow.rows())
        ranks[row.rank].push_back(&row);
    std::string text = flow.exact() ? "who reads what:\n"
                                    : "who reads what (tensors that the recipe puts together: by shares):\n";
    size_t shown = 0;
    for (auto& [rank, rows] : ranks) {
        if (shown++ == kMostRanks)
            return text + fmt::format("  and {}\n", counted(ranks.size() - kMostRanks, "more rank"));
        std::ranges::stable_sort(rows, std::greater(), &Flow::Row::bytes);
        uint64_t bytes = 0;
        std::string files;
        for (size_t i = 0; i < rows.size(); ++i) {
            bytes += rows[i]->bytes;
            if (i < kNamed)
                files += fmt::format("{}{} {}", i ? ", " : "", printable(flow.files()[rows[i]->file].name),
                                     bytesText(rows[i]->bytes));
        }
        text += fmt::format("  rank {} reads {} from {}: {}{}\n", rank, bytesText(bytes),
                            counted(rows.size(), "file"), files, rows.size() > kNamed ? ", …" : "");
    }
    return text;
}

Result<int> showPlan(const Context& context, const Conversion& conversion, bool flow) {
    const Plan plan = shownPlan(context, conversion);
    const auto& group = conversion.group();
    const PreparedConversion& prepared = conversion.prepared();
    std::optional<FlowPicture> read;
    if (flow) {
        SHARDSCOPE_ASSIGN(const Flow found, flowOf(prepared.source.catalog(), *prepared.spec, context.stop));
        read.emplace(prepared.source.catalog(), found, prepared.spec->target.rankCount());
    }
    if (context.json) {
        Json json = planJson(context, conversion);
        if (read) json["flow"] = flowJson(*read);
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
        if (read) text += flowText(*read);
        fmt::print("{}", text);
    }
    return plan.runnable() ? 0 : exitCode(ErrorCode::impossible);
}

void sayBefore(const Plan& plan) {
    if (!plan.recipe.empty()) fmt::print(stderr, "recipe: {}\n", printable(plan.recipe));
    for (const std::string& why : plan.runnable() ? plan.unloadable : std::vector<std::string>())
        fmt::print(stderr, "warning: transformers will not load the result: {}\n", printable(why));
    // The others are numbers of the recipe.
    for (const PlanLeftOut& note : plan.notes)
        if (note.why.starts_with(option("dtype"))) fmt::print(stderr, "note: {}\n", printable(note.why));
    sayEntries("left out", plan.leftOut);
    sayEntries("unknown to the recipe", plan.unknown);
}

void showReport(const Context& context, const Conversion& conversion, const ConvertReport& report,
                Verify verify) {
    const PreparedConversion& prepared = conversion.prepared();
    const Style style{context.colored()};
    fmt::print("{} {}\n", style.green("done:"), printable(context.shown(prepared.destination)));
    fmt::print("  {}, {}; {} read, {} written in {} ({}/s)\n", counted(prepared.plan.tensors, "tensor"),
               counted(prepared.plan.objects, "object"), bytesText(report.bytesRead),
               bytesText(report.bytesWritten), durationText(report.seconds), bytesText(rateOf(report)));
    if (const auto& group = conversion.group()) {
        fmt::print("  {}: {} moved between them; {} were expected\n", groupText(*group),
                   bytesText(group->bytesMoved), durationText(group->expected.seconds));
        for (const GroupReport::DiskShare& share : group->disks)
            fmt::print("  on the disk of {}: {}, {}\n", printable(share.name), counted(share.files, "file"),
                       bytesText(share.bytes));
    }
    if (report.bytesReused) fmt::print("  {} were already done and reused\n", bytesText(report.bytesReused));
    if (verify == Verify::none) {
        fmt::print("  reopened; values not verified (--verify none)\n");
    } else if (verify == Verify::checksums) {
        fmt::print("  verified: the storage has checked the checksum of everything that was sent\n");
    } else {
        fmt::print("  verified: every tensor was read back and has the digest of what was written\n");
    }
    if (report.unguarded)
        fmt::print(
            "  {} the store has no conditional writes: that no other job wrote there at the same time is not "
            "certain\n",
            style.yellow("warning:"));
    if (!report.counts.empty())
        fmt::print("  {} NaN or Inf in {}, such as {}\n", style.yellow("warning:"),
                   counted(report.counts.size(), "tensor"), printable(report.counts[0].first));
    if (prepared.plan.replicas > 0)
        fmt::print("  replicas not compared: {} of the source ('validate --level values' compares them)\n",
                   counted(prepared.plan.replicas, "chunk"));
    for (const auto& [name, why, rule] : report.checksums.wrong)
        fmt::print("  {} {}: {}\n", style.yellow("warning:"), printable(name), why);
    if (const std::string text = report.checksums.text(); !text.empty()) fmt::print("  {}\n", text);
    if (!prepared.plan.fromMasters.empty())
        fmt::print("  the fp32 masters gave the values of {}\n",
                   counted(prepared.plan.fromMasters.size(), "weight"));
    if (!prepared.plan.leftOut.empty())
        fmt::print("  left out: {}\n", counted(prepared.plan.leftOut.size(), "entry"));
    if (!prepared.plan.unknown.empty())
        fmt::print("  {} the recipe does not know {}; such names stay as they are\n",
                   style.yellow("warning:"), counted(prepared.plan.unknown.size(), "tensor"));
}

}  // namespace shardscope::cli
