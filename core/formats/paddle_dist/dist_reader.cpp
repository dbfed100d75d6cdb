#include "formats/paddle_dist/dist_reader.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "base/checked.h"
#include "base/rule.h"
#include "formats/paddle_dist/dist_catalog.h"

namespace shardscope::paddle {

namespace {

class DistReader final : public Reader {
  public:
    DistReader(std::unique_ptr<RankFiles> files, DistParts parts)
        : files_(std::move(files)), parts_(std::move(parts)) {}

    const Catalog& catalog() const override { return parts_.catalog; }

    Result<Extent> locate(ChunkId id) const override {
        if (id >= parts_.catalog.chunkCount()) return makeError(ErrorCode::internal, "no such chunk");
        const ChunkInfo chunk = parts_.catalog.chunk(id);
        auto extent = locateInside(chunk);
        if (extent.ok()) return extent;
        Error error = std::move(extent).error();
        if (chunk.file != kNone) error = std::move(error).inFile(parts_.catalog.files()[chunk.file].path);
        return std::move(error).ofTensor(parts_.catalog.name(chunk.tensor));
    }

    Result<Value> objectValue(ObjectId) const override {
        return makeError(ErrorCode::internal, "no such object");
    }
    Result<std::shared_ptr<const ReadFile>> openFile(FileId file) const override {
        return files_->openFile(parts_.catalog.files()[file].path);
    }
    Result<std::vector<Note>> fileNotes() const override;

  private:
    Result<Extent> locateInside(const ChunkInfo& chunk) const;

