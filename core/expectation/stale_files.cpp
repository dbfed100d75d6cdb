#include "expectation/stale_files.h"

#include <algorithm>
#include <optional>
#include <set>
#include <unordered_map>

#include <fmt/format.h>

#include "base/numbers.h"
#include "base/rule.h"
#include "base/text.h"
#include "expectation/agreement.h"
#include "storage/files_below.h"

namespace shardscope {

namespace {

constexpr size_t kMostFiles = 4096;  // of a step

// A path with the number of its own step left out: "global_step15/x" of step 15 is "global_step{}/x" of all.
std::string pathInAnyStep(std::string_view path, std::string_view stepName) {
    const size_t end = stepName.find_last_of("0123456789");
    if (end == stepName.npos) return std::string(path);
    const size_t before = stepName.find_last_not_of("0123456789", end);
    const size_t from = before == stepName.npos ? 0 : before + 1;
    const auto number = parseNumber<int64_t>(stepName.substr(from, end + 1 - from));
    std::string text;
    for (size_t at = 0; at < path.size();) {
        const size_t digits = std::min(path.find_first_not_of("0123456789", at), path.size());
        const std::string_view run = path.substr(at, digits - at);
        if (!run.empty() && number && parseNumber<int64_t>(run) == number)
            text += "{}";
        else
            text += run;
        if (digits < path.size()) text += path[digits];
        at = digits + 1;
    }
    return text;
}

// The files of a step by their paths, and by those in any step.
class StepIndex {
  public:
    explicit StepIndex(const StepOnDisk& step) : step_(step) {
        for (const StepFile& file : step.contents.files) {
            byPath_.emplace(file.path, &file);
            inAnyStep_.emplace(pathInAnyStep(file.path, step.contents.name), &file);
        }
    }
    // Whether it has a file like this one of another step with the same bytes; nullopt = it has none.
    std::optional<bool> hasSame(const StepOnDisk& other, const StepFile& file) const {
        const StepFile* const own = find(other, file);
        if (!own) return std::nullopt;
        if (own->size != file.size) return false;
        const auto here = step_.directory->openFile(own->path), there = other.directory->openFile(file.path);
        if (!here.ok() || !there.ok()) return std::nullopt;
        return sameContent(**here, **there);
    }
    // A number in a name may be that of a rank: what has the very path comes first.
    const StepFile* find(const StepOnDisk& other, const StepFile& file) const {
        if (const auto same = byPath_.find(file.path); same != byPath_.end()) return same->second;
        const auto at = inAnyStep_.find(pathInAnyStep(file.path, other.contents.name));
        return at == inAnyStep_.end() ? nullptr : at->second;
    }

  private:
    const StepOnDisk& step_;
    std::unordered_map<std::string, const StepFile*> byPath_, inAnyStep_;
};

class StaleFiles {
  public:
    StaleFiles(const StepOnDisk& step, const HeldByFile& held, const Contract& contract,
               std::span<const StepOnDisk> earlier)
        : step_(step), held_(held), contract_(contract), earlier_(earlier) {
        for (const StepOnDisk& one : earlier)
            indices_.emplace_back(one);
    }

    Result<std::vector<Note>> notes(const StopToken& stop) && {
        std::vector<std::pair<const StepFile*, size_t>> same;  // with the earlier step that has it
        std::vector<size_t> alike(indices_.size());            // files of each earlier step
        size_t judged = 0;
        size_t looks = 0;
        for (const StepFile& file : step_.contents.files) {
            const StepPart part = partOf(file);
            if (file.size == 0 || !counts(part) || ++looks > kMostFiles) continue;
            SHARDSCOPE_TRY(stop.poll());
            ++judged;
            size_t of = indices_.size();
            for (size_t e = indices_.size(); e-- > 0;) {
                const auto is = indices_[e].hasSame(step_, file);
                if (is == false && part == StepPart::optimizer) optimizerMoved_.insert(e);
                if (is != true) continue;
                ++alike[e];
                of = e;
            }
            if (of < indices_.size()) same.emplace_back(&file, of);
        }
        for (size_t e = 0; e < alike.size(); ++e)
            if (alike[e] == judged && isWholeCopy(e)) return std::move(notes_);
        for (const auto& [file, of] : same)
            judge(*file, of);
        return std::move(notes_);
    }

  private:
    static bool counts(StepPart part) {
        return part == StepPart::weights || part == StepPart::averages || part == StepPart::optimizer ||
               part == StepPart::scheduler || part == StepPart::progress || part == StepPart::random ||
               part == StepPart::loader;
    }

    // A copy of a whole step agrees with itself. What nothing is known of is of the same step, too; but the
    // metadata of a checkpoint that is saved twice has another id.
    bool isWholeCopy(size_t e) const {
        return std::ranges::none_of(step_.contents.files, [&](const StepFile& file) {
            const std::string_view name = lastName(file.path);
            return isStateFile(name) && !name.ends_with(".metadata") && partOf(file) == StepPart::unknown &&
                   indices_[e].hasSame(step_, file) == false;
        });
    }

