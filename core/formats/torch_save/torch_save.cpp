#include "formats/torch_save/torch_save.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "base/thread_pool.h"
#include "base/units.h"
#include "encoding/torch_file.h"
#include "formats/catalog_opener.h"
#include "formats/indexed_files.h"
#include "formats/tensor_files.h"
#include "formats/torch_save/writer.h"
#include "model/roles.h"
#include "model/step_part.h"

namespace shardscope::torch_save {

namespace {

constexpr std::string_view kBin = ".bin";

// The index that Hugging Face's libraries write beside pytorch_model-IIIII-of-NNNNN.bin (huggingface_hub,
// serialization/_torch.py): "pytorch_model.bin.index.json", "pytorch_model.bin.index.fp16.json".
bool isIndexFile(std::string_view name) {
    return name.find(".bin.index.") != name.npos && name.ends_with(".json");
}

// A file of such a set: "pytorch_model-00001-of-00002.bin", "diffusion_pytorch_model-00001-of-00003.bin".
bool isNumberedFile(const DirectoryEntry& entry) {
    if (entry.kind != DirectoryEntry::Kind::file) return false;
    const SetName set = parseSetName(entry.name, kBin);
    return set.index != 0 && set.stem.ends_with("pytorch_model");
}

// Whether a part of a distributed tensor is all of it: on a mesh of one device, or replicated.
bool isWhole(const TensorFile& saved, const StoredTensor& part) {
    const SpecialTensor& whole = saved.specials[part.special];
    if (part.shape != whole.shape) return false;
    if (whole.kind == "sharded_tensor")
        return std::ranges::all_of(part.shardOffsets, [](int64_t offset) { return offset == 0; });
    const auto& spec = saved.placements[part.special].dtensor;
    if (whole.kind != "dtensor" || !spec) return false;
    const auto parts = localParts(*spec, whole.shape);
    return parts.ok() && parts->boxes.size() == 1 && parts->boxes[0].lengths == whole.shape;
}

// The specials that are whole in the file, which are plain tensors under their own names.
std::vector<bool> wholeSpecials(const TensorFile& saved) {
    std::vector<bool> whole(saved.specials.size(), false);
    for (const StoredTensor& t : saved.tensors)
        if (t.special != kNone) whole[t.special] = isWhole(saved, t);
    return whole;
}

class Opener : private CatalogOpener {
  public:
    Opener(const Source& source, const OpenOptions& options)
        : CatalogOpener("torch", "", ""),
          source_(source),
          options_(options),
          files_(std::make_unique<TensorFiles>(source, options)) {}

    Result<std::unique_ptr<Reader>> openFile(const std::string& entry) {
        SHARDSCOPE_ASSIGN(const uint32_t file, files_->add(entry, 0));
        SHARDSCOPE_TRY(options_.stop.poll());
        const TensorFile& saved = (*files_)[file];
        builder_.addFile({.path = entry, .size = saved.size, .rank = 0});
        builder_.setVariant(saved.variant);
        for (const Note& note : saved.recordNotes)
            builder_.addNote(note);
        read_ = {file};
        return finish(isBesideModel(stepPartOf(splitPath(entry).second)));
    }

    // A model in several files: all that an index names, or all of a numbered set.
    Result<std::unique_ptr<Reader>> openSet() {
        SHARDSCOPE_ASSIGN(const std::string index, chooseIndex());
        std::vector<std::string> names;
        if (!index.empty()) {
            SHARDSCOPE_ASSIGN(index_, IndexedFiles::read(source_, options_, index));
            builder_.addFile(index_->info());
            names = index_->files;
        } else {
            std::vector<SetName> present;
            for (const DirectoryEntry& entry : source_.entries) {
                if (!isNumberedFile(entry)) continue;
                names.push_back(entry.name);
                present.push_back(parseSetName(entry.name, kBin));
            }
            if (names.empty()) return unsupported("holds no set of .bin files").inFile(source_.display);
            for (Note& missing : missingOfSets(present, kBin)) {
                builder_.addFile({.path = missing.file, .state = FileInfo::State::missing});
                builder_.addNote(std::move(missing));
            }
        }
        SHARDSCOPE_TRY(readAll(names));
        builder_.setVariant(index_ ? "sharded (Hugging Face)" : "sharded (Hugging Face), without an index");
        return finish(false);
    }

  private:
    // Empty where the files of a set have none.
    Result<std::string> chooseIndex() const {
        if (!source_.entry.empty()) return source_.entry;
        std::vector<std::string> found;
        for (const DirectoryEntry& entry : source_.entries)
            if (entry.kind == DirectoryEntry::Kind::file && isIndexFile(entry.name))
                found.push_back(entry.name);
        if (found.size() <= 1) return found.empty() ? std::string() : found[0];
        return damaged(fmt::format("there are {}: {}, {}", counted(found.size(), "index file"), found[0],
                                   found[1]))
            .inFile(source_.display)
            .withHint("open one of them by its name");
    }

