#include "formats/catalog_reader.h"

#include "base/rule.h"

namespace shardscope {

Status CatalogReader::checkState(const FileInfo& file) const {
    if (file.state == FileInfo::State::missing) {
        return makeError(ErrorCode::notFound, "the file is missing")
            .inFile(directory_ + "/" + file.path)
            .byRule(rule::fileMissing);
    }
    if (file.state == FileInfo::State::wrongKind) {
        return makeError(ErrorCode::unsafe, "not a file of this checkpoint")
            .inFile(directory_ + "/" + file.path)
            .byRule(rule::securityPath);
    }
    return {};
}

Result<Extent> CatalogReader::locate(ChunkId id) const {
    if (id >= catalog_.chunkCount()) return makeError(ErrorCode::internal, "there is no such chunk");
    const ChunkInfo chunk = catalog_.chunk(id);
    const Part* part = partOf(id, &Part::firstChunk);
    auto extent = part ? part->joined.reader->locate(id - part->firstChunk) : extentOf(chunk);
    if (extent.ok()) return extent;
    Error error = std::move(extent).error();
    if (part) error.location.file.clear(), error.location.tensor.clear();
    if (chunk.file != kNone) error = std::move(error).inFile(catalog_.files()[chunk.file].path);
    return std::move(error).ofTensor(catalog_.name(chunk.tensor));
}

Result<Value> CatalogReader::objectValue(ObjectId id) const {
    if (id >= catalog_.objects().size()) return makeError(ErrorCode::internal, "there is no such object");
    const Part* part = partOf(id, &Part::firstObject);
    return part ? part->joined.reader->objectValue(id - part->firstObject) : valueOf(id);
}

Result<std::shared_ptr<const ReadFile>> CatalogReader::openFile(FileId id) const {
    if (id >= catalog_.files().size()) return makeError(ErrorCode::internal, "there is no such file");
    if (const Part* part = partOf(id, &Part::firstFile))
        return part->joined.reader->openFile(id - part->firstFile);
    SHARDSCOPE_TRY(checkState(catalog_.files()[id]));
    return openPresent(catalog_.files()[id]);
}

Result<std::vector<Note>> CatalogReader::fileNotes() const {
    SHARDSCOPE_ASSIGN(std::vector<Note> notes, ownNotes());
    for (const Part& part : parts_) {
        SHARDSCOPE_ASSIGN(auto more, part.joined.reader->fileNotes());
        for (Note& note : more) {
            if (!note.file.empty() && !part.joined.directory.empty())
                note.file = part.joined.directory + '/' + note.file;
            if (!note.tensor.empty()) note.tensor = part.joined.prefix + note.tensor;
            notes.push_back(std::move(note));
        }
    }
    return notes;
}

template <class Id>
const CatalogReader::Part* CatalogReader::partOf(Id id, Id Part::*first) const {
    for (auto part = parts_.rbegin(); part != parts_.rend(); ++part) {
        if (id >= (*part).*first) return &*part;
    }
    return nullptr;
}

Status CatalogReader::take(std::vector<JoinedPart> others) {
    CatalogBuilder builder(std::move(catalog_));
    Status status;
    for (JoinedPart& other : others) {
        const auto firstChunk = static_cast<ChunkId>(builder.chunkCount());
        const auto firstFile = static_cast<FileId>(builder.fileCount());
        const auto firstObject = static_cast<ObjectId>(builder.objectCount());
        status = builder.addAll(other.reader->catalog(), other.prefix, other.directory, other.role);
        if (!status.ok()) break;
        parts_.push_back({std::move(other), firstChunk, firstFile, firstObject});
    }
    catalog_ = std::move(builder).finish();
    return status;
}

Result<std::unique_ptr<Reader>> joinReaders(std::unique_ptr<Reader> first, std::vector<JoinedPart> others) {
    if (others.empty()) return first;
    auto* all = dynamic_cast<CatalogReader*>(first.get());
    if (!all) return makeError(ErrorCode::internal, "this reader takes no others");
    SHARDSCOPE_TRY(all->take(std::move(others)));
    return first;
}

namespace {

class EmptyReader final : public CatalogReader {
  public:
    EmptyReader(Catalog catalog, std::string directory)
        : CatalogReader(std::move(catalog), std::move(directory)) {}

  private:
    Result<Extent> extentOf(const ChunkInfo&) const override {
        return makeError(ErrorCode::internal, "there is no such chunk");
    }
    Result<std::shared_ptr<const ReadFile>> openPresent(const FileInfo&) const override {
        return makeError(ErrorCode::internal, "there is no such file");
    }
};

}  // namespace

std::unique_ptr<Reader> emptyReader(Catalog catalog, std::string directory) {
    return std::make_unique<EmptyReader>(std::move(catalog), std::move(directory));
}

}  // namespace shardscope