    std::unique_ptr<RankFiles> files_;
    const DistParts parts_;
};

Result<Extent> DistReader::locateInside(const ChunkInfo& chunk) const {
    const Catalog& catalog = parts_.catalog;
    if (chunk.file == kNone) {
        if (chunk.elements() == 0) return Extent{};
        return damaged("storage_metadata has no entry for this piece: nobody knows which file it is in")
            .byRule(rule::metaInconsistent);
    }
    const std::string& path = catalog.files()[chunk.file].path;
    const DType dtype = catalog.dtype(chunk.tensor);
    SHARDSCOPE_ASSIGN(const auto index, files_->index(path));
    const auto found = index->find(std::string(catalog.name(chunk.tensor)));
    if (found == index->end()) {
        if (chunk.elements() == 0) return Extent{};
        return damaged(
                   "the file has no such tensor, the metadata says that it has: they are of different saves")
            .byRule(rule::metaInconsistent);
    }
    const RankFiles::Entry& entry = found->second;
    const DType stored = entry.parts[0].dtype;
    if (!storedAs(dtype, stored)) {
        return damaged(fmt::format("the file holds {}, the metadata says {}", dtypeName(stored),
                                   dtypeName(dtype)))
            .byRule(rule::metaInconsistent);
    }
    const auto wrongShape = [&](const std::string& wanted) {
        return damaged(fmt::format("the file holds an array of shape {}, the metadata says {}",
                                   formatDims(entry.shape), wanted))
            .byRule(rule::metaInconsistent);
    };
    const auto equal = [](DimSpan a, DimSpan b) {
        return std::equal(a.begin(), a.end(), b.begin(), b.end());
    };
    bool cut = false;
    if (chunk.flat) {
        if (entry.shape.size() != 1 || entry.shape[0] != chunk.elements())
            return wrongShape(fmt::format("[{}]", chunk.elements()));
    } else if (!equal(entry.shape, chunk.lengths)) {
        const auto claimed = parts_.claimed.find(chunk.id);
        cut = claimed != parts_.claimed.end() && claimed->second == entry.shape;
        if (!cut) return wrongShape(formatDims(chunk.lengths));
    }
    SHARDSCOPE_ASSIGN(const PaddleArrayPlaces::Place place, files_->place(path, entry));
    Extent extent;
    extent.file = place.file;
    extent.offset = place.offset;
    const unsigned bytes = dtypeBytes(dtype);
    extent.length = static_cast<uint64_t>(chunk.elements()) * bytes;
    extent.swapBytes = entry.parts[0].bigEndian && dtypeSwapUnit(dtype) > 1;
    const bool columns = entry.parts.size() == 1 && entry.parts[0].columnMajor;
    if (chunk.elements() == 0 || (!columns && !cut)) return extent;
    extent.strides.assign(entry.shape.size(), 1);
    int64_t stride = 1;
    for (size_t i = 0; i < entry.shape.size(); ++i) {
        const size_t k = columns ? i : entry.shape.size() - 1 - i;
        extent.strides[k] = stride;
        stride *= entry.shape[k];
    }
    int64_t last = 0;
    for (size_t k = 0; k < entry.shape.size(); ++k)
        last += (chunk.lengths[k] - 1) * extent.strides[k];
    extent.length = static_cast<uint64_t>(last + 1) * bytes;
    return extent;
}

Result<std::vector<Note>> DistReader::fileNotes() const {
    const Catalog& catalog = parts_.catalog;
    const FindKnown known = [&](const std::string& key) -> std::optional<KnownTensor> {
        const TensorId t = catalog.find(key);
        KnownTensor out;
        out.generation = parts_.generation;
        out.shapeGiven = parts_.shapesGiven;
        if (t == kNone) {
            if (!parts_.leftOut.contains(key)) return std::nullopt;
            out.ignored = true;
            return out;
        }
        for (ChunkId c = catalog.firstChunk(t); c < catalog.endChunk(t); ++c) {
            const ChunkInfo chunk = catalog.chunk(t, c);
            out.pieces.push_back({Dims(chunk.lengths.begin(), chunk.lengths.end()), chunk.flat.has_value(),
                                  chunk.file == kNone ? std::string() : catalog.files()[chunk.file].path});
        }
        return out;
    };
    std::vector<Note> notes;
    for (const FileInfo& file : catalog.files()) {
        if (file.metadata || !file.referenced || file.state != FileInfo::State::present) continue;
        const auto index = files_->index(file.path);
        if (!index.ok()) {
            if (index.error().code == ErrorCode::cancelled) return Error(index.error());
            continue;  // locate() tells
        }
        auto strange = strangeEntries(*files_, file.path, **index, known);
        notes.insert(notes.end(), std::make_move_iterator(strange.begin()),
                     std::make_move_iterator(strange.end()));
    }
    return notes;
}

std::string headOf(const Source& source, std::string_view name) {
    const auto file = source.directory->openFile(name);
    if (!file.ok()) return {};
    std::string head(std::min<uint64_t>(512, (*file)->size()), '\0');
    if (!(*file)->readAt(0, std::as_writable_bytes(std::span(head))).ok()) return {};
    return head;
}

Error neverFinished(const Source& source, const std::map<uint64_t, SaveFiles>& saves,
                    std::optional<uint64_t> id) {
    uint64_t shown = 0;
    bool locked = false;
    for (const auto& [n, save] : saves) {
        if (id && n != *id) continue;
        shown = n;
        locked = !save.lock.empty();
    }
    Error error =
        makeError(ErrorCode::notFound,
                  fmt::format("'{}.metadata' is missing: save {} was never finished", shown, shown));
    if (locked) error.message += fmt::format(" ('{}.metadata.lock' is what is left of it)", shown);
    return std::move(error)
        .inFile(source.directory->path() + fmt::format("/{}.metadata", shown))
        .byRule(rule::fileMissing)
        .withHint(
            "the save died before its metadata was written, or the file was not copied; use an earlier "
            "checkpoint");
}

struct Candidate {
    uint64_t id = 0;
    uint64_t size = 0;
    Metadata metadata;
};

Result<Candidate> readSave(const Source& source, const OpenOptions& options, uint64_t id,
                           const SaveFiles& save) {
    SHARDSCOPE_ASSIGN(const auto file, source.directory->openFile(save.metadata));
    Candidate candidate;
    candidate.id = id;
    candidate.size = file->size();
    SHARDSCOPE_ASSIGN(candidate.metadata, readMetadata(*file, options.limits, options.stop));
    return candidate;
}

// The first data file that the metadata names and that is not there.
std::string missingFile(const Source& source, const Metadata& metadata) {
    for (const std::string& path : metadata.files) {
        if (!source.directory->stat(path).ok()) return path;
    }
    return {};
}

Result<Candidate> chooseSave(const Source& source, const OpenOptions& options,
                             const std::map<uint64_t, SaveFiles>& saves, std::optional<uint64_t> wanted,
                             std::vector<Note>& notes) {
    if (wanted) {
        const auto save = saves.find(*wanted);
        if (save == saves.end()) {
            return makeError(ErrorCode::notFound,
                             fmt::format("there is no save with the id {} here", *wanted))
                .inFile(source.directory->path());
        }
        if (save->second.metadata.empty()) return neverFinished(source, saves, wanted);
        return readSave(source, options, *wanted, save->second);
    }
    std::optional<Candidate> incomplete;
    std::optional<Error> unreadable;
    for (auto it = saves.rbegin(); it != saves.rend(); ++it) {
        const auto& [id, save] = *it;
        if (save.metadata.empty()) {
            if (saves.size() == 1 || save.data.empty()) continue;
            notes.push_back(
                {rule::fileMissing,
                 Severity::warning,
                 fmt::format("save {} has data files, but no '{}.metadata': it was never finished", id, id),
                 fmt::format("{}.metadata", id),
                 {},
                 std::nullopt});
            continue;
        }
        auto candidate = readSave(source, options, id, save);
        if (!candidate.ok()) {
            if (candidate.error().code == ErrorCode::cancelled) return candidate;
            notes.push_back({rule::metaInconsistent,
                             Severity::warning,
                             fmt::format("save {} cannot be opened: {}", id, describe(candidate.error())),
                             save.metadata,
                             {},
                             std::nullopt});
            if (!unreadable) unreadable = std::move(candidate).error();
            continue;
        }
        const std::string missing = missingFile(source, candidate->metadata);
        if (missing.empty()) return candidate;
        if (incomplete) continue;
        if (saves.size() > 1) {
            notes.push_back(
                {rule::fileMissing,
                 Severity::warning,
                 fmt::format("save {} is not complete: '{}' is missing (--variant id={} opens it)", id,
                             missing, id),
                 missing,
                 {},
                 std::nullopt});
        }
        incomplete = std::move(candidate).value();
    }
    if (incomplete) {
        // What was said of the others still holds; of this one, the files themselves will tell.
        std::erase_if(notes, [&](const Note& note) {
            return note.rule == rule::fileMissing &&
                   note.message.starts_with(fmt::format("save {} is not", incomplete->id));
        });
        return std::move(*incomplete);
    }
    if (unreadable) return std::move(*unreadable);
    return neverFinished(source, saves, std::nullopt);
}

}  // namespace

Probe probeDist(const Source& source) {
    if (!source.entry.empty()) {
        if (!parseMetadataName(source.entry) || !looksLikeMetadata(headOf(source, source.entry))) return {};
        return {Probe::Match::certain,
                fmt::format("'{}' is the metadata of paddle.distributed", source.entry)};
    }
    const auto saves = savesIn(source);
    for (auto it = saves.rbegin(); it != saves.rend(); ++it) {
        const SaveFiles& save = it->second;
        if (save.metadata.empty()) continue;
        if (!save.data.empty())
            return {Probe::Match::certain, fmt::format("has '{}' and data files of ranks", save.metadata)};
        if (looksLikeMetadata(headOf(source, save.metadata)))
            return {Probe::Match::certain, fmt::format("has '{}' of paddle.distributed", save.metadata)};
        return {Probe::Match::possible, fmt::format("has '{}'", save.metadata)};
    }
    for (const auto& [id, save] : saves) {
        for (const DirectoryEntry* entry : save.data) {
            if (entry->name.ends_with(".distcp"))
                return {Probe::Match::possible, "has .distcp files of ranks, but no metadata"};
        }
    }
    return {};
}

Result<std::unique_ptr<Reader>> openDist(const Source& source, const OpenOptions& options) {
    std::optional<uint64_t> wanted;
    if (!options.variant.empty()) {
        uint64_t id = 0;
        const std::string_view text = options.variant;
        const char* end = text.data() + text.size();
        if (!text.starts_with("id=") || text.size() == 3 ||
            std::from_chars(text.data() + 3, end, id).ptr != end) {
            return makeError(
                ErrorCode::usage,
                fmt::format("'{}' is no variant of this format; id=N chooses a save", options.variant));
        }
        wanted = id;
    }
    if (const auto named = parseMetadataName(source.entry)) {
        if (wanted && *wanted != *named)
            return makeError(ErrorCode::usage,
                             fmt::format("'{}' is save {}, not {}", source.entry, *named, *wanted));
        wanted = named;
    }
    const auto saves = savesIn(source);
    std::vector<Note> notes;
    SHARDSCOPE_ASSIGN(Candidate chosen, chooseSave(source, options, saves, wanted, notes));
    for (const auto& [id, save] : saves) {
        if (id == chosen.id || save.metadata.empty()) continue;
        notes.push_back(
            {rule::fileUnreferenced,
             Severity::info,
             fmt::format("save {} lies in the same directory; --variant id={} opens it instead of save {}",
                         id, id, chosen.id),
             save.metadata,
             {},
             std::nullopt});
    }
    const std::string described = source.directory->path() + "/" + saves.at(chosen.id).metadata;
    auto files = std::make_unique<RankFiles>(source, options);
    auto parts = buildDistCatalog(
        {source, *files, chosen.id, saves, std::move(chosen.metadata), chosen.size, std::move(notes)});
    if (!parts.ok()) return std::move(parts).error().inFile(described);
    return std::unique_ptr<Reader>(std::make_unique<DistReader>(std::move(files), std::move(parts).value()));
}

}  // namespace shardscope::paddle
