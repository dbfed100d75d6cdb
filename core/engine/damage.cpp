#include "engine/damage.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include <fmt/format.h>

#include "base/option_words.h"
#include "base/rule.h"
#include "base/text.h"
#include "base/units.h"
#include "engine/exchanged_files.h"
#include "model/companions.h"
#include "model/roles.h"

namespace shardscope {

namespace {

constexpr size_t kMostNamed = 5;  // tensors in one message

// Findings that the plan looks at for each tensor by itself, or that say nothing of its values.
bool isJudgedElsewhere(std::string_view rule) {
    return (rule.starts_with("coverage.") && rule != rule::coverageShrunk) || rule.starts_with("security.") ||
           rule.starts_with("value.") || rule == rule::layoutFused || rule == rule::fileUnreferenced ||
           rule == rule::metaAlias;
}

class DamageFinder {
  public:
    DamageFinder(const Checkpoint& source, const TensorSelection& asked)
        : source_(source), catalog_(source.catalog()), asked_(asked) {
        for (const ObjectInfo& object : catalog_.objects())
            objects_.insert(object.name);
        for (const FileInfo& file : catalog_.files())
            files_.emplace(file.path, &file);
    }

    Result<Damage> find(const std::vector<TensorId>& used, const StopToken& stop) {
        for (const Note& note : source_.allNotes())
            if (note.severity == Severity::error || note.lacks != Note::Lacks::nothing) take(note);
        SHARDSCOPE_TRY(takeCopies(stop));
        for (const FileInfo& file : catalog_.files()) {
            if (file.state == FileInfo::State::unreadable && file.referenced && !noted_.contains(file.path))
                lacks(damaged("the file cannot be read, so what it holds would be left out"), file.path, {});
        }
        addSpecials();
        for (const TensorId t : used)
            lookAtFiles(t);
        std::erase_if(damage_.tensors,
                      [&](const auto& entry) { return !std::ranges::binary_search(used, entry.first); });
        return std::move(damage_);
    }

  private:
    // Elsewhere each look at a file is a request.
    Status takeCopies(const StopToken& stop) {
        if (source_.fileSystem || !source_.reader->dataElsewhere().empty()) return {};
        SHARDSCOPE_ASSIGN(const std::vector<Note> exchanged, exchangedFileNotes(source_, stop));
        std::vector<Note> inFiles;
        // The padding of ZeRO 3; what other formats find is not of values.
        if (catalog_.format() == "deepspeed") {
            SHARDSCOPE_ASSIGN(inFiles, source_.reader->fileNotes());
        }
        for (const std::vector<Note>* notes : {&exchanged, &std::as_const(inFiles)})
            for (const Note& note : *notes)
                if (note.lacks != Note::Lacks::nothing) take(note);
        return {};
    }

    void take(const Note& note) {
        const bool optimizer = note.lacks == Note::Lacks::optimizerState;
        if (asked_.leavesOptimizer() && (optimizer || isState(note))) {
            if (note.tensor.empty()) noted_.insert(note.file);
            return;
        }
        if (note.lacks == Note::Lacks::nothing && isJudgedElsewhere(note.rule)) return;
        const TensorId t = note.tensor.empty() ? kNone : catalog_.find(note.tensor);
        Error error =
            makeError(note.rule == rule::fileMissing ? ErrorCode::notFound : ErrorCode::damaged, note.message)
                .byRule(note.rule);
        error.location.offset = note.offset;
        if (t != kNone && note.lacks == Note::Lacks::nothing) {
            damage_.tensors.try_emplace(t, std::move(error).inFile(pathOf(note.file)).ofTensor(note.tensor));
        } else if (t != kNone || note.lacks != Note::Lacks::nothing || !note.tensor.empty()) {
            if (t == kNone && !note.tensor.empty() && (objects_.contains(note.tensor) || !wants(note.tensor)))
                return;
            lacks(std::move(error), note.file, note.tensor);
        } else if (!note.file.empty() && !isThere(note.file)) {
            lacks(std::move(error), note.file, {});
        }
    }

    // Whether a note is of something that weights alone leave behind.
    bool isState(const Note& note) {
        if (companionState(note.file) != CompanionState::none) return true;
        if (note.tensor.empty() || note.lacks != Note::Lacks::nothing) return false;
        if (const TensorId t = catalog_.find(note.tensor); t != kNone) return isState(catalog_.role(t));
        return isState(roleOf(note.tensor));
    }
    static bool isState(Role role) { return role == Role::optimizer || role == Role::other; }

    Role roleOf(std::string_view name) {
        if (!roles_) {
            roles_.emplace();
            for (TensorId t = 0; t < catalog_.tensorCount(); ++t)
                roles_->add(catalog_.name(t));
            for (const ObjectInfo& object : catalog_.objects())
                roles_->add(object.name);
        }
        return roles_->role(name);
    }

    bool wants(std::string_view name) const { return asked_.whyNot(name).empty(); }

    bool isThere(const std::string& file) const {
        const auto found = files_.find(file);
        return found != files_.end() && found->second->state == FileInfo::State::present;
    }

    std::string pathOf(const std::string& file) const {
        if (file.empty() || !std::filesystem::is_directory(source_.path)) return source_.path;
        return source_.path + "/" + file;
    }

