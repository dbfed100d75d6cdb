#include <algorithm>

#include <fmt/format.h>

#include "base/numbers.h"
#include "base/option_words.h"
#include "base/rule.h"
#include "formats/catalog_opener.h"
#include "formats/paddle_dist/dist_catalog.h"
#include "formats/paddle_dist/layouts.h"
#include "storage/open_files.h"

namespace shardscope::paddle {

namespace {

constexpr uint64_t kHead = 512;  // bytes of a metadata file that show what it is

// What a chunk is in its file, which is read now if it was not before.
Result<StoredPart> findPart(TensorFiles& files, const DistParts& parts, const Catalog& catalog,
                            const ChunkInfo& chunk) {
    if (chunk.file == kNone) {
        if (chunk.elements() == 0) return StoredPart{};
        return damaged("storage_metadata has no entry for this chunk: nobody knows which file it is in")
            .byRule(rule::metaInconsistent);
    }
    const DType dtype = catalog.dtype(chunk.tensor);
    SHARDSCOPE_ASSIGN(const uint32_t file, files.add(catalog.files()[chunk.file].path));
    const uint32_t found = files[file].find(catalog.name(chunk.tensor));
    if (found == kNone) {
        if (chunk.elements() == 0) return StoredPart{};
        return damaged(
                   "the file has no such tensor, the metadata says that it has: they are of different saves")
            .byRule(rule::metaInconsistent);
    }
    const StoredTensor& stored = files[file].tensors[found];
    if (!storedAs(dtype, stored.dtype)) {
        return damaged(fmt::format("the file holds {}, the metadata says {}", dtypeName(stored.dtype),
                                   dtypeName(dtype)))
            .byRule(rule::metaInconsistent);
    }
    const auto wrongShape = [&](const std::string& wanted) {
        return damaged(fmt::format("the file holds an array of shape {}, the metadata says {}",
                                   formatDims(stored.shape), wanted))
            .byRule(rule::metaInconsistent);
    };
    StoredPart part = StoredPart::whole(file, found);
    part.bits = dtype;
    if (chunk.flat) {
        if (stored.shape.size() != 1 || stored.shape[0] != chunk.elements())
            return wrongShape(fmt::format("[{}]", chunk.elements()));
    } else if (!std::ranges::equal(stored.shape, chunk.lengths)) {
        const auto claimed = parts.claimed.find(chunk.id);
        if (claimed == parts.claimed.end() || claimed->second != stored.shape)
            return wrongShape(formatDims(chunk.lengths));
        part.offsets.assign(chunk.lengths.size(), 0);
        part.lengths.assign(chunk.lengths.begin(), chunk.lengths.end());
    }
    return part;
}

Result<std::vector<Note>> findNotes(TensorFiles& files, const DistParts& parts, const Catalog& catalog) {
    const FindKnown known = [&](const std::string& key) -> std::optional<KnownTensor> {
        const TensorId t = catalog.find(key);
        KnownTensor out;
        out.generation = parts.generation;
        out.shapeGiven = parts.shapesGiven;
        if (t == kNone) {
            if (!parts.leftOut.contains(key)) return std::nullopt;
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
        const auto index = files.add(file.path);
        if (!index.ok()) {
            if (index.error().code == ErrorCode::cancelled) return Error(index.error());
            continue;  // locate() tells
        }
        auto strange = unexpectedEntries(files, *index, known);
        notes.insert(notes.end(), std::make_move_iterator(strange.begin()),
                     std::make_move_iterator(strange.end()));
    }
    return notes;
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
            notes.push_back(noteOf(
                rule::fileMissing, Severity::warning,
                fmt::format("save {} has data files, but no '{}.metadata': it was never finished", id, id),
                fmt::format("{}.metadata", id)));
            continue;
        }
        auto candidate = readSave(source, options, id, save);
        if (!candidate.ok()) {
            if (candidate.error().code == ErrorCode::cancelled) return candidate;
            notes.push_back(noteOf(
                rule::metaInconsistent, Severity::warning,
                fmt::format("save {} cannot be opened: {}", id, describe(candidate.error())), save.metadata));
            if (!unreadable) unreadable = std::move(candidate).error();
            continue;
        }
        const std::string missing = missingFile(source, candidate->metadata);
        if (missing.empty()) return candidate;
        if (incomplete) continue;
        if (saves.size() > 1)
            notes.push_back(noteOf(rule::fileMissing, Severity::warning,
                                   fmt::format("save {} is not complete: '{}' is missing ({} id={} opens it)",
                                               id, missing, commandOption("variant"), id),
                                   missing));
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
        if (!parseMetadataName(source.entry) ||
            !looksLikeMetadata(startOf(*source.directory, source.entry, kHead)))
            return {};
        return {Probe::Match::certain,
                fmt::format("'{}' is the metadata of paddle.distributed", source.entry)};
    }
    const auto saves = savesIn(source);
    for (auto it = saves.rbegin(); it != saves.rend(); ++it) {
        const SaveFiles& save = it->second;
        if (save.metadata.empty()) continue;
        if (!save.data.empty())
            return {Probe::Match::certain, fmt::format("has '{}' and data files of ranks", save.metadata)};
        if (looksLikeMetadata(startOf(*source.directory, save.metadata, kHead)))
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
        const std::string_view text = options.variant;
        wanted = parseNumber<uint64_t>(text.substr(std::min<size_t>(3, text.size())));
        if (!text.starts_with("id=") || !wanted) {
            return makeError(
                ErrorCode::usage,
                fmt::format("'{}' is not a variant of this format; id=N chooses a save", options.variant));
        }
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
            noteOf(rule::fileUnreferenced, Severity::info,
                   fmt::format("save {} is in the same directory; {} id={} opens it instead of save {}", id,
                               commandOption("variant"), id, chosen.id),
                   save.metadata));
    }
    const std::string described = source.directory->path() + "/" + saves.at(chosen.id).metadata;
    auto files = std::make_unique<TensorFiles>(source, options, TensorFiles::Writer::paddleTensorsOnly);
    auto built = buildDistCatalog(
        {source, *files, chosen.id, saves, std::move(chosen.metadata), chosen.size, std::move(notes)});
    if (!built.ok()) return std::move(built).error().inFile(described);
    Catalog catalog = std::move(built->catalog);
    const auto parts = std::make_shared<const DistParts>(std::move(built).value());
    TensorFiles& opened = *files;  // as long as the reader lives
    return makePartReader(
        source, std::move(catalog), std::move(files),
        [&opened, parts](const Catalog& of, const ChunkInfo& chunk) {
            return findPart(opened, *parts, of, chunk);
        },
        [&opened, parts](const Catalog& of) { return findNotes(opened, *parts, of); });
}

}  // namespace shardscope::paddle
