// The gathered layouts: whole tensors in numbered files with an index, or in one file; optimizer states under
// the integer ids of their parameters.
#include <algorithm>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "base/numbers.h"
#include "base/rule.h"
#include "base/text.h"
#include "base/units.h"
#include "encoding/json_value.h"
#include "formats/colossalai/layouts.h"
#include "formats/colossalai/names.h"
#include "formats/indexed_files.h"
#include "formats/tensor_assembly.h"
#include "model/value_view.h"

namespace shardscope::colossalai {

namespace {

constexpr std::string_view kGroups = "param_groups";
constexpr std::string_view kUnfinished = "tmp_index_files";

class GatheredOpener {
  public:
    GatheredOpener(const Source& source, const OpenOptions& options)
        : source_(source),
          options_(options),
          assembly_(source, options, "colossalai", "gathered", "ColossalAI") {}

    Result<std::unique_ptr<Reader>> open() {
        std::vector<std::string> indexes, wholes;
        if (!source_.entry.empty()) {
            (indexKind(source_.entry) != IndexKind::none ? indexes : wholes).push_back(source_.entry);
        } else {
            for (const DirectoryEntry& entry : source_.entries) {
                if (entry.kind == DirectoryEntry::Kind::directory && entry.name == kUnfinished) {
                    assembly_.note(
                        rule::fileLock, Severity::warning,
                        "the indexes of single stages are still here: the save was interrupted before they "
                        "were merged",
                        entry.name);
                }
                if (entry.kind != DirectoryEntry::Kind::file) continue;
                if (indexKind(entry.name) != IndexKind::none) indexes.push_back(entry.name);
            }
            SHARDSCOPE_TRY(pickIndexes(indexes));
            for (const DirectoryEntry& entry : source_.entries) {
                if (entry.kind == DirectoryEntry::Kind::file && !hasOptimizer_ &&
                    isWholeOptimizer(entry.name) && !isNumberedShard(entry.name) && wholes.empty() &&
                    entry.name.find(".index.") == std::string::npos)
                    wholes.push_back(entry.name);
            }
        }
        for (const std::string& index : indexes)
            SHARDSCOPE_TRY(readIndex(index));
        if (!hasModel_ && source_.entry.empty()) SHARDSCOPE_TRY(addWholeModel());
        if (source_.entry.empty()) SHARDSCOPE_TRY(addUnlisted());
        for (const std::string& whole : wholes) {
            SHARDSCOPE_ASSIGN(const uint32_t file, assembly_.addFile(whole, kNone));
            if (file != kNone) SHARDSCOPE_TRY(addStates(file, false));
        }
        if (assembly_.files().size() == 0 && indexes.empty())
            return unsupported("holds no index of ColossalAI's").inFile(source_.display);
        assembly_.noteDifferentCopies(Note::Lacks::nothing, TensorAssembly::Vectors::mustAgree);
        return assembly_.finish(1);
    }

  private:
    // One index of a model and one of an optimizer.
    Status pickIndexes(std::vector<std::string>& indexes) {
        std::vector<std::string> model, optimizer;
        for (const std::string& name : indexes)
            (indexKind(name) == IndexKind::model ? model : optimizer).push_back(name);
        hasOptimizer_ = !optimizer.empty();
        hasModel_ = !model.empty();
        for (const auto* list : {&model, &optimizer}) {
            if (list->size() > 1) {
                return damaged(fmt::format("there are {} of one kind: {}, {}", counted(list->size(), "index"),
                                           (*list)[0], (*list)[1]))
                    .inFile(source_.display)
                    .withHint("open one of them by its name");
            }
        }
        indexes = std::move(model);
        indexes.insert(indexes.end(), optimizer.begin(), optimizer.end());
        return {};
    }

    // kNone when it is missing, which is noted where `holds` says what is lost with it.
    Result<uint32_t> addListed(const std::string& name, std::string_view holds = {}) {
        const auto entry = source_.directory->stat(name);
        const bool missing = !entry.ok() && entry.error().code == ErrorCode::notFound;
        if (!missing || assembly_.known(name).id != kNone) return assembly_.addFile(name, kNone);
        assembly_.addOther({.path = name, .state = FileInfo::State::missing});
        if (!holds.empty())
            assembly_.note(rule::fileMissing, Severity::error,
                           fmt::format("the file is missing; it holds '{}'", holds), name);
        return kNone;
    }

    Status readIndex(const std::string& name) {
        SHARDSCOPE_TRY(options_.stop.poll());
        SHARDSCOPE_ASSIGN(const IndexedFiles index, IndexedFiles::read(source_, options_, name));
        assembly_.addOther(index.info());
        std::vector<uint32_t> files;
        for (const std::string& file : index.files) {
            SHARDSCOPE_ASSIGN(const uint32_t added, addListed(file));
            files.push_back(added);
        }
        if (indexKind(name) != IndexKind::optimizer) {
            addModel(index, files);
            return {};
        }
        for (uint32_t added : files) {
            if (added != kNone) SHARDSCOPE_TRY(addStates(added, true));
        }
        checkStates(index);
        return addGroups(index);
    }