    void lacks(Error error, const std::string& file, const std::string& tensor) {
        if (!file.empty() && tensor.empty()) noted_.insert(file);
        error = std::move(error).inFile(pathOf(file));
        error.location.tensor = tensor;
        damage_.lacking.push_back(std::move(error));
    }

    // Tensors that are more than one plain array: what they are made of is no tensor of the model.
    void addSpecials() {
        std::vector<TensorId> inner(catalog_.specials().size(), kNone);
        for (TensorId t = 0; t < catalog_.tensorCount(); ++t)
            if (catalog_.special(t) != kNone) inner[catalog_.special(t)] = t;
        for (size_t s = 0; s < inner.size(); ++s) {
            const SpecialTensor& whole = catalog_.specials()[s];
            const bool named = wants(whole.name) && (inner[s] == kNone || wants(catalog_.name(inner[s])));
            const bool state =
                isState(roleOf(whole.name)) || (inner[s] != kNone && isState(catalog_.role(inner[s])));
            if (!named || (asked_.leavesOptimizer() && state)) continue;
            const bool part = whole.kind == "dtensor" || whole.kind == "sharded_tensor";
            damage_.lacking.push_back(
                unsupported(
                    part ? fmt::format("only one rank's part of it is here (a tensor of kind {})", whole.kind)
                         : fmt::format("a tensor of kind {}, which is not a plain array", whole.kind))
                    .inFile(source_.path)
                    .ofTensor(whole.name));
        }
    }

    // Files that a tensor needs and that are missing or too short.
    void lookAtFiles(TensorId t) {
        for (ChunkId c = catalog_.firstChunk(t); c < catalog_.endChunk(t); ++c) {
            const ChunkInfo chunk = catalog_.chunk(t, c);
            std::optional<Error> error = whyLost(catalog_, chunk);
            if (!error) continue;
            damage_.tensors.insert_or_assign(t, std::move(*error)
                                                    .inFile(pathOf(catalog_.files()[chunk.file].path))
                                                    .ofTensor(catalog_.name(t)));
            return;
        }
    }

    const Checkpoint& source_;
    const Catalog& catalog_;
    const TensorSelection& asked_;
    std::set<std::string, std::less<>> objects_;
    std::map<std::string, const FileInfo*, std::less<>> files_;
    std::set<std::string> noted_;  // files that notes have said it of
    std::optional<RoleFinder> roles_;
    Damage damage_;
};

std::string nameOf(const Error& error) {
    return error.location.tensor.empty() ? error.location.file : error.location.tensor;
}

}  // namespace

std::vector<PlanLeftOut> Damage::list(const Catalog& source) const {
    std::vector<PlanLeftOut> entries;
    std::set<std::string> named;
    for (const Error& error : lacking) {
        const std::string name = nameOf(error);
        if (named.insert(name).second) entries.push_back({name, "damaged: " + error.message});
    }
    for (const auto& [t, error] : tensors)
        entries.push_back({std::string(source.name(t)), "damaged: " + error.message});
    return entries;
}

Error Damage::asError(const Catalog& source) const {
    Error first = lacking.empty() ? tensors.begin()->second : lacking.front();
    const std::vector<PlanLeftOut> all = list(source);
    std::vector<std::string> others;
    for (const PlanLeftOut& entry : all)
        if (entry.name != nameOf(first))
            others.push_back(fmt::format("'{}'", printable(entry.name, kNameInMessage)));
    if (!others.empty()) {
        const size_t count = others.size();
        others.resize(std::min(count, kMostNamed));
        first.message +=
            fmt::format("; {} more cannot be converted: {}", countText(count), listed(others, count));
    }
    return std::move(first).withHint(fmt::format(
        "'shardscope validate' lists everything that is hurt; {} converts the rest and lists what is "
        "left out, {} leaves it out by name{}",
        option("skip-damaged"), option("exclude"),
        lacking.empty()
            ? fmt::format(", {} nan or zero fills what missing or truncated files held", option("fill-gaps"))
            : ""));
}

std::optional<Error> whyLost(const Catalog& catalog, const ChunkInfo& chunk) {
    if (chunk.file == kNone || chunk.elements() == 0) return std::nullopt;
    const FileInfo& file = catalog.files()[chunk.file];
    if (file.state == FileInfo::State::missing)
        return makeError(ErrorCode::notFound, "the file is missing").byRule(rule::fileMissing);
    if (file.state == FileInfo::State::wrongKind)
        return makeError(ErrorCode::unsafe, "is not a regular file").byRule(rule::securityPath);
    if (chunk.offset <= file.size && chunk.length <= file.size - chunk.offset) return std::nullopt;
    return damaged(fmt::format("the file ends at byte {}, this entry should end at byte {}",
                               countText(file.size), countText(chunk.offset + chunk.length)),
                   chunk.offset)
        .byRule(rule::fileTruncated);
}

Result<Damage> damageOf(const Checkpoint& source, const std::vector<TensorId>& used,
                        const TensorSelection& asked, const StopToken& stop) {
    return DamageFinder(source, asked).find(used, stop);
}

}  // namespace shardscope