    // One of them may be missing or damaged: the others are still worth looking at.
    Status readAll(const std::vector<std::string>& names) {
        std::vector<FileId> ids(names.size(), kNone);
        for (size_t i = 0; i < names.size(); ++i) {
            const auto entry = source_.directory->stat(names[i]);
            if (!entry.ok() && entry.error().code != ErrorCode::notFound) return entry.error();
            if (!entry.ok()) builder_.addFile({.path = names[i], .state = FileInfo::State::missing});
            if (entry.ok()) ids[i] = builder_.addFile({.path = names[i], .size = entry->size, .rank = 0});
        }
        std::vector<Result<uint32_t>> added(names.size(), kNone);
        SHARDSCOPE_TRY(sharedPool().parallelFor(names.size(), options_.stop, [&](size_t i) -> Status {
            if (ids[i] != kNone) added[i] = files_->add(names[i], ids[i]);
            return {};
        }));
        for (size_t i = 0; i < names.size(); ++i) {
            read_.push_back(added[i].ok() ? *added[i] : kNone);
            if (added[i].ok()) continue;
            Error error = std::move(added[i]).error();
            if (error.code == ErrorCode::cancelled || error.code == ErrorCode::limit) return error;
            noteError(error, names[i], {}, Note::Lacks::nothing,
                      "the file cannot be read, what it holds is not known: ");
            broken_.insert(names[i]);
            builder_.file(ids[i]).state = FileInfo::State::unreadable;
            files_->markBroken(ids[i], std::move(error));
        }
        return {};
    }

    Result<std::unique_ptr<Reader>> finish(bool beside) {
        size_t count = 0;
        for (const uint32_t file : read_) {
            if (file == kNone) continue;
            const TensorFile& saved = (*files_)[file];
            builder_.setWriter(saved.writer);
            std::vector<bool> whole = wholeSpecials(saved);
            for (const StoredTensor& t : saved.tensors)
                roles_.add(isWholeSpecial(t, whole) ? saved.specials[t.special].name : t.name);
            for (const StoredObject& o : saved.objects)
                roles_.add(o.name);
            count += saved.tensors.size();
            whole_.resize(file + 1);
            whole_[file] = std::move(whole);
        }
        builder_.reserve(count, count, count * 4);
        for (const uint32_t file : read_)
            if (file != kNone) SHARDSCOPE_TRY(addTensors(file, beside));
        if (index_) checkIndex();
        return makePartReader(source_, std::move(builder_).finish(), std::move(files_), std::move(parts_));
    }

    static bool isWholeSpecial(const StoredTensor& t, const std::vector<bool>& whole) {
        return t.special != kNone && whole[t.special];
    }

    Status addTensors(uint32_t file, bool beside) {
        const TensorFile& saved = (*files_)[file];
        for (const Note& note : saved.notes) {
            // What is so in all files of a set is said once.
            if (note.severity == Severity::error || said_.insert(note.rule + note.message).second)
                builder_.addNote(note);
        }
        const std::vector<bool>& whole = whole_[file];
        std::vector<uint32_t> specialOf(whole.size(), kNone);
        for (size_t s = 0; s < whole.size(); ++s)
            if (!whole[s]) specialOf[s] = builder_.addSpecial(saved.specials[s]);
        std::vector<TensorId> ids(saved.tensors.size(), kNone);
        bool own = index_ || read_.size() == 1 || saved.tensors.empty();
        for (uint32_t t = 0; t < saved.tensors.size(); ++t) {
            const StoredTensor& stored = saved.tensors[t];
            if (index_ && !takes(file, t)) continue;
            const SpecialTensor* const special =
                isWholeSpecial(stored, whole) ? &saved.specials[stored.special] : nullptr;
            TensorInfo tensor;
            tensor.name = special ? special->name : stored.name;
            tensor.path = special ? special->path : stored.path;
            if (names_.insert(tensor.name).second) own = true;
            tensor.dtype = stored.dtype;
            tensor.shape = stored.shape;
            tensor.role = beside ? Role::other : stored.buffer ? Role::buffer : roles_.role(tensor.name);
            tensor.special = stored.special == kNone ? kNone : specialOf[stored.special];
            tensor.aliasOf = stored.sameAs == kNone ? kNone : ids[stored.sameAs];
            ids[t] = static_cast<TensorId>(builder_.tensorCount());
            auto added = builder_.addTensor(tensor);
            Status chunk = added.ok() ? builder_.addWhole(0, saved.id, stored.offset, stored.bytes)
                                      : std::move(added).error();
            if (!chunk.ok())
                return std::move(chunk)
                    .error()
                    .ofTensor(stored.name)
                    .inFile(source_.directory->path() + "/" + saved.name);
            parts_.add(StoredPart::whole(file, t));
        }
        if (!own) builder_.addNote(copyInSet(saved.name));
        addObjects(builder_, saved, saved.id);
        return {};
    }

