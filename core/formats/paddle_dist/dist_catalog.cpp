#include "formats/paddle_dist/dist_catalog.h"

#include <algorithm>
#include <bit>

#include <fmt/format.h>

#include "base/checked.h"
#include "base/rule.h"
#include "base/units.h"
#include "formats/catalog_opener.h"

namespace shardscope::paddle {

namespace {

// Of a few dimensions, for which a call takes longer than the comparison.
inline bool same(DimSpan a, DimSpan b) {
    if (a.size() != b.size()) return false;
    for (size_t k = 0; k < a.size(); ++k) {
        if (a[k] != b[k]) return false;
    }
    return true;
}

uint64_t hashOf(DimSpan dims) {
    uint64_t hash = dims.size();
    for (const int64_t value : dims)
        hash = (hash ^ static_cast<uint64_t>(value)) * 0x9e3779b97f4a7c15;
    return hash ^ hash >> 32;
}

class Builder : private CatalogOpener {
  public:
    explicit Builder(DistInput& input)
        : CatalogOpener("paddle", std::string(generationName(input.metadata.generation)),
                        std::string(generationWriter(input.metadata.generation))),
          input_(input),
          m_(input.metadata) {}

    Result<DistParts> run() {
        parts_.generation = m_.generation;
        size_t dims = 0;
        for (const ShardRow& row : m_.rows) {
            parts_.shapesGiven = parts_.shapesGiven || row.global;
            dims += 2U * row.shape.rank;
        }
        builder_.reserve(m_.tensors.size(), m_.rows.size(), dims);
        dtypes_.resize(m_.dtypes.size());
        for (size_t i = 0; i < m_.dtypes.size(); ++i) {
            std::string_view text = m_.dtypes[i];
            if (text.starts_with("paddle.")) text.remove_prefix(7);
            dtypes_[i] = dtypeFromName(text);
        }
        prepareFiles();
        for (Note& one : input_.notes)
            builder_.addNote(std::move(one));
        for (Note& one : m_.notes) {
            one.file = metadataName_;
            builder_.addNote(std::move(one));
        }
        std::unordered_map<std::string_view, const FlatPath*> paths;
        for (const FlatPath& path : m_.paths)
            paths[path.key] = &path;
        groupStored();
        for (uint32_t t = 0; t < m_.tensors.size(); ++t) {
            const auto path = paths.find(m_.tensors[t].key);
            SHARDSCOPE_TRY(addTensor(t, path == paths.end() ? nullptr : path->second));
        }
        noteOrphans();
        noteFiles();
        builder_.setRankCount(highestRank_ == kNone ? 1 : highestRank_ + 1);
        noteStale();
        parts_.catalog = std::move(builder_).finish();
        return std::move(parts_);
    }

  private:
    void seeRank(uint32_t rank) {
        if (rank != kNone && (highestRank_ == kNone || rank > highestRank_)) highestRank_ = rank;
    }

    void prepareFiles() {
        metadataName_ = input_.saves.at(input_.id).metadata;
        builder_.addFile({.path = metadataName_, .size = input_.metadataSize, .metadata = true});
        for (const std::string& path : m_.files) {
            const auto name = parseDataName(path);
            const uint32_t rank = name ? name->rank : kNone;
            seeRank(rank);
            fileIds_.push_back(addNamed(input_.source, path, rank, metadataName_));
        }
    }

    // What the metadata says of a tensor cannot be.
    void wrong(size_t& count, std::string_view key, std::string message,
               Severity severity = Severity::error) {
        addNote(count, noteOf(rule::metaInconsistent, severity, std::move(message), metadataName_, key));
    }

    // The entries of storage_metadata that are in no row yet, by tensor, in their order.
    void groupStored() {
        storedUsed_.assign(m_.stored.size(), false);
        firstStored_.assign(m_.tensors.size() + 1, 0);
        for (const StoredRow& row : m_.stored) {
            if (m_.hasTensor(row)) ++firstStored_[row.key + 1];
        }
        for (size_t t = 0; t < m_.tensors.size(); ++t)
            firstStored_[t + 1] += firstStored_[t];
        storedOrder_.resize(firstStored_.back());
        std::vector<uint32_t> next(firstStored_.begin(), firstStored_.end() - 1);
        for (uint32_t i = 0; i < m_.stored.size(); ++i) {
            if (m_.hasTensor(m_.stored[i])) storedOrder_[next[m_.stored[i].key]++] = i;
        }
    }

