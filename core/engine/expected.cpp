#include "engine/expected.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/rule.h"
#include "base/units.h"
#include "engine/exchanged_files.h"
#include "engine/model_config.h"
#include "engine/run_directory.h"
#include "engine/run_history.h"
#include "engine/step_number.h"
#include "engine/surroundings.h"
#include "expectation/agreement.h"
#include "expectation/contents.h"
#include "expectation/integrity.h"
#include "expectation/lacking.h"
#include "expectation/model_size.h"
#include "storage/open_files.h"

namespace shardscope {

namespace {

void append(std::vector<Note>& notes, std::vector<Note> more) {
    notes.insert(notes.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
}

// The last component of a path is a name: "/runs/7/step-5" for "step-5/" and ".".
std::string absoluteOf(const Checkpoint& checkpoint) {
    std::string path = checkpoint.root.empty() ? checkpoint.path : checkpoint.root;
    if (!checkpoint.fileSystem) {
        std::error_code ignored;
        const auto absolute = std::filesystem::absolute(path, ignored);
        if (!ignored) path = absolute.lexically_normal().string();
    }
    while (path.size() > 1 && path.back() == '/')
        path.pop_back();
    return path;
}

class Expectation {
  public:
    Expectation(const Checkpoint& checkpoint, ValidateLevel level, const Resources& resources)
        : checkpoint_(checkpoint), level_(level), resources_(resources), root_(absoluteOf(checkpoint)) {}

    Result<std::vector<Note>> notes(bool history) && {
        append(notes_, agreementNotes(checkpoint_.catalog()));
        if (!checkpoint_.reader->dataElsewhere().empty()) return std::move(notes_);
        if (checkpoint_.root.empty()) {  // a file, which may be a step of a run of files
            if (history) SHARDSCOPE_TRY(addHistory(contractOf(step_)));
            return std::move(notes_);
        }
        const auto source = sourceFor(root_, IoMode::automatic, checkpoint_.fileSystem);
        if (!source.ok()) return std::move(notes_);  // gone meanwhile: the reader's own errors say so
        directory_ = source->directory;
        SHARDSCOPE_ASSIGN(step_, listContents(*directory_, ""));
        step_.name = splitPath(root_).second;
        step_.isStep = isStepName(step_.name);
        const Contract& contract = contractOf(step_);
        addWeights();
        addLostMoments(checkpoint_.catalog(), "", contract);
        append(notes_, lackingNotes(step_, contract, checkpoint_.catalog()));
        addModelSize();
        if (level_ > ValidateLevel::metadata) {
            SHARDSCOPE_TRY(addContents(*source, contract));
            addStepNumber(contract);
            SHARDSCOPE_TRY(addCopies());
        }
        if (level_ > ValidateLevel::metadata) addUploads(*source);
        if (level_ == ValidateLevel::values) SHARDSCOPE_TRY(addIntegrity());
        if (history) SHARDSCOPE_TRY(addHistory(contract));
        return std::move(notes_);
    }

  private:
    // Where the files of the catalog are below the root: "actor/".
    std::string below() const {
        const std::string root = joinPath(checkpoint_.root, "");
        if (!checkpoint_.path.starts_with(root) || checkpoint_.path.size() == root.size()) return {};
        return joinPath(checkpoint_.path.substr(root.size()), "");
    }

    void add(const char* rule, std::string message) {
        Note note;
        note.rule = rule;
        note.severity = Severity::error;
        note.message = std::move(message);
        notes_.push_back(std::move(note));
    }

    // A step without weights, whatever else it holds, cannot be resumed from. A directory of another name may
    // be an optimizer's own.
    void addWeights() {
        const Catalog& catalog = checkpoint_.catalog();
        if (!step_.isStep) return;
        for (TensorId t = 0; t < catalog.tensorCount(); ++t)
            if (catalog.role(t) == Role::parameter || catalog.role(t) == Role::buffer) return;
        if (catalog.tensorCount() == 0)
            add(rule::metaEmpty, "the checkpoint holds no tensors");
        else
            add(rule::stateMissing, "no weights are here: only optimizer state and other state of a run");
    }

    // Trainer names a step by the number that its state has.
    void addStepNumber(const Contract& contract) {
        const auto named = stepNumber(step_.name);
        if (!named || contract.framework != "Hugging Face Trainer" || !step_.find(kTrainerState)) return;
        const auto stated = statedStep(checkpoint_, directory_.get(), step_);
        if (!stated || stated->where != kTrainerState || stated->step == *named) return;
        Note note;
        note.rule = rule::saveMixed;
        note.severity = Severity::warning;
        note.file = kTrainerState;
        note.message = fmt::format(
            "'{}' is of step {}, the directory of step {}: one of them is of another "
            "save",
            kTrainerState, stated->step, *named);
        notes_.push_back(std::move(note));
    }

    void addLostMoments(const Catalog& catalog, const std::string& file, const Contract& contract) {
        // Before the first step there are no moments; Accelerate counts its saves, not steps.
        if (stepNumber(step_.name).value_or(0) <= 0 || contract.framework == "Accelerate") return;
        auto lost = lostMomentsNote(catalog);
        if (!lost) return;
        lost->file = file;
        notes_.push_back(*std::move(lost));
    }

    // What was begun and never ended costs space, and may be what is missing here. A store may keep it to
    // itself.
    void addUploads(const Source& source) {
        const auto uploads = source.directory->unfinishedUploads();
        for (const DirectoryEntry& upload : uploads.ok() ? *uploads : std::vector<DirectoryEntry>()) {
            const auto now = std::chrono::system_clock::now().time_since_epoch();
            const double age = std::chrono::duration<double>(now).count() - 1e-9 * double(upload.modifiedNs);
            Note note;
            note.rule = rule::fileUpload;
            note.severity = Severity::warning;
            note.file = upload.name;
            note.message = fmt::format(
                "an upload was begun {} ago and never ended; {} of it are in the bucket",
                age < 172'800 ? durationText(std::max(age, 0.0)) : fmt::format("{:.0f} days", age / 86'400),
                bytesText(upload.size));
            notes_.push_back(std::move(note));
        }
    }

    void addModelSize() {
        // An adapter is a part of a model on purpose.
        if (step_.has("*adapter_config.json|*adapter_model*")) return;
        for (const std::string& name :
             {below() + "config.json", std::string("config.json"), below() + "huggingface/config.json",
              below() + "../huggingface/config.json", std::string(kRunConfig)}) {
            const std::string path = std::filesystem::path(name).lexically_normal().string();
            if (!step_.find(path)) continue;
            addModelSize(parseConfig(path, smallFile(*directory_, path, kMostConfig)), path);
            return;
        }
        const Reader& reader = *checkpoint_.reader;
        addModelSize(argumentsIn(reader.catalog(), [&](ObjectId o) { return reader.objectValue(o); }),
                     "args");
    }
    void addModelSize(const nlohmann::json& config, const std::string& stated) {
        append(notes_, modelSizeNotes(modelSizeOf(config), stated, checkpoint_.catalog()));
    }

    std::set<std::string, std::less<>> ownFiles() const {
        std::set<std::string, std::less<>> own;
        for (const FileInfo& file : checkpoint_.catalog().files())
            if (file.referenced || file.metadata) own.insert(below() + file.path);
        return own;
    }

    Status addContents(const Source& source, const Contract& contract) {
        auto known = ownFiles();
        // Readers take what they can of such files, or list them only.
        for (const FileInfo& file : checkpoint_.catalog().files())
            if (file.metadata && fitsGlobs("*.json|*.pdparams", file.path)) known.erase(below() + file.path);
        for (const Note& note : checkpoint_.allNotes())
            // That nothing refers to a file does not say what is in it.
            if (!note.file.empty() && note.severity > Severity::info && note.rule != rule::fileUnreferenced)
                known.insert(below() + note.file);
        const auto open = [&](const std::string& path) -> Status {
            Source one = source;
            one.entry = path;
            OpenOptions how;
            how.stop = resources_.stop;
            const Format* format = detectFormat(one);
            if (!format) return unsupported("no format takes it");
            const auto opened = format->open(one, how);
            if (!opened.ok()) return opened.error();
            addLostMoments((*opened)->catalog(), path, contract);
            return {};
        };
        SHARDSCOPE_ASSIGN(auto notes,
                          contentNotes(*source.directory, step_, contract, known, open, resources_.stop));
        append(notes_, std::move(notes));
        return {};
    }

    // Elsewhere each look at a file is a request.
    Status addCopies() {
        if (checkpoint_.fileSystem && level_ < ValidateLevel::values) return {};
        SHARDSCOPE_ASSIGN(auto notes, exchangedFileNotes(checkpoint_, resources_.stop));
        for (Note& note : notes)
            note.file = below() + note.file;
        append(notes_, std::move(notes));
        return {};
    }

    Status addIntegrity() {
        for (const StepFile& file : step_.files) {
            if (lastName(file.path) != kIntegrityFile) continue;
            const std::string path = joinPath(root_, file.path);
            const auto source = sourceFor(splitPath(path).first, IoMode::automatic, checkpoint_.fileSystem);
            if (!source.ok()) continue;
            SHARDSCOPE_ASSIGN(auto notes,
                              integrityNotes(source->directory, *resources_.pool, resources_.stop));
            append(notes_, std::move(notes));
        }
        return {};
    }

    Status addHistory(const Contract& contract) {
        const HistoryQuestion question{checkpoint_,
                                       root_,
                                       {directory_, step_},
                                       ownFiles(),
                                       heldByFile(checkpoint_.catalog(), below()),
                                       contract,
                                       level_,
                                       resources_,
                                       [this](const Checkpoint& earlier, ValidateLevel level) {
                                           return Expectation(earlier, level, resources_).notes(false);
                                       }};
        SHARDSCOPE_ASSIGN(auto notes, runHistoryNotes(question));
        append(notes_, std::move(notes));
        return {};
    }

    const Checkpoint& checkpoint_;
    const ValidateLevel level_;
    const Resources& resources_;
    const std::string root_;
    std::shared_ptr<const Directory> directory_;
    StepContents step_;
    std::vector<Note> notes_;
};

}  // namespace

Result<std::vector<Note>> expectedNotes(const Checkpoint& checkpoint, ValidateLevel level,
                                        const Resources& resources) {
    return Expectation(checkpoint, level, resources).notes(true);
}

Result<std::optional<std::vector<Note>>> expectedModelNotes(const Checkpoint& checkpoint,
                                                            const std::string& path) {
    const auto source = sourceFor(path);
    if (!source.ok()) return std::optional<std::vector<Note>>();
    std::string name = source->entry;
    if (name.empty() && source->hasFile("config.json") && !detectFormat(*source)) name = "config.json";
    if (!name.ends_with(".json") || detectFormat(*source)) return std::optional<std::vector<Note>>();
    const ModelSize size = modelSizeOf(parseConfig(name, smallFile(*source->directory, name, kMostConfig)));
    if (!size.layers)
        return makeError(ErrorCode::usage, "the configuration does not say how many layers the model has")
            .inFile(path);
    return std::optional(modelSizeNotes(size, name, checkpoint.catalog()));
}

}  // namespace shardscope
