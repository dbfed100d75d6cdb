#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "base/checked.h"
#include "base/numbers.h"
#include "base/option_words.h"
#include "base/rule.h"
#include "base/text.h"
#include "base/thread_pool.h"
#include "base/units.h"
#include "encoding/safetensors_header.h"
#include "formats/catalog_opener.h"
#include "formats/indexed_files.h"
#include "formats/safetensors/layouts.h"
#include "formats/tensor_files.h"
#include "storage/open_files.h"

namespace shardscope::safetensors {

namespace {

constexpr std::string_view kSuffix = ".safetensors";
constexpr std::string_view kShardedFolder =
    "sharded";  // where torch keeps the shards of a consolidated checkpoint
constexpr uint32_t kMaxRanks = 1'000'000;

// Role by the names that frameworks use; the format itself says nothing about it.
Role roleOf(std::string_view name) {
    const std::string_view first = name.substr(0, name.find('.'));
    if (first == "optim" || first == "optimizer" || first == "optimizers" || first == "optimizer_state")
        return Role::optimizer;
    const size_t dot = name.rfind('.');
    const std::string_view last = dot == std::string_view::npos ? name : name.substr(dot + 1);
    if (last == "running_mean" || last == "running_var" || last == "num_batches_tracked" ||
        last == "inv_freq")
        return Role::buffer;
    return Role::parameter;
}

class Opener : private CatalogOpener {
  public:
    Opener(const Source& source, const OpenOptions& options)
        : CatalogOpener("safetensors", "", ""),
          source_(source),
          options_(options),
          handles_(source.directory, 64) {}

    Result<std::unique_ptr<Reader>> open() {
        if (!source_.entry.empty() && !isIndexFile(source_.entry)) {
            SHARDSCOPE_TRY(readOne(source_.entry));
            variant_ = "single";
        } else {
            SHARDSCOPE_TRY(readDirectory());
            if (files_.empty() && broken_) return std::move(*broken_);
        }
        SHARDSCOPE_TRY(addTensors());
        addMetadataObject();
        noteShrunkTensors();
        builder_.setVariant(variant_);
        return makePartReader(source_, std::move(builder_).finish(),
                              std::make_unique<TensorFiles>(source_, options_));
    }

  private:
    struct OpenFile {
        FileId id = kNone;
        std::string name;
        SetName set;
        Header header;
        std::optional<ShardingInfo> sharding;
    };
    // Where one stored tensor is: headers_[file].tensors[tensor].
    struct Piece {
        uint32_t file = 0;
        uint32_t tensor = 0;
    };

    std::string fullPath(std::string_view name) const {
        return source_.directory->path() + "/" + std::string(name);
    }

    uint64_t sizeOf(const std::string& name) const {
        const auto entry = source_.directory->stat(name);
        return entry.ok() ? entry->size : 0;
    }

    Result<Header> headerOf(const std::string& name) const {
        SHARDSCOPE_TRY(options_.stop.poll());
        SHARDSCOPE_ASSIGN(const auto file, source_.directory->openFile(name));
        return readHeader(*file, options_.limits.safetensorsHeader);
    }

    // Reads several headers at a time, which matters where each is a way to another host. Those of files that
    // are not there are left to readOne().
    void readAhead(const std::vector<std::string>& names) {
        std::vector<std::optional<Result<Header>>> read(names.size());
        (void)sharedPool().parallelFor(names.size(), options_.stop, [&](size_t i) -> Status {
            read[i] = headerOf(names[i]);
            return {};
        });
        for (size_t i = 0; i < names.size(); ++i)
            if (read[i]) ahead_.emplace(names[i], *std::move(read[i]));
    }

