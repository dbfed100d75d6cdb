// What the readers of all formats share: the catalog, the checks of ids, and errors that name file and
// tensor.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "formats/format.h"

namespace shardscope {

// A checkpoint that becomes part of another one: its names get `prefix`, paths of its files `directory`,
// tensors that are not an optimizer's `role` where it is given.
struct JoinedPart {
    std::unique_ptr<Reader> reader;
    std::string prefix, directory;
    std::optional<Role> role;
};
// One reader of all entries of `first` and, after them, of the others in their order. Errors: limit; internal
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
    // Errors: as above; notFound (file.missing) and unsafe (security.path) by the state of the file.
    Result<std::shared_ptr<const ReadFile>> openFile(FileId file) const final;
    Result<std::vector<Note>> fileNotes() const final;

  protected:
    // `directory`: the path that those of the catalog's files are relative to.
    CatalogReader(Catalog catalog, std::string directory)
        : catalog_(std::move(catalog)), directory_(std::move(directory)) {}

    virtual Result<Extent> extentOf(const ChunkInfo& chunk) const = 0;
    virtual Result<Value> valueOf(ObjectId object) const { return catalog_.objects()[object].value; }
    // As Reader::fileNotes().
    virtual Result<std::vector<Note>> ownNotes() const { return std::vector<Note>{}; }
    // `file` is in the state `present` or `unreadable`.
    virtual Result<std::shared_ptr<const ReadFile>> openPresent(const FileInfo& file) const = 0;
    // Why nothing of this file can be read, by its state; success when it is there.
    virtual Status checkState(const FileInfo& file) const;

  private:
    friend Result<std::unique_ptr<Reader>> joinReaders(std::unique_ptr<Reader>, std::vector<JoinedPart>);
    // Another checkpoint in this one, and the first of its ids here.
    struct Part {
        JoinedPart joined;
        ChunkId firstChunk;
        FileId firstFile;
        ObjectId firstObject;
    };
    template <class Id>
    const Part* partOf(Id id, Id Part::*first) const;

    // The catalog is not copied when others join, which is before anybody else has the reader.
    Status take(std::vector<JoinedPart> others);

    Catalog catalog_;
    const std::string directory_;
    std::vector<Part> parts_;
};

// Nothing of its own, which others join.
std::unique_ptr<Reader> emptyReader(Catalog catalog, std::string directory);

}  // namespace shardscope
