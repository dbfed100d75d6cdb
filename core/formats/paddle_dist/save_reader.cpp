#include "formats/paddle_dist/save_reader.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "base/checked.h"
#include "base/rule.h"
#include "encoding/paddle_file.h"
#include "formats/paddle_dist/names.h"
#include "formats/paddle_dist/rank_files.h"

namespace shardscope::paddle {

namespace {

constexpr std::string_view kNameTable = "StructuredToParameterName@@";
constexpr std::string_view kStream("\0\0\0\0", 4);  // of the C++ tensor stream (use_binary_format)
constexpr uint64_t kProbed = 64 << 10;

bool hasPaddleEnding(std::string_view name) {
    for (std::string_view ending : {".pdparams", ".pdopt", ".pdt", ".pdstates", ".pd"}) {
        if (name.ends_with(ending)) return true;
    }
    return parseDataName(name).has_value() && name.ends_with(".distcp");
}

class SaveReader final : public Reader {
  public:
    SaveReader(const Source& source, const OpenOptions& options, std::shared_ptr<const ReadFile> file)
        : fileName_(source.entry),
          file_(std::move(file)),
          places_(source.fileSystem, options.scratchDirectory, options.stop) {}

    Status build(PaddleFile saved) {
        CatalogBuilder builder("paddle", saved.tuples ? "save-tuples" : "save",
                               fmt::format("paddle.save, pickle protocol {}", saved.protocol));
        FileInfo info;
        info.path = fileName_;
        info.size = file_->size();
        info.rank = 0;
        const FileId file = builder.addFile(std::move(info));
        for (Note& note : saved.notes) {
            note.file = fileName_;
            builder.addNote(std::move(note));
        }
        builder.reserve(saved.entries.size(), saved.entries.size(), saved.entries.size() * 4);
        for (PaddleEntry& entry : saved.entries) {
            auto added = addEntry(builder, file, entry);
            if (!added.ok()) return std::move(added).error().ofTensor(entry.name).inFile(file_->path());
        }
        for (PaddleObject& object : saved.objects) {
            ObjectInfo out;
            out.name = std::move(object.name);
            out.path = std::move(object.path);
            out.rank = 0;
            out.file = file;
            out.value = std::move(object.value);
            builder.addObject(std::move(out));
        }
        catalog_ = std::move(builder).finish();
        return {};
    }

    const Catalog& catalog() const override { return catalog_; }

    Result<Extent> locate(ChunkId id) const override {
        if (id >= arrays_.size()) return makeError(ErrorCode::internal, "no such chunk");
        const PaddleArray& array = arrays_[id];
        auto place = places_.place(file_, array);
        if (!place.ok())
            return std::move(place)
                .error()
                .inFile(file_->path())
                .ofTensor(catalog_.name(catalog_.tensorOf(id)));
        Extent extent;
        extent.file = std::move(place->file);
        extent.offset = place->offset;
        extent.length = static_cast<uint64_t>(elementCount(array.shape)) * dtypeBytes(array.dtype);
        extent.swapBytes = array.bigEndian;
        if (array.columnMajor && extent.length > 0) {
            extent.strides.assign(array.shape.size(), 1);
            for (size_t k = 1; k < array.shape.size(); ++k)
                extent.strides[k] = extent.strides[k - 1] * array.shape[k - 1];
        }
        return extent;
    }

    Result<Value> objectValue(ObjectId object) const override { return catalog_.objects()[object].value; }
    Result<std::shared_ptr<const ReadFile>> openFile(FileId) const override { return file_; }

