#include <chrono>
#include <csignal>
#include <ctime>
#include <filesystem>

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/resource.h>

#include "base/rule.h"
#include "cli/application.h"
#include "cli/json.h"
#include "cli/one_of.h"
#include "cli/output_file.h"
#include "cli/own_program.h"
#include "cli/progress.h"
#include "cli/text.h"
#include "cli/words.h"
#include "cluster/worker.h"
#include "execute/group.h"
#include "execute/group_files.h"
#include "plan/request_text.h"

namespace shardscope::cli {

namespace {

struct Options {
    std::string source, destination, report;
    std::string on;
    bool dryRun = false;
    ConvertSettings settings;
};

// What an option's text stands for; a malformed one is a usage error that names the option.
template <class T>
T valueOf(const char* option, Result<T> parsed) {
    if (!parsed.ok()) throw CLI::ValidationError(option, parsed.error().message);
    return std::move(parsed).value();
}

std::string timeText(std::chrono::system_clock::time_point t) {
    return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::chrono::system_clock::to_time_t(t)));
}

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

Json reportJson(const Plan& plan, const ConvertReport& report, std::chrono::system_clock::time_point started,
                const std::string& verify) {
    Json json;
    json["schema"] = "shardscope.report/1";
    json["plan"] = planJson(plan);
    json["started"] = timeText(started);
    json["finished"] = timeText(std::chrono::system_clock::now());
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
    json["verify"] = verify;
    json["left_out"] = json["plan"]["left_out"];
    json["findings"] = Json::array();
    for (const auto& [name, counts] : report.counts) {
        const bool nan = counts.nan > 0;
        json["findings"].push_back({{"rule", nan ? rule::valueNan : rule::valueInf},
                                    {"severity", "warning"},
                                    {"tensor", name},
                                    {"nan", counts.nan},
                                    {"inf", counts.inf}});
    }
    json["digests"] = Json::object();
    for (const auto& [name, digest] : report.digests)
        json["digests"][name] = digest.hex();
    return json;
}

// How the ranks of a group are going to work, or have worked.
Json groupJson(const Context& context, GroupMode mode, const GroupForecast& expected) {
    return {{"ranks", context.ranks->size()},
            {"mode", groupModeName(mode)},
            {"backend", context.groupBackend},
            {"expected_bytes_moved", expected.bytesMoved},
            {"expected_seconds", expected.seconds},
            {"link_rate", expected.linkRate},
            {"compute", context.ranks->compute() ? context.ranks->compute()->name() : "cpu"}};
}

// What one disk holds of a destination that lies on several.
struct DiskShare {
    int rank = 0;  // the lowest that writes there
    uint64_t files = 0, bytes = 0;
};
std::vector<DiskShare> diskShares(const Context& context, const GroupFarm& group, const ConvertJob& job) {
    const std::vector<int> places = group.places();
    const std::vector<int> ranks = fileRanks({context.ranks, nullptr, &job, {}, true});
    std::map<int, DiskShare> shares;
    for (size_t f = 0; f < ranks.size(); ++f) {
        const int place = places[static_cast<size_t>(ranks[f])];
        DiskShare& share = shares[place];
        share.rank = place;
        ++share.files;
        share.bytes += job.layout->files[f].size;
    }
    std::vector<DiskShare> list;
    for (const auto& [place, share] : shares)
        list.push_back(share);
    return list;
}

// With its paths as whoever gave the command knows them.
Plan shownPlan(const Context& context, Plan plan) {
    plan.sourcePath = context.shown(plan.sourcePath);
    plan.targetPath = context.shown(plan.targetPath);
    return plan;
}

int showPlan(const Context& context, const Plan& made, const Json& group, const std::string& groupText) {
    const Plan plan = shownPlan(context, made);
    if (context.json) {
        Json json = planJson(plan);
        if (!group.is_null()) json["group"] = group;
        printJson(json);
    } else {
        std::string text;
        const std::string plain = planText(plan);
        for (size_t begin = 0; begin < plain.size();) {
            const size_t end = plain.find('\n', begin);
            text += printable(std::string_view(plain).substr(begin, end - begin)) + "\n";
            begin = end + 1;
        }
        fmt::print("{}{}", text, groupText);
    }
    return plan.runnable() ? 0 : exitCode(ErrorCode::impossible);
}