    bool belongs(const StoredRow& stored, const ShardRow& row) const {
        if (stored.range.given != row.range.given) return false;
        if (row.range && !(m_.rangeOf(stored.range) == m_.rangeOf(row.range))) return false;
        if (!same(m_.dimsOf(stored.offset), m_.dimsOf(row.offset))) return false;
        return !stored.shape || same(m_.dimsOf(stored.shape), m_.dimsOf(row.shape));
    }
    // Of what entries and pieces have in common.
    uint64_t placeHash(DimsAt offset, DimsAt range) const {
        return hashOf(m_.dimsOf(offset)) + (range ? hashOf(m_.dimsOf(range)) : 0);
    }

    // The files that hold a piece, the main copy first.
    const std::vector<uint32_t>& filesOf(uint32_t tensor, const ShardRow& row) {
        found_.clear();
        if (row.file != kNone) found_.push_back(row.file);
        const uint32_t begin = firstStored_[tensor], count = firstStored_[tensor + 1] - begin;
        if (count == 0) return found_;
        if (hashedTensor_ != tensor) {
            // Chains of entries in their order.
            hashedTensor_ = tensor;
            byPlace_.assign(std::bit_ceil(size_t{count}), kNone);
            nextAlike_.resize(count);
            for (uint32_t k = count; k-- > 0;) {
                const StoredRow& stored = m_.stored[storedOrder_[begin + k]];
                uint32_t& head = byPlace_[placeHash(stored.offset, stored.range) & (byPlace_.size() - 1)];
                nextAlike_[k] = head;
                head = k;
            }
        }
        copies_.clear();
        if (row.file != kNone) copies_.emplace_back(row.replica, row.file);
        for (uint32_t k = byPlace_[placeHash(row.offset, row.range) & (byPlace_.size() - 1)]; k != kNone;
             k = nextAlike_[k]) {
            const uint32_t i = storedOrder_[begin + k];
            if (!belongs(m_.stored[i], row)) continue;
            copies_.emplace_back(m_.stored[i].replica, m_.stored[i].file);
            storedUsed_[i] = true;
        }
        std::stable_sort(copies_.begin(), copies_.end(),
                         [](const auto& a, const auto& b) { return a.first < b.first; });
        found_.clear();
        for (const auto& [replica, file] : copies_)
            found_.push_back(file);
        return found_;
    }

    // The tensor's shape: as its pieces say, else as far as they reach. Nullopt when they contradict each
    // other so much that there is none.
    std::optional<Dims> shapeOf(const TensorRows& tensor) {
        const std::span<const ShardRow> rows = m_.rowsOf(tensor);
        const uint32_t rank = rows[0].shape.rank;
        Dims shape(rank, 0), exact(rank, -1);
        bool given = false;
        for (const ShardRow& row : rows) {
            if (row.shape.rank != rank) {
                wrong(badShapes_, tensor.key,
                      fmt::format("one chunk of the tensor has {}, another one {}; it is left out",
                                  counted(row.shape.rank, "dimension"), rank));
                return std::nullopt;
            }
            if (!row.global) continue;
            const DimSpan global = m_.dimsOf(row.global);
            if (!given) {
                shape.assign(global.begin(), global.end());
                given = true;
            } else if (!same(global, shape)) {
                wrong(badShapes_, tensor.key,
                      fmt::format("one rank says that the tensor has the shape {}, another {}",
                                  formatDims(shape), formatDims(global)));
                for (uint32_t k = 0; k < rank; ++k)
                    shape[k] = std::max(shape[k], global[k]);
            }
        }
        if (given) {
            for (int64_t& size : shape)
                size = std::max<int64_t>(size, 0);
            return shape;
        }
        for (const ShardRow& row : rows) {
            const DimSpan offset = m_.dimsOf(row.offset);
            const DimSpan lengths = m_.dimsOf(row.shape);
            for (uint32_t k = 0; k < rank; ++k) {
                const int64_t end = offset[k] + lengths[k];
                // Paddle's split gives the last pieces what is left, which may be less than nothing: such a
                // piece "ends" where the tensor does.
                if (lengths[k] < 0 && end >= 0) exact[k] = std::max(exact[k], end);
                shape[k] = std::max(shape[k], end);
            }
        }
        for (uint32_t k = 0; k < rank; ++k) {
            if (exact[k] >= 0) shape[k] = exact[k];
        }
        return shape;
    }