  private:
    Status addEntry(CatalogBuilder& builder, FileId file, PaddleEntry& entry) {
        TensorInfo tensor;
        tensor.name = entry.name;
        tensor.path = std::move(entry.path);
        tensor.shape = entry.shape;
        if (entry.parts.empty()) return damaged("a split parameter has no parts");
        const DType stored = entry.parts[0].dtype;
        tensor.dtype = entry.tensor ? paddleDType(stored) : stored;
        tensor.role = roleOf(entry.name);
        if (entry.sameAs != kNone) tensor.aliasOf = entry.sameAs;
        SHARDSCOPE_TRY(builder.addTensor(tensor));
        if (entry.parts.size() == 1 && entry.parts[0].shape == entry.shape) {
            SHARDSCOPE_TRY(builder.addWhole(0, file, entry.parts[0].offset, entry.parts[0].length));
            arrays_.push_back(std::move(entry.parts[0]));
            return {};
        }
        // The parts of a big parameter follow each other in its row-major order.
        const Dims zeros(entry.shape.size(), 0);
        int64_t whole = 0, at = 0;
        if (!checkedProduct(entry.shape, whole)) return damaged("the size of a split parameter overflows");
        for (PaddleArray& part : entry.parts) {
            int64_t count = 0, end = 0;
            if (part.dtype != stored || part.columnMajor || !checkedProduct(part.shape, count) ||
                !checkedAdd(at, count, end) || end > whole)
                return damaged("the parts of a split parameter do not fit its shape")
                    .byRule(rule::metaInconsistent);
            CatalogBuilder::Chunk chunk;
            chunk.rank = 0;
            chunk.file = file;
            chunk.offset = part.offset;
            chunk.length = part.length;
            chunk.offsets = zeros;
            chunk.lengths = entry.shape;
            chunk.flat = FlatRange{at, end};
            SHARDSCOPE_TRY(builder.addChunk(chunk));
            arrays_.push_back(std::move(part));
            at = end;
        }
        if (at != whole)
            return damaged(fmt::format("the parts of a split parameter have {} elements, its shape {} has {}",
                                       at, formatDims(entry.shape), whole))
                .byRule(rule::metaInconsistent);
        return {};
    }

    std::string fileName_;
    std::shared_ptr<const ReadFile> file_;
    PaddleArrayPlaces places_;
    Catalog catalog_;
    std::vector<PaddleArray> arrays_;  // by ChunkId
};

Result<std::string> stretch(const ReadFile& file, uint64_t offset, uint64_t length) {
    std::string bytes(static_cast<size_t>(std::min(length, file.size() - offset)), '\0');
    SHARDSCOPE_TRY(file.readAt(offset, std::as_writable_bytes(std::span(bytes))));
    return bytes;
}

}  // namespace

Probe probeSave(const Source& source) {
    if (source.entry.empty()) return {};
    const auto file = source.directory->openFile(source.entry);
    if (!file.ok()) return {};
    const auto head = stretch(**file, 0, kProbed);
    if (!head.ok()) return {};
    const bool named = hasPaddleEnding(source.entry);
    if (named && head->starts_with(kStream)) return {Probe::Match::certain, "a tensor stream of Paddle"};
    if (!startsAsPickle(*head)) return {};
    if (named) return {Probe::Match::certain, "a pickle with an ending of paddle.save"};
    bool table = head->find(kNameTable) != std::string::npos;
    if (!table && (*file)->size() > kProbed) {
        const uint64_t begin = (*file)->size() - kProbed;
        const auto tail = stretch(**file, begin, kProbed);
        table = tail.ok() && tail->find(kNameTable) != std::string::npos;
    }
    if (table) return {Probe::Match::certain, "a pickle with Paddle's table of parameter names"};
    return {};
}

Result<std::unique_ptr<Reader>> openSave(const Source& source, const OpenOptions& options) {
    if (!options.variant.empty()) {
        return makeError(
            ErrorCode::usage,
            fmt::format("'{}' is no variant of a paddle.save file, which has none", options.variant));
    }
    SHARDSCOPE_ASSIGN(auto file, source.directory->openFile(source.entry));
    SHARDSCOPE_ASSIGN(const std::string head, stretch(*file, 0, 16));
    if (head.empty()) return damaged("the file is empty", 0).inFile(file->path()).byRule(rule::fileTruncated);
    if (head.starts_with(kStream)) {
        return unsupported("a tensor stream of Paddle's C++ side (use_binary_format), which is not read")
            .inFile(file->path())
            .withHint("load it with paddle.load and save it again with paddle.save");
    }
    if (!startsAsPickle(head))
        return damaged("the file does not begin as a pickle of protocol 2 to 5", 0).inFile(file->path());
    PaddleFileLimits limits;
    limits.outlineBytes = options.limits.pickleBytes;
    limits.objectBytes = options.limits.objectBytes;
    SHARDSCOPE_ASSIGN(PaddleFile saved, readPaddleFile(*file, limits, options.stop));
    auto reader = std::make_unique<SaveReader>(source, options, std::move(file));
    SHARDSCOPE_TRY(reader->build(std::move(saved)));
    return std::unique_ptr<Reader>(std::move(reader));
}

}  // namespace shardscope::paddle