    Status readOne(const std::string& name) {
        const auto ahead = ahead_.find(name);
        Result<Header> read = ahead == ahead_.end() ? headerOf(name) : std::move(ahead->second);
        if (!read.ok()) return std::move(read).error();
        Header header = std::move(read).value();
        OpenFile open;
        open.name = name;
        open.set = parseSetName(name, kSuffix);
        if (const std::string* text = header.metadataValue(kShardingInfoKey)) {
            auto sharding = parseShardingInfo(*text);
            if (!sharding.ok()) return std::move(sharding).error().inFile(fullPath(name));
            open.sharding = std::move(sharding).value();
        }
        open.id = builder_.addFile({.path = name, .size = header.fileSize, .rank = open.set.rank});
        if (header.leadingSpace)
            note(rule::metaInconsistent, Severity::info,
                 "the header starts with white space; most readers accept it", name);
        if (header.dataEnd > header.fileSize) {
            note(rule::fileTruncated, Severity::error,
                 fmt::format("the header declares {}, the file has {}: {} too few",
                             counted(header.dataEnd, "byte"), countText(header.fileSize),
                             countText(header.dataEnd - header.fileSize)),
                 name, {}, Note::Lacks::nothing, header.fileSize);
        }
        open.header = std::move(header);
        files_.push_back(std::move(open));
        return {};
    }

    // One of several files: when it cannot be read, the others are still worth looking at.
    Status readOneOfSet(const std::string& name) {
        Status read = readOne(name);
        if (read.ok()) return {};
        Error error = std::move(read).error();
        if (error.code != ErrorCode::damaged && error.code != ErrorCode::unsupported) return error;
        builder_.addFile({.path = name,
                          .size = sizeOf(name),
                          .state = FileInfo::State::unreadable,
                          .rank = parseSetName(name, kSuffix).rank});
        unreadable_.push_back(name);
        note(error.location.rule.empty() ? rule::metaInconsistent : error.location.rule, Severity::error,
             fmt::format("the file cannot be read, what it holds is not known: {}", error.message), name, {},
             Note::Lacks::nothing, error.location.offset);
        if (!broken_) broken_ = std::move(error);
        return {};
    }

    // ------------------------------------------------------------------ which files

    Status readDirectory() {
        std::vector<std::string> tensorFiles;
        std::vector<std::string> indexFiles;
        bool shardedFolder = false;
        for (const DirectoryEntry& entry : source_.entries) {
            if (entry.kind == DirectoryEntry::Kind::directory) shardedFolder |= entry.name == kShardedFolder;
            if (entry.kind != DirectoryEntry::Kind::file) continue;
            if (isTensorFile(entry.name)) tensorFiles.push_back(entry.name);
            if (isIndexFile(entry.name)) indexFiles.push_back(entry.name);
        }
        if (ignoresIndex()) {
            for (const std::string& name : indexFiles)
                note(rule::fileUnreferenced, Severity::info, "left aside, as was asked for", name);
            indexFiles.clear();
        } else if (!source_.entry.empty()) {
            indexFiles = {source_.entry};
        }
        if (!indexFiles.empty()) {
            SHARDSCOPE_TRY(readIndexed(indexFiles, tensorFiles));
            if (shardedFolder) {
                note(
                    rule::fileUnreferenced, Severity::info,
                    "the shards in 'sharded' are left aside; the files beside it hold the same tensors whole",
                    kShardedFolder);
            }
            return {};
        }
        if (tensorFiles.empty() && shardedFolder) {
            auto inside = source_.directory->list(kShardedFolder);
            if (!inside.ok()) return std::move(inside).error();
            for (const DirectoryEntry& entry : *inside) {
                if (entry.kind == DirectoryEntry::Kind::file && isTensorFile(entry.name))
                    tensorFiles.push_back(std::string(kShardedFolder) + "/" + entry.name);
            }
        } else if (shardedFolder) {
            note(rule::fileUnreferenced, Severity::info,
                 "the shards in 'sharded' are left aside; open that directory to see them", kShardedFolder);
        }
        if (tensorFiles.empty()) {
            return unsupported("holds no safetensors file").inFile(source_.display);
        }
        std::vector<std::string> models, further;
        for (const std::string& name : tensorFiles)
            (isFurtherModel(name, tensorFiles) ? further : models).push_back(name);
        readAhead(models);
        for (const std::string& name : models)
            SHARDSCOPE_TRY(readOneOfSet(name));
        for (const std::string& name : further)
            note(rule::fileUnreferenced, Severity::info,
                 "a further model of the same step; open it by its name", name);
        findMissingOfSet();
        const bool sharded = std::any_of(files_.begin(), files_.end(),
                                         [](const OpenFile& f) { return f.sharding && f.set.rank != kNone; });
        variant_ = sharded ? "dcp-sharded" : files_.size() == 1 ? "single" : "several";
        return {};
    }

