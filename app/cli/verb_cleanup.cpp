#include <chrono>

#include <fmt/format.h>

#include "base/units.h"
#include "cli/application.h"
#include "cli/text.h"
#include "places/leftovers.h"

namespace shardscope::cli {
namespace {

struct Cleanup {
    std::string path;
    unsigned hours = 24;
    bool yes = false;
};

double secondsSince(int64_t ns) {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    return std::max(0.0, std::chrono::duration<double>(now).count() - 1e-9 * static_cast<double>(ns));
}

std::string ageOf(const Leftover& leftover) {
    if (leftover.modifiedNs == 0) return "unknown";
    const double age = secondsSince(leftover.modifiedNs);
    return age < 172'800 ? durationText(age) : fmt::format("{:.0f} days", age / 86'400);
}

// What is not known to be old enough is kept.
bool isOld(const Leftover& leftover, unsigned hours) {
    return hours == 0 || (leftover.modifiedNs != 0 && secondsSince(leftover.modifiedNs) >= 3600.0 * hours);
}

Json leftoverJson(const Leftover& leftover, bool old, bool removed) {
    Json json{{"path", leftover.path},
              {"kind", leftover.upload.empty() ? "object" : "upload"},
              {"bytes", leftover.bytes},
              {"old", old},
              {"removed", removed}};
    if (leftover.modifiedNs != 0) json["seconds"] = secondsSince(leftover.modifiedNs);
    return json;
}

Result<int> cleanup(const Context& context, const Cleanup& asked) {
    SHARDSCOPE_ASSIGN(const Leftovers found, Leftovers::below(asked.path));
    using A = Table::Align;
    Table table({{"what", A::left}, {"bytes", A::right}, {"age", A::right}, {"", A::left}});
    Json entries = Json::array();
    size_t old = 0, removed = 0;
    Status failed;
    for (const Leftover& leftover : found.all()) {
        const bool due = isOld(leftover, asked.hours);
        old += due;
        bool gone = false;
        // After a failure nothing more is removed: claims come last, and stand for what is left.
        if (due && asked.yes && failed.ok()) {
            failed = found.remove(leftover);
            gone = failed.ok();
            removed += gone;
        }
        entries.push_back(leftoverJson(leftover, due, gone));
        table.add({printable(leftover.path) + (leftover.upload.empty() ? "" : " (upload)"),
                   leftover.bytes ? bytesText(leftover.bytes) : "-", ageOf(leftover),
                   gone  ? "removed"
                   : due ? ""
                         : "kept: too new"});
    }
    if (context.json) {
        printJson({{"schema", "shardscope.cleanup/1"}, {"path", asked.path}, {"leftovers", entries}});
    } else if (found.all().empty()) {
        fmt::print("{}: no job has left anything behind\n", printable(asked.path));
    } else {
        table.print(stdout, Style{context.colored()});
        if (asked.yes)
            fmt::print("{} of {} removed\n", countText(removed), countText(found.all().size()));
        else if (old > 0)
            fmt::print(
                "nothing is removed yet: --yes removes {}. A job that is at work, or that is to be resumed, "
                "needs what it has here.\n",
                counted(old, "leftover"));
    }
    if (!failed.ok()) return failed.error();
    return 0;
}

}  // namespace

void addCleanup(CLI::App& app, Context& context) {
    CLI::App* verb = app.add_subcommand(
        "cleanup", "What jobs that never ended have left in a bucket, and its removal: uploads and claims");
    verb->footer(
        "Examples:\n  shardscope cleanup s3://bucket/run\n  shardscope cleanup s3://bucket/run/step-100 "
        "--yes "
        "--older-than 2");
    const auto asked = std::make_shared<Cleanup>();
    verb->add_option("path", asked->path, "Place in a bucket: what is there, below it and beside it")
        ->required()
        ->type_name("PATH");
    verb->add_option("--older-than", asked->hours, "Removes only what is older; 0 = all")
        ->type_name("HOURS")
        ->capture_default_str();
    verb->add_flag("--yes", asked->yes, "Remove it; otherwise it is only listed");
    verb->add_flag("--json", context.json, "One JSON document on stdout");
    verb->callback(
        [&context, asked] { context.verb = [&context, asked] { return cleanup(context, *asked); }; });
}

}  // namespace shardscope::cli
