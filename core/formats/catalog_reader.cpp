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
    auto extent = extentOf(chunk);
    if (extent.ok()) return extent;
    Error error = std::move(extent).error();
    if (chunk.file != kNone) error = std::move(error).inFile(catalog_.files()[chunk.file].path);
    return std::move(error).ofTensor(catalog_.name(chunk.tensor));
}

Result<Value> CatalogReader::objectValue(ObjectId id) const {
    if (id >= catalog_.objects().size()) return makeError(ErrorCode::internal, "there is no such object");
    return valueOf(id);
}

Result<std::shared_ptr<const ReadFile>> CatalogReader::openFile(FileId id) const {
    if (id >= catalog_.files().size()) return makeError(ErrorCode::internal, "there is no such file");
    SHARDSCOPE_TRY(checkState(catalog_.files()[id]));
    return openPresent(catalog_.files()[id]);
}

}  // namespace shardscope