    Status addTensor(uint32_t number, const FlatPath* path) {
        const TensorRows& tensor = m_.tensors[number];
        if (tensor.count == 0) {
            parts_.leftOut.insert(tensor.key);
            return {};
        }
        const auto dtype = dtypeOf(number);
        const auto shape = shapeOf(tensor);
        if (!dtype || !shape) {
            parts_.leftOut.insert(tensor.key);
            return {};
        }
        TensorInfo info{.name = tensor.key, .dtype = *dtype, .shape = *shape, .role = roleOf(tensor.key)};
        for (const std::string& part : path ? path->parts : std::vector<std::string>())
            info.path.push_back(keyPart(part));
        SHARDSCOPE_TRY(builder_.addTensor(info));
        // Entries that are not in the rows yet have to be looked up.
        const bool known = firstStored_[number + 1] == firstStored_[number];
        const uint64_t bytes = dtypeIsWholeBytes(info.dtype) ? dtypeBytes(info.dtype) : 0;
        for (const ShardRow& row : m_.rowsOf(tensor)) {
            CatalogBuilder::Chunk chunk;
            if (known && bytes > 0 && takePlain(row, bytes, chunk)) {
                ++chunks_;
                SHARDSCOPE_TRY(builder_.addChunk(chunk));
            } else {
                SHARDSCOPE_TRY(addRow(number, info, row));
            }
        }
        return {};
    }

    // The usual piece, of which addRow() would say the same: in one file, nothing of it empty, negative or to
    // be cut.
    bool takePlain(const ShardRow& row, uint64_t bytes, CatalogBuilder::Chunk& chunk) {
        if (row.file == kNone || !(row.global || row.range)) return false;
        const int64_t* offset = m_.dims.data() + row.offset.at;
        const int64_t* shape = m_.dims.data() + row.shape.at;
        int64_t elements = 1;
        for (unsigned k = 0; k < row.shape.rank; ++k) {
            if (offset[k] < 0 || shape[k] <= 0 || !checkedMul(elements, shape[k], elements)) return false;
        }
        if (row.range) {
            chunk.flat = m_.rangeOf(row.range);
            if (chunk.flat->stop > elements) return false;
            elements = chunk.flat->stop - chunk.flat->start;
        }
        if (__builtin_mul_overflow(static_cast<uint64_t>(elements), bytes, &chunk.length)) return false;
        chunk.offsets = m_.dimsOf(row.offset);
        chunk.lengths = m_.dimsOf(row.shape);
        chunk.file = fileIds_[row.file];
        chunk.rank = builder_.file(chunk.file).rank;
        return true;
    }

    Status addRow(uint32_t number, const TensorInfo& info, const ShardRow& row) {
        const std::string& key = info.name;
        const DimSpan offset = m_.dimsOf(row.offset);
        const DimSpan claimed = m_.dimsOf(row.shape);
        Dims& lengths = lengths_;
        lengths.assign(claimed.begin(), claimed.end());
        bool empty = false, cut = false;
        for (size_t k = 0; k < lengths.size(); ++k) {
            if (offset[k] < 0) {
                wrong(badShapes_, key,
                      fmt::format("a chunk has the offset {}; it is left out", formatDims(offset)));
                return {};
            }
            empty = empty || lengths[k] <= 0;
        }
        if (empty && info.shape.size() > 0 && elementCount(info.shape) > 0) {
            (void)filesOf(number, row);  // its entry is not an orphan
            return {};
        }
        if (!row.global && !row.range) {
            // Only where an empty last piece tells that the tensor ends earlier.
            for (size_t k = 0; k < lengths.size(); ++k) {
                const int64_t most = info.shape[k] - offset[k];
                if (lengths[k] <= most || most <= 0) continue;
                lengths[k] = most;
                cut = true;
            }
        }
        for (int64_t& length : lengths)
            length = std::max<int64_t>(length, 0);
        CatalogBuilder::Chunk chunk{.offsets = offset, .lengths = lengths};
        if (row.range) {
            int64_t count = 0;
            const FlatRange range = m_.rangeOf(row.range);
            if (!checkedProduct(lengths, count) || range.stop > count) {
                wrong(badShapes_, key,
                      fmt::format(
                          "a flattened chunk takes elements {} to {} of a box of shape {}; it is left out",
                          range.start, range.stop, formatDims(lengths)));
                return {};
            }
            chunk.flat = range;
        }
        int64_t elements = 0;
        if (!checkedProduct(lengths, elements))
            return damaged(fmt::format("a chunk has the impossible shape {}", formatDims(lengths)))
                .ofTensor(key);
        if (chunk.flat) elements = chunk.flat->stop - chunk.flat->start;
        chunk.length = dtypeByteCount(info.dtype, static_cast<uint64_t>(elements)).value_or(UINT64_MAX);
        const std::vector<uint32_t>& files = filesOf(number, row);
        if (files.empty() && elements > 0) {
            wrong(missingRows_, key,
                  fmt::format(
                      "storage_metadata has no entry for the chunk at {}: nobody knows which file it is in",
                      formatDims(offset)));
        }
        if (files.empty()) return addChunk(chunk, claimed, cut);
        for (const uint32_t file : files) {
            chunk.file = fileIds_[file];
            chunk.rank = builder_.file(chunk.file).rank;
            SHARDSCOPE_TRY(addChunk(chunk, claimed, cut));
        }
        return {};
    }

