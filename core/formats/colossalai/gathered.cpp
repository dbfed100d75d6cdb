// The gathered layouts: whole tensors in numbered files with an index, or in one file; optimizer states under
// the integer ids of their parameters.
#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include <fmt/format.h>

#include "base/numbers.h"
#include "base/rule.h"
#include "base/text.h"
#include "encoding/strict_json.h"
#include "formats/colossalai/names.h"
#include "formats/colossalai/opener.h"
#include "formats/colossalai/readers.h"
#include "formats/indexed_files.h"

namespace shardscope::colossalai {

namespace {

constexpr std::string_view kGroups = "param_groups";
constexpr std::string_view kUnfinished = "tmp_index_files";

class GatheredOpener : private Opener {
  public:
    GatheredOpener(const Source& source, const OpenOptions& options)
        : Opener(source, options, "gathered", "ColossalAI") {}

    Result<std::unique_ptr<Reader>> open() {
        std::vector<std::string> indexes, wholes;
        if (!source_.entry.empty()) {
            (indexKind(source_.entry) != IndexKind::none ? indexes : wholes).push_back(source_.entry);
        } else {
            for (const DirectoryEntry& entry : source_.entries) {
                if (entry.kind == DirectoryEntry::Kind::directory && entry.name == kUnfinished) {
                    note(rule::fileLock, Severity::warning,
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
        for (const std::string& whole : wholes) {
            SHARDSCOPE_ASSIGN(const uint32_t file, addFile(whole));
            if (file != kNone) SHARDSCOPE_TRY(addStates(file, false));
        }
        if (files_->size() == 0 && indexes.empty())
            return unsupported("holds no index of ColossalAI's").inFile(source_.display);
        noteFiles();
        noteUnreferenced();
        builder_.setRankCount(1);
        return finish();
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
                return damaged(fmt::format("there are {} indexes of one kind: {}, {}", list->size(),
                                           (*list)[0], (*list)[1]))
                    .inFile(source_.display)
                    .withHint("open one of them by its name");
            }
        }
        indexes = std::move(model);
        indexes.insert(indexes.end(), optimizer.begin(), optimizer.end());
        return {};
    }

    // kNone when it is missing or cannot be read, which is noted.
    Result<uint32_t> addFile(const std::string& name, std::string_view holds = {}) {
        if (const auto it = byName_.find(name); it != byName_.end()) return it->second;
        const auto entry = source_.directory->stat(name);
        FileInfo info;
        info.path = name;
        if (!entry.ok()) {
            if (entry.error().code != ErrorCode::notFound) return entry.error();
            info.state = FileInfo::State::missing;
            // Of what an index names more is said.
            if (!holds.empty())
                note(rule::fileMissing, Severity::error,
                     fmt::format("the file is missing; it holds '{}'", holds), name);
            builder_.addFile(std::move(info));
            byName_.emplace(name, kNone);
            return kNone;
        }
        info.size = entry->size;
        const FileId id = builder_.addFile(std::move(info));
        SHARDSCOPE_ASSIGN(const uint32_t file, files_->add(name, id));
        byName_.emplace(name, file);
        return file;
    }

    Status readIndex(const std::string& name) {
        SHARDSCOPE_TRY(options_.stop.poll());
        SHARDSCOPE_ASSIGN(const IndexedFiles index, IndexedFiles::read(source_, options_, name));
        builder_.addFile(index.info());
        std::vector<uint32_t> files;
        for (const std::string& file : index.files) {
            SHARDSCOPE_ASSIGN(const uint32_t added, addFile(file));
            files.push_back(added);
        }
        if (indexKind(name) != IndexKind::optimizer) return addModel(index, files);
        for (uint32_t added : files) {
            if (added != kNone) SHARDSCOPE_TRY(addStates(added, true));
        }
        checkStates(index);
        return addGroups(index);
    }

    Status addTensor(const TensorInfo& info, uint32_t file, uint32_t t) {
        const StoredTensor& stored = (*files_)[file].tensors[t];
        auto added = builder_.addTensor(info);
        if (!added.ok()) return std::move(added).error().inFile((*files_)[file].name);
        SHARDSCOPE_TRY(builder_.addWhole(0, (*files_)[file].id, stored.offset, stored.bytes));
        parts_.add(StoredPart::whole(file, t));
        return {};
    }

    Status addModel(const IndexedFiles& index, const std::vector<uint32_t>& files) {
        std::map<std::pair<uint32_t, uint32_t>, TensorId> placed;
        using Found = IndexedFiles::Found;
        const auto find = [&](size_t i) {
            const uint32_t file = files[index.fileOf[i]];
            if (file == kNone) return Found::fileMissing;
            return (*files_)[file].find(index.names[i]) == kNone ? Found::nowhere : Found::inFile;
        };
        index.noteLacking(find, [&](Note note) { builder_.addNote(std::move(note)); });
        for (size_t i = 0; i < index.names.size(); ++i) {
            const uint32_t file = files[index.fileOf[i]];
            const uint32_t t = file == kNone ? kNone : (*files_)[file].find(index.names[i]);
            if (t != kNone) SHARDSCOPE_TRY(addModelTensor(file, t, placed));
        }
        std::set<uint32_t> once(files.begin(), files.end());
        once.erase(kNone);
        for (uint32_t file : once) {
            const TensorFile& contents = (*files_)[file];
            for (uint32_t t = 0; t < contents.tensors.size(); ++t) {
                if (placed.contains({file, t}) || contents.tensors[t].special != kNone) continue;
                // Ranks other than the first may have written copies: the last entry of the index counts.
                if (const size_t at = index.names.find(contents.tensors[t].name); at != SIZE_MAX) {
                    noteCopy(files[index.fileOf[at]], file, t);
                    continue;
                }
                builder_.addNote(index.unnamed(contents.name, contents.tensors[t].name));
                SHARDSCOPE_TRY(addModelTensor(file, t, placed));
            }
            addObjects(contents, {});
        }
        return {};
    }

    // A tensor that the index takes from another file: loaders that read all files take the last one.
    void noteCopy(uint32_t indexed, uint32_t file, uint32_t t) {
        if (indexed == kNone || indexed == file) return;
        const TensorFile& contents = (*files_)[file];
        const uint32_t other = (*files_)[indexed].find(contents.tensors[t].name);
        if (other == kNone || files_->equal(indexed, other, file, t) != false) return;
        note(rule::metaDuplicate, Severity::error,
             fmt::format("the index takes it from '{}'; the copy here is another one",
                         (*files_)[indexed].name),
             contents.name, contents.tensors[t].name);
    }

    // A model in one file, beside its optimizer.
    Status addWholeModel() {
        for (const char* name : {"pytorch_model.bin", "model.safetensors"}) {
            if (!source_.hasFile(name)) continue;
            SHARDSCOPE_ASSIGN(const uint32_t file, addFile(name));
            if (file == kNone) return {};
            std::map<std::pair<uint32_t, uint32_t>, TensorId> placed;
            for (uint32_t t = 0; t < (*files_)[file].tensors.size(); ++t) {
                if ((*files_)[file].tensors[t].special == kNone)
                    SHARDSCOPE_TRY(addModelTensor(file, t, placed));
            }
            addObjects((*files_)[file], {});
            return {};
        }
        return {};
    }

    Status addModelTensor(uint32_t file, uint32_t t,
                          std::map<std::pair<uint32_t, uint32_t>, TensorId>& placed) {
        const StoredTensor& stored = (*files_)[file].tensors[t];
        TensorInfo info;
        info.name = stored.name;
        info.path = stored.path;
        info.dtype = stored.dtype;
        info.shape = stored.shape;
        info.role = Role::parameter;
        if (stored.sameAs != kNone) {
            const auto it = placed.find({file, stored.sameAs});
            if (it != placed.end()) info.aliasOf = it->second;
        }
        placed.emplace(std::pair{file, t}, static_cast<TensorId>(builder_.tensorCount()));
        return addTensor(info, file, t);
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
        const TensorFile& contents = (*files_)[file];
        const std::set<std::string> pickled = pickledKeys(contents);
        for (uint32_t t = 0; t < contents.tensors.size(); ++t) {
            const StoredTensor& stored = contents.tensors[t];
            if (stored.special != kNone) continue;
            TensorInfo info;
            info.path = stored.path;
            if (contents.kind == TensorFile::Kind::torch && sharded) {
                info.path.insert(info.path.begin(), keyPart("state"));
            } else if (contents.kind != TensorFile::Kind::torch) {
                (void)splitState(stored.name, info.path);
            }
            info.name = pathName(info.path);
            info.dtype = stored.dtype;
            info.shape = stored.shape;
            info.role = Role::optimizer;
            if (contents.kind != TensorFile::Kind::torch && stored.dtype == DType::uint8 &&
                stored.shape.size() == 1) {
                SHARDSCOPE_ASSIGN(const bool object, addPickled(file, t, info, pickled));
                if (object) continue;
            }
            if (info.path.size() > 1) ids_.insert(info.path[1].toString());
            SHARDSCOPE_TRY(addTensor(info, file, t));
        }
        addObjects(contents, contents.kind == TensorFile::Kind::torch && sharded ? "state" : "");
        return {};
    }

    // The keys in the list that the header's __metadata__ keeps as text.
    std::set<std::string> pickledKeys(const TensorFile& contents) {
        std::set<std::string> keys;
        for (const auto& [key, value] : contents.texts) {
            if (key != "non_tensor_keys") continue;
            class Texts final : public safetensors::JsonEvents {
              public:
                std::set<std::string>* out = nullptr;
                bool onKey(std::string&) override { return true; }
                bool onText(std::string& text) override {
                    if (depth() == 1) out->insert(text);
                    return true;
                }
                bool onCount(uint64_t) override { return true; }
                bool onOther(std::string_view) override { return true; }
                bool onOpen(bool) override { return true; }
                bool onClose(bool) override { return true; }
            } texts;
            texts.out = &keys;
            if (const Status parsed = texts.parse(value, 0, "non_tensor_keys"); !parsed.ok()) {
                note(rule::metaInconsistent, Severity::warning,
                     "the list of pickled entries in the header is not readable: " + parsed.error().message,
                     contents.name);
            }
        }
        return keys;
    }

    // Numbers and lists are pickled into U8 tensors. Files of before February 2025 do not say which ones.
    Result<bool> addPickled(uint32_t file, uint32_t t, TensorInfo& info,
                            const std::set<std::string>& pickled) {
        const TensorFile& contents = (*files_)[file];
        const StoredTensor& stored = contents.tensors[t];
        const bool said = pickled.contains(stored.name);
        if (!said && stored.bytes > options_.limits.objectBytes) return false;
        auto bytes = files_->bytesOf(file, t);
        if (!bytes.ok()) {
            if (bytes.error().code == ErrorCode::damaged) return false;  // the truncated file is noted
            return std::move(bytes).error().ofTensor(stored.name);
        }
        ObjectInfo object;
        object.value = pickledValue(*bytes, options_.limits);
        if (!object.value) {
            if (said) {
                note(rule::metaInconsistent, Severity::error,
                     "the header lists it as pickled, but its bytes are not a pickle", contents.name,
                     stored.name);
            }
            return false;
        }
        if (!said && !notedPickled_) {
            notedPickled_ = true;
            note(rule::metaInconsistent, Severity::info,
                 "pickled values are told from tensors by their bytes, because the header does not list them",
                 contents.name);
        }
        if (info.path.size() > 1) ids_.insert(info.path[1].toString());
        object.name = info.name;
        object.path = std::move(info.path);
        object.rank = 0;
        object.file = contents.id;
        object.offset = stored.offset;
        object.length = stored.bytes;
        builder_.addObject(std::move(object));
        return true;
    }

    void addObjects(const TensorFile& contents, std::string_view under) {
        for (const StoredObject& object : contents.objects) {
            ObjectInfo info;
            info.path = object.path;
            if (!under.empty()) {
                info.path.insert(info.path.begin(), keyPart(under));
                if (info.path.size() > 1) ids_.insert(info.path[1].toString());
            }
            info.name = under.empty() ? object.name : pathName(info.path);
            info.rank = 0;
            info.file = contents.id;
            info.value = object.value;
            builder_.addObject(std::move(info));
        }
    }

    void checkStates(const IndexedFiles& index) {
        using Found = IndexedFiles::Found;
        const auto find = [&](size_t i) {
            const std::string id(index.names[i]);
            if (byName_.at(index.fileWith(i)) == kNone) return Found::fileMissing;
            return ids_.contains(id) || id == kGroups ? Found::inFile : Found::nowhere;
        };
        // Its names are numbers of parameters, of which some may have no state.
        index.noteLacking(find, [&](Note note) {
            if (note.rule != rule::fileMissing) note.severity = Severity::warning;
            note.tensor = fmt::format("state.{}", note.tensor);
            builder_.addNote(std::move(note));
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
        SHARDSCOPE_ASSIGN(const uint32_t file, addFile(groups, kGroups));
        if (file == kNone) return {};
        const TensorFile& contents = (*files_)[file];
        for (const StoredObject& object : contents.objects) {
            ObjectInfo info;
            info.path = object.path;
            info.path.insert(info.path.begin(), keyPart(kGroups));
            info.name = pathName(info.path);
            info.rank = 0;
            info.file = contents.id;
            info.value = object.value;
            builder_.addObject(std::move(info));
        }
        return {};
    }

    void noteUnreferenced() {
        if (!source_.entry.empty()) return;
        for (const DirectoryEntry& entry : source_.entries) {
            if (entry.kind != DirectoryEntry::Kind::file || byName_.contains(entry.name) ||
                indexKind(entry.name) != IndexKind::none)
                continue;
            addUnreferenced(entry);
        }
    }

    std::map<std::string, uint32_t> byName_;  // files, kNone = missing
    std::set<std::string> ids_;               // of parameters whose states were found
    bool hasModel_ = false, hasOptimizer_ = false, notedPickled_ = false;
};

}  // namespace

Result<std::unique_ptr<Reader>> openGathered(const Source& source, const OpenOptions& options) {
    return GatheredOpener(source, options).open();
}

}  // namespace shardscope::colossalai
