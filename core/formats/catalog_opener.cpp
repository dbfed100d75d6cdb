#include "formats/catalog_opener.h"

#include <fmt/format.h>

#include "base/rule.h"

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

void CatalogOpener::note(std::string_view rule, Severity severity, std::string message, std::string_view file,
                         std::string_view tensor, Note::Lacks lacks, std::optional<uint64_t> offset) {
    if (severity != Severity::error && ++noted_ > most_) return;
    Note note{std::string(rule),   severity, std::move(message), std::string(file),
              std::string(tensor), offset};
    note.lacks = lacks;
    builder_.addNote(std::move(note));
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
            note(rule::metaInconsistent, Severity::error, fmt::format("{} {} in all", count, what), file);
    }
}

}  // namespace shardscope