    // Accelerate numbers the models of a step: "model_1.safetensors" beside "model.safetensors"
    // (accelerate/checkpointing.py, save_accelerator_state()).
    static bool isFurtherModel(std::string_view name, const std::vector<std::string>& all) {
        const std::string_view stem = name.substr(0, name.size() - kSuffix.size());
        const size_t line = stem.rfind('_');
        if (line == stem.npos || !parseNumber<uint32_t>(stem.substr(line + 1))) return false;
        return std::ranges::count(all, std::string(stem.substr(0, line)) + std::string(kSuffix)) > 0;
    }

    bool ignoresIndex() const {
        const auto values = options_.valuesOf(kWeightMap);
        return !values.empty() && values.back() == kIgnore;
    }

    // An index of another save, beside files that hold what it names.
    void noteOtherSave(const std::vector<std::string>& extra) {
        std::vector<std::string> holders;
        NameSet held;
        readAhead(extra);
        for (const std::string& name : extra) {
            const auto header = ahead_.find(name);
            if (header == ahead_.end() || !header->second.ok()) continue;
            bool any = false;
            for (size_t t = 0; t < header->second->tensors.size(); ++t) {
                const std::string_view tensor = header->second->names[t];
                const size_t i = index_->names.find(tensor);
                if (i == SIZE_MAX || fileOfIndex_[index_->fileOf[i]] != kNone) continue;
                any = true;
                held.insert(tensor);
            }
            if (any) holders.push_back(fmt::format("'{}'", printable(name, kNameInMessage)));
        }
        if (holders.empty()) return;
        const size_t count = holders.size();
        holders.resize(std::min<size_t>(count, 3));
        wrong(fmt::format("it names {}, but not the files of {}: {}. It is the index of another save; {} "
                          "reads the files without it",
                          counted(index_->names.size(), "tensor"), countText(held.size()),
                          listed(holders, count), option(kWeightMap.substr(2), kIgnore)),
              index_->name);
    }

    Status readIndexed(const std::vector<std::string>& indexFiles,
                       const std::vector<std::string>& tensorFiles) {
        std::string chosen = indexFiles[0];
        if (indexFiles.size() > 1) {
            const auto usual =
                std::find(indexFiles.begin(), indexFiles.end(), "model.safetensors.index.json");
            if (usual == indexFiles.end()) {
                return damaged(fmt::format("there are {}: {}, {}", counted(indexFiles.size(), "index file"),
                                           indexFiles[0], indexFiles[1]))
                    .inFile(source_.display)
                    .withHint("open one of them by its name");
            }
            chosen = *usual;
            for (const std::string& other : indexFiles) {
                if (other != chosen) {
                    note(
                        rule::fileUnreferenced, Severity::warning,
                        fmt::format("a second index file; '{}' was taken, open this one by its name", chosen),
                        other);
                }
            }
        }
        SHARDSCOPE_ASSIGN(index_, IndexedFiles::read(source_, options_, chosen));
        builder_.addFile(index_->info());

        fileOfIndex_.assign(index_->files.size(), kNone);
        readAhead(index_->files);
        for (size_t i = 0; i < index_->files.size(); ++i) {
            const std::string& name = index_->files[i];
            const auto entry = source_.directory->stat(name);
            if (!entry.ok() && entry.error().code == ErrorCode::notFound) {
                builder_.addFile({.path = name,
                                  .state = FileInfo::State::missing,
                                  .rank = parseSetName(name, kSuffix).rank});
                continue;
            }
            const auto next = static_cast<uint32_t>(files_.size());
            SHARDSCOPE_TRY(readOneOfSet(name));
            if (files_.size() > next) fileOfIndex_[i] = next;
        }
        std::vector<std::string> unnamed;
        for (const std::string& name : tensorFiles) {
            if (std::find(index_->files.begin(), index_->files.end(), name) != index_->files.end()) continue;
            unnamed.push_back(name);
            builder_.addFile({.path = name, .size = sizeOf(name), .referenced = false});
        }
        if (!unnamed.empty() && std::ranges::count(fileOfIndex_, kNone) > 0) noteOtherSave(unnamed);
        variant_ = "sharded";
        return {};
    }

