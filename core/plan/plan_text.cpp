#include <fmt/format.h>

#include "base/option_words.h"
#include "base/text.h"
#include "base/units.h"
#include "plan/plan.h"

namespace shardscope {
namespace {

void listEntries(std::string& out, std::string_view title, const std::vector<PlanLeftOut>& entries,
                 std::string_view joiner) {
    if (entries.empty()) return;
    constexpr size_t kShown = 20;
    out += fmt::format("\n{} ({}):\n", title, countText(entries.size()));
    for (size_t i = 0; i < entries.size() && i < kShown; ++i) {
        out += fmt::format("  {}{}{}\n", entries[i].name.empty() ? "(root)" : entries[i].name, joiner,
                           entries[i].why);
    }
    if (entries.size() > kShown)
        out += fmt::format("  ... and {} more (all of them with {})\n", countText(entries.size() - kShown),
                           option("json"));
}

}  // namespace

std::string Plan::wholeWarning() const {
    if (cutBytes == 0 || wholeBytes <= cutBytes / 5) return {};
    return fmt::format("{} of the {} that the source shards are stored whole, each tensor on one rank",
                       bytesText(wholeBytes), bytesText(cutBytes));
}

std::string planText(const Plan& plan) {
    std::string out;
    out += fmt::format("from     {} ({})\n", plan.sourcePath, plan.sourceFormat);
    for (const PlanAveraged& input : plan.averaged)
        out += fmt::format("average  {:.6g} of {}\n", input.weight, input.path);
    out += fmt::format("to       {} ({}{})\n", plan.targetPath, plan.targetFormat,
                       plan.targetVariant.empty() ? "" : ", " + plan.targetVariant);
    out += fmt::format("carries  {} in {}, {}\n", counted(plan.tensors, "tensor"),
                       counted(plan.chunks, "chunk"), counted(plan.objects, "object"));
    out += fmt::format("reads    {}\nwrites   {} in {}\n", bytesText(plan.bytesRead),
                       bytesText(plan.bytesWritten), counted(plan.files.size(), "file"));
    if (plan.replicas > 0)
        out += fmt::format(
            "replicas not compared: {} ('shardscope validate --level values' compares "
            "them)\n",
            counted(plan.replicas, "chunk"));
    if (!plan.assets.empty())
        out += fmt::format("assets   {} from {}\n", listed(plan.assets, plan.assets.size()), plan.assetsFrom);
    out += fmt::format("memory   at most {}\n", bytesText(plan.peakMemory));
    if (plan.estimateSeconds > 0)
        out += fmt::format("time     about {}\n", durationText(std::max(1.0, plan.estimateSeconds)));
    if (!plan.fromMasters.empty())
        out += fmt::format("masters  the fp32 masters give the values of {}\n",
                           counted(plan.fromMasters.size(), "weight"));
    if (plan.mastersUnused > 0)
        out += fmt::format("masters  the stored values of {} are converted, not their fp32 masters ({})\n",
                           counted(plan.mastersUnused, "weight"), option("master-weights", "use"));
    if (!plan.recipe.empty()) out += fmt::format("recipe   {}\n", plan.recipe);
    for (const std::string& why : plan.runnable() ? plan.unloadable : std::vector<std::string>())
        out += fmt::format("warning  transformers will not load the result: {}\n", why);
    if (!plan.checksums.empty()) out += fmt::format("check    {}\n", plan.checksums);
    if (const std::string warning = plan.wholeWarning(); !warning.empty())
        out += fmt::format("warning  {} ({}, or {})\n", warning, option("shard"), option("like", "source"));
    listEntries(out, "Impossible", plan.impossible, ": ");
    listEntries(out, "Sharded as in the source", plan.placement, ": ");
    listEntries(out, "Unknown to the recipe", plan.unknown, ": ");
    listEntries(out, "Left out", plan.leftOut, ": ");
    listEntries(out, "Excluded as asked", plan.excluded, ": ");
    listEntries(out, "Carried in another form", plan.changed, ": ");
    listEntries(out, "Made of other tensors", plan.made, " = ");
    listEntries(out, "Not averaged", plan.notAveraged, ": ");
    listEntries(out, "Notes", plan.notes, ": ");
    listEntries(out, "Renamed", plan.renamed, " -> ");
    return out;
}

}  // namespace shardscope