    void addModel(const IndexedFiles& index, const std::vector<uint32_t>& files) {
        using Found = IndexedFiles::Found;
        std::vector<uint32_t> tensors;  // of the index: in their files
        for (size_t i = 0; i < index.names.size(); ++i) {
            const uint32_t file = files[index.fileOf[i]];
            tensors.push_back(file == kNone ? kNone : contents(file).find(index.names[i]));
            if (tensors[i] != kNone) addModelTensor(file, tensors[i]);
        }
        const auto find = [&](size_t i) {
            if (files[index.fileOf[i]] == kNone) return Found::fileMissing;
            return tensors[i] == kNone ? Found::nowhere : Found::inFile;
        };
        index.noteLacking(find, [&](Note note) { assembly_.builder().addNote(std::move(note)); });
        std::set<uint32_t> once(files.begin(), files.end());
        once.erase(kNone);
        for (uint32_t file : once) {
            for (uint32_t t = 0; t < contents(file).tensors.size(); ++t) {
                const StoredTensor& stored = contents(file).tensors[t];
                if (stored.special != kNone) continue;
                // Ranks other than the first may have written copies: the last entry of the index counts.
                if (const size_t at = index.names.find(stored.name); at != SIZE_MAX) {
                    if (auto copy = index.otherCopy(assembly_.files(), files[index.fileOf[at]], file, t))
                        assembly_.builder().addNote(*std::move(copy));
                    continue;
                }
                assembly_.builder().addNote(index.unnamed(contents(file).name, stored.name));
                addModelTensor(file, t);
            }
            assembly_.addObjects(file, {}, 0);
        }
    }

    // A model in one file, beside its optimizer.
    Status addWholeModel() {
        for (const char* name : {"pytorch_model.bin", "model.safetensors"}) {
            if (!source_.hasFile(name)) continue;
            SHARDSCOPE_ASSIGN(const uint32_t file, assembly_.addFile(name, kNone));
            addModelFile(file);
            return {};
        }
        return {};
    }

    void addModelFile(uint32_t file) {
        for (uint32_t t = 0; t < contents(file).tensors.size(); ++t) {
            if (contents(file).tensors[t].special == kNone) addModelTensor(file, t);
        }
        assembly_.addObjects(file, {}, 0);
    }

    // Numbered files whose index, which is written last, is not here.
    Status addUnlisted() {
        for (const DirectoryEntry& entry : source_.entries) {
            const IndexKind kind =
                entry.kind == DirectoryEntry::Kind::file ? indexOfShard(entry.name) : IndexKind::none;
            const bool optimizer = kind == IndexKind::optimizer;
            if (kind == IndexKind::none || (optimizer ? hasOptimizer_ : hasModel_)) continue;
            SHARDSCOPE_ASSIGN(const uint32_t file, assembly_.addFile(entry.name, kNone));
            if (!std::exchange(optimizer ? notedOptimizer_ : notedModel_, true)) {
                Note note;
                note.rule = rule::fileMissing;
                note.severity = Severity::error;
                note.lacks = optimizer ? Note::Lacks::optimizerState : Note::Lacks::anything;
                note.file = entry.name;
                note.message = fmt::format(
                    "the index of these files is not here: ColossalAI writes it last and needs it to load, "
                    "and "
                    "nothing else tells whether all files of the {} are here",
                    optimizer ? "optimizer" : "model");
                assembly_.builder().addNote(std::move(note));
            }
            if (file == kNone) continue;
            if (optimizer)
                SHARDSCOPE_TRY(addStates(file, true));
            else
                addModelFile(file);
        }
        return {};
    }

    void addModelTensor(uint32_t file, uint32_t t) {
        assembly_.addWhole(file, t, contents(file).tensors[t].path, Role::parameter, 0);
    }

    // ------------------------------------------------------------------ optimizer

    // "state.<id>.<name>": the id is an integer key. False for other names.
    static bool splitState(std::string_view name, Path& path) {
        if (!name.starts_with("state.")) return false;
        const size_t dot = name.find('.', 6);
        if (dot == name.npos) return false;
        const auto id = parseNumber<int64_t>(name.substr(6, dot - 6));
        if (!id) return false;
        path = {keyPart("state"), {PathPart::Kind::integerKey, {}, *id}, keyPart(name.substr(dot + 1))};
        return true;
    }