    // Files named I-of-N tell which of their set are not there.
    void findMissingOfSet() {
        std::vector<SetName> present;
        for (const OpenFile& file : files_)
            present.push_back(file.set);
        for (const std::string& name : unreadable_)
            present.push_back(parseSetName(name, kSuffix));
        for (Note& missing : missingOfSets(present, kSuffix)) {
            builder_.addFile({.path = missing.file, .state = FileInfo::State::missing});
            builder_.addNote(std::move(missing));
        }
    }

    // ------------------------------------------------------------------ which tensors

    Status addTensors() {
        if (files_.size() == 1 && !index_ && !files_[0].sharding) {
            const size_t count = files_[0].header.tensors.size();
            builder_.reserve(count, count, files_[0].header.dims.size() * 2);
            for (uint32_t t = 0; t < count; ++t)
                SHARDSCOPE_TRY(addWhole(files_[0].header.names[t], {0, t}));
            return {};
        }
        // Pieces by their logical name, in the order of the files; copies that the index does not take come
        // last.
        NameSet names;
        std::vector<std::vector<Piece>> pieces;
        std::vector<std::pair<size_t, Piece>> strays;  // place in the index
        for (uint32_t f = 0; f < files_.size(); ++f) {
            const OpenFile& file = files_[f];
            bool own = index_ || file.set.index == 0 || file.sharding || file.header.tensors.empty();
            for (uint32_t t = 0; t < file.header.tensors.size(); ++t) {
                std::string_view name = file.header.names[t];
                if (const ShardingEntry* entry = shardingOf(file, name); entry && !entry->logicalName.empty())
                    name = entry->logicalName;
                if (index_) {
                    const size_t inIndex = index_->names.find(name);
                    if (inIndex == SIZE_MAX) {
                        builder_.addNote(index_->unnamed(file.name, name));
                    } else if (fileOfIndex_[index_->fileOf[inIndex]] != f) {
                        strays.push_back({inIndex, {f, t}});
                        continue;
                    }
                }
                if (names.insert(name)) {
                    pieces.emplace_back();
                    own = true;
                }
                pieces[names.find(name)].push_back({f, t});
            }
            if (!own) builder_.addNote(copyInSet(file.name));
        }
        for (const auto& [inIndex, piece] : strays) {
            const size_t known = names.find(index_->names[inIndex]);
            if (known != SIZE_MAX) pieces[known].push_back(piece);
        }
        builder_.reserve(names.size(), names.size(), names.size() * 4);
        for (size_t i = 0; i < names.size(); ++i)
            SHARDSCOPE_TRY(addTensor(names[i], pieces[i]));
        if (index_) checkIndex(names);
        return {};
    }

    static const ShardingEntry* shardingOf(const OpenFile& file, std::string_view name) {
        if (!file.sharding) return nullptr;
        const size_t at = file.sharding->names.find(name);
        return at == SIZE_MAX ? nullptr : &file.sharding->entries[at];
    }

    const ShardingEntry* shardingOf(const Piece& piece) const {
        const OpenFile& file = files_[piece.file];
        return shardingOf(file, file.header.names[piece.tensor]);
    }

