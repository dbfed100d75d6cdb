#include "formats/paddle_dist/save_reader.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/checked.h"
#include "base/rule.h"
#include "encoding/paddle_file.h"
#include "formats/paddle_dist/names.h"
#include "formats/tensor_files.h"

namespace shardscope::paddle {

namespace {

constexpr std::string_view kStream("\0\0\0\0", 4);  // of the C++ tensor stream (use_binary_format)
constexpr uint64_t kProbed = 64 << 10;

bool hasPaddleEnding(std::string_view name) {
    for (std::string_view ending : {".pdparams", ".pdopt", ".pdt", ".pdstates", ".pd"}) {
        if (name.ends_with(ending)) return true;
    }
    return parseDataName(name).has_value() && name.ends_with(".distcp");
}

// Adds a tensor and its chunks: one, or one for each part of a split parameter.
Status addTensor(CatalogBuilder& builder, FileId file, uint32_t index, uint32_t number,
                 const StoredTensor& stored, StoredParts& parts) {
    if (stored.parts.empty()) return damaged("a split parameter has no parts");
    TensorInfo tensor;
    tensor.name = stored.name;
    tensor.path = stored.path;
    tensor.shape = stored.shape;
    tensor.dtype = stored.loadedAsTensor ? paddleDType(stored.dtype) : stored.dtype;
    tensor.role = roleOf(stored.name);
    tensor.aliasOf = stored.sameAs;
    SHARDSCOPE_TRY(builder.addTensor(tensor));
    StoredPart part = StoredPart::whole(index, number);
    part.bits = tensor.dtype;
    if (stored.parts.size() == 1 && stored.parts[0].shape == stored.shape) {
        parts.add(std::move(part));
        return builder.addWhole(0, file, stored.offset, stored.bytes);
    }
    const Dims zeros(stored.shape.size(), 0);
    int64_t whole = 0, at = 0;
    if (!checkedProduct(stored.shape, whole)) return damaged("the size of a split parameter overflows");
    for (const PaddleArray& array : stored.parts) {
        int64_t count = 0, end = 0;
        if (array.dtype != stored.dtype || array.columnMajor || !checkedProduct(array.shape, count) ||
            !checkedAdd(at, count, end) || end > whole)
            return damaged("the parts of a split parameter do not fit its shape")
                .byRule(rule::metaInconsistent);
        CatalogBuilder::Chunk chunk;
        chunk.rank = 0;
        chunk.file = file;
        chunk.offset = array.offset;
        chunk.length = array.length;
        chunk.offsets = zeros;
        chunk.lengths = stored.shape;
        chunk.flat = FlatRange{at, end};
        SHARDSCOPE_TRY(builder.addChunk(chunk));
        part.firstElement = at;
        part.elements = count;
        parts.add(part);
        at = end;
    }
    if (at != whole)
        return damaged(fmt::format("the parts of a split parameter have {} elements, its shape {} has {}", at,
                                   formatDims(stored.shape), whole))
            .byRule(rule::metaInconsistent);
    return {};
}

Result<std::string> rangeOf(const ReadFile& file, uint64_t offset, uint64_t length) {
    std::string bytes(static_cast<size_t>(std::min(length, file.size() - offset)), '\0');
    SHARDSCOPE_TRY(file.readAt(offset, std::as_writable_bytes(std::span(bytes))));
    return bytes;
}

}  // namespace

Probe probeSave(const Source& source) {
    if (source.entry.empty()) return {};
    const auto file = source.directory->openFile(source.entry);
    if (!file.ok()) return {};
    const auto head = rangeOf(**file, 0, kProbed);
    if (!head.ok()) return {};
    const bool named = hasPaddleEnding(source.entry);
    if (named && head->starts_with(kStream)) return {Probe::Match::certain, "a tensor stream of Paddle"};
    if (!startsAsPickle(*head)) return {};
    if (named) return {Probe::Match::certain, "a pickle with an ending of paddle.save"};
    bool table = head->find(kPaddleNameTable) != std::string::npos;
    if (!table && (*file)->size() > kProbed) {
        const uint64_t begin = (*file)->size() - kProbed;
        const auto tail = rangeOf(**file, begin, kProbed);
        table = tail.ok() && tail->find(kPaddleNameTable) != std::string::npos;
    }
    if (table) return {Probe::Match::certain, "a pickle with Paddle's table of parameter names"};
    return {};
}

Result<std::unique_ptr<Reader>> openSave(const Source& source, const OpenOptions& options) {
    if (!options.variant.empty()) {
        return makeError(
            ErrorCode::usage,
            fmt::format("'{}' is not a variant of a paddle.save file, which has none", options.variant));
    }
    SHARDSCOPE_ASSIGN(const auto file, source.directory->openFile(source.entry));
    SHARDSCOPE_ASSIGN(const std::string head, rangeOf(*file, 0, 16));
    if (head.empty()) return damaged("the file is empty", 0).inFile(file->path()).byRule(rule::fileTruncated);
    if (head.starts_with(kStream)) {
        return unsupported("a tensor stream of Paddle's C++ side (use_binary_format), which is not read")
            .inFile(file->path())
            .withHint("load it with paddle.load and save it again with paddle.save");
    }
    if (!startsAsPickle(head))
        return damaged("the file does not begin as a pickle of protocol 2 to 5", 0).inFile(file->path());
    auto files = std::make_unique<TensorFiles>(source, options, TensorFiles::Writer::paddle);
    SHARDSCOPE_ASSIGN(const uint32_t index, files->add(source.entry, 0));
    const TensorFile& saved = (*files)[index];
    CatalogBuilder builder("paddle", saved.variant, saved.writer);
    const FileId id = builder.addFile({.path = source.entry, .size = saved.size, .rank = 0});
    for (const Note& note : saved.notes)
        builder.addNote(note);
    builder.reserve(saved.tensors.size(), saved.tensors.size(), saved.tensors.size() * 4);
    StoredParts parts;
    for (uint32_t t = 0; t < saved.tensors.size(); ++t) {
        auto added = addTensor(builder, id, index, t, saved.tensors[t], parts);
        if (!added.ok()) return std::move(added).error().ofTensor(saved.tensors[t].name).inFile(file->path());
    }
    addObjects(builder, saved, id);
    return makePartReader(source, std::move(builder).finish(), std::move(files), std::move(parts));
}

}  // namespace shardscope::paddle
