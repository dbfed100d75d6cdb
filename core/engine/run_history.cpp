#include "engine/run_history.h"

#include <algorithm>
#include <filesystem>
#include <optional>

#include <fmt/format.h>

#include "base/rule.h"
#include "base/text.h"
#include "engine/exchanged_files.h"
#include "engine/run_directory.h"
#include "engine/surroundings.h"
#include "expectation/lacking.h"
#include "expectation/lost_tensors.h"

namespace shardscope {

namespace {

constexpr size_t kMostEarlier = 3;       // steps that one is compared with
constexpr size_t kMostEarlierLooks = 8;  // earlier steps that are listed for them
constexpr size_t kMostOpened = 2;        // earlier steps whose tensors are compared

class RunHistory {
  public:
    explicit RunHistory(const HistoryQuestion& question)
        : ask_(question), name_(splitPath(question.path).second) {}

    Result<std::vector<Note>> notes() && {
        const Run* known = ask_.checkpoint.run;
        std::optional<Run> found;
        if (!known || !isRunOf(*known)) {
            auto source =
                sourceFor(splitPath(ask_.path).first, IoMode::automatic, ask_.checkpoint.fileSystem);
            auto directory = source.ok() ? findRun(*source) : std::nullopt;
            if (!directory) return std::move(notes_);
            found = Run{*std::move(source), *std::move(directory)};
            known = &*found;
        }
        run_ = known;
        const auto& steps = run_->directory.steps;
        const auto at = std::ranges::find(steps, name_, &RunStep::name);
        if (at == steps.end()) return std::move(notes_);
        size_t looks = 0;
        for (auto older = at + 1;
             older < steps.end() && looks < kMostEarlierLooks && earlier_.size() < kMostEarlier; ++older) {
            SHARDSCOPE_TRY(ask_.resources.stop.poll());
            const bool kin = older->file == at->file && older->step >= 0 && older->step != at->step &&
                             (!at->file || familyOf(older->name) == familyOf(name_));
            if (!kin) continue;
            ++looks;
            SHARDSCOPE_TRY(addEarlier(*older));
        }
        if (!at->file) SHARDSCOPE_TRY(addFiles());
        SHARDSCOPE_TRY(addExchanged());
        SHARDSCOPE_TRY(addTensors());
        return std::move(notes_);
    }

  private:
    // Whether a run that the caller has listed is the directory above: a run of many steps is listed once.
    bool isRunOf(const Run& run) const {
        const std::string parent = splitPath(ask_.path).first;
        if (ask_.checkpoint.fileSystem) return run.source.display == parent;
        std::error_code none;
        return std::filesystem::equivalent(run.source.display, parent, none) && !none;
    }

    void append(std::vector<Note> more) {
        notes_.insert(notes_.end(), std::make_move_iterator(more.begin()),
                      std::make_move_iterator(more.end()));
    }

    const DirectoryEntry* fileOf(const std::string& name) const {
        const auto at = std::ranges::find(run_->source.entries, name, &DirectoryEntry::name);
        return at == run_->source.entries.end() ? nullptr : &*at;
    }

    // An earlier step that is whole. Nothing of it is opened where it has no file that this one lacks.
    Status addEarlier(const RunStep& older) {
        StepOnDisk one;
        if (older.file) {
            const DirectoryEntry* entry = fileOf(older.name);
            if (!entry) return {};
            one.contents.files.push_back({older.name, entry->size, entry->modifiedNs});
        } else {
            const auto source = sourceFor(run_->pathOf(older), IoMode::automatic, ask_.checkpoint.fileSystem);
            if (!source.ok()) return {};
            auto contents = listContents(*source->directory, "");
            if (!contents.ok()) return {};
            one = {source->directory, *std::move(contents)};
        }
        one.contents.name = older.name;
        if (!older.file && !lackingAgainst(ask_.step.contents, one.contents, ask_.contract).empty()) {
            SHARDSCOPE_ASSIGN(const bool whole, isWhole(older));
            if (!whole) return {};
        }
        earlier_.push_back(std::move(one));
        return {};
    }

    Result<Checkpoint> open(const std::string& name) const {
        CheckpointOptions options;
        options.fileSystem = ask_.checkpoint.fileSystem;
        options.open.stop = ask_.resources.stop;
        return openCheckpoint(joinPath(run_->source.display, name), options);
    }

    Result<bool> isWhole(const RunStep& older) const {
        const auto checkpoint = open(older.name);
        if (!checkpoint.ok()) return false;
        ValidateOptions how;
        how.level = std::min(ask_.level, ValidateLevel::files);
        how.maxExamples = 1;
        SHARDSCOPE_ASSIGN(auto notes, ask_.alone(*checkpoint, how.level));
        notes.insert(notes.end(), checkpoint->notes.begin(), checkpoint->notes.end());
        how.notes = &notes;
        SHARDSCOPE_ASSIGN(const auto report, validateCheckpoint(*checkpoint->reader, how, ask_.resources));
        return report.verdict != Verdict::unsafe;
    }