    StepPart partOf(const StepFile& file) const {
        const StepPart named = stepPartOfPath(file.path);
        if (isBesideModel(named)) return named;
        const auto at = held_.find(file.path);
        if (at != held_.end())
            return at->second.optimizer          ? StepPart::optimizer
                   : named == StepPart::averages ? named
                   : at->second.weights          ? StepPart::weights
                                                 : named;
        // Without tensors nothing in it needs to change: the groups of an optimizer that keeps no moments.
        const bool tensors = named == StepPart::optimizer || named == StepPart::weights;
        return tensors || named == StepPart::averages ? StepPart::unknown : named;
    }

    // Whether it changed after the earlier step that it is of, or up to it; nullopt = nothing says.
    std::optional<bool> changedBefore(const StepFile& file, size_t of) const {
        // A step between that lost the file says nothing.
        if (of > 0) return indices_[of - 1].find(step_, file) != nullptr;
        const StepFile* last = indices_.size() > 1 ? indices_[0].find(step_, file) : nullptr;
        if (!last) return std::nullopt;
        const auto same = indices_[1].hasSame(earlier_[0], *last);
        return same ? std::optional(!*same) : std::nullopt;
    }

    void judge(const StepFile& file, size_t of) {
        const StepPart part = partOf(file);
        // Each step writes it anew, by what its framework does.
        const bool trainer = contract_.framework == "Hugging Face Trainer" || contract_.framework == "verl";
        const auto before = changedBefore(file, of);
        bool mixed = false, doubt = false;
        if (part == StepPart::optimizer) {
            mixed = before.value_or(true);  // else it belongs to a model that is not trained
        } else if (part == StepPart::weights || part == StepPart::averages) {
            // Frozen parts of a model never change.
            const auto at = held_.find(file.path);
            const bool trained = part == StepPart::weights && at != held_.end() && at->second.trained;
            mixed = before.value_or(false);
            doubt = !before && trained && optimizerMoved_.contains(of);
        } else {
            const bool state = lastName(file.path) == "trainer_state.json";
            const bool moves = trainer || (part == StepPart::progress && of == 0);
            mixed = before.value_or(false) && (moves || state) && part != StepPart::random;
            doubt = !mixed && part != StepPart::progress && before.value_or(false);
        }
        if (mixed || doubt) add(file, of, part, mixed);
    }

    void add(const StepFile& file, size_t of, StepPart part, bool mixed) {
        Note note;
        note.rule = mixed ? rule::saveMixed : rule::fileStale;
        note.severity = Severity::warning;
        note.file = file.path;
        note.message = fmt::format(
            "'{}' ({}) is byte for byte that of '{}', while other files of the step are not: it was not "
            "written with them",
            printable(file.path, kNameInMessage), partName(part),
            printable(earlier_[of].contents.name, kNameInMessage));
        notes_.push_back(std::move(note));
    }

    const StepOnDisk& step_;
    const HeldByFile& held_;
    const Contract& contract_;
    const std::span<const StepOnDisk> earlier_;
    std::vector<StepIndex> indices_;   // of each
    std::set<size_t> optimizerMoved_;  // earlier steps whose optimizer state is another
    std::vector<Note> notes_;
};

}  // namespace

HeldByFile heldByFile(const Catalog& catalog, const std::string& below) {
    std::vector<HeldTensors> byFile(catalog.files().size());
    const std::set<TensorId> trained = parametersInTraining(catalog);
    for (TensorId t = 0; t < catalog.tensorCount(); ++t) {
        const Role role = catalog.role(t);
        // Counters may stand still, and what is neither weight nor moment goes by the file's name.
        if (role == Role::other || (role == Role::optimizer && catalog.elements(t) < 2)) continue;
        for (ChunkId c = catalog.firstChunk(t); c < catalog.endChunk(t); ++c) {
            const uint32_t file = catalog.chunk(t, c).file;
            if (file >= byFile.size()) continue;
            (role == Role::optimizer ? byFile[file].optimizer : byFile[file].weights) = true;
            byFile[file].trained = byFile[file].trained || trained.contains(t);
        }
    }
    HeldByFile held;
    for (size_t i = 0; i < byFile.size(); ++i)
        if (byFile[i].weights || byFile[i].optimizer)
            held.emplace(below + catalog.files()[i].path, byFile[i]);
    return held;
}

Result<std::vector<Note>> staleFileNotes(const StepOnDisk& step, const HeldByFile& held,
                                         const Contract& contract, std::span<const StepOnDisk> earlier,
                                         const StopToken& stop) {
    if (earlier.empty()) return std::vector<Note>();
    return StaleFiles(step, held, contract, earlier).notes(stop);
}

}  // namespace shardscope
