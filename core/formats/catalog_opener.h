// What the openers of all formats share: the catalog that they fill, and notes on what is odd in it.
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

class CatalogOpener {
  protected:
    CatalogOpener(std::string format, std::string variant, std::string writer)
        : builder_(std::move(format), std::move(variant), std::move(writer)) {}

    void note(std::string_view rule, Severity severity, std::string message, std::string_view file = {},
              std::string_view tensor = {}, Note::Lacks lacks = Note::Lacks::nothing,
              std::optional<uint64_t> offset = {});

    // A file of the directory that nothing of the checkpoint names.
    FileId addUnreferenced(const DirectoryEntry& entry, uint32_t rank = kNone);

    // Of a kind of which there may be millions: `count` says how many there were so far, and the first
    // hundred are kept.
    void addNote(size_t& count, Note note);
    // How many there were in all, where that is more than were kept: "<count> <what> in all".
    void noteTotals(std::string_view file, std::initializer_list<std::pair<size_t, std::string_view>> kinds);

    CatalogBuilder builder_;
    size_t most_ = SIZE_MAX;  // notes that note() adds, errors aside

  private:
    size_t noted_ = 0;
};

}  // namespace shardscope