    Status addTensor(std::string_view name, const std::vector<Piece>& pieces) {
        if (!shardingOf(pieces[0])) return addCopies(name, pieces);
        const Header& first = files_[pieces[0].file].header;
        const size_t rank = first.tensors[pieces[0].tensor].rank;
        TensorInfo info{.name = std::string(name),
                        .dtype = first.tensors[pieces[0].tensor].dtype,
                        .shape = Dims(rank, 0),
                        .role = roleOf(name)};
        bool declared = false;
        std::vector<const Piece*> usable;
        for (const Piece& piece : pieces) {
            const OpenFile& file = files_[piece.file];
            const ShardingEntry* entry = shardingOf(piece);
            const DimSpan lengths = file.header.shape(piece.tensor);
            const bool fits = entry && entry->savedOffsets.size() == lengths.size() &&
                              lengths.size() == rank &&
                              file.header.tensors[piece.tensor].dtype == info.dtype &&
                              (!entry->globalShape || entry->globalShape->size() == rank);
            if (!fits) {
                wrong(!entry ? std::string("this file does not say where in the tensor its chunk belongs")
                             : fmt::format("its chunk of shape {}, dtype {} at {} does not fit the others",
                                           formatDims(lengths),
                                           dtypeName(file.header.tensors[piece.tensor].dtype),
                                           formatDims(entry->savedOffsets)),
                      file.name, name);
                continue;
            }
            for (size_t k = 0; k < rank; ++k) {
                int64_t end = 0;
                if (!checkedAdd(entry->savedOffsets[k], lengths[k], end))
                    return damaged("a chunk ends beyond every size")
                        .ofTensor(name)
                        .inFile(fullPath(file.name));
                if (entry->globalShape) {
                    if (declared && info.shape[k] != (*entry->globalShape)[k]) {
                        wrong(fmt::format("its files disagree about its shape: {} and {}",
                                          formatDims(info.shape), formatDims(*entry->globalShape)),
                              file.name, name);
                    }
                    info.shape[k] = std::max(info.shape[k], (*entry->globalShape)[k]);
                } else {
                    info.shape[k] = std::max(info.shape[k], end);
                }
            }
            declared = declared || entry->globalShape.has_value();
            usable.push_back(&piece);
        }
        SHARDSCOPE_TRY(builder_.addTensor(info));
        for (const Piece* piece : usable) {
            const OpenFile& file = files_[piece->file];
            const HeaderTensor& tensor = file.header.tensors[piece->tensor];
            SHARDSCOPE_TRY(builder_.addChunk({.rank = file.set.rank == kNone ? 0 : file.set.rank,
                                              .file = file.id,
                                              .offset = file.header.dataStart + tensor.begin,
                                              .length = tensor.end - tensor.begin,
                                              .offsets = shardingOf(*piece)->savedOffsets,
                                              .lengths = file.header.shape(piece->tensor)}));
            totalSize_ += tensor.end - tensor.begin;
        }
        if (!declared) inferred_.push_back({std::string(name), info.shape, {}});
        if (!declared) {
            for (const Piece* piece : usable) {
                const OpenFile& file = files_[piece->file];
                const DimSpan lengths = file.header.shape(piece->tensor);
                inferred_.back().pieces.push_back(
                    {file.set, shardingOf(*piece)->savedOffsets, Dims(lengths.begin(), lengths.end())});
            }
        }
        return {};
    }

    // Without sharding info each file holds whole tensors: the same name again is a copy, or what a tensor of
    // another model, save or tensor-parallel rank has in its place.
    Status addCopies(std::string_view name, const std::vector<Piece>& pieces) {
        SHARDSCOPE_TRY(addWhole(name, pieces[0]));
        const OpenFile& first = files_[pieces[0].file];
        const HeaderTensor& tensor = first.header.tensors[pieces[0].tensor];
        for (const Piece& piece : std::span(pieces).subspan(1)) {
            const OpenFile& file = files_[piece.file];
            const HeaderTensor& other = file.header.tensors[piece.tensor];
            const bool fits =
                other.dtype == tensor.dtype &&
                std::ranges::equal(file.header.shape(piece.tensor), first.header.shape(pieces[0].tensor));
            const bool same = fits && other.end - other.begin == tensor.end - tensor.begin &&
                              looksEqual(first, tensor, file, other);
            if (fits)
                SHARDSCOPE_TRY(builder_.addWhole(file.set.rank == kNone ? 0 : file.set.rank, file.id,
                                                 file.header.dataStart + other.begin,
                                                 other.end - other.begin));
            noteCopy(name, first.name, file.name, fits, same);
        }
        return {};
    }

