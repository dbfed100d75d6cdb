#include <algorithm>

#include <fmt/format.h>

#include "base/checked.h"
#include "base/rule.h"
#include "base/units.h"
#include "encoding/paddle_file.h"
#include "formats/paddle_dist/layouts.h"
#include "formats/paddle_dist/names.h"
#include "formats/tensor_assembly.h"

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

// The pieces of a tensor: one, or one for each part of a split parameter.
Result<std::vector<TensorAssembly::Piece>> piecesOf(const StoredTensor& stored, uint32_t file,
                                                    uint32_t tensor) {
    if (stored.parts.empty()) return damaged("a split parameter has no parts");
    std::vector<TensorAssembly::Piece> pieces;
    if (stored.parts.size() == 1 && stored.parts[0].shape == stored.shape) {
        pieces.push_back({0, StoredPart::whole(file, tensor)});
        return pieces;
    }
    int64_t whole = 0, at = 0;
    if (!checkedProduct(stored.shape, whole)) return damaged("the size of a split parameter overflows");
    for (const PaddleArray& array : stored.parts) {
        int64_t count = 0, end = 0;
        if (array.dtype != stored.dtype || array.columnMajor || !checkedProduct(array.shape, count) ||
            !checkedAdd(at, count, end) || end > whole)
            return damaged("the parts of a split parameter do not fit its shape")
                .byRule(rule::metaInconsistent);
        pieces.push_back(TensorAssembly::Piece::range(0, file, tensor, at, {at, end}));
        at = end;
    }
    if (at != whole)
        return damaged(fmt::format("the parts of a split parameter have {}, its shape {} has {}",
                                   counted(at, "element"), formatDims(stored.shape), countText(whole)))
            .byRule(rule::metaInconsistent);
    return pieces;
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
    TensorAssembly assembly(source, options, "paddle", "", "", TensorFiles::Writer::paddle);
    SHARDSCOPE_ASSIGN(const uint32_t index, assembly.addFile(source.entry, kNone));
    const TensorFile& saved = assembly.files()[index];
    assembly.builder().file(saved.id).rank = 0;
    assembly.builder().setVariant(saved.variant);
    assembly.builder().setWriter(saved.writer);
    for (uint32_t t = 0; t < saved.tensors.size(); ++t) {
        const StoredTensor& stored = saved.tensors[t];
        auto pieces = piecesOf(stored, index, t);
        if (!pieces.ok()) return std::move(pieces).error().ofTensor(stored.name).inFile(file->path());
        const DType dtype = stored.loadedAsTensor ? paddleDType(stored.dtype) : stored.dtype;
        for (TensorAssembly::Piece& piece : *pieces) {
            piece.part.bits = dtype;
            assembly.addPiece(stored.path, dtype, stored.shape, roleOf(stored.name), std::move(piece));
        }
    }
    assembly.addObjects(index, {}, 0);
    return assembly.finish(1);
}

}  // namespace shardscope::paddle
