// Base class of the openers of all formats: holds the catalog that an opener fills, and adds its notes.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "model/catalog.h"
#include "storage/file_system.h"

namespace shardscope {

struct Source;

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
