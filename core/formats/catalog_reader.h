// Base class of the readers of all formats: holds the catalog, checks ids, and names file and tensor in
// errors.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "formats/format.h"

namespace shardscope {

// A checkpoint that becomes part of another one. `prefix` is put before its names, `directory` before the
// paths of its files. `role`, if given, replaces the role of tensors that are not optimizer state.
struct JoinedPart {
    std::unique_ptr<Reader> reader;
    std::string prefix, directory;
    std::optional<Role> role;
};
// Returns one reader with the entries of `first`, then those of `others` in order. Errors: limit; internal
// when `first` is not a CatalogReader.
Result<std::unique_ptr<Reader>> joinReaders(std::unique_ptr<Reader> first, std::vector<JoinedPart> others);

// A reader of one Catalog. Callers may pass any id; the hooks below only see ids that exist. Thread-safe as
// long as the hooks are.
class CatalogReader : public Reader {
  public:
    const Catalog& catalog() const final { return catalog_; }
    // Errors: internal for an id that does not exist; those of the hook, with the chunk's tensor and file.
    Result<Extent> locate(ChunkId chunk) const final;
    Result<Value> objectValue(ObjectId object) const final;
    // Errors: as locate(); by the state of the file notFound (file.missing) or unsafe (security.path).
    Result<std::shared_ptr<const ReadFile>> openFile(FileId file) const final;
    Result<std::vector<Note>> fileNotes() const final;

  protected:
    // `directory`: the paths of the catalog's files are relative to it.
    CatalogReader(Catalog catalog, std::string directory)
        : catalog_(std::move(catalog)), directory_(std::move(directory)) {}

    virtual Result<Extent> extentOf(const ChunkInfo& chunk) const = 0;
    virtual Result<Value> valueOf(ObjectId object) const { return catalog_.objects()[object].value; }
    // As Reader::fileNotes().
    virtual Result<std::vector<Note>> ownNotes() const { return std::vector<Note>{}; }
    // `file` is in the state `present` or `unreadable`.
    virtual Result<std::shared_ptr<const ReadFile>> openPresent(const FileInfo& file) const = 0;
    // The error of a file whose state prevents reading; success for a file that is present.
    virtual Status checkState(const FileInfo& file) const;

  private:
    friend Result<std::unique_ptr<Reader>> joinReaders(std::unique_ptr<Reader>, std::vector<JoinedPart>);
    // A joined checkpoint, and the first ids of its entries in this catalog.
    struct Part {
        JoinedPart joined;
        ChunkId firstChunk;
        FileId firstFile;
        ObjectId firstObject;
    };
    template <class Id>
    const Part* partOf(Id id, Id Part::*first) const;

    // Appends to the catalog in place. Call only before the reader is shared.
    Status take(std::vector<JoinedPart> others);

    Catalog catalog_;
    const std::string directory_;
    std::vector<Part> parts_;
};

// A reader without chunks, for joinReaders() to add others to.
std::unique_ptr<Reader> emptyReader(Catalog catalog, std::string directory);

}  // namespace shardscope
