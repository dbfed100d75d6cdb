#include "engine/surroundings.h"

#include <algorithm>
#include <cctype>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/rule.h"
#include "base/text.h"
#include "base/units.h"
#include "encoding/json_value.h"
#include "encoding/tar.h"
#include "expectation/contract.h"
#include "formats/catalog_reader.h"
#include "model/companions.h"
#include "storage/open_files.h"

namespace shardscope {

namespace {

constexpr size_t kMostLooks = 64;  // files that are looked into for one format
constexpr uint64_t kMostJson = uint64_t{64} << 20;
constexpr size_t kMostDirectories = 256;  // that are looked at for zarr arrays

using NameSet = std::set<std::string, std::less<>>;

// Paths that the catalog knows as parts of the checkpoint.
NameSet ownFiles(const Catalog& catalog) {
    NameSet own;
    for (const FileInfo& file : catalog.files()) {
        if (file.referenced || file.metadata) own.insert(file.path);
    }
    return own;
}

uint64_t ownBytes(const Catalog& catalog) {
    uint64_t bytes = 0;
    for (const FileInfo& file : catalog.files()) {
        if ((file.referenced || file.metadata) && file.state != FileInfo::State::missing) bytes += file.size;
    }
    return bytes;
}

// Data files of the directory that are not part of the checkpoint.
std::vector<const DirectoryEntry*> otherData(const Source& source, const NameSet& own) {
    std::vector<const DirectoryEntry*> others;
    for (const DirectoryEntry& entry : source.entries) {
        if (entry.kind == DirectoryEntry::Kind::file && entry.size > 0 && !own.contains(entry.name) &&
            mayHoldTensors(entry.name, entry.size))
            others.push_back(&entry);
    }
    return others;
}

// The format that takes this file for a whole checkpoint; null when none does.
const Format* formatOfFile(const Source& source, const std::string& name) {
    Source one = source;
    one.entry = name;
    for (const Format* format : builtinFormats()) {
        if (format->info().reads && format->probe(one).match != Probe::Match::no) return format;
    }
    return nullptr;
}

// Keeps in mind that `format` takes this file, where it takes the whole directory too.
void addOther(const Source& source, const Format* format, const std::string& file, Checkpoint& checkpoint) {
    if (!format || format == checkpoint.format || !source.entry.empty() ||
        std::ranges::count(checkpoint.others, format, &FormatMatch::format) ||
        format->probe(source).match == Probe::Match::no)
        return;
    checkpoint.others.push_back({format, file});
}

// Directories that are zarr arrays (a .zarray or zarr.json in them), and the bytes of their chunks.
struct Zarr {
    size_t arrays = 0;
    uint64_t bytes = 0;
    std::string first;
};
// Those that the checkpoint is made of are not counted.
Zarr findZarr(const Source& source, const NameSet& own = {}) {
    Zarr zarr;
    size_t looks = 0;
    for (const DirectoryEntry& entry : source.entries) {
        if (entry.kind != DirectoryEntry::Kind::directory || entry.name.starts_with('.') ||
            own.contains(entry.name + "/.zarray") || own.contains(entry.name + "/zarr.json"))
            continue;
        if (++looks > kMostDirectories) break;
        if (!source.directory->stat(entry.name + "/.zarray").ok() &&
            !source.directory->stat(entry.name + "/zarr.json").ok())
            continue;
        if (zarr.arrays++ == 0) zarr.first = entry.name;
        const auto chunks = source.directory->list(entry.name);
        if (!chunks.ok()) continue;
        for (const DirectoryEntry& chunk : *chunks) {
            if (chunk.kind == DirectoryEntry::Kind::file) zarr.bytes += chunk.size;
        }
    }
    return zarr;
}

Error zarrError(const Source& source, const Zarr& zarr) {
    return unsupported(fmt::format("the tensors are in {}, such as '{}', which cannot be read yet",
                                   counted(zarr.arrays, "zarr array"), printable(zarr.first, kNameInMessage)))
        .inFile(source.display)
        .withHint("those of Megatron-Core open where its metadata.json or common.pt is beside them");
}

Note noteOf(Severity severity, std::string message, const std::string& file) {
    Note note;
    note.rule = rule::fileUnreferenced;
    note.severity = severity;
    note.message = std::move(message);
    note.file = file;
    return note;
}

// A file of JSON as one object of that name.
Result<std::unique_ptr<Reader>> openJson(const Source& source, const DirectoryEntry& entry) {
    SHARDSCOPE_ASSIGN(const auto file, source.directory->openFile(entry.name));
    SHARDSCOPE_ASSIGN(const std::string text, wholeText(*file, kMostJson));
    const auto json = nlohmann::json::parse(text, nullptr, false);
    if (json.is_discarded()) return damaged("is not valid JSON").inFile(entry.name);
    ValueGraph graph;
    const NodeId root = addJson(json, graph);
    CatalogBuilder builder("json", {}, {});
    FileInfo info;
    info.path = entry.name;
    info.size = entry.size;
    info.metadata = true;
    ObjectInfo object;
    object.name = entry.name;
    object.path = {keyPart(entry.name)};
    object.file = builder.addFile(std::move(info));
    object.length = entry.size;
    object.value = makeValue(std::move(graph), root);
    builder.addObject(std::move(object));
    return emptyReader(std::move(builder).finish(), source.directory->path());
}

Note cutArchive(const Source& source) {
    Note note;
    note.rule = rule::fileTruncated;
    note.severity = Severity::error;
    note.message = "the archive has no end: it is truncated, and what should follow is missing";
    note.file = splitPath(source.directory->path()).second;
    return note;
}

// As far as contracts need it: the directory alone.
StepContents namesIn(const Source& source) {
    StepContents step;
    step.name = splitPath(source.directory->path()).second;
    for (const DirectoryEntry& entry : source.entries)
        if (entry.kind == DirectoryEntry::Kind::file)
            step.files.push_back({entry.name, entry.size, entry.modifiedNs});
    return step;
}

// The state in companions of a checkpoint that is a directory ("optimizer.pt:state.0.exp_avg",
// "trainer_state.json"). A companion that cannot be read is a note of the checkpoint. Errors: cancelled.
Result<std::vector<JoinedPart>> openCompanions(const Source& source, const CheckpointOptions& options,
                                               const Catalog& catalog, Checkpoint& checkpoint) {
    std::vector<JoinedPart> companions;
    if (!source.entry.empty()) return companions;
    const NameSet own = ownFiles(catalog);
    const Contract& contract = contractOf(namesIn(source));
    for (const DirectoryEntry& entry : source.entries) {
        const CompanionState state = companionState(entry.name);
        if (state == CompanionState::none || entry.kind != DirectoryEntry::Kind::file ||
            own.contains(entry.name))
            continue;
        SHARDSCOPE_TRY(StopToken(options.open.stop).poll());
        Source one = source;
        one.entry = entry.name;
        const Format* format = state == CompanionState::json ? nullptr : findFormat("torch");
        // Others write files of these names, too (PaddleNLP).
        if (format && entry.size > 0 && format->probe(one).match == Probe::Match::no) continue;
        auto opened = entry.size == 0 ? damaged("it is empty").byRule(rule::fileDamaged)
                      : format        ? format->open(one, options.open)
                                      : openJson(source, entry);
        if (!opened.ok()) {
            const Error& error = opened.error();
            if (error.code == ErrorCode::cancelled) return error;
            Note note;
            note.rule =
                error.location.rule.empty() ? std::string(rule::metaInconsistent) : error.location.rule;
            note.severity = std::max(severityOf(contract.damaged(entry.name)), Severity::warning);
            note.message = fmt::format("'{}' cannot be read: {}", entry.name, error.message);
            note.file = entry.name;
            checkpoint.notes.push_back(std::move(note));
            continue;
        }
        const Role role = state == CompanionState::optimizer ? Role::optimizer : Role::other;
        std::string prefix = format ? entry.name + ':' : std::string();
        // A single value without a name of its own, such as the Trainer's arguments.
        const std::span<const ObjectInfo> objects = (*opened)->catalog().objects();
        if (format && objects.size() == 1 && objects[0].name.empty()) prefix = entry.name;
        companions.push_back({std::move(opened).value(), std::move(prefix), {}, role});
    }
    return companions;
}

}  // namespace

std::vector<Note> Checkpoint::allNotes() const {
    std::vector<Note> all = catalog().notes();
    all.insert(all.end(), notes.begin(), notes.end());
    return all;
}

Status refuseZarr(const Source& source) {
    const Zarr zarr = findZarr(source);
    if (zarr.arrays > 0) return zarrError(source, zarr);
    return {};
}

namespace {

// The reader of another format that accounts for more than twice as much; else `reader`.
std::unique_ptr<Reader> largerOf(std::unique_ptr<Reader> reader, const Source& source,
                                 const CheckpointOptions& options, Checkpoint& checkpoint) {
    uint64_t theirs = 0;
    for (const DirectoryEntry* entry : otherData(source, ownFiles(reader->catalog())))
        theirs += entry->size;
    uint64_t mine = ownBytes(reader->catalog());
    if (!options.format.empty() || theirs <= 2 * mine) return reader;
    for (const Format* format : builtinFormats()) {
        if (!format->info().reads || format == checkpoint.format) continue;
        if (format->probe(source).match == Probe::Match::no) continue;
        auto other = format->open(source, options.open);
        if (!other.ok() || ownBytes((*other)->catalog()) <= 2 * mine) continue;
        checkpoint.format = format;
        reader = std::move(other).value();
        mine = ownBytes(reader->catalog());
    }
    return reader;
}

// What a file that is not part of the checkpoint may be of one that is missing: left by a transfer or a
// packer under another name. Empty = nothing.
std::string_view madeOf(std::string_view name, std::string_view missing) {
    const auto same = [](char a, char b) {
        return std::tolower(static_cast<unsigned char>(a)) == std::tolower(static_cast<unsigned char>(b));
    };
    const bool hidden = name.starts_with('.');
    if (hidden) name.remove_prefix(1);
    if (name.size() > missing.size() + 1 && name.starts_with(missing)) {
        const std::string_view ending = name.substr(missing.size());
        for (const std::string_view packed : {".gz", ".zst", ".xz", ".bz2", ".lz4", ".tar", ".zip"})
            if (ending == packed) return "is packed: unpack it";
        if (ending.starts_with(".part-") || ending == ".aa" || ending == ".000" || ending == ".001")
            return "is a part of it that 'split' or the like made: join the parts";
        if (ending[0] == '.') return "is what a transfer that did not end has left of it";
    }
    if (!hidden && std::ranges::equal(name, missing, same)) return "has its name but for capital letters";
    // "model (1).bin", as browsers and file managers call a second copy.
    const size_t dot = missing.rfind('.');
    const std::string_view stem = missing.substr(0, dot), end = missing.substr(std::min(dot, missing.size()));
    if (name.starts_with(stem) && name.ends_with(end) && name.substr(stem.size()).starts_with(" ("))
        return "has its name with a number: give it its own";
    return {};
}

// Of files that are missing, what is here instead.
void noteOtherNames(const Source& source, const NameSet& own, Checkpoint& checkpoint) {
    constexpr size_t kMostMissing = 1000;
    std::vector<std::string_view> others;
    for (const DirectoryEntry& entry : source.entries)
        if (entry.kind == DirectoryEntry::Kind::file && !own.contains(entry.name))
            others.push_back(entry.name);
    size_t looks = 0;
    for (const FileInfo& file : checkpoint.catalog().files()) {
        if (file.state != FileInfo::State::missing || ++looks > kMostMissing) continue;
        const auto other = std::ranges::find_if(
            others, [&](std::string_view name) { return !madeOf(name, file.path).empty(); });
        if (other == others.end()) continue;
        checkpoint.notes.push_back(
            noteOf(Severity::info,
                   fmt::format("'{}' is missing; '{}' {}", printable(file.path, kNameInMessage),
                               printable(*other, kNameInMessage), madeOf(*other, file.path)),
                   std::string(*other)));
    }
}

// Notes about the data that the checkpoint does not account for.
Status noteOthers(const Source& source, Checkpoint& checkpoint) {
    const NameSet own = ownFiles(checkpoint.catalog());
    const std::vector<const DirectoryEntry*> others = otherData(source, own);
    noteOtherNames(source, own, checkpoint);
    const uint64_t mine = ownBytes(checkpoint.catalog());
    const Zarr zarr = findZarr(source, own);
    if (zarr.bytes > mine) return zarrError(source, zarr);

    NameSet noted;  // the reader has said what these are
    for (const Note& note : checkpoint.catalog().notes())
        noted.insert(note.file);
    uint64_t unknown = zarr.bytes;
    std::vector<std::string> unknownFiles;
    size_t looks = 0, looksAtNoted = 0;
    for (const DirectoryEntry* entry : others) {
        if (noted.contains(entry->name)) {
            if (++looksAtNoted <= kMostLooks)
                addOther(source, formatOfFile(source, entry->name), entry->name, checkpoint);
            continue;
        }
        if (const std::string_view other = otherModelFormat(entry->name); !other.empty() && mine > 0) {
            checkpoint.notes.push_back(noteOf(
                Severity::info,
                fmt::format(
                    "'{}' is not part of this checkpoint; it is a model in the format {}, which is not read",
                    printable(entry->name, kNameInMessage), other),
                entry->name));
            continue;
        }
        const Format* format = ++looks <= kMostLooks ? formatOfFile(source, entry->name) : nullptr;
        addOther(source, format, entry->name, checkpoint);
        if (format) {
            checkpoint.notes.push_back(
                noteOf(Severity::info,
                       fmt::format("'{}' is not part of this checkpoint; it can be opened by itself, as {}",
                                   printable(entry->name, kNameInMessage), format->info().name),
                       entry->name));
        } else if (looks <= kMostLooks) {
            unknown += entry->size;
            unknownFiles.push_back(entry->name);
        }
    }
    const Severity severity = unknown > mine ? Severity::error : Severity::warning;
    const std::string share = fmt::format("{} of data here belong to no known format, {} to this checkpoint",
                                          bytesText(unknown), bytesText(mine));
    for (const std::string& file : unknownFiles)
        checkpoint.notes.push_back(
            noteOf(severity,
                   fmt::format("nothing refers to '{}'; {}", printable(file, kNameInMessage), share), file));
    if (zarr.arrays > 0)
        checkpoint.notes.push_back(
            noteOf(severity, fmt::format("not read: {}; {}", counted(zarr.arrays, "zarr array"), share),
                   zarr.first));
    return {};
}

}  // namespace

Status accountForDirectory(const Source& source, const CheckpointOptions& options,
                           std::unique_ptr<Reader> reader, Checkpoint& checkpoint) {
    // The user named a file; a file that stands for its directory, such as an index of shards, is one of
    // several own files.
    if (!isWholeArchive(*source.fileSystem)) checkpoint.notes.push_back(cutArchive(source));
    const bool alone = !source.entry.empty() && ownFiles(reader->catalog()).size() <= 1;
    if (alone || !reader->dataElsewhere().empty()) {
        checkpoint.reader = std::move(reader);
        return {};
    }
    reader = largerOf(std::move(reader), source, options, checkpoint);
    SHARDSCOPE_ASSIGN(auto companions, openCompanions(source, options, reader->catalog(), checkpoint));
    SHARDSCOPE_ASSIGN(checkpoint.reader, joinReaders(std::move(reader), std::move(companions)));
    return noteOthers(source, checkpoint);
}

}  // namespace shardscope
