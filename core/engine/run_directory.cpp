#include "engine/run_directory.h"

#include <algorithm>
#include <array>
#include <set>

#include <fmt/format.h>

#include "base/numbers.h"
#include "base/regular_expression.h"
#include "base/rule.h"
#include "base/text.h"
#include "engine/parts_of_step.h"
#include "engine/step_number.h"
#include "engine/surroundings.h"
#include "formats/catalog_opener.h"
#include "model/step_part.h"
#include "storage/files_below.h"
#include "storage/open_files.h"

namespace shardscope {

namespace {

constexpr uint64_t kTrackerBytes = 4096;
constexpr size_t kMostRunLooks = 64;    // directories that are looked into
constexpr size_t kMostPrefixLooks = 8;  // files of one prefix, and prefixes
constexpr size_t kMostListed = 10;      // in a message
constexpr int kMostRunLevels = 2;       // that a run is looked for below what was named

std::optional<int64_t> numberIn(std::string_view digits) {
    return parseNumber<int64_t>(digits, 0);
}

// "iter_0000100", "global_step_5", "checkpoint-500", "step1000-unsharded", "epoch=0-step=10.ckpt", "2000",
// Composer's "ep1-ba30" and "ep1-ba30-rank0.pt".
std::optional<int64_t> stepOf(std::string_view name) {
    static const RegularExpression pattern =
        RegularExpression::parse(
            R"((?:.*[^A-Za-z])?(?:iter|iteration|step|checkpoint|ckpt|epoch)[_=-]?(\d+)(?:[^0-9].*)?|(\d+)|ep\d+-ba(\d+)(?:-rank\d+)?)")
            .value();
    std::vector<std::string_view> groups;
    if (!pattern.matchWhole(name, groups)) return std::nullopt;
    return numberIn(groups[1].empty() ? groups[2].empty() ? groups[3] : groups[2] : groups[1]);
}

// Where writers build a step before they rename it: "tmp_step_5", "checkpoint-20.tmp", "20.incomplete",
// "5.orbax-checkpoint-tmp-1700000000". Sources: transformers' trainer.py (4.36 to 4.38), torch_checkpointing,
// Orbax's atomicity.py, scripts.
bool isTemporary(std::string_view name) {
    static const RegularExpression pattern =
        RegularExpression::parse(
            R"((?i)(?:.*[._-])?(?:tmp|temp|temporary|incomplete)(?:[._-].*|\d*)|.*[._-](?:partial|unfinished|in[_-]?progress|staging|writing))")
            .value();
    return name.starts_with('.') || pattern.matchesWhole(name);
}

// Files that name a step, in the order in which they are asked: of Megatron and verl, DeepSpeed, SkyRL,
// nanotron, AutoModel, AWS NxD.
constexpr std::array kTrackers{"latest_checkpointed_iteration.txt",
                               "latest",
                               "latest_ckpt_global_step.txt",
                               "latest.txt",
                               "LATEST",
                               "newest"};

// A link that moves with each save: "latest", "last", "latest-sharded", "newest".
bool isMovingName(std::string_view name) {
    static const RegularExpression pattern =
        RegularExpression::parse(R"((?i)(?:.*[._-])?(?:latest|last|newest)(?:[._-].*)?)").value();
    return pattern.matchesWhole(name);
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
        if (!isCheckpointSuffix(name.substr(dot + 1)) || numberIn(name.substr(0, dot)) || isTemporary(name))
            continue;
        const auto step = stepOf(name.substr(0, dot));
        if (!step) continue;
        if (!numbers.insert(*step).second) return {};
        steps.push_back({entry.name, *step, true});
    }
    return steps;
}

// "checkpoint_" of "checkpoint_20"; empty where the name is no prefix with a number behind it.
std::string_view prefixOf(std::string_view name) {
    const size_t end = name.find_last_not_of("0123456789");
    const bool numbered = end != name.npos && end + 1 < name.size();
    return numbered && name.find('.') == name.npos && !isTemporary(name) ? name.substr(0, end + 1)
                                                                         : std::string_view();
}

// Whether one of the files with this prefix is a checkpoint; the others may be cut.
bool holdsCheckpoint(const Source& source, std::string_view prefix) {
    size_t looks = 0;
    for (const DirectoryEntry& entry : source.entries) {
        if (entry.kind != DirectoryEntry::Kind::file || prefixOf(entry.name) != prefix) continue;
        Source one = source;
        one.entry = entry.name;
        // Any words may stand before the number of a rank, too.
        const Format* format = detectFormat(one);
        if (format && (isStepName(entry.name) || format == findFormat("flax"))) return true;
        if (++looks == kMostPrefixLooks) break;
    }
    return false;
}

// Those without an ending: flax.training.checkpoints writes a prefix, "checkpoint_" unless it is told another
// one, and the step. Several prefixes are several runs, or none.
std::vector<RunStep> plainFileSteps(const Source& source) {
    std::set<std::string_view> prefixes;
    for (const DirectoryEntry& entry : source.entries) {
        if (entry.kind == DirectoryEntry::Kind::file && !prefixOf(entry.name).empty())
            prefixes.insert(prefixOf(entry.name));
    }
    if (prefixes.size() > kMostPrefixLooks) return {};
    std::erase_if(prefixes, [&](std::string_view prefix) { return !holdsCheckpoint(source, prefix); });
    if (prefixes.size() != 1) return {};
    const std::string_view prefix = *prefixes.begin();
    std::vector<RunStep> steps;
    for (const DirectoryEntry& entry : source.entries) {
        if (entry.kind != DirectoryEntry::Kind::file || prefixOf(entry.name) != prefix) continue;
        if (const auto step = numberIn(std::string_view(entry.name).substr(prefix.size())))
            steps.push_back({entry.name, *step, true});
    }
    return steps;
}

const RunStep* stepNamed(const RunDirectory& run, std::string_view name) {
    const auto at = std::ranges::find(run.steps, name, &RunStep::name);
    return at == run.steps.end() ? nullptr : &*at;
}

// A tracker's name that is a link to a step, not a text.
bool isCheckpointLink(const Source& source, const RunDirectory& run, std::string_view name) {
    const std::string target = source.directory->linkTarget(name);
    return !target.empty() && stepNamed(run, target.substr(target.rfind('/') + 1));
}

std::string withoutEnd(std::string text) {
    while (!text.empty() && (static_cast<unsigned char>(text.back()) <= ' ' || text.back() == '/'))
        text.pop_back();
    return text;
}

// "step-10", "runs/7/step-10", "10".
void track(const Source& source, std::string_view tracker, std::string text, RunDirectory& run) {
    run.tracker = tracker;
    run.tracked = text.substr(text.rfind('/') + 1);
    run.trackedExists = holdsDirectory(source, run.tracked) || stepNamed(run, run.tracked);
    const auto number = numberIn(run.tracked);
    for (const RunStep& step : run.steps) {
        if (run.trackedExists || step.step != number) continue;
        run.tracked = step.name;
        run.trackedExists = true;
    }
    if (!run.trackedExists) run.tracked = std::move(text);
}

void readTracker(const Source& source, RunDirectory& run) {
    for (const char* name : kTrackers) {
        if (!source.hasFile(name) || isCheckpointLink(source, run, name)) continue;
        std::string text = withoutEnd(smallFile(*source.directory, name, kTrackerBytes));
        if (text.empty() || text.find('\0') != text.npos) continue;
        return track(source, name, std::move(text), run);
    }
    for (const DirectoryEntry& entry : source.entries) {
        const std::string target = isMovingName(entry.name) ? source.directory->linkTarget(entry.name) : "";
        if (!target.empty() && stepNamed(run, target.substr(target.rfind('/') + 1)))
            return track(source, entry.name, withoutEnd(target), run);
    }
    for (const char* name : {"last.ckpt", "latest", "last"}) {
        const bool file = name == std::string_view("last.ckpt") && source.hasFile(name);
        if (!file && !holdsDirectory(source, name)) continue;
        run.tracker = run.tracked = name;
        run.trackedExists = true;
        return;
    }
}

// The runs in the directories of `source`, which is neither a run nor a checkpoint: "v0-20260101/" of
// ms-swift, "_actor/" of OpenRLHF, several experiments.
void addRunsBelow(const Source& source, int levels, std::vector<Run>& runs) {
    if (levels == 0 || !source.entry.empty() || detectFormat(source)) return;
    size_t looks = 0;
    for (const DirectoryEntry& entry : source.entries) {
        if (entry.kind != DirectoryEntry::Kind::directory || isTemporary(entry.name)) continue;
        if (++looks > kMostRunLooks) break;
        auto below = sourceFor(joinPath(source.display, entry.name), IoMode::automatic, source.fileSystem);
        if (!below.ok()) continue;
        if (auto directory = findRun(*below))
            runs.push_back({*std::move(below), *std::move(directory)});
        else
            addRunsBelow(*below, levels - 1, runs);
    }
}

// The step that a checkpoint of one file says it is of; nullopt where it says none, or cannot be opened.
std::optional<int64_t> stepInside(const Run& run, const RunStep& step) {
    CheckpointOptions options;
    options.fileSystem = run.source.fileSystem;
    const auto checkpoint = openCheckpoint(run.pathOf(step), options);
    if (!checkpoint.ok()) return std::nullopt;
    const auto stated = statedStep(*checkpoint, nullptr, {});
    return stated ? std::optional(stated->step) : std::nullopt;
}

// A copy of the newest step that is kept beside the numbered ones (Lightning's last.ckpt with save_last) may
// be older than they are when a save has died: it stands where its own step says.
void placeCopy(Run& run) {
    auto& steps = run.directory.steps;
    if (steps.size() < 2 || steps[0].step >= 0 || !steps[0].file) return;
    const auto number = stepInside(run, steps[0]);
    if (!number) return;
    const auto after = std::find_if(steps.begin() + 1, steps.end(),
                                    [&](const RunStep& step) { return step.step < *number; });
    std::rotate(steps.begin(), steps.begin() + 1, after);
}

// Of untrusted names.
std::string shownNames(std::vector<std::string> names) {
    for (std::string& name : names)
        name = printable(name, kNameInMessage);
    return listed(names, kMostListed);
}

std::string below(const Source& source, const Run& run) {
    return run.source.display.substr(joinPath(source.display, "").size());
}

Error several(const Source& source, std::string_view what, const std::vector<std::string>& names) {
    return makeError(ErrorCode::usage, fmt::format("holds {} {}: {}", names.size(), what, shownNames(names)))
        .inFile(source.display)
        .withHint("name one of them");
}

// nullopt where there is none. Errors: usage when there are several.
Result<std::optional<Run>> runBelow(const Source& source) {
    std::vector<Run> runs;
    addRunsBelow(source, kMostRunLevels, runs);
    if (runs.empty()) return std::optional<Run>();
    if (runs.size() == 1) return std::optional(std::move(runs.front()));
    std::vector<std::string> names;
    for (const Run& run : runs)
        names.push_back(below(source, run));
    return several(source, "runs", names);
}

}  // namespace

