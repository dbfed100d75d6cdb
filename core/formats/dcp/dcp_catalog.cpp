#include "formats/dcp/dcp_catalog.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>
#include <unordered_set>

#include <fmt/format.h>

#include "base/checked.h"
#include "base/large_pages.h"
#include "base/names.h"
#include "base/numbers.h"
#include "base/option_words.h"
#include "base/rule.h"
#include "base/thread_pool.h"
#include "base/units.h"
#include "encoding/pickle_globals.h"
#include "formats/catalog_opener.h"
#include "model/roles.h"
#include "storage/files_below.h"

namespace shardscope::dcp {

namespace {

constexpr uint32_t kAhead = 16;
constexpr size_t kShareWork = 100'000;       // chunks that are worth a second thread
constexpr uint32_t kMaxNamedRank = 1 << 24;  // ranks in file names above this are taken for something else

uint32_t leadingRank(std::string_view name, std::string_view& rest) {
    if (!name.starts_with("__")) return kNone;
    name.remove_prefix(2);
    const auto rank = takeNumber<uint32_t>(name, kMaxNamedRank - 1);
    if (rank) rest = name;
    return rank.value_or(kNone);
}

class Builder : private CatalogOpener {
  public:
    Builder(const Source& source, std::vector<MetadataFile>& files)
        : CatalogOpener("dcp", files.size() > 1 ? "no-collectives" : "", writerOf(files)),
          source_(source),
          files_(files) {}

    Result<CatalogParts> run();

  private:
    struct Part {
        uint32_t file;
        uint32_t entry;
    };
    static std::string writerOf(const std::vector<MetadataFile>& files);
    std::string placeOf(std::string_view path) const;
    void prepareFiles();
    FileId fileOf(uint32_t part, TextId path) const { return fileIds_[part].at(path); }
    Status addTensor(const std::vector<Part>& parts);
    Status addChunks(const std::vector<Part>& parts, const TensorInfo& info);
    DimSpan reformulatedShape(uint32_t part, TextId name) const;
    Status addBoxes(const MetaTensor& tensor, const std::string& name);
    uint16_t addRow(uint32_t part, const MetaChunk& chunk, uint32_t row, const std::string& tensor);
    Status fillColumns();
    void addObject(const Part& part);
    void findAliases();
    bool sameBytes(const MetaTensor& a, const MetaTensor& b) const;
    void noteForeign();
    void noteOrphans();
    void noteOtherHosts();
    void noteFiles();
    Path pathOf(uint32_t part, TextId name) const;
    uint16_t transformOf(uint32_t part, const MetaStored& row);