// Memory and threads of one that works on another's conversion.
struct WorkerResources {
    WorkerResources(const ConvertSettings& settings, uint64_t buffers)
        : pool(settings.threads), memory(buffers) {
        resources.pool = &pool;
        resources.memory = &memory;
    }
    ThreadPool pool;
    MemoryBudget memory;
    Resources resources;
};

// Does parts of the conversion for the process that coordinates it.
Result<int> work(const Context& context, const PreparedConversion& prepared,
                 const ConvertSettings& settings) {
    SHARDSCOPE_TRY(checkRunnable(prepared));
    SHARDSCOPE_ASSIGN(const uint64_t buffers, conversionBuffers(prepared, settings));
    WorkerResources own(settings, buffers);
    const ConvertJob job = conversionJob(prepared, settings);
    SHARDSCOPE_TRY(context.worker->serve(job, own.resources));
    return 0;
}

Result<std::unique_ptr<Farm>> makeFarm(const Context& context, const Options& options) {
    FarmOptions farm;
    SHARDSCOPE_ASSIGN(farm.places, parsePlaces(options.on));
    // Without what only this process does.
    farm.words = wordsWithout(context.words, {"--json", "--resume"},
                              {"--on", "--remote-program", "--progress", "--report"});
    std::error_code none;
    farm.directory = std::filesystem::current_path(none).string();
    if (none) return systemError(none.value(), "find the directory that the job is given in", "");
    farm.version = SHARDSCOPE_VERSION;
    farm.program = ownProgram();
    farm.remoteProgram = context.remoteProgram;
    return std::make_unique<Farm>(std::move(farm));
}

