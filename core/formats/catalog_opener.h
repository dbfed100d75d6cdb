// Base class of the openers of all formats: holds the catalog that an opener fills, and adds its notes.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/rule.h"
#include "formats/format.h"

namespace shardscope {

// Errors: unsupported where the source is a file, for formats whose files are one checkpoint together.
Status requireDirectory(const Source& source);

// Whether the source's directory lists a directory of this name.
bool holdsDirectory(const Source& source, std::string_view name);

// An oddity of a file or of a tensor in it.
Note noteOf(std::string_view rule, Severity severity, std::string message, std::string_view file = {},
            std::string_view tensor = {}, Note::Lacks lacks = Note::Lacks::nothing,
            std::optional<uint64_t> offset = {});

class CatalogOpener {
  protected:
    CatalogOpener(std::string format, std::string variant, std::string writer)
        : builder_(std::move(format), std::move(variant), std::move(writer)) {}

    void note(std::string_view rule, Severity severity, std::string message, std::string_view file = {},
              std::string_view tensor = {}, Note::Lacks lacks = Note::Lacks::nothing,
              std::optional<uint64_t> offset = {});

    // An error of the rule meta.inconsistent.
    void wrong(std::string message, std::string_view file = {}, std::string_view tensor = {},
               Note::Lacks lacks = Note::Lacks::nothing) {
        note(rule::metaInconsistent, Severity::error, std::move(message), file, tensor, lacks);
    }
    // Why a file cannot be read; `before` is put in front of the message. Returns the rule.
    std::string noteError(const Error& error, std::string_view file, std::string_view tensor = {},
                          Note::Lacks lacks = Note::Lacks::nothing, std::string_view before = {});

    // Adds a missing file with a note. `severity` below error: no tensor depends on the file.
    FileId addMissing(std::string path, uint32_t rank, Severity severity, std::string message,
                      Note::Lacks lacks = Note::Lacks::nothing, std::string_view tensor = {});

    // Adds a file that the metadata file `by` names, with what the directory says of it. Notes a name that
    // leads elsewhere (security.path).
    FileId addNamed(const Source& source, std::string_view path, uint32_t rank, std::string_view by);
    // Adds a file of the directory that the checkpoint's metadata does not name.
    FileId addUnreferenced(const DirectoryEntry& entry, uint32_t rank = kNone);

    // Adds a note of a kind that may occur millions of times. Counts it in `count`; keeps the first hundred.
    void addNote(size_t& count, Note note);
    // For each kind with more notes than were kept, adds a note with the total: "<count> <what> in all".
    void noteTotals(std::string_view file, std::initializer_list<std::pair<size_t, std::string_view>> kinds);

    CatalogBuilder builder_;
    size_t most_ = SIZE_MAX;  // limit of notes that note() adds; errors are not limited

  private:
    size_t noted_ = 0;
};

}  // namespace shardscope