    // The index decides which one is meant, but loaders that read all files take the last one.
    void noteCopy(std::string_view name, std::string_view first, std::string_view file, bool fits,
                  bool same) {
        if (same) {
            note(rule::metaDuplicate, index_ ? Severity::info : Severity::warning,
                 fmt::format("it is in '{}', too; this one is taken for a copy of it ({} compares them)",
                             first, commandOption("level", "values")),
                 file, name);
            return;
        }
        note(rule::metaDuplicate, Severity::error,
             fmt::format(
                 "it is in '{}', too, with {}: the files are those of tensor-parallel ranks, which are "
                 "not put together, or of two models",
                 first, fits ? "other values" : "another shape or dtype"),
             file, name, index_ ? Note::Lacks::nothing : Note::Lacks::anything);
    }

    // Compares some bytes at the beginning, in the middle and at the end.
    bool looksEqual(const OpenFile& a, const HeaderTensor& one, const OpenFile& b, const HeaderTensor& two) {
        if (++compared_ > kMostCompared) return true;
        const uint64_t length = one.end - one.begin, size = std::min(length, kSample);
        const auto x = handles_.open(a.name), y = handles_.open(b.name);
        if (!x.ok() || !y.ok()) return true;
        std::string left(size, '\0'), right(size, '\0');
        for (const uint64_t at : {uint64_t{0}, (length - size) / 2, length - size}) {
            const Status read =
                (*x)->readAt(a.header.dataStart + one.begin + at, std::as_writable_bytes(std::span(left)));
            const Status readToo =
                (*y)->readAt(b.header.dataStart + two.begin + at, std::as_writable_bytes(std::span(right)));
            if (!read.ok() || !readToo.ok()) return true;  // truncated, which is said of the file
            if (left != right) return false;
        }
        return true;
    }

    Status addWhole(std::string_view name, const Piece& piece) {
        const OpenFile& file = files_[piece.file];
        const HeaderTensor& tensor = file.header.tensors[piece.tensor];
        const DimSpan shape = file.header.shape(piece.tensor);
        auto added = builder_.addTensor({.name = std::string(name),
                                         .dtype = tensor.dtype,
                                         .shape = Dims(shape.begin(), shape.end()),
                                         .role = roleOf(name)});
        if (!added.ok()) return std::move(added).error().inFile(fullPath(file.name));
        totalSize_ += tensor.end - tensor.begin;
        return builder_.addWhole(file.set.rank == kNone ? 0 : file.set.rank, file.id,
                                 file.header.dataStart + tensor.begin, tensor.end - tensor.begin);
    }

    void checkIndex(const NameSet& found) {
        using Found = IndexedFiles::Found;
        const auto find = [&](size_t i) {
            if (fileOfIndex_[index_->fileOf[i]] != kNone)
                return found.find(index_->names[i]) == SIZE_MAX ? Found::nowhere : Found::inFile;
            return std::ranges::count(unreadable_, index_->fileWith(i)) > 0 ? Found::fileBroken
                                                                            : Found::fileMissing;
        };
        const bool missing = index_->noteLacking(find, [&](Note note) { builder_.addNote(std::move(note)); });
        if (index_->totalSize && !missing && variant_ == "sharded" && *index_->totalSize != totalSize_ &&
            totalSize_ != 0) {
            Note claim{rule::metaInconsistent, Severity::warning,
                       fmt::format("the index gives a total_size of {}, the tensors have {}",
                                   counted(*index_->totalSize, "byte"), countText(totalSize_)),
                       index_->name};
            claim.claimedBytes = index_->totalSize;
            builder_.addNote(std::move(claim));
        }
        for (const auto& [alias, kept] : index_->texts) {
            if (found.find(kept) != SIZE_MAX && found.find(alias) == SIZE_MAX)
                noteAlias(alias, kept, index_->name);
        }
        for (const OpenFile& file : files_) {
            for (const auto& [key, value] : file.header.metadata) {
                if (found.find(value) != SIZE_MAX && found.find(key) == SIZE_MAX)
                    noteAlias(key, value, file.name);
            }
        }
    }