    Status addChunk(const CatalogBuilder::Chunk& chunk, DimSpan claimed, bool cut) {
        if (cut) parts_.claimed[chunks_] = Dims(claimed.begin(), claimed.end());
        ++chunks_;
        return builder_.addChunk(chunk);
    }

    std::optional<DType> dtypeOf(uint32_t number) {
        const TensorRows& tensor = m_.tensors[number];
        std::optional<DType> dtype;
        for (const ShardRow& row : m_.rowsOf(tensor)) {
            if (row.dtype == kNone) continue;
            const auto known = dtypes_[row.dtype];
            if (!known) {
                wrong(
                    unknownDtypes_, tensor.key,
                    fmt::format("the dtype '{}' is not known; the tensor is left out", m_.dtypes[row.dtype]),
                    Severity::warning);
                return std::nullopt;
            }
            if (dtype && *dtype != *known) {
                wrong(badShapes_, tensor.key,
                      fmt::format("one rank says that the tensor is {}, another {}", dtypeName(*dtype),
                                  dtypeName(*known)));
                break;
            }
            dtype = known;
        }
        if (dtype) return dtype;
        // The metadata of 2.6 names no dtypes: the arrays themselves tell.
        for (const ShardRow& row : m_.rowsOf(tensor)) {
            for (const uint32_t file : filesOf(number, row)) {
                const std::string& path = m_.files[file];
                if (builder_.file(fileIds_[file]).state != FileInfo::State::present) continue;
                const auto index = input_.files.add(path);
                if (!index.ok()) continue;
                const TensorFile& contents = input_.files[*index];
                const uint32_t stored = contents.find(tensor.key);
                if (stored != kNone) return paddleDType(contents.tensors[stored].dtype);
            }
        }
        wrong(unknownDtypes_, tensor.key,
              "the metadata names no dtype and no readable file holds the tensor; it is left out");
        return std::nullopt;
    }

    void noteOrphans() {
        for (uint32_t i = 0; i < m_.stored.size(); ++i) {
            if (storedUsed_[i]) continue;
            const StoredRow& row = m_.stored[i];
            const std::string& key = m_.keyOf(row);
            if (parts_.leftOut.contains(key)) continue;
            wrong(orphans_, key,
                  fmt::format(
                      "storage_metadata has an entry for '{}' at {}, which is not a chunk of this checkpoint",
                      key, formatDims(m_.dimsOf(row.offset))),
                  Severity::warning);
        }
        noteTotals(metadataName_, {{missingRows_, "chunks without an entry in storage_metadata"},
                                   {orphans_, "entries of storage_metadata that belong to nothing"},
                                   {unknownDtypes_, "tensors of unknown dtype"},
                                   {badShapes_, "contradicting chunks"}});
    }

    // What is in the directory besides the files that the metadata names.
    void noteFiles() {
        std::unordered_set<std::string> known;
        for (size_t i = 0; i < builder_.fileCount(); ++i)
            known.insert(builder_.file(static_cast<FileId>(i)).path);
        // Files of other saves are not this checkpoint's business.
        std::unordered_set<std::string> others;
        for (const auto& [id, save] : input_.saves) {
            if (id == input_.id) continue;
            others.insert(save.metadata);
            for (const DirectoryEntry* entry : save.data)
                others.insert(entry->name);
        }
        const uint32_t highest = highestRank_;
        for (const DirectoryEntry& entry : input_.source.entries) {
            if (entry.kind != DirectoryEntry::Kind::file || known.contains(entry.name) ||
                others.contains(entry.name))
                continue;
            const auto name = parseDataName(entry.name);
            if (name) noteUnreferenced(entry, *name, highest);
            addUnreferenced(entry, name ? name->rank : kNone);
        }
        for (const auto& [id, save] : input_.saves) {
            if (save.lock.empty()) continue;
            note(rule::fileLock, Severity::warning,
                 fmt::format("'{}' was left by a save that died; as long as it is there, Paddle writes no "
                             "metadata for save {}, and data files may be newer than the metadata",
                             save.lock, id),
                 save.lock);
        }
    }