Result<int> convert(const Context& context, const Options& options) {
    ConvertSettings settings = options.settings;
    settings.memory = context.memory;
    settings.threads = context.threads;
    settings.io = context.io;
    if (!options.report.empty()) SHARDSCOPE_TRY(checkOutputFile(options.report, options.source));
    std::unique_ptr<Farm> farm;  // has its workers started when there is something to do
    if (!options.on.empty()) {
        SHARDSCOPE_ASSIGN(farm, makeFarm(context, options));
    }
    // Whoever watches may go away; the job goes on.
    std::signal(SIGPIPE, SIG_IGN);
    std::shared_ptr<GroupFiles> files;  // of all ranks, where there are some
    std::optional<PreparedConversion> made;
    const auto open = [&]() -> Status {
        SHARDSCOPE_ASSIGN(const Checkpoint source, context.open(options.source, files));
        SHARDSCOPE_ASSIGN(made, prepareConversion(source, options.destination, settings, context.stop));
        return {};
    };
    if (context.ranks) {
        SHARDSCOPE_ASSIGN(files, GroupFiles::make(*context.ranks, systemFileSystem(settings.io),
                                                  options.source, context.groupMode));
        SHARDSCOPE_TRY(files->openTogether(open));
    } else {
        SHARDSCOPE_TRY(open());
    }
    const PreparedConversion& prepared = *made;
    if (context.worker) return work(context, prepared, settings);
    GroupForecast expected;
    Json groupSaid;
    std::string groupText;
    if (context.ranks) {
        SHARDSCOPE_ASSIGN(expected, forecast(*context.ranks, files->mode(), prepared.plan));
        groupSaid = groupJson(context, files->mode(), expected);
        groupText =
            fmt::format("{} ranks over {}, {}{}", context.ranks->size(), context.groupBackend,
                        groupModeName(files->mode()), context.ranks->compute() ? ", casts by GPUs" : "");
    }
    if (options.dryRun) {
        if (context.ranks && context.ranks->rank() != 0) return 0;
        if (context.ranks)
            groupText += fmt::format(
                ": at most {} between them at {}/s, {} expected\n", bytesText(expected.bytesMoved),
                bytesText(static_cast<uint64_t>(expected.linkRate)), durationText(expected.seconds));
        return showPlan(context, prepared.plan, groupSaid, groupText);
    }
    std::unique_ptr<WorkerResources> own;
    std::unique_ptr<GroupFarm> group;
    const ConvertJob together = conversionJob(prepared, settings);
    if (context.ranks) {
        SHARDSCOPE_TRY(agree(*context.ranks, 0, checkRunnable(prepared)));
        SHARDSCOPE_ASSIGN(const uint64_t buffers, conversionBuffers(prepared, settings));
        own = std::make_unique<WorkerResources>(settings, buffers);
        own->resources.stop = context.stop;
        const GroupConversion conversion{context.ranks, files.get(), &together, own->resources,
                                         context.ownDisks};
        if (context.ranks->rank() != 0) {
            SHARDSCOPE_TRY(serveGroup(conversion));
            return 0;
        }
        group = std::make_unique<GroupFarm>(conversion);
        settings.farm = group.get();
    }
    if (farm) settings.farm = farm.get();

    // What does not come along is said before the job starts, not only in its report.
    if (!context.json && context.progress != ProgressMode::json) {
        size_t shown = 0;
        for (const PlanLeftOut& left : prepared.plan.leftOut) {
            if (++shown > 20) {
                fmt::print(stderr, "left out: ... and {} more (all of them with 'shardscope plan --json')\n",
                           prepared.plan.leftOut.size() - 20);
                break;
            }
            fmt::print(stderr, "left out: {}: {}\n", printable(left.name), printable(left.why));
        }
    }
    const auto started = std::chrono::system_clock::now();
    Progress progress;
    Result<ConvertReport> result = [&] {
        ProgressPrinter::Workers workers;
        if (farm) workers = [&] { return farm->workers(); };
        const ProgressPrinter printer(context, progress, std::move(workers));
        return runPrepared(prepared, settings, &progress, context.stop);
    }();
    if (!result.ok()) return std::move(result).error();
    const ConvertReport& report = *result;

    constexpr const char* verifyNames[] = {"digest", "full", "none"};
    const bool wantsJson = context.json || context.progress == ProgressMode::json || !options.report.empty();
    Json json = wantsJson ? reportJson(shownPlan(context, prepared.plan), report, started,
                                       verifyNames[static_cast<int>(settings.options.verify)])
                          : Json();
    const std::vector<DiskShare> shares =
        group && context.ownDisks ? diskShares(context, *group, together) : std::vector<DiskShare>();
    if (group) groupSaid["bytes_moved"] = group->bytesMoved();
    for (const DiskShare& share : shares)
        groupSaid["disks"].push_back({{"rank", share.rank}, {"files", share.files}, {"bytes", share.bytes}});
    if (group && wantsJson) json["group"] = groupSaid;
    if (!options.report.empty()) {
        SHARDSCOPE_TRY(
            writeOutputFile(options.report, json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n"));
    }
    if (context.progress == ProgressMode::json) {
        for (const Json& finding : json["findings"])
            printLine(stderr, Json{{"event", "finding"}, {"finding", finding}});
        printLine(stderr, Json{{"event", "done"}, {"report", json}});
    }
    if (context.json) {
        printJson(json);
        return 0;
    }
    const Style style{context.colored()};
    fmt::print("{} {}\n", style.green("done:"), printable(context.shown(prepared.destination)));
    fmt::print("  {} tensors, {} objects; {} read, {} written in {} ({}/s)\n",
               countText(prepared.plan.tensors), countText(prepared.plan.objects),
               bytesText(report.bytesRead), bytesText(report.bytesWritten), durationText(report.seconds),
               bytesText(report.seconds > 0 ? static_cast<uint64_t>(static_cast<double>(report.bytesWritten) /
                                                                    report.seconds)
                                            : 0));
    if (group)
        fmt::print("  {}: {} moved between them; {} were expected\n", groupText,
                   bytesText(group->bytesMoved()), durationText(expected.seconds));
    for (const DiskShare& share : shares)
        fmt::print("  on the disk of {}: {} files, {}\n", printable(context.ranks->name(share.rank)),
                   countText(share.files), bytesText(share.bytes));
    if (report.bytesReused)
        fmt::print("  {} were already done and taken over\n", bytesText(report.bytesReused));
    if (settings.options.verify == Verify::none) {
        fmt::print("  reopened; values not verified (--verify none)\n");
    } else {
        fmt::print("  verified: every tensor of the destination has the digest of what was written ({})\n",
                   durationText(report.verifySeconds));
    }
    if (!report.counts.empty()) {
        fmt::print("  {} {} tensors hold NaN or Inf, such as {}\n", style.yellow("warning:"),
                   report.counts.size(), printable(report.counts[0].first));
    }
    if (!prepared.plan.leftOut.empty())
        fmt::print("  {} entries were left out\n", prepared.plan.leftOut.size());
    return 0;
}

void addOne(CLI::App& app, Context& context, const std::string& name, const std::string& description,
            const std::string& footer) {
    CLI::App* verb = app.add_subcommand(name, description);
    verb->footer(footer);
    auto options = std::make_shared<Options>();
    options->dryRun = name == "plan";
    ConvertRequest& request = options->settings.request;
    ConvertOptions& how = options->settings.options;
    verb->add_option("source", options->source, "Checkpoint to read: a directory or a file")
        ->required()
        ->type_name("SRC");
    verb->add_option("destination", options->destination, "Where the new one goes; must not exist")
        ->required()
        ->type_name("DST");

    const std::string target = "Target";
    if (name != "reshard")
        verb->add_option("--to", request.format,
                         "Format to write (default: the source's); 'shardscope formats' lists them")
            ->type_name("FORMAT")
            ->group(target);
    verb->add_option_function<std::vector<std::string>>(
            "--variant",
            [&request, &context](const std::vector<std::string>& words) {
                // A target's variant is a name; KEY=VALUE says which checkpoint of the source is meant.
                for (const std::string& word : words)
                    (word.find('=') == std::string::npos ? request.variant : context.variant) = word;
            },
            "Variant of the format, where it has several; id=N chooses a save of a Paddle source")
        ->type_name("NAME")
        ->allow_extra_args(false)
        ->group(target);
    verb->add_option_function<std::string>(
            "--max-file-size",
            [&request](const std::string& text) {
                const auto bytes = parseBytes(text);
                if (!bytes || *bytes == 0)
                    throw CLI::ValidationError("--max-file-size", "'" + text + "' is not a size such as 5GB");
                request.maxFileSize = *bytes;
            },
            "Start a new file above this size")
        ->type_name("SIZE")
        ->group(target);
    if (name != "reshard") {
        // After --to, whose word it refines.
        verb->add_option_function<std::string>(
                "--keys",
                [&request](const std::string& keys) {
                    if (keys == "olmo" && !request.format.empty() && request.format != "safetensors" &&
                        request.format != "olmo")
                        throw CLI::ValidationError("--keys", "olmo is a way to write safetensors");
                    if (keys == "olmo") request.format = "olmo";
                },
                "Names in safetensors files: plain, or olmo (nested keys as OLMo pickles them)")
            ->check(CLI::IsMember({"plain", "olmo"}).description(""))
            ->type_name("KIND")
            ->group(target);
    }

    const std::string what = "What";
    verb->add_option("--select", request.select, "Only these names (GLOB or re:REGEX, repeatable)")
        ->type_name("GLOB")
        ->allow_extra_args(false)
        ->group(what);
    verb->add_option("--exclude", request.exclude, "Not these names (repeatable)")
        ->type_name("GLOB")
        ->allow_extra_args(false)
        ->group(what);
    verb->add_flag("--weights-only", request.weightsOnly, "Leave optimizer state behind")->group(what);
    verb->add_option_function<std::vector<std::string>>(
            "--rename",
            [&request](const std::vector<std::string>& rules) {
                for (const auto& rule : rules)
                    request.rename.push_back(valueOf("--rename", parseRenameRule(rule)));
            },
            "Regular expression and replacement for names (repeatable)")
        ->type_name("FROM=TO")
        ->allow_extra_args(false)
        ->group(what);
    verb->add_option_function<std::vector<std::string>>(
            "--dtype",
            [&request](const std::vector<std::string>& rules) {
                for (const auto& rule : rules)
                    request.cast.push_back(valueOf("--dtype", parseCastRule(rule)));
            },
            "Cast matching tensors (repeatable; the first match wins)")
        ->type_name("GLOB=DTYPE")
        ->allow_extra_args(false)
        ->group(what);
    verb->add_option("--map", options->settings.map,
                     "Recipe for names, shapes and dtypes: a file, or one of 'shardscope recipes'")
        ->type_name("RECIPE")
        ->group(what);
    verb->add_option("--set", options->settings.set, "Value of a parameter of the recipe (repeatable)")
        ->type_name("NAME=VALUE")
        ->allow_extra_args(false)
        ->group(what);
    verb->add_option("--objects", options->settings.objectsFile,
                     "Keep objects that the target cannot hold in this torch.save file")
        ->type_name("FILE.pt")
        ->group(what);
    verb->add_flag("--strict", request.strict, "Refuse to leave anything out")->group(what);
    static const std::map<std::string, FillGaps> fills{{"nan", FillGaps::nan}, {"zero", FillGaps::zero}};
    verb->add_option("--fill-gaps", request.fillGaps,
                     "Fill elements that no chunk holds with nan or zero (otherwise an error)")
        ->transform(oneOf(fills))
        ->type_name("VALUE")
        ->group(what);

    const std::string where = "Where each byte goes";
    verb->add_option_function<std::string>(
            "--mesh",
            [&request](const std::string& text) { request.mesh = valueOf("--mesh", parseMesh(text)); },
            "Ranks of the target, e.g. dp=2,tp=4 (the last axis varies fastest)")
        ->type_name("MESH")
        ->group(where);
    verb->add_option_function<std::vector<std::string>>(
            "--shard",
            [&request](const std::vector<std::string>& rules) {
                for (const auto& rule : rules)
                    request.shard.push_back(valueOf("--shard", parseShardRule(rule)));
            },
            "Cut matching tensors: GLOB:AXIS=DIM,... (repeatable; the first match wins)")
        ->type_name("RULE")
        ->allow_extra_args(false)
        ->group(where);
    verb->add_option_function<std::vector<std::string>>(
            "--stage",
            [&request](const std::vector<std::string>& rules) {
                for (const auto& rule : rules)
                    request.stage.push_back(valueOf("--stage", parseStageRule(rule)));
            },
            "Put matching tensors on one coordinate of an axis: GLOB:pp=1 (repeatable)")
        ->type_name("RULE")
        ->allow_extra_args(false)
        ->group(where);
    verb->add_option("--like", options->settings.like, "Same names and placement as this checkpoint")
        ->type_name("CHECKPOINT")
        ->group(where);
    static const std::map<std::string, SplitRule> splits{
        {"torch", SplitRule::torch}, {"even", SplitRule::even}, {"paddle", SplitRule::paddle}};
    verb->add_option("--split", request.split,
                     "Rule for sizes that do not divide: torch (default), even or paddle")
        ->transform(oneOf(splits))
        ->type_name("RULE")
        ->group(where);

    if (name != "plan") {
        const std::string run = "How";
        static const std::map<std::string, Verify> verifies{
            {"digest", Verify::digest}, {"full", Verify::full}, {"none", Verify::none}};
        verb->add_option("--verify", how.verify,
                         "digest (re-read the destination; default), full (the source again too) or none")
            ->transform(oneOf(verifies))
            ->type_name("HOW")
            ->group(run);
        verb->add_flag("--resume", how.resume, "Go on with an interrupted job")->group(run);
        verb->add_flag("--overwrite", how.overwrite,
                       "Replace an existing destination, once the new one is whole")
            ->group(run);
        verb->add_flag("--dry-run", options->dryRun, "Only show the plan")->group(run);
        verb->add_option("--report", options->report, "Write the report to this file as JSON")
            ->type_name("FILE")
            ->group(run);
    }
    if (name != "plan") {
        const std::string who = "Who works";
        verb->add_option(
                "--on", options->on,
                "local:N processes, ssh:HOST,HOST through your own ssh, or slurm:nodes=N,KEY=VALUE,... on "
                "nodes that Slurm lends; joined by '+'; the destination must lie on a file system that "
                "all share (default: this process alone)")
            ->type_name("WHERE")
            ->group(who);
        verb->add_option("--remote-program", context.remoteProgram,
                         "shardscope on the other hosts (default: this one; ssh copies it there once)")
            ->type_name("PATH")
            ->group(who);
    }
    addCommon(*verb, context, true);
    verb->callback([&context, options] {
        context.joins = !options->dryRun;
        context.jobSource = options->source;
        context.jobDestination = options->destination;
        context.jobPlaces = options->on;
        context.verb = [&context, options] { return convert(context, *options); };
    });
}

}  // namespace

void addConvert(CLI::App& app, Context& context) {
    addOne(app, context, "plan", "What a conversion would read, write and leave out (convert --dry-run)",
           "Example:\n  shardscope plan /checkpoints/step-1000 model/ --to safetensors --weights-only");
    addOne(app, context, "convert", "Convert to another format or sharding, bit for bit, in bounded memory",
           "Examples:\n  shardscope convert /checkpoints/step-1000 model/ --to safetensors --weights-only\n"
           "  shardscope convert model.pt dcp/ --to dcp --mesh dp=2,tp=4 --shard '*.weight:tp=0,dp=0'\n\n"
           "The destination appears whole or not at all; an interrupted job goes on with --resume.");
    addOne(app, context, "reshard", "Convert to another sharding of the same format",
           "Example:\n  shardscope reshard /checkpoints/step-1000 /checkpoints/step-1000-tp8 --mesh tp=8 "
           "--shard '*:tp=0'");
}

}  // namespace shardscope::cli