    // `sharded`: a torch.save file holds {id: state}, else {"state": {id: state}, "param_groups": [...]}.
    Status addStates(uint32_t file, bool sharded) {
        const bool torch = contents(file).kind == TensorFile::Kind::torch;
        const std::set<std::string> pickled = pickledKeys(contents(file));
        for (uint32_t t = 0; t < contents(file).tensors.size(); ++t) {
            const StoredTensor& stored = contents(file).tensors[t];
            if (stored.special != kNone) continue;
            Path path = stored.path;
            if (torch && sharded) path.insert(path.begin(), keyPart("state"));
            if (!torch) (void)splitState(stored.name, path);
            const bool bytes = stored.dtype == DType::uint8 && stored.shape.size() == 1;
            if (!torch && bytes) {
                SHARDSCOPE_ASSIGN(const bool object, addPickled(file, t, path, pickled));
                if (object) continue;
            }
            if (path.size() > 1) ids_.insert(path[1].toString());
            assembly_.addWhole(file, t, std::move(path), Role::optimizer, 0);
        }
        const Path under = torch && sharded ? Path{keyPart("state")} : Path();
        assembly_.addObjects(file, under, 0);
        for (const StoredObject& object : contents(file).objects) {
            if (!under.empty() && !object.path.empty()) ids_.insert(object.path[0].toString());
        }
        return {};
    }

    // The keys in the list that the header's __metadata__ keeps as text.
    std::set<std::string> pickledKeys(const TensorFile& contents) {
        std::set<std::string> keys;
        for (const auto& [key, value] : contents.texts) {
            if (key != "non_tensor_keys") continue;
            const Value list = jsonValue(value);
            if (!ValueView(list).isList())
                assembly_.note(rule::metaInconsistent, Severity::warning,
                               "the list of pickled entries in the header is not readable", contents.name);
            for (const ValueView name : ValueView(list).items())
                keys.insert(name.textOr({}));
        }
        return keys;
    }

    // Numbers and lists are pickled into U8 tensors. Files of before February 2025 do not say which ones.
    Result<bool> addPickled(uint32_t file, uint32_t t, const Path& path,
                            const std::set<std::string>& pickled) {
        const std::string& name = contents(file).name;
        const StoredTensor& stored = contents(file).tensors[t];
        const bool said = pickled.contains(stored.name);
        if (!said && stored.bytes > options_.limits.objectBytes) return false;
        auto bytes = assembly_.files().bytesOf(file, t);
        if (!bytes.ok()) {
            if (bytes.error().code == ErrorCode::damaged) return false;  // the truncated file is noted
            return std::move(bytes).error().ofTensor(stored.name);
        }
        const Value value = pickledValue(*bytes, options_.limits);
        if (!value) {
            if (said) {
                assembly_.wrong("the header lists it as pickled, but its bytes are not a pickle", name,
                                stored.name);
            }
            return false;
        }
        if (!said && !std::exchange(notedPickled_, true)) {
            assembly_.note(
                rule::metaInconsistent, Severity::info,
                "pickled values are told from tensors by their bytes, because the header does not list them",
                name);
        }
        if (path.size() > 1) ids_.insert(path[1].toString());
        assembly_.addObject(file, path, value, 0, stored.offset, stored.bytes);
        return true;
    }

    void checkStates(const IndexedFiles& index) {
        using Found = IndexedFiles::Found;
        const auto find = [&](size_t i) {
            const std::string id(index.names[i]);
            if (assembly_.known(index.fileWith(i)).index == kNone) return Found::fileMissing;
            return ids_.contains(id) || id == kGroups ? Found::inFile : Found::nowhere;
        };
        // Its names are numbers of parameters, of which some may have no state.
        index.noteLacking(find, [&](Note note) {
            if (note.rule != rule::fileMissing) note.severity = Severity::warning;
            note.tensor = fmt::format("state.{}", note.tensor);
            assembly_.builder().addNote(std::move(note));
        });
    }

    Status addGroups(const IndexedFiles& index) {
        std::string groups;
        for (const auto& [key, value] : index.texts) {
            if (key == kGroups) groups = value;
        }
        if (groups.empty()) return {};
        if (groups.find_first_of("/\\") != std::string::npos || !checkRelativeName(groups).ok()) {
            return makeError(ErrorCode::unsafe,
                             fmt::format("the index places the parameter groups in '{}', which is "
                                         "not a plain file name",
                                         printable(groups, kNameInMessage)))
                .inFile(index.name)
                .byRule(rule::securityPath);
        }
        SHARDSCOPE_ASSIGN(const uint32_t file, addListed(groups, kGroups));
        if (file != kNone) assembly_.addObjects(file, {keyPart(kGroups)}, 0);
        return {};
    }

    const TensorFile& contents(uint32_t file) { return assembly_.files()[file]; }

    const Source& source_;
    const OpenOptions& options_;
    TensorAssembly assembly_;
    std::set<std::string> ids_;  // of parameters whose states were found
    bool hasModel_ = false, hasOptimizer_ = false, notedPickled_ = false;
    bool notedModel_ = false, notedOptimizer_ = false;  // their index
};

}  // namespace

Result<std::unique_ptr<Reader>> openGathered(const Source& source, const OpenOptions& options) {
    return GatheredOpener(source, options).open();
}

}  // namespace shardscope::colossalai