    // Tied weights are written once; the other name stands as {dropped: kept} among the texts of the
    // metadata.
    void noteAlias(std::string_view alias, std::string_view kept, std::string_view file) {
        note(rule::metaAlias, Severity::info,
             fmt::format("'{}' is another name of this tensor (tied weights)",
                         printable(alias, kNameInMessage)),
             file, kept);
    }

    // ------------------------------------------------------------------ texts

    void addMetadataObject() {
        ValueGraph graph;
        std::vector<NodeId> items;
        NameSet keys;
        const OpenFile* holder = nullptr;
        bool more = false;
        const auto isTensor = [&](std::string_view name) {
            return std::any_of(files_.begin(), files_.end(),
                               [&](const OpenFile& f) { return f.header.names.find(name) != SIZE_MAX; });
        };
        for (const OpenFile& file : files_) {
            for (const auto& [key, value] : file.header.metadata) {
                if (key == kShardingInfoKey || key == kVersionKey) continue;
                if (isTensor(value) && !isTensor(key)) {
                    if (!index_) noteAlias(key, value, file.name);
                    continue;
                }
                if (!keys.insert(key)) continue;
                items.push_back(graph.addText(ValueKind::text, key));
                items.push_back(graph.addText(ValueKind::text, value));
                more = more || key != "format";
                if (!holder) holder = &file;
            }
        }
        // {"format": "pt"} alone says nothing about the checkpoint.
        if (!more) return;
        const NodeId dict = graph.addContainer(ValueKind::dict, std::move(items));
        builder_.addObject({.name = std::string(kMetadataName),
                            .path = {keyPart(kMetadataName)},
                            .rank = 0,
                            .file = holder->id,
                            .offset = 8,
                            .length = holder->header.dataStart - 8,
                            .value = makeValue(std::move(graph), dict)});
    }

    // ------------------------------------------------------------------ shapes that only the pieces tell

    // A missing last piece leaves a smaller tensor that looks whole. It shows where W ranks wrote, k < W of
    // them hold equal pieces of p rows each, the others have no file of this part of the set, and W ranks
    // would have cut k * p rows in other pieces than p.
    void noteShrunkTensors() {
        uint32_t world = 0;
        std::set<std::pair<uint32_t, uint32_t>> present;  // rank, index in the set
        std::set<uint32_t> told;                          // indices in the set
        for (const OpenFile& file : files_) {
            if (file.set.rank == kNone) continue;
            world = std::max(world, file.set.rank + 1);
            present.insert({file.set.rank, file.set.index});
        }
        for (const Inferred& tensor : inferred_) {
            if (tensor.pieces.empty()) continue;
            const auto& first = tensor.pieces[0];
            std::set<uint32_t> ranks;
            bool equal = first.set.rank != kNone;
            size_t dim = SIZE_MAX;
            for (const auto& piece : tensor.pieces) {
                equal = equal && piece.set.rank != kNone && piece.lengths == first.lengths;
                ranks.insert(piece.set.rank);
                for (size_t k = 0; k < piece.offsets.size(); ++k) {
                    if (piece.offsets[k] != 0 && dim == SIZE_MAX) dim = k;
                    if (piece.offsets[k] != 0 && dim != k) equal = false;
                }
            }
            const auto count = static_cast<uint32_t>(ranks.size());
            if (!equal || dim == SIZE_MAX || count != tensor.pieces.size() || count >= world ||
                *ranks.rbegin() + 1 != count)
                continue;
            bool silent = true;
            for (uint32_t r = count; r < world && silent; ++r)
                silent = !present.contains({r, first.set.index});
            const int64_t size = tensor.shape[dim];
            const int64_t piece = first.lengths[dim];
            if (!silent || splitPiece(size, world, 0, SplitRule::torch).length == piece) continue;
            told.insert(first.set.index);
            note(rule::coverageShrunk, Severity::warning,
                 fmt::format("along dim {} it has {} of {}, in all {}, but {} wrote and rank {} has no file "
                             "'shard-{:05}-...-{:05}-of-{:05}': the end is probably missing",
                             dim, counted(count, "chunk"), piece, size, counted(world, "rank"), count,
                             count + 1, first.set.index, first.set.count),
                 {}, tensor.name);
        }
        noteSilentRanks(present, told);
        if (world > 0 && world <= kMaxRanks) builder_.setRankCount(world);
    }

