#include "engine/run_directory.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "base/numbers.h"
#include "base/regular_expression.h"
#include "base/rule.h"
#include "base/text.h"
#include "engine/surroundings.h"
#include "formats/open_files.h"

namespace shardscope {

namespace {

constexpr uint64_t kTrackerBytes = 4096;
constexpr size_t kMostRunLooks = 64;  // directories that are looked into
constexpr size_t kMostListed = 10;    // in a message

std::optional<int64_t> numberIn(std::string_view digits) {
    return parseNumber<int64_t>(digits, 0);
}

// "iter_0000100", "global_step_5", "checkpoint-500", "step1000-unsharded", "epoch=0-step=10.ckpt", "2000".
std::optional<int64_t> stepOf(std::string_view name) {
    static const RegularExpression pattern =
        RegularExpression::parse(
            R"((?:.*[^A-Za-z])?(?:iter|iteration|step|checkpoint|ckpt|epoch)[_=-]?(\d+)(?:[^0-9].*)?|(\d+))")
            .value();
    std::vector<std::string_view> groups;
    if (!pattern.matchWhole(name, groups)) return std::nullopt;
    return numberIn(groups[1].empty() ? groups[2] : groups[1]);
}

bool hasDirectory(const Source& source, std::string_view name) {
    return std::any_of(source.entries.begin(), source.entries.end(), [&](const DirectoryEntry& entry) {
        return entry.kind == DirectoryEntry::Kind::directory && entry.name == name;
    });
}

// Checkpoints that are one file each, such as Lightning's. Numbers that repeat are not those of steps:
// "model_epoch_1.pt" and "optimizer_epoch_1.pt".
std::vector<RunStep> fileSteps(const Source& source) {
    std::vector<RunStep> steps;
    std::set<int64_t> numbers;
    for (const DirectoryEntry& entry : source.entries) {
        const size_t dot = entry.name.rfind('.');
        if (entry.kind != DirectoryEntry::Kind::file || dot == std::string::npos || dot == 0) continue;
        const std::string_view name = entry.name;
        if (!isCheckpointSuffix(name.substr(dot + 1)) || numberIn(name.substr(0, dot))) continue;
        const auto step = stepOf(name.substr(0, dot));
        if (!step) continue;
        if (!numbers.insert(*step).second) return {};
        steps.push_back({entry.name, *step, true});
    }
    return steps;
}

void readTracker(const Source& source, RunDirectory& run) {
    for (const char* name : {"latest_checkpointed_iteration.txt", "latest"}) {
        if (!source.hasFile(name)) continue;
        std::string text = smallFile(*source.directory, name, kTrackerBytes);
        while (!text.empty() && static_cast<unsigned char>(text.back()) <= ' ')
            text.pop_back();
        if (text.empty()) continue;
        run.tracker = name;
        run.tracked = text;
        run.trackedExists = hasDirectory(source, text);
        const auto number = numberIn(text);
        for (const RunStep& step : run.steps) {
            if (run.trackedExists || step.step != number) continue;
            run.tracked = step.name;
            run.trackedExists = true;
        }
        return;
    }
    for (const char* name : {"last.ckpt", "latest", "last"}) {
        const bool file = name == std::string_view("last.ckpt") && source.hasFile(name);
        if (!file && !hasDirectory(source, name)) continue;
        run.tracker = run.tracked = name;
        run.trackedExists = true;
        return;
    }
}

// Of untrusted names.
std::string shownNames(std::vector<std::string> names) {
    for (std::string& name : names)
        name = printable(name, kNameInMessage);
    return listed(names, kMostListed);
}

Error several(const Source& source, std::string_view what, const std::vector<std::string>& names) {
    return makeError(ErrorCode::usage, fmt::format("holds {} {}: {}", names.size(), what, shownNames(names)))
        .inFile(source.display)
        .withHint("name one of them");
}

}  // namespace

std::optional<RunDirectory> findRun(const Source& source) {
    if (!source.entry.empty()) return std::nullopt;
    RunDirectory run;
    for (const DirectoryEntry& entry : source.entries) {
        // torch_checkpointing saves into tmp_<name>, Orbax into <name>.orbax-checkpoint-tmp, and they rename
        // it when all is there.
        if (entry.kind != DirectoryEntry::Kind::directory || entry.name.starts_with('.') ||
            entry.name.starts_with("tmp_") || entry.name.find(".orbax-checkpoint-tmp") != std::string::npos)
            continue;
        if (const auto step = stepOf(entry.name)) run.steps.push_back({entry.name, *step});
    }
    if (run.steps.empty()) run.steps = fileSteps(source);
    std::stable_sort(run.steps.begin(), run.steps.end(),
                     [](const RunStep& a, const RunStep& b) { return a.step > b.step; });
    readTracker(source, run);
    const auto tracked = [&](const RunStep& step) { return run.tracks(step); };
    if (run.trackedExists && std::none_of(run.steps.begin(), run.steps.end(), tracked))
        run.steps.insert(run.steps.begin(), {run.tracked, -1, !hasDirectory(source, run.tracked)});
    if (run.steps.empty()) return std::nullopt;
    return run;
}

std::string Run::pathOf(const RunStep& step) const {
    return joinPath(source.display, step.name);
}

std::string Run::missingStep() const {
    if (directory.tracker.empty() || directory.trackedExists) return {};
    return fmt::format("'{}' names the step '{}', which is not here", directory.tracker,
                       printable(directory.tracked, kNameInMessage));
}

Result<std::optional<Run>> openRun(const std::string& path, const CheckpointOptions& options) {
    SHARDSCOPE_ASSIGN(Source source, sourceFor(path, options.io, options.fileSystem));
    auto directory = findRun(source);
    if (!directory) return std::optional<Run>();
    return std::optional<Run>({std::move(source), std::move(*directory)});
}

Result<std::optional<RunChoice>> chooseInRun(const Source& source) {
    if (!source.entry.empty()) return std::optional<RunChoice>();
    if (const auto run = findRun(source)) {
        if (run->trackedExists)
            return std::optional<RunChoice>({run->tracked, run->tracked == run->tracker
                                                               ? "the last step of the run"
                                                               : fmt::format("named by {}", run->tracker)});
        std::vector<std::string> names;
        for (const RunStep& step : run->steps)
            names.push_back(step.name);
        if (const std::string missing = Run{source, *run}.missingStep(); !missing.empty()) {
            return makeError(ErrorCode::notFound, missing)
                .inFile(source.display)
                .byRule(rule::fileMissing)
                .withHint("name one of the steps that are here: " + shownNames(names));
        }
        if (names.size() > 1) return several(source, "steps", names);
        return std::optional<RunChoice>({names[0], "the only step of the run"});
    }
    std::vector<std::string> found;
    size_t looks = 0;
    for (const DirectoryEntry& entry : source.entries) {
        if (entry.kind != DirectoryEntry::Kind::directory || entry.name.starts_with('.')) continue;
        if (++looks > kMostRunLooks) break;
        const auto below =
            sourceFor(joinPath(source.display, entry.name), IoMode::automatic, source.fileSystem);
        if (below.ok() && detectFormat(*below)) found.push_back(entry.name);
    }
    if (found.size() > 1) return several(source, "checkpoints", found);
    if (found.empty()) return std::optional<RunChoice>();
    return std::optional<RunChoice>({found[0], "the only checkpoint there"});
}

}  // namespace shardscope