std::optional<int64_t> stepNumber(std::string_view name) {
    return isTemporary(name) ? std::nullopt : stepOf(name);
}

bool isStepName(std::string_view name) {
    return stepNumber(name).has_value();
}

std::optional<RunDirectory> findRun(const Source& source) {
    if (!source.entry.empty()) return std::nullopt;
    RunDirectory run;
    for (const DirectoryEntry& entry : source.entries) {
        if (entry.kind != DirectoryEntry::Kind::directory || isTemporary(entry.name)) continue;
        if (const auto step = stepOf(entry.name)) run.steps.push_back({entry.name, *step});
    }
    // A link to another step of the run is no step of its own.
    std::erase_if(run.steps, [&](const RunStep& step) {
        const std::string target = source.directory->linkTarget(step.name);
        return !target.empty() && target.find('/') == target.npos && holdsDirectory(source, target) &&
               stepOf(target);
    });
    if (run.steps.empty()) run.steps = fileSteps(source);
    if (run.steps.empty()) run.steps = plainFileSteps(source);
    std::stable_sort(run.steps.begin(), run.steps.end(),
                     [](const RunStep& a, const RunStep& b) { return a.step > b.step; });
    readTracker(source, run);
    const auto tracked = [&](const RunStep& step) { return run.tracks(step); };
    if (run.trackedExists && std::none_of(run.steps.begin(), run.steps.end(), tracked))
        run.steps.insert(run.steps.begin(), {run.tracked, -1, !holdsDirectory(source, run.tracked)});
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
    std::optional<Run> run;
    if (auto directory = findRun(source)) {
        run = Run{std::move(source), *std::move(directory)};
    } else {
        SHARDSCOPE_ASSIGN(run, runBelow(source));
    }
    if (run) placeCopy(*run);
    return run;
}