    const Source& source_;
    std::vector<MetadataFile>& files_;
    std::vector<StorageJoin> joins_;
    std::vector<std::vector<FileId>> fileIds_;                       // per metadata file, by text id
    std::vector<std::vector<uint32_t>> pathRows_;                    // per metadata file, by text id: row + 1
    std::vector<std::unordered_map<TextId, DimsRef>> reformulated_;  // per metadata file
    std::vector<uint32_t>
        aliasEntry_;  // per entry of a single metadata file: the entry whose bytes it shares
    std::vector<TensorId> tensorOfEntry_;
    CatalogParts parts_;
    bool transformed_ = false;
    // Of a single metadata file all boxes are in one column, and the other columns are filled at once:
    // `placed_` says which MetaTensor each tensor of the catalog is.
    bool inPlace_ = false;
    std::vector<int64_t> boxes_;
    std::vector<uint32_t> placed_;
    RoleFinder roles_;
    size_t missingRows_ = 0, orphanRows_ = 0, unknownDtypes_ = 0;
    uint32_t highestRank_ = kNone;
};

std::string Builder::writerOf(const std::vector<MetadataFile>& files) {
    const Metadata& m = files.front().metadata;
    if (m.protocol < 3) return "another writer of the format (pickle protocol 2)";
    if (m.sixProperties) return "torch 2.15 or later";
    if (!m.version.empty()) return "torch 2.9 to 2.14";
    if (m.hasStorageMeta && m.storageMetaModules) return "torch 2.7 or 2.8";
    if (m.hasStorageMeta) return "torch 2.4 to 2.6";
    if (m.oldProperties) return "torch 2.0 to 2.2";
    return "torch 2.3";
}

// Writers to buckets may store each file several times, in copy-0/ to copy-N/, and name it without that
// (StorageWriter of s3torchconnector with num_copies, 2025-10).
std::string Builder::placeOf(std::string_view path) const {
    std::string copy = fmt::format("copy-0/{}", path);
    if (path.find('/') != std::string_view::npos || source_.hasFile(path)) return std::string(path);
    const auto there = source_.directory->stat(copy);
    return there.ok() && there->kind == DirectoryEntry::Kind::file ? copy : std::string(path);
}

// Every file that the metadata names, with what the directory knows of it.
void Builder::prepareFiles() {
    std::unordered_map<std::string_view, FileId> known;
    for (const MetadataFile& file : files_) {
        builder_.addFile(
            {file.name, file.size, FileInfo::State::present, true, rankOfMetadataFile(file.name), true});
    }
    for (MetadataFile& file : files_) {
        const Metadata& m = file.metadata;
        std::vector<FileId>& ids = fileIds_.emplace_back(m.texts.size(), kNone);
        for (const MetaStored& row : m.stored) {
            if (ids[row.path] != kNone) continue;
            const std::string_view path = m.texts[row.path];
            const auto [it, fresh] = known.emplace(path, 0);
            if (fresh) {
                const uint32_t rank = rankOfDataFile(path);
                if (rank != kNone && (highestRank_ == kNone || rank > highestRank_)) highestRank_ = rank;
                it->second = addNamed(source_, placeOf(path), rank, file.name);
            }
            ids[row.path] = it->second;
        }
    }
}

// Hosts have blocks of as many ranks each. Where just one block is here, the others are likely on their
// disks.
void Builder::noteOtherHosts() {
    std::map<uint32_t, bool> here;  // by rank: whether its files are
    for (size_t i = 0; i < builder_.fileCount(); ++i) {
        const FileInfo& file = builder_.file(static_cast<FileId>(i));
        if (file.rank == kNone || !file.referenced) continue;
        const bool missing = file.state == FileInfo::State::missing;
        const auto [it, fresh] = here.emplace(file.rank, !missing);
        if (!fresh && it->second == missing) return;  // some files of one rank
    }
    uint32_t first = kNone, count = 0;
    for (const auto& [rank, present] : here) {
        if (!present) continue;
        if (first == kNone) first = rank;
        if (rank != first + count) return;
        ++count;
    }
    const uint32_t ranks = here.empty() ? 0 : here.rbegin()->first + 1;
    if (count == 0 || count == ranks || here.size() != ranks || ranks % count != 0 || first % count != 0)
        return;
    note(rule::fileMissing, Severity::info,
         fmt::format("the files of {} of {} are here. Where hosts have no disk in common, "
                     "those of the others are on theirs: {} reads their directories with this one",
                     count, counted(ranks, "rank"), commandOption(kFurtherDirectories.substr(2), "DIR")),
         files_[0].name);
}

// What is in the directory besides the files that the metadata names.
void Builder::noteFiles() {
    std::unordered_set<std::string_view> known;
    for (size_t i = 0; i < builder_.fileCount(); ++i)
        known.insert(builder_.file(static_cast<FileId>(i)).path);
    std::vector<FileInfo> others;
    uint32_t idleRank = kNone;
    for (const DirectoryEntry& entry : source_.entries) {
        if (entry.kind != DirectoryEntry::Kind::file || known.contains(entry.name)) continue;
        FileInfo info{.path = entry.name,
                      .size = entry.size,
                      .metadata = entry.name == ".metadata" || rankOfMetadataFile(entry.name) != kNone,
                      .rank = rankOfDataFile(entry.name),
                      .referenced = false};
        if (info.rank != kNone && entry.size == 0) {
            // A rank that had nothing to write still makes its file.
            if (idleRank == kNone || info.rank > idleRank) idleRank = info.rank;
        } else if (info.rank != kNone && highestRank_ != kNone && info.rank > highestRank_) {
            note(
                rule::fileStale, Severity::warning,
                fmt::format("'{}' is not part of this checkpoint: the metadata knows ranks up to {} only; an "
                            "earlier save with more ranks has left it",
                            entry.name, highestRank_),
                entry.name);
        } else if (entry.name.starts_with(".metadata.tmp") ||
                   (entry.name.starts_with("__") && entry.name.ends_with(".metadata.tmp"))) {
            note(rule::fileLock, Severity::warning,
                 fmt::format(
                     "'{}' is what a save leaves that died before it was finished; data files may have "
                     "been overwritten since the metadata was",
                     entry.name),
                 entry.name);
        }
        others.push_back(std::move(info));
    }
    for (FileInfo& info : others)
        builder_.addFile(std::move(info));
    if (highestRank_ != kNone || idleRank != kNone) {
        const uint32_t highest = highestRank_ == kNone ? idleRank
                                 : idleRank == kNone   ? highestRank_
                                                       : std::max(highestRank_, idleRank);
        builder_.setRankCount(highest + 1);
    }
}

void Builder::noteForeign() {
    for (const MetadataFile& file : files_) {
        size_t count = 0;
        for (const ForeignGlobal& global : file.metadata.foreign) {
            // The save plans that Megatron keeps, enumerations and the like.
            if (classifyGlobal(global.name) == GlobalKind::data) continue;
            addNote(count, noteOf(rule::securityGlobal, global.called ? Severity::error : Severity::warning,
                                  fmt::format("the metadata {} '{}', which is beyond plain data; {}",
                                              global.called ? "asks to call" : "names", global.name,
                                              global.called ? "nothing was called" : "it was left alone"),
                                  file.name, {}, Note::Lacks::nothing, global.offset));
        }
    }
}

Path Builder::pathOf(uint32_t part, TextId name) const {
    const uint32_t row = pathRows_[part][name];
    const Metadata& m = files_[part].metadata;
    if (!row || m.paths[row - 1].length == 0) return {};
    const MetaPath& path = m.paths[row - 1];
    return decodePath(std::string_view(m.pathBytes).substr(path.at, path.length));
}

uint16_t Builder::transformOf(uint32_t part, const MetaStored& row) {
    if (row.transforms == 0) return 0;
    transformed_ = true;
    const auto& names = files_[part].metadata.transforms[row.transforms];
    const auto it = std::find(parts_.transforms.begin(), parts_.transforms.end(), names);
    if (it != parts_.transforms.end()) return static_cast<uint16_t>(it - parts_.transforms.begin());
    parts_.transforms.push_back(names);
    return static_cast<uint16_t>(parts_.transforms.size() - 1);
}

bool Builder::sameBytes(const MetaTensor& a, const MetaTensor& b) const {
    const Metadata& m = files_[0].metadata;
    const auto equal = [](DimSpan x, DimSpan y) { return std::ranges::equal(x, y); };
    if (a.dtype != b.dtype || !equal(m.dimsOf(a.shape), m.dimsOf(b.shape))) return false;
    if (a.endChunk - a.firstChunk != b.endChunk - b.firstChunk) return false;
    for (uint32_t i = 0; i < a.endChunk - a.firstChunk; ++i) {
        const MetaChunk& x = m.chunks[a.firstChunk + i];
        const MetaChunk& y = m.chunks[b.firstChunk + i];
        if (!equal(m.dimsOf(x.offsets, x.rank), m.dimsOf(y.offsets, y.rank))) return false;
        if (!equal(m.dimsOf(x.lengths, x.rank), m.dimsOf(y.lengths, y.rank))) return false;
        const uint32_t xRow = joins_[0].chunkRow[a.firstChunk + i];
        const uint32_t yRow = joins_[0].chunkRow[b.firstChunk + i];
        if (xRow == kNone || yRow == kNone) return false;
        const MetaStored& p = m.stored[xRow];
        const MetaStored& q = m.stored[yRow];
        if (p.path != q.path || p.offset != q.offset || p.length != q.length || p.transforms != q.transforms)
            return false;
        // An archive is longer than its elements. What is not has the place of a whole file of tensors
        // (SerializationFormat.SAFETENSORS), which all of them share.
        const int64_t elements = elementCount(m.dimsOf(x.lengths, x.rank));
        const auto raw = dtypeByteCount(a.dtype, static_cast<uint64_t>(elements));
        if (p.transforms == 0 && raw && p.length <= *raw) return false;
    }
    return true;
}

// Two names whose chunks are the same ranges of the same files are one tensor.
void Builder::findAliases() {
    const Metadata& m = files_[0].metadata;
    struct First {
        TextId path;
        uint64_t offset;
        uint32_t entry;
    };
    std::vector<First> firsts;
    for (uint32_t e = 0; e < m.entries.size(); ++e) {
        if (m.entries[e].tensor == kNone) continue;
        const MetaTensor& t = m.tensors[m.entries[e].tensor];
        if (t.firstChunk == t.endChunk || t.unknownDtype != kNone) continue;
        const uint32_t row = joins_[0].chunkRow[t.firstChunk];
        if (row != kNone && m.stored[row].length > 0)
            firsts.push_back({m.stored[row].path, m.stored[row].offset, e});
    }
    std::sort(firsts.begin(), firsts.end(), [](const First& a, const First& b) {
        return std::tie(a.path, a.offset, a.entry) < std::tie(b.path, b.offset, b.entry);
    });
    aliasEntry_.assign(m.entries.size(), kNone);
    tensorOfEntry_.assign(m.entries.size(), kNone);
    for (size_t i = 1, begin = 0; i < firsts.size(); ++i) {
        if (firsts[i].path != firsts[begin].path || firsts[i].offset != firsts[begin].offset) {
            begin = i;
            continue;
        }
        const MetaTensor& first = m.tensors[m.entries[firsts[begin].entry].tensor];
        if (sameBytes(first, m.tensors[m.entries[firsts[i].entry].tensor]))
            aliasEntry_[firsts[i].entry] = firsts[begin].entry;
    }
}

Status Builder::addTensor(const std::vector<Part>& parts) {
    const Part& head = parts.front();
    const Metadata& first = files_[head.file].metadata;
    const MetaEntry& entry = first.entries[head.entry];
    const MetaTensor& tensor = first.tensors[entry.tensor];
    const std::string_view name = first.texts[entry.name];
    if (tensor.unknownDtype != kNone) {
        addNote(unknownDtypes_, noteOf(rule::metaInconsistent, Severity::warning,
                                       fmt::format("the dtype '{}' is not known; the tensor is left out",
                                                   first.texts[tensor.unknownDtype]),
                                       files_[head.file].name, name));
        return {};
    }
    const DimSpan logical = reformulatedShape(head.file, entry.name);
    const DimSpan shape = logical.empty() ? first.dimsOf(tensor.shape) : logical;
    TensorInfo info{.name = std::string(name),
                    .path = pathOf(head.file, entry.name),
                    .dtype = tensor.dtype,
                    .shape = Dims(shape.begin(), shape.end()),
                    .role = roles_.role(name)};
    if (!aliasEntry_.empty()) {
        if (const uint32_t original = aliasEntry_[head.entry]; original != kNone)
            info.aliasOf = tensorOfEntry_[original];
        tensorOfEntry_[head.entry] = static_cast<TensorId>(builder_.tensorCount());
    }
    SHARDSCOPE_TRY(builder_.addTensor(info));
    if (!inPlace_) return addChunks(parts, info);
    placed_.push_back(entry.tensor);
    return addBoxes(tensor, info.name);
}

// What is to be said of the row of storage_data that a chunk has or lacks; its transform.
uint16_t Builder::addRow(uint32_t part, const MetaChunk& chunk, uint32_t row, const std::string& tensor) {
    const Metadata& m = files_[part].metadata;
    if (row != kNone) return transformOf(part, m.stored[row]);
    const DimSpan lengths = m.dimsOf(chunk.lengths, chunk.rank);
    if (!boxIsEmpty(lengths)) {
        addNote(missingRows_,
                noteOf(rule::metaInconsistent, Severity::error,
                       fmt::format("chunk {} has no entry in storage_data: nobody knows where its data is",
                                   formatBox(m.dimsOf(chunk.offsets, chunk.rank), lengths)),
                       files_[part].name, tensor));
    }
    return 0;
}

// The shape that a reformulated tensor really has; empty when it is stored as it is.
DimSpan Builder::reformulatedShape(uint32_t part, TextId name) const {
    const auto& known = reformulated_[part];
    const auto it = known.find(name);
    return it == known.end() ? DimSpan() : files_[part].metadata.dimsOf(it->second);
}

// The lengths of the boxes whose flattened ranges are stored; see MetaReformulated.
Result<Dims> boxOfReformulated(DimSpan original, DimSpan stored) {
    Dims box;
    int64_t elements = 1;
    bool fits = stored.size() == original.size() + 1;
    for (size_t d = 0; fits && d < original.size(); ++d) {
        fits = stored[d] > 0 && original[d] > 0 && original[d] % stored[d] == 0;
        if (!fits) break;
        box.push_back(original[d] / stored[d]);
        fits = checkedMul(elements, box.back(), elements);
    }
    if (!fits || elements != stored.back()) {
        return damaged(fmt::format("the stored shape {} does not hold flattened parts of the shape {}",
                                   formatDims(stored), formatDims(original)))
            .byRule(rule::metaInconsistent);
    }
    return box;
}

// One chunk at a time, from all the files that know the tensor.
Status Builder::addChunks(const std::vector<Part>& parts, const TensorInfo& info) {
    const Part& head = parts.front();
    for (const Part& part : parts) {
        const Metadata& m = files_[part.file].metadata;
        const MetaTensor& t = m.tensors[m.entries[part.entry].tensor];
        const DimSpan original = reformulatedShape(part.file, m.entries[part.entry].name);
        if (&part != &head) {
            const DimSpan other = original.empty() ? m.dimsOf(t.shape) : original;
            if (t.dtype != info.dtype || t.unknownDtype != kNone ||
                !std::equal(other.begin(), other.end(), info.shape.begin(), info.shape.end())) {
                wrong(fmt::format(
                          "'{}' gives the tensor another dtype or shape than '{}'; its chunks are left out",
                          files_[part.file].name, files_[head.file].name),
                      files_[part.file].name, info.name);
                continue;
            }
        }
        Dims box;
        if (!original.empty()) {
            auto lengths = boxOfReformulated(original, m.dimsOf(t.shape));
            if (!lengths.ok())
                return std::move(lengths).error().inFile(files_[part.file].name).ofTensor(info.name);
            box = std::move(lengths).value();
        }
        Dims offsets(box.size());
        for (uint32_t c = t.firstChunk; c < t.endChunk; ++c) {
            const MetaChunk& meta = m.chunks[c];
            CatalogBuilder::Chunk chunk{.offsets = m.dimsOf(meta.offsets, meta.rank),
                                        .lengths = m.dimsOf(meta.lengths, meta.rank)};
            if (!original.empty()) {
                const size_t last = box.size();
                const bool inCell = std::all_of(chunk.lengths.begin(), chunk.lengths.end() - 1,
                                                [](int64_t length) { return length == 1; });
                if (!inCell || !boxInside(chunk.offsets, chunk.lengths, m.dimsOf(t.shape))) {
                    return damaged(fmt::format("the flattened range {} is not inside one cell of {}",
                                               formatBox(chunk.offsets, chunk.lengths),
                                               formatDims(m.dimsOf(t.shape))))
                        .inFile(files_[part.file].name)
                        .ofTensor(info.name)
                        .byRule(rule::metaInconsistent);
                }
                for (size_t d = 0; d < last; ++d)
                    offsets[d] = chunk.offsets[d] * box[d];
                chunk.flat = FlatRange{chunk.offsets[last], chunk.offsets[last] + chunk.lengths[last]};
                chunk.offsets = offsets;
                chunk.lengths = box;
            }
            const uint32_t row = joins_[part.file].chunkRow[c];
            if (row != kNone) {
                const MetaStored& stored = m.stored[row];
                chunk.file = fileOf(part.file, stored.path);
                chunk.rank = builder_.file(chunk.file).rank;
                chunk.offset = stored.offset;
                chunk.length = stored.length;
            }
            const uint16_t transform = addRow(part.file, meta, row, info.name);
            SHARDSCOPE_TRY(builder_.addChunk(chunk));
            parts_.chunkTransforms.push_back(transform);
        }
    }
    return {};
}

// Boxes are gathered into one column, because chunks share equal offsets and lengths in the metadata.
Status Builder::addBoxes(const MetaTensor& tensor, const std::string& name) {
    const Metadata& m = files_[0].metadata;
    const uint64_t at = boxes_.size();
    for (uint32_t c = tensor.firstChunk; c < tensor.endChunk; ++c) {
        for (const uint32_t dims : {m.chunks[c].offsets, m.chunks[c].lengths}) {
            const DimSpan half = m.dimsOf(dims, m.chunks[c].rank);
            boxes_.insert(boxes_.end(), half.begin(), half.end());
        }
    }
    if (joins_[0].missing || m.transforms.size() > 1) {
        for (uint32_t c = tensor.firstChunk; c < tensor.endChunk; ++c)
            parts_.chunkTransforms.push_back(addRow(0, m.chunks[c], joins_[0].chunkRow[c], name));
    }
    return builder_.addBoxes(boxes_, at, tensor.endChunk - tensor.firstChunk);
}

// Where the chunks are stored, with as many threads as there is work for. The rows come in another order than
// the chunks, so that nearly every one is a miss in the caches.
Status Builder::fillColumns() {
    const Metadata& m = files_[0].metadata;
    const std::vector<uint32_t>& rows = joins_[0].chunkRow;
    std::vector<uint32_t> rankOf(builder_.fileCount());
    for (size_t f = 0; f < rankOf.size(); ++f)
        rankOf[f] = builder_.file(static_cast<FileId>(f)).rank;
    const CatalogBuilder::Columns columns = builder_.columns();
    const auto fill = [&](size_t t) {
        const MetaTensor& tensor = m.tensors[placed_[t]];
        ChunkId to = builder_.firstChunk(static_cast<TensorId>(t));
        for (uint32_t c = tensor.firstChunk; c < tensor.endChunk; ++c, ++to) {
            if (c + kAhead < tensor.endChunk && rows[c + kAhead] != kNone)
                __builtin_prefetch(&m.stored[rows[c + kAhead]]);
            if (rows[c] == kNone) continue;
            const MetaStored& stored = m.stored[rows[c]];
            const FileId file = fileOf(0, stored.path);
            columns.files[to] = file;
            columns.ranks[to] = rankOf[file];
            columns.offsets[to] = stored.offset;
            columns.lengths[to] = stored.length;
        }
    };
    if (columns.files.size() < kShareWork) {
        for (size_t t = 0; t < placed_.size(); ++t)
            fill(t);
        return {};
    }
    return sharedPool().parallelFor(placed_.size(), {}, [&](size_t t) -> Status {
        fill(t);
        return {};
    });
}

void Builder::addObject(const Part& part) {
    const Metadata& m = files_[part.file].metadata;
    const MetaEntry& entry = m.entries[part.entry];
    ObjectInfo object{.name = std::string(m.texts[entry.name]), .path = pathOf(part.file, entry.name)};
    if (object.path.empty()) object.path = {keyPart(object.name)};
    const uint32_t row = joins_[part.file].objectRow[part.entry];
    uint16_t transform = 0;
    if (row != kNone) {
        const MetaStored& stored = m.stored[row];
        object.file = fileOf(part.file, stored.path);
        object.rank = builder_.file(object.file).rank;
        object.offset = stored.offset;
        object.length = stored.length;
        transform = transformOf(part.file, stored);
    } else {
        addNote(
            missingRows_,
            noteOf(rule::metaInconsistent, Severity::error,
                   fmt::format("the object '{}' has no entry in storage_data: nobody knows where its data is",
                               object.name),
                   files_[part.file].name));
    }
    builder_.addObject(std::move(object));
    parts_.objectTransforms.push_back(transform);
}

void Builder::noteOrphans() {
    for (size_t f = 0; f < files_.size(); ++f) {
        const Metadata& m = files_[f].metadata;
        for (const uint32_t row : joins_[f].orphans) {
            const MetaStored& stored = m.stored[row];
            const std::string where =
                stored.place != kNone ? fmt::format(" at {}", formatDims(m.dimsOf(stored.place, stored.rank)))
                                      : std::string();
            addNote(orphanRows_, {rule::metaInconsistent, Severity::warning,
                                  fmt::format("storage_data has an entry for '{}'{}, which is not a chunk or "
                                              "object of this checkpoint",
                                              m.texts[stored.name], where),
                                  files_[f].name, std::string(m.texts[stored.name]), stored.offset});
        }
        orphanRows_ += joins_[f].orphanCount - joins_[f].orphans.size();
    }
}

Result<CatalogParts> Builder::run() {
    parts_.transforms.emplace_back();
    size_t chunkCount = 0, dimCount = 0, entryCount = 0;
    for (const MetadataFile& file : files_) {
        const Metadata& m = file.metadata;
        joins_.push_back(joinStorage(m));
        std::vector<uint32_t>& rows = pathRows_.emplace_back(m.texts.size(), 0);
        for (size_t i = 0; i < m.paths.size(); ++i)
            rows[m.paths[i].name] = static_cast<uint32_t>(i + 1);
        auto& reformulated = reformulated_.emplace_back();
        for (const MetaReformulated& row : m.reformulated) {
            if (row.shape.rank == 0) {
                return damaged("mcore_data gives a flattened tensor no dimensions")
                    .inFile(file.name)
                    .ofTensor(m.texts[row.name])
                    .byRule(rule::metaInconsistent);
            }
            reformulated[row.name] = row.shape;
        }
        chunkCount += m.chunks.size();
        for (const MetaChunk& chunk : m.chunks)
            dimCount += chunk.rank;
        entryCount += m.entries.size();
        for (const MetaEntry& entry : m.entries)
            roles_.add(m.texts[entry.name]);
    }
    prepareFiles();
    noteForeign();
    inPlace_ = files_.size() == 1 && files_[0].metadata.reformulated.empty();
    if (inPlace_) {
        boxes_.reserve(dimCount * 2);
        preferLargePages(boxes_);
    }
    builder_.reserve(entryCount, chunkCount, inPlace_ ? 0 : dimCount * 2);

    if (files_.size() == 1) {
        const Metadata& m = files_[0].metadata;
        findAliases();
        std::vector<Part> one(1);
        for (uint32_t e = 0; e < m.entries.size(); ++e) {
            one[0] = {0, e};
            if (m.entries[e].tensor != kNone)
                SHARDSCOPE_TRY(addTensor(one));
            else
                addObject(one[0]);
        }
    } else {
        std::unordered_map<std::string_view, size_t> byName;
        std::vector<std::vector<Part>> all;
        for (uint32_t f = 0; f < files_.size(); ++f) {
            const Metadata& m = files_[f].metadata;
            for (uint32_t e = 0; e < m.entries.size(); ++e) {
                const auto [it, fresh] = byName.emplace(m.texts[m.entries[e].name], all.size());
                if (fresh) all.emplace_back();
                std::vector<Part>& parts = all[it->second];
                const bool tensor = m.entries[e].tensor != kNone;
                // An object is taken from the first rank that has it, as torch does.
                if (parts.empty() ||
                    (tensor && files_[parts[0].file].metadata.entries[parts[0].entry].tensor != kNone))
                    parts.push_back({f, e});
            }
        }
        for (const std::vector<Part>& parts : all) {
            if (files_[parts[0].file].metadata.entries[parts[0].entry].tensor != kNone)
                SHARDSCOPE_TRY(addTensor(parts));
            else
                addObject(parts[0]);
        }
    }

    noteOrphans();
    if (inPlace_) {
        // What the boxes were read from is not needed anymore. Of ten million chunks this is a fifth of the
        // peak.
        Metadata& m = files_[0].metadata;
        m.chunks = std::vector<MetaChunk>();
        m.dims = std::vector<int64_t>();
        SHARDSCOPE_TRY(fillColumns());
        m.stored = std::vector<MetaStored>();
    }
    noteTotals(files_[0].name, {{missingRows_, "chunks or objects without an entry in storage_data"},
                                {orphanRows_, "entries of storage_data that belong to nothing"},
                                {unknownDtypes_, "tensors of unknown dtype"}});
    noteOtherHosts();
    noteFiles();
    if (!transformed_) {
        parts_.chunkTransforms = {};
        parts_.objectTransforms = {};
    }
    if (inPlace_) builder_.takeDims(std::move(boxes_));
    parts_.catalog = std::move(builder_).finish();
    return std::move(parts_);
}

}  // namespace

uint32_t rankOfDataFile(std::string_view path) {
    std::string_view rest;
    const uint32_t rank = leadingRank(lastNameOf(path), rest);
    if (rank == kNone || !rest.starts_with('_') || !rest.ends_with(".distcp")) return kNone;
    return isDigits(rest.substr(1, rest.size() - 8)) ? rank : kNone;
}

uint32_t rankOfMetadataFile(std::string_view name) {
    std::string_view rest;
    const uint32_t rank = leadingRank(name, rest);
    return rank != kNone && rest == ".metadata" ? rank : kNone;
}

Result<CatalogParts> buildCatalog(const Source& source, std::vector<MetadataFile> files) {
    return Builder(source, files).run();
}

}  // namespace shardscope::dcp
