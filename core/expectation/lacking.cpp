#include "expectation/lacking.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include "base/names.h"
#include "base/numbers.h"
#include "base/regular_expression.h"
#include "base/rule.h"
#include "base/text.h"
#include "storage/files_below.h"

namespace shardscope {

namespace {

Note noteOf(const char* rule, Need need, const std::string& file, std::string message) {
    Note note;
    note.rule = rule;
    note.severity = severityOf(need);
    note.file = file;
    note.message = std::move(message);
    return note;
}

std::string purpose(std::string_view path, Need need) {
    const std::string_view part = partName(stepPartOf(lastName(path)));
    const std::string_view cost =
        need == Need::resume ? "a run cannot resume without it" : "a resumed run does not go on as it was";
    return part.empty() ? std::string(cost) : fmt::format("{}: {}", part, cost);
}

void addMissing(const std::string& path, Need need, std::string why, std::vector<Note>& notes) {
    if (need == Need::nothing) return;
    notes.push_back(noteOf(
        rule::fileMissing, need, path,
        fmt::format("'{}' is not here ({}); {}", printable(path, kNameInMessage), purpose(path, need), why)));
}

// ------------------------------------------------------------------ the contract

void addAlways(const StepContents& step, const Contract& contract, std::vector<Note>& notes) {
    for (const NeededFile& file : contract.files) {
        std::string_view globs = file.always ? file.globs : std::string_view();
        while (!globs.empty()) {
            const size_t end = globs.find('|');
            const std::string glob(globs.substr(0, end));
            if (!step.has(glob))
                addMissing(glob, file.absent, fmt::format("{} writes it", contract.framework), notes);
            globs = end == globs.npos ? std::string_view() : globs.substr(end + 1);
        }
    }
}

bool isNothing(const Value& value) {
    return value.graph && value.graph->kind(value.node) == ValueKind::none;
}

// What trainers save besides the weights comes together or, where only weights are wanted, not at all.
void addTrainerState(const StepContents& step, const Contract& contract, const Catalog& catalog,
                     std::vector<Note>& notes) {
    if (contract.framework == "PaddleNLP" && step.has("scheduler*") &&
        !step.has("*optim*|*.pdopt|*master_weights*"))
        addMissing("optimizer.pdopt", Need::resume, "PaddleNLP writes it with the scheduler", notes);
    if (contract.last != "trainer_state.json") return;
    const bool inside = step.has("global_step*/*");  // of DeepSpeed
    const bool optimizer = inside || step.has("*optim*|*.pdopt|*master_weights*");
    // DeepSpeed keeps the state of a scheduler of its own only.
    const bool own = inside && std::ranges::none_of(catalog.objects(), [](const ObjectInfo& object) {
                         return object.name == "lr_scheduler" && isNothing(object.value);
                     });
    const bool scheduler = own || step.has("scheduler*");
    // Scripts with a Trainer's names may have no scheduler.
    const bool isTrainer = step.find("training_args.bin") != nullptr;
    if (optimizer && isTrainer && !step.has("rng_state*.pth"))
        addMissing("rng_state.pth", Need::result, fmt::format("{} writes it", contract.framework), notes);
    if (optimizer && (scheduler || !isTrainer)) return;
    if (!optimizer && !scheduler && step.find("trainer_state.json") && !step.has("rng_state*.pth")) {
        notes.push_back(noteOf(rule::stateMissing, Need::result, "",
                               "only weights were saved: a resumed run begins with a fresh optimizer and "
                               "learning rate"));
        return;
    }
    const std::string by = fmt::format("{} writes it", contract.framework);
    if (!optimizer) addMissing("optimizer.pt", Need::resume, by, notes);
    if (!scheduler && isTrainer) addMissing("scheduler.pt", Need::resume, by, notes);
}

void addEmpty(const StepContents& step, const Contract& contract, const Catalog& catalog,
              std::vector<Note>& notes) {
    std::set<std::string_view> known;  // those of ranks without anything to save, and what a reader has said
    for (const FileInfo& file : catalog.files())
        if (file.rank != kNone) known.insert(file.path);
    for (const Note& note : catalog.notes())
        if (note.severity == Severity::error) known.insert(note.file);
    for (const StepFile& file : step.files) {
        const std::string_view name = lastName(file.path);
        if (file.size > 0 || name.starts_with('.') || name.ends_with(".distcp") || known.contains(file.path))
            continue;
        if (!isStateFile(name)) continue;
        // Outside of a run nobody knows whether anything reads it.
        if (!step.isStep && stepPartOfPath(file.path) == StepPart::unknown) continue;
        const Need need = contract.damaged(file.path);
        if (need != Need::nothing)
            notes.push_back(noteOf(rule::fileDamaged, need, file.path,
                                   fmt::format("'{}' is empty ({})", printable(file.path, kNameInMessage),
                                               purpose(file.path, need))));
    }
}

// ------------------------------------------------------------------ ranks

// The name of a rank's file that also says how many ranks there are: "extra_state_world_size_2_rank_1.pt",
// and torch_xla's "model_rank-00000001-of-00000002.pth".
struct RankName {
    std::string before, after;  // what stands around the rank's number
    size_t width = 0;           // its digits; 1 = no zeros before it
    int64_t world = 0, rank = 0;
    std::string of(int64_t r) const { return fmt::format("{}{:0{}}{}", before, r, width, after); }
};
std::optional<RankName> worldAndRank(std::string_view name) {
    static const RegularExpression plain =
        RegularExpression::parse(R"((.*_world_size_([0-9]+)_rank_)([0-9]+)(\..*)?)").value();
    static const RegularExpression padded =
        RegularExpression::parse(R"((.*rank[-_])([0-9]+)([-_]of[-_]([0-9]+)(?:[^0-9].*)?))").value();
    std::vector<std::string_view> groups;
    RankName found;
    std::string_view world, rank;
    if (plain.matchWhole(name, groups)) {
        world = groups[2], rank = groups[3];
        found = {std::string(groups[1]), std::string(groups[4]), 1};
    } else if (padded.matchWhole(name, groups)) {
        world = groups[4], rank = groups[2];
        found = {std::string(groups[1]), std::string(groups[3]), rank.size()};
    } else {
        return std::nullopt;
    }
    found.world = parseNumber<int64_t>(world, 0).value_or(-1);
    found.rank = parseNumber<int64_t>(rank, 0).value_or(-1);
    return found.world < 0 || found.rank < 0 ? std::nullopt : std::optional(found);
}

constexpr int64_t kMostRanks = 1 << 20;  // that a name is believed to speak of

void addWorlds(const StepContents& step, const Contract& contract, std::vector<Note>& notes) {
    std::map<std::string, std::pair<RankName, std::set<int64_t>>> found;  // by the path of rank 0
    for (const StepFile& file : step.files) {
        const auto name = worldAndRank(lastName(file.path));
        if (!name || name->world > kMostRanks) continue;
        auto& [one, ranks] = found[inside(directoryOf(file.path), name->of(0))];
        one = *name;
        ranks.insert(name->rank);
    }
    for (const auto& [first, of] : found) {
        const auto& [name, ranks] = of;
        for (int64_t r = 0; r < name.world; ++r) {
            if (ranks.contains(r)) continue;
            const std::string path = inside(directoryOf(first), name.of(r));
            // What one rank lost may be whole without it; only a run needs the files of all.
            const Need need = std::min(contract.absent(path), step.isStep ? Need::resume : Need::result);
            addMissing(path, need, fmt::format("the save was by {} ranks", name.world), notes);
            break;  // the first tells what happened
        }
    }
}

// Shards of ranks that belong together, "optimizer.shard00.safetensors" and
// "master_weights.shard00.safetensors" of PaddleNLP: of each kind of state the same numbers.
void addShards(const StepContents& step, const Contract& contract, std::vector<Note>& notes) {
    constexpr std::string_view kShard = ".shard";
    std::map<std::string, std::map<std::string, std::string>> kinds;  // family -> number -> path
    std::set<std::string> numbers;
    for (const StepFile& file : step.files) {
        const std::string_view name = lastName(file.path);
        const size_t at = name.find(kShard);
        if (at == name.npos || stepPartOf(name) != StepPart::optimizer) continue;
        const size_t from = at + kShard.size(), end = name.find('.', from);
        if (end == name.npos || !parseNumber<int64_t>(name.substr(from, end - from), 0)) continue;
        const std::string number(name.substr(from, end - from));
        numbers.insert(number);
        kinds[withoutNumbers(file.path)][number] = file.path;
    }
    for (const auto& [family, files] : kinds) {
        for (const std::string& number : numbers) {
            if (files.contains(number)) continue;
            std::string path = files.begin()->second;
            path.replace(path.rfind(files.begin()->first), files.begin()->first.size(), number);
            addMissing(path, contract.absent(path), "other state of that rank is here", notes);
        }
    }
}

// Random states are saved by each rank: "rng_state_0.pth" and "rng_state_2.pth" lack that of rank 1.
void addRandomGaps(const StepContents& step, const Contract& contract, std::vector<Note>& notes) {
    std::map<std::string, std::map<int64_t, std::string>> families;
    for (const StepFile& file : step.files) {
        const std::string_view name = lastName(file.path);
        const size_t from = name.find_first_of("0123456789"),
                     end = name.find_first_not_of("0123456789", from);
        if (stepPartOf(name) != StepPart::random || from == name.npos) continue;
        if (name.find_first_of("0123456789", end) != name.npos) continue;
        if (const auto rank = parseNumber<int64_t>(name.substr(from, end - from)))
            families[withoutNumbers(file.path)][*rank] = file.path;
    }
    for (const auto& [family, files] : families) {
        int64_t wanted = 0;
        for (const auto& [rank, path] : files) {
            if (rank > wanted && rank < kMostRanks) {
                std::string other = path;
                const std::string number = std::to_string(rank);
                other.replace(other.rfind(number), number.size(), std::to_string(wanted));
                addMissing(other, contract.absent(path), fmt::format("that of rank {} is here", rank), notes);
                break;
            }
            wanted = rank + 1;
        }
    }
}

// OLMo's "train/rank0.pt": of each rank that the others of these files, or the parts of a DCP checkpoint,
// name.
void addTrainerGaps(const StepContents& step, const Contract& contract, std::vector<Note>& notes) {
    if (contract.framework != "OLMo" || !step.has("train/rank*.pt")) return;
    static const RegularExpression part =
        RegularExpression::parse(R"((?:.*/)?(?:__|rank)([0-9]+)(?:_[0-9]+\.distcp|\.pt))").value();
    std::vector<std::string_view> groups;
    int64_t ranks = 0;
    for (const StepFile& file : step.files) {
        if (!part.matchWhole(file.path, groups)) continue;
        ranks = std::max(ranks, parseNumber<int64_t>(groups[1], 0, kMostRanks).value_or(-1) + 1);
    }
    // That of rank 0 every step needs (addAlways()).
    for (int64_t rank = step.isStep ? 1 : 0; rank < ranks; ++rank) {
        const std::string path = fmt::format("train/rank{}.pt", rank);
        if (step.find(path)) continue;
        addMissing(path, contract.absent(path), fmt::format("other files here are those of {} ranks", ranks),
                   notes);
        return;  // the first tells what happened
    }
}

// Directories of ranks, "mp_rank_00": each holds what the others hold.
void addRankDirectories(const StepContents& step, const Contract& contract, std::vector<Note>& notes) {
    std::map<std::string, std::map<std::string, std::set<std::string>>> families;  // directory -> names
    for (const StepFile& file : step.files) {
        const std::string_view directory = directoryOf(file.path);
        if (lastName(directory).find("rank_") == std::string_view::npos) continue;
        families[withoutNumbers(directory)][std::string(directory)].insert(std::string(lastName(file.path)));
    }
    for (const auto& [family, directories] : families) {
        std::set<std::string> all;
        for (const auto& [directory, names] : directories)
            all.insert(names.begin(), names.end());
        for (const auto& [directory, names] : directories) {
            for (const std::string& name : all) {
                // Each rank may write files of its own names.
                if (names.contains(name) || withoutNumbers(name) != name) continue;
                const std::string path = inside(directory, name);
                addMissing(path, contract.absent(path), "other ranks of this step have it", notes);
            }
        }
    }
}

// ------------------------------------------------------------------ earlier steps

// What a file is for, whatever it is called: a model may be saved as .bin first and as safetensors later, in
// one file or in many, and random states of one rank or of many. Empty where the name does not say.
std::string purposeOf(std::string_view path) {
    const std::string_view name = lastName(path);
    const StepPart part = stepPartOf(name);
    if (!isState(part) || name.ends_with(".json")) return {};
    return fmt::format("{}/{}", withoutNumbers(directoryOf(path)), partName(part));
}

// Files that differ only in their numbers: "sched_#.pt" -> {",0": "sched_0.pt", ",1": "sched_1.pt"}.
using Numbered = std::map<std::string, std::map<std::string, std::string>>;
Numbered numberedOf(const StepContents& step) {
    Numbered families;
    for (const StepFile& file : step.files) {
        std::string numbers;
        bool inside = false;
        for (const char c : file.path) {
            const bool digit = c >= '0' && c <= '9';
            if (digit && !inside) numbers += ',';
            if (digit) numbers += c;
            inside = digit;
        }
        if (!numbers.empty()) families[familyOf(file.path)][numbers] = file.path;
    }
    return families;
}

bool hasAll(const std::map<std::string, std::string>& files, const std::map<std::string, std::string>& of) {
    return std::ranges::all_of(of, [&](const auto& file) { return files.contains(file.first); });
}

// Files of single ranks: those that `step` lacks while another kind of file is there for the same ranks in
// both steps, and a missing random state of one rank. A run that resumed on fewer ranks lacks files of all
// kinds.
std::vector<LackingFile> lackingOfRanks(const StepContents& step, const StepContents& earlier,
                                        const Contract& contract) {
    std::vector<LackingFile> lacking;
    if (std::ranges::all_of(earlier.files, [&](const StepFile& file) { return step.find(file.path); }))
        return lacking;
    const Numbered here = numberedOf(step), there = numberedOf(earlier);
    std::set<std::vector<std::string>> whole;
    const auto ranksOf = [](const std::map<std::string, std::string>& files) {
        std::vector<std::string> ranks;
        for (const auto& [numbers, path] : files)
            ranks.push_back(numbers);
        return ranks;
    };
    for (const auto& [family, files] : there)
        if (const auto at = here.find(family); at != here.end() && hasAll(at->second, files))
            whole.insert(ranksOf(files));
    for (const auto& [family, files] : there) {
        const auto at = here.find(family);
        if (at == here.end() || !hasAll(files, at->second)) continue;
        const bool one = files.size() == at->second.size() + 1 &&
                         stepPartOf(lastName(files.begin()->second)) == StepPart::random;
        if (!one && !whole.contains(ranksOf(files))) continue;
        for (const auto& [numbers, path] : files)
            if (!at->second.contains(numbers) && contract.absent(path) != Need::nothing)
                lacking.push_back({path, path, contract.absent(path)});
    }
    return lacking;
}

std::set<std::string> familiesOf(const StepContents& step) {
    std::set<std::string> families;
    for (const StepFile& file : step.files)
        families.insert(familyOf(file.path));
    return families;
}

}  // namespace

std::vector<Note> lackingNotes(const StepContents& step, const Contract& contract, const Catalog& catalog) {
    std::vector<Note> notes;
    // A model that was saved by itself has no state of a run beside it.
    if (step.isStep) {
        addAlways(step, contract, notes);
        addTrainerState(step, contract, catalog, notes);
    }
    addEmpty(step, contract, catalog, notes);
    addWorlds(step, contract, notes);
    addShards(step, contract, notes);
    addRandomGaps(step, contract, notes);
    if (catalog.format() != "olmo") addTrainerGaps(step, contract, notes);
    if (catalog.format() != "deepspeed") addRankDirectories(step, contract, notes);
    return notes;
}

std::vector<LackingFile> lackingAgainst(const StepContents& step, const StepContents& earlier,
                                        const Contract& contract) {
    std::vector<LackingFile> lacking = lackingOfRanks(step, earlier, contract);
    const std::set<std::string> has = familiesOf(step), had = familiesOf(earlier);
    std::set<std::string> renamed;  // purposes of files under names that the earlier step does not know
    bool shards = false;
    for (const StepFile& file : step.files) {
        if (!had.contains(familyOf(file.path))) renamed.insert(purposeOf(file.path));
        shards = shards || file.path.find("-of-") != std::string::npos;
    }
    std::set<std::string> seen;
    for (const StepFile& file : earlier.files) {
        const std::string_view name = lastName(file.path);
        const std::string family = familyOf(file.path);
        if (has.contains(family) || !seen.insert(family).second || family.find('*') != family.npos) continue;
        if (const std::string what = purposeOf(file.path); !what.empty() && renamed.contains(what)) continue;
        if (name.ends_with(".index.json") && !shards) continue;  // one file needs none
        const Need need = contract.absent(file.path);
        const bool counts = isStateFile(name) || contract.find(file.path);
        if (need == Need::nothing || !counts) continue;
        lacking.push_back({family, file.path, need});
    }
    return lacking;
}

std::vector<Note> historyNotes(const StepContents& step, std::span<const StepContents> earlier,
                               const Contract& contract) {
    std::map<std::string, std::pair<size_t, LackingFile>> counts;
    for (const StepContents& one : earlier) {
        for (LackingFile& file : lackingAgainst(step, one, contract)) {
            auto& [count, last] = counts[file.family];
            ++count;
            last = std::move(file);
        }
    }
    std::vector<Note> notes;
    for (const auto& [family, counted] : counts) {
        const auto& [count, file] = counted;
        if (count < earlier.size()) continue;
        const std::string name = printable(earlier.front().name, kNameInMessage);
        std::string why = earlier.size() == 1
                              ? fmt::format("'{}' has it", name)
                              : fmt::format("'{}' and {} more of the whole steps before it have it", name,
                                            earlier.size() - 1);
        addMissing(file.path, file.need, std::move(why), notes);
    }
    return notes;
}

std::vector<Note> mixedSaveNotes(const StepContents& step, std::span<const StepContents> earlier,
                                 const Contract& contract) {
    const auto last = std::ranges::find_if(
        step.files, [&](const StepFile& file) { return fitsGlobs(contract.last, file.path); });
    if (contract.last.empty() || last == step.files.end() || earlier.empty()) return {};
    constexpr int64_t kSecond = 1'000'000'000;
    // Archives and some file systems keep whole seconds only.
    const bool coarse =
        std::ranges::all_of(step.files, [](const StepFile& file) { return file.modifiedNs % kSecond == 0; });
    int64_t longest = coarse ? kSecond : kSecond / 100;
    for (const StepContents& one : earlier) {
        if (one.files.empty()) continue;
        const auto [first, end] = std::ranges::minmax(one.files, {}, &StepFile::modifiedNs);
        longest = std::max(longest, end.modifiedNs - first.modifiedNs);
    }
    for (const StepFile& file : step.files) {
        const StepPart part = stepPartOf(lastName(file.path));
        if (part != StepPart::weights && part != StepPart::optimizer && part != StepPart::scheduler) continue;
        if (file.modifiedNs - last->modifiedNs <= 2 * longest) continue;
        return {noteOf(rule::saveMixed, Need::result, file.path,
                       fmt::format("'{}' was written after '{}', which {} writes last: a save into the same "
                                   "directory may have died",
                                   printable(file.path, kNameInMessage), last->path, contract.framework))};
    }
    return {};
}

}  // namespace shardscope