    Status addFiles() {
        std::vector<StepContents> contents;
        for (const StepOnDisk& one : earlier_)
            contents.push_back(one.contents);
        append(historyNotes(ask_.step.contents, contents, ask_.contract));
        append(mixedSaveNotes(ask_.step.contents, contents, ask_.contract));
        explainMissing();
        if (ask_.level == ValidateLevel::metadata) return {};
        // Data that nothing refers to any more, such as what Orbax's processes leave, is not judged.
        StepOnDisk step = ask_.step;
        std::erase_if(step.contents.files, [&](const StepFile& file) {
            return ask_.contract.damaged(file.path) == Need::nothing && !ask_.own.contains(file.path);
        });
        SHARDSCOPE_ASSIGN(auto torn, zeroTailNotes(step, ask_.contract, earlier_, ask_.resources.stop));
        append(std::move(torn));
        // Elsewhere each look at a file is a request.
        if (ask_.checkpoint.fileSystem && ask_.level < ValidateLevel::values) return {};
        SHARDSCOPE_ASSIGN(auto stale,
                          staleFileNotes(ask_.step, ask_.held, ask_.contract, earlier_, ask_.resources.stop));
        append(std::move(stale));
        return {};
    }

    // A file that the reader misses, which the framework writes once for a run: torch_checkpointing's
    // metadata.pkl.
    void explainMissing() {
        for (const Note& missing : ask_.checkpoint.catalog().notes()) {
            if (missing.rule != rule::fileMissing || missing.severity != Severity::warning ||
                ask_.contract.absent(missing.file) != Need::nothing)
                continue;
            const std::vector<RunStep>& steps = run_->directory.steps;
            for (auto step = steps.rbegin(); step != steps.rend(); ++step) {  // the first save first
                const std::string file = joinPath(step->name, missing.file);
                if (step->file || !run_->source.directory->stat(file).ok()) continue;
                Note note = missing;
                note.severity = Severity::info;
                note.message = fmt::format("it is written with the first save of a run: '{}' has it",
                                           printable(step->name, kNameInMessage));
                notes_.push_back(std::move(note));
                break;
            }
        }
    }

    // What one earlier step alone has may have been taken away on purpose.
    Status addTensors() {
        std::vector<Note> lost;
        size_t opened = 0;
        for (const StepOnDisk& one : earlier_) {
            if (opened == kMostOpened || !worthOpening(one.contents)) continue;
            const auto checkpoint = open(one.contents.name);
            if (!checkpoint.ok()) {
                if (checkpoint.error().code == ErrorCode::cancelled) return checkpoint.error();
                continue;
            }
            auto notes = lostTensorNotes(ask_.checkpoint.catalog(), checkpoint->catalog(), one.contents.name);
            if (opened++ > 0)
                keepOnly(lost, notes, &Note::tensor);
            else
                lost = std::move(notes);
            if (lost.empty()) return {};
        }
        append(std::move(lost));
        return {};
    }

    // What the second earlier step does not say, too, is wrong in the first one.
    Status addExchanged() {
        // Elsewhere each look at a file is a request.
        const ValidateLevel from = ask_.checkpoint.fileSystem ? ValidateLevel::values : ValidateLevel::files;
        if (ask_.level < from || !mayBeExchanged(ask_.checkpoint.catalog())) return {};
        std::vector<Note> exchanged;
        size_t opened = 0;
        for (const StepOnDisk& one : earlier_) {
            if (opened == kMostOpened) break;
            const auto earlier = open(one.contents.name);
            if (!earlier.ok()) {
                if (earlier.error().code == ErrorCode::cancelled) return earlier.error();
                continue;
            }
            SHARDSCOPE_ASSIGN(auto notes, exchangedSinceNotes(*ask_.checkpoint.reader, *earlier->reader,
                                                              one.contents.name, ask_.resources.stop));
            if (opened++ == 0)
                exchanged = std::move(notes);
            else
                keepOnly(exchanged, notes, &Note::file);
            if (exchanged.empty()) return {};
        }
        for (Note& note : exchanged) {
            if (opened > 1) continue;
            note.severity = Severity::warning;
            note.lacks = Note::Lacks::nothing;
            note.message += ", here or there";
        }
        append(std::move(exchanged));
        return {};
    }

    static void keepOnly(std::vector<Note>& notes, const std::vector<Note>& others, std::string Note::*what) {
        std::erase_if(notes, [&](const Note& note) {
            return std::ranges::none_of(others, [&](const Note& other) { return other.*what == note.*what; });
        });
    }

    bool worthOpening(const StepContents& earlier) const {
        if (!ask_.step.directory) {
            const DirectoryEntry* here = fileOf(name_);
            return here && here->size != earlier.files[0].size;
        }
        return sizesDiffer(ask_.step.contents, earlier);
    }

    const HistoryQuestion& ask_;
    const std::string name_;
    const Run* run_ = nullptr;
    std::vector<StepOnDisk> earlier_;  // newest first
    std::vector<Note> notes_;
};

}  // namespace

Result<std::vector<Note>> runHistoryNotes(const HistoryQuestion& question) {
    return RunHistory(question).notes();
}

}  // namespace shardscope