    // Whether the index takes the tensor from this file; notes copies and what it does not name.
    bool takes(uint32_t file, uint32_t t) {
        const TensorFile& saved = (*files_)[file];
        const StoredTensor& stored = saved.tensors[t];
        // Parts of a tensor that is not one array stand under its name.
        const std::string& name = stored.special == kNone ? stored.name : saved.specials[stored.special].name;
        const size_t at = index_->names.find(name);
        if (at == SIZE_MAX) {
            builder_.addNote(index_->unnamed(saved.name, name));
            return true;
        }
        const uint32_t indexed = read_[index_->fileOf[at]];
        if (indexed == file) {
            found_.insert(at);
            return true;
        }
        if (auto copy = index_->otherCopy(*files_, indexed, file, t)) builder_.addNote(*std::move(copy));
        return false;
    }

    void checkIndex() {
        using Found = IndexedFiles::Found;
        const auto find = [&](size_t i) {
            if (read_[index_->fileOf[i]] == kNone)
                return broken_.contains(index_->fileWith(i)) ? Found::fileBroken : Found::fileMissing;
            return found_.contains(i) ? Found::inFile : Found::nowhere;
        };
        index_->noteLacking(find, [&](Note note) { builder_.addNote(std::move(note)); });
    }

    const Source& source_;
    const OpenOptions& options_;
    std::unique_ptr<TensorFiles> files_;
    std::optional<IndexedFiles> index_;
    std::vector<uint32_t> read_;  // of files_, in the order of the index; kNone = missing or damaged
    std::set<std::string> broken_;
    std::set<std::string> said_;
    std::set<size_t> found_;                // names of the index
    std::set<std::string> names_;           // of tensors, in a set without an index
    std::vector<std::vector<bool>> whole_;  // by file, as wholeSpecials()
    RoleFinder roles_;
    StoredParts parts_;
};

// The file itself, or the only file of a directory; not what one rank wrote of a DCP, which is made of such
// files without their names (dcp).
std::string entryOf(const Source& source) {
    if (!source.entry.empty()) return source.entry;
    if (source.entries.size() == 1 && source.entries[0].kind == DirectoryEntry::Kind::file &&
        !source.entries[0].name.ends_with(".distcp"))
        return source.entries[0].name;
    return {};
}

Probe probeSet(const Source& source) {
    for (const DirectoryEntry& entry : source.entries) {
        if (entry.kind == DirectoryEntry::Kind::file && isIndexFile(entry.name))
            return {Probe::Match::certain, "has " + entry.name};
    }
    const auto numbered = std::ranges::find_if(source.entries, isNumberedFile);
    if (numbered == source.entries.end()) return {};
    return {Probe::Match::possible, "has " + numbered->name};
}

Probe probe(const Source& source) {
    if (isIndexFile(source.entry)) return {Probe::Match::certain, "is an index of .bin files"};
    const std::string entry = entryOf(source);
    if (source.entry.empty()) {
        if (const Probe set = probeSet(source); set.match != Probe::Match::no) return set;
    }
    if (entry.empty()) return {};
    auto file = source.directory->openFile(entry);
    if (!file.ok()) return {};
    const auto first = firstBytesOf(**file);
    if (!first.ok()) return {};
    switch (fileKind(*first)) {
        case FileKind::archive:
            return {Probe::Match::certain, "a zip archive with torch's records"};
        case FileKind::otherZip:
            return {Probe::Match::possible, "a zip archive"};
        case FileKind::legacy:
            return {Probe::Match::certain, "begins with torch's magic number"};
        case FileKind::tar:
            return {Probe::Match::certain, "a tar archive as the first versions of torch wrote"};
        case FileKind::preview:
            return {Probe::Match::certain, "begins with PYTORCH1"};
        case FileKind::none:
            break;
    }
    return {};
}

Result<std::unique_ptr<Reader>> open(const Source& source, const OpenOptions& options) {
    if (isIndexFile(source.entry)) return Opener(source, options).openSet();
    if (source.entry.empty() && probeSet(source).match != Probe::Match::no)
        return Opener(source, options).openSet();
    const std::string entry = entryOf(source);
    if (entry.empty()) {
        return unsupported("a torch.save checkpoint is one file, this is a directory")
            .inFile(source.display)
            .withHint("name the file itself");
    }
    return Opener(source, options).openFile(entry);
}
}  // namespace

}  // namespace shardscope::torch_save

namespace shardscope {

const Format& torchSaveFormat() {
    static const Format format{
        .about =
            {.name = "torch",
             .title = "torch.save file",
             .synonyms = {"torch_save", "torch.save", "pt"},
             .suffixes = {"pt", "pth", "bin", "ckpt"},
             .reads = true,
             .writes = true,
             .generations = {"zip archives of torch 1.6 to 2.15", "legacy files of torch 0.2 to 1.5",
                             "Hugging Face's pytorch_model-IIIII-of-NNNNN.bin, with an index or without"},
             .objects = true,
             .aliases = true,
             .nesting = true,
             .singleFile = true},
        .probe = torch_save::probe,
        .open = torch_save::open,
        .cannotHold = torch_save::cannotHold,
        .layout = torch_save::layOut};
    return format;
}

}  // namespace shardscope