    // A rank that had nothing to store writes a file without arrays; in 2.6 also one with replicas only.
    void noteUnreferenced(const DirectoryEntry& entry, const DataName& name, uint32_t highest) {
        const auto index = input_.files.add(entry.name);
        if (!index.ok()) {
            note(rule::fileUnreferenced, Severity::warning,
                 fmt::format("nothing refers to '{}', and it cannot be read: {}", entry.name,
                             index.error().message),
                 entry.name);
            return;
        }
        if (input_.files[*index].tensors.empty()) {
            note(rule::fileUnreferenced, Severity::info,
                 fmt::format("rank {} had nothing to store: '{}' is empty", name.rank, entry.name),
                 entry.name);
            seeRank(name.rank);
            return;
        }
        unreferenced_.push_back({entry.name, name.rank, highest == kNone || name.rank > highest, *index});
    }

    // What do files hold that nothing refers to?
    void noteStale() {
        if (unreferenced_.empty()) return;
        std::unordered_map<std::string_view, uint32_t> tensors;
        for (uint32_t t = 0; t < m_.tensors.size(); ++t)
            tensors[m_.tensors[t].key] = t;
        const FindKnown known = [&](const std::string& key) -> std::optional<KnownTensor> {
            const auto found = tensors.find(key);
            if (found == tensors.end()) return std::nullopt;
            KnownTensor out;
            out.generation = m_.generation;
            out.shapeGiven = parts_.shapesGiven;
            out.ignored = parts_.leftOut.contains(key);
            for (const ShardRow& row : m_.rowsOf(m_.tensors[found->second])) {
                const DimSpan lengths = m_.dimsOf(row.shape);
                const auto& files = filesOf(found->second, row);
                out.pieces.push_back({Dims(lengths.begin(), lengths.end()), row.range.given,
                                      files.empty() ? std::string() : m_.files[files[0]]});
            }
            return out;
        };
        for (const Unreferenced& file : unreferenced_) {
            const std::vector<Note> strange = unexpectedEntries(input_.files, file.index, known);
            if (strange.empty()) {
                seeRank(file.rank);
                note(rule::fileUnreferenced, Severity::info,
                     fmt::format("'{}' holds replicas only", file.name), file.name);
            } else if (file.beyond) {
                note(rule::fileStale, Severity::warning,
                     fmt::format("'{}' is not part of this checkpoint: the metadata knows no rank {}; an "
                                 "earlier save with more ranks has left it",
                                 file.name, file.rank),
                     file.name);
            } else {
                for (const Note& one : strange)
                    builder_.addNote(one);
            }
        }
        if (highestRank_ != kNone) builder_.setRankCount(highestRank_ + 1);
    }

    struct Unreferenced {
        std::string name;
        uint32_t rank;
        bool beyond;     // the highest rank of the metadata
        uint32_t index;  // in DistInput::files
    };

    DistInput& input_;
    Metadata& m_;
    DistParts parts_;
    std::string metadataName_;
    std::vector<FileId> fileIds_;
    std::vector<uint32_t> firstStored_, storedOrder_;  // entries of storage_metadata by tensor
    std::vector<bool> storedUsed_;
    uint32_t hashedTensor_ = kNone;
    std::vector<uint32_t> byPlace_, nextAlike_;  // of the entries of that tensor, by hash
    std::vector<std::pair<int64_t, uint32_t>> copies_;
    std::vector<std::optional<DType>> dtypes_;  // of Metadata::dtypes
    Dims lengths_;
    std::vector<uint32_t> found_;
    std::vector<Unreferenced> unreferenced_;
    ChunkId chunks_ = 0;
    uint32_t highestRank_ = kNone;
    size_t missingRows_ = 0, orphans_ = 0, unknownDtypes_ = 0, badShapes_ = 0;
};

}  // namespace

bool storedAs(DType wanted, DType stored) {
    if (wanted == stored) return true;
    switch (wanted) {
        case DType::bfloat16:
            return stored == DType::uint16;
        case DType::float8E4M3FN:
        case DType::float8E5M2:
            return stored == DType::int8 || stored == DType::uint8;
        default:
            return false;
    }
}

Result<DistParts> buildDistCatalog(DistInput input) {
    return Builder(input).run();
}

}  // namespace shardscope::paddle