    // A rank that has files of other parts of the set, but none of one whose shapes only the pieces tell.
    // `told`: parts of which that has been said of tensors.
    void noteSilentRanks(const std::set<std::pair<uint32_t, uint32_t>>& present,
                         const std::set<uint32_t>& told) {
        constexpr size_t kMostNotes = 100;
        std::map<uint32_t, const OpenFile*> parts;  // by index in the set
        std::set<uint32_t> ranks, inferred;
        for (const OpenFile& file : files_) {
            if (file.set.rank == kNone || file.set.index == 0) continue;
            parts.try_emplace(file.set.index, &file);
            ranks.insert(file.set.rank);
        }
        for (const Inferred& tensor : inferred_)
            for (const InferredPiece& piece : tensor.pieces)
                inferred.insert(piece.set.index);
        size_t notes = 0;
        for (const auto& [index, sibling] : parts) {
            if (told.contains(index)) continue;
            for (const uint32_t rank : ranks) {
                if (!inferred.contains(index) || present.contains({rank, index}) || ++notes > kMostNotes)
                    continue;
                const SetName& set = sibling->set;
                note(
                    rule::coverageShrunk, Severity::warning,
                    fmt::format("rank {} has files of other parts, but no 'shard-{:05}-{}-{:05}-of-{:05}{}': "
                                "where it was lost, the ends of tensors are missing",
                                rank + 1, rank + 1, set.stem, set.index, set.count, kSuffix),
                    sibling->name);
            }
        }
    }

    struct InferredPiece {
        SetName set;
        Dims offsets, lengths;
    };
    struct Inferred {
        std::string name;
        Dims shape;
        std::vector<InferredPiece> pieces;
    };

    static constexpr uint64_t kSample = 4096;      // bytes of a tensor
    static constexpr size_t kMostCompared = 4096;  // tensors that are in two files
    const Source& source_;
    const OpenOptions& options_;
    const OpenFiles handles_;
    size_t compared_ = 0;
    std::string variant_;
    std::map<std::string, Result<Header>> ahead_;
    std::vector<OpenFile> files_;
    std::optional<IndexedFiles> index_;
    std::vector<uint32_t> fileOfIndex_;  // files_ entry of each index file; kNone = missing or unreadable
    std::vector<std::string> unreadable_;
    std::optional<Error> broken_;  // why the first of them is
    uint64_t totalSize_ = 0;
    std::vector<Inferred> inferred_;
};

}  // namespace

bool isTensorFile(std::string_view name) {
    return name.ends_with(kSuffix) && name.size() > kSuffix.size();
}
bool isIndexFile(std::string_view name) {
    return name.ends_with(kIndexSuffix) || name == kMindSporeIndex;
}

Result<std::unique_ptr<Reader>> openCheckpoint(const Source& source, const OpenOptions& options) {
    return Opener(source, options).open();
}

}  // namespace shardscope::safetensors
