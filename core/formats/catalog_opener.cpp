#include "formats/catalog_opener.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/units.h"

namespace shardscope {

namespace {

constexpr size_t kMostOfAKind = 100;

}  // namespace

Status requireDirectory(const Source& source) {
    if (source.entry.empty()) return {};
    return unsupported("the files of all ranks are one checkpoint, this is one of them")
        .inFile(source.display)
        .withHint("name the directory that holds them");
}

bool holdsDirectory(const Source& source, std::string_view name) {
    return std::ranges::any_of(source.entries, [&](const DirectoryEntry& entry) {
        return entry.kind == DirectoryEntry::Kind::directory && entry.name == name;
    });
}

Note noteOf(std::string_view rule, Severity severity, std::string message, std::string_view file,
            std::string_view tensor, Note::Lacks lacks, std::optional<uint64_t> offset) {
    Note note{std::string(rule),   severity, std::move(message), std::string(file),
              std::string(tensor), offset};
    note.lacks = lacks;
    return note;
}

void CatalogOpener::note(std::string_view rule, Severity severity, std::string message, std::string_view file,
                         std::string_view tensor, Note::Lacks lacks, std::optional<uint64_t> offset) {
    if (severity != Severity::error && ++noted_ > most_) return;
    builder_.addNote(noteOf(rule, severity, std::move(message), file, tensor, lacks, offset));
}

FileId CatalogOpener::addNamed(const Source& source, std::string_view path, uint32_t rank,
                               std::string_view by) {
    FileInfo info{.path = std::string(path), .rank = rank};
    const auto take = [&](const DirectoryEntry& entry) {
        info.size = entry.size;
        if (entry.kind != DirectoryEntry::Kind::file) info.state = FileInfo::State::wrongKind;
    };
    const auto listed = std::ranges::lower_bound(source.entries, path, {}, &DirectoryEntry::name);
    if (const Status safe = checkRelativeName(path); !safe.ok()) {
        info.state = FileInfo::State::wrongKind;
        note(rule::securityPath, Severity::error,
             fmt::format("the metadata refers to '{}': {}", path, safe.error().message), by);
    } else if (listed != source.entries.end() && listed->name == path) {
        take(*listed);
    } else if (const auto stat = source.directory->stat(path); stat.ok()) {
        take(*stat);
    } else {
        info.state =
            stat.error().code == ErrorCode::notFound ? FileInfo::State::missing : FileInfo::State::wrongKind;
    }
    return builder_.addFile(std::move(info));
}

std::string CatalogOpener::noteError(const Error& error, std::string_view file, std::string_view tensor,
                                     Note::Lacks lacks, std::string_view before) {
    std::string rule =
        error.location.rule.empty() ? std::string(rule::metaInconsistent) : error.location.rule;
    note(rule, Severity::error, std::string(before) + error.message, file, tensor, lacks,
         error.location.offset);
    return rule;
}

FileId CatalogOpener::addMissing(std::string path, uint32_t rank, Severity severity, std::string message,
                                 Note::Lacks lacks, std::string_view tensor) {
    note(rule::fileMissing, severity, std::move(message), path, tensor, lacks);
    return builder_.addFile({.path = std::move(path),
                             .state = FileInfo::State::missing,
                             .rank = rank,
                             .referenced = severity == Severity::error});
}

FileId CatalogOpener::addUnreferenced(const DirectoryEntry& entry, uint32_t rank) {
    return builder_.addFile({.path = entry.name, .size = entry.size, .rank = rank, .referenced = false});
}

void CatalogOpener::addNote(size_t& count, Note note) {
    if (++count <= kMostOfAKind) builder_.addNote(std::move(note));
}

void CatalogOpener::noteTotals(std::string_view file,
                               std::initializer_list<std::pair<size_t, std::string_view>> kinds) {
    for (const auto& [count, what] : kinds) {
        if (count > kMostOfAKind)
            note(rule::metaInconsistent, Severity::error, fmt::format("{} {} in all", countText(count), what),
                 file);
    }
}

}  // namespace shardscope