Result<std::optional<RunChoice>> chooseInRun(const Source& source) {
    if (!source.entry.empty()) return std::optional<RunChoice>();
    if (const auto run = findRun(source)) {
        if (run->trackedExists)
            return std::optional<RunChoice>({run->tracked,
                                             run->tracked == run->tracker
                                                 ? "the last step of the run"
                                                 : fmt::format("named by {}", run->tracker),
                                             true});
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
        return std::optional<RunChoice>({names[0], "the only step of the run", true});
    }
    std::vector<RunChoice> found;
    size_t looks = 0;
    for (const DirectoryEntry& entry : source.entries) {
        if (entry.kind != DirectoryEntry::Kind::directory || entry.name.starts_with('.')) continue;
        if (++looks > kMostRunLooks) break;
        if (auto path = checkpointIn(source, entry.name))
            found.push_back({*path, "the only checkpoint there"});
    }
    // OLMo-core keeps state of its trainer in "train" beside "model_and_optim".
    std::vector<RunChoice> weights;
    std::ranges::copy_if(found, std::back_inserter(weights), [](const RunChoice& choice) {
        return stepPartOf(choice.path.substr(0, choice.path.find('/'))) == StepPart::weights;
    });
    // A pipeline of diffusers holds several models, of which one may be called "unet".
    if (weights.size() == 1 && !source.hasFile("model_index.json")) return std::optional(weights[0]);
    if (found.size() > 1) {
        std::vector<std::string> names;
        for (const RunChoice& choice : found)
            names.push_back(choice.path);
        return several(source, "checkpoints", names);
    }
    if (!found.empty()) return std::optional(found[0]);
    SHARDSCOPE_ASSIGN(const auto run, runBelow(source));
    if (!run) return std::optional<RunChoice>();
    return std::optional<RunChoice>({below(source, *run), "the only run there", true, true});
}

}  // namespace shardscope
