#include "formats/tensor_files.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>

#include <fmt/format.h>

#include "base/checked.h"
#include "base/rule.h"
#include "base/units.h"
#include "encoding/pickle_globals.h"
#include "encoding/safetensors_header.h"
#include "encoding/torch_file.h"
#include "formats/catalog_reader.h"

namespace shardscope {

namespace {

constexpr size_t kPiece = size_t{64} << 10;

Status checkInside(const Extent& extent) {
    if (rangeFits(extent.offset, extent.length, extent.file->size())) return {};
    return damaged(fmt::format("it has {} and ends at byte {}, the file at byte {}",
                               counted(extent.length, "byte"), countText(extent.offset + extent.length),
                               countText(extent.file->size())),
                   extent.offset)
        .inFile(extent.file->path())
        .byRule(rule::fileTruncated)
        .withHint("the file is truncated; fetch it again or take it from another copy");
}

class PartReader final : public CatalogReader {
  public:
    PartReader(const Source& source, Catalog catalog, std::unique_ptr<TensorFiles> files, FindPart findPart,
               FindNotes findNotes)
        : CatalogReader(std::move(catalog), source.directory->path()),
          files_(std::move(files)),
          findPart_(std::move(findPart)),
          findNotes_(std::move(findNotes)) {}

  private:
    Result<std::vector<Note>> ownNotes() const override {
        return findNotes_ ? findNotes_(catalog()) : std::vector<Note>{};
    }

    Result<Extent> extentOf(const ChunkInfo& chunk) const override {
        if (chunk.file != kNone) {
            SHARDSCOPE_TRY(checkState(catalog().files()[chunk.file]));
            if (const Error* why = files_->whyBroken(chunk.file)) return Error(*why);
        }
        if (!findPart_) return asStated(chunk);
        SHARDSCOPE_ASSIGN(const StoredPart part, findPart_(catalog(), chunk));
        if (part.file == kNone) {
            if (chunk.elements() == 0) return Extent{};
            return damaged("the file does not hold this chunk").byRule(rule::metaInconsistent);
        }
        const StoredTensor& stored = (*files_)[part.file].tensors[part.tensor];
        const DType wanted = catalog().dtype(chunk.tensor);
        if (part.bits.value_or(stored.dtype) != part.storedAs.value_or(wanted)) {
            return wrong(fmt::format("its chunk here is {}, the tensor is {}", dtypeName(stored.dtype),
                                     dtypeName(wanted)));
        }
        const Dims& box = part.lengths.empty() ? stored.shape : part.lengths;
        const bool sameBox = part.elements < 0 && std::ranges::equal(box, chunk.lengths);
        int64_t count = part.elements;
        if (count < 0 && !checkedProduct(box, count)) return wrong("the size of its chunk here overflows");
        if (count != chunk.elements() ||
            (part.elements < 0 && part.lengths.empty() && !chunk.flat && !sameBox)) {
            return wrong(fmt::format("its chunk here has shape {}, the metadata says {}",
                                     formatDims(stored.shape), formatDims(chunk.lengths)));
        }
        SHARDSCOPE_ASSIGN(Extent extent, files_->extent(part));
        if (!extent.strides.empty() && (chunk.flat || !sameBox))
            return unsupported(
                "the stored elements are not contiguous, and the chunk is not a box of the same lengths");
        return extent;
    }

    static Error wrong(std::string message) {
        return damaged(std::move(message)).byRule(rule::metaInconsistent);
    }

    Result<Extent> asStated(const ChunkInfo& chunk) const {
        const FileInfo& info = catalog().files()[chunk.file];
        Extent extent;
        SHARDSCOPE_ASSIGN(extent.file, files_->handle(info.path, info.size));
        extent.offset = chunk.offset;
        extent.length = chunk.length;
        SHARDSCOPE_TRY(checkInside(extent));
        return extent;
    }

    Result<std::shared_ptr<const ReadFile>> openPresent(const FileInfo& file) const override {
        return files_->handle(file.path, file.size);
    }

    const std::unique_ptr<TensorFiles> files_;
    const FindPart findPart_;  // empty: chunks are the raw bytes that the catalog states
    const FindNotes findNotes_;
};

}  // namespace

void StoredParts::add(StoredPart part) {
    if (part.offsets.empty() && part.lengths.empty() && part.strides.empty() && part.zeros.empty()) {
        plain_.push_back(
            {part.file, part.tensor, part.firstElement, part.elements, part.storedAs, part.bits});
    } else {
        plain_.push_back({kOther, static_cast<uint32_t>(others_.size()), 0, -1, {}, {}});
        others_.push_back(std::move(part));
    }
}

StoredPart StoredParts::operator[](size_t index) const {
    const Plain& plain = plain_[index];
    if (plain.file == kOther) return others_[plain.tensor];
    return {plain.file, plain.tensor, {}, {}, plain.firstElement, plain.elements, plain.storedAs, plain.bits};
}

uint32_t TensorFile::find(std::string_view wanted) const {
    const auto it = std::lower_bound(byName.begin(), byName.end(), wanted,
                                     [&](uint32_t t, std::string_view n) { return tensors[t].name < n; });
    return it != byName.end() && tensors[*it].name == wanted ? *it : kNone;
}

bool isSafetensorsStart(const ReadFile& file) {
    unsigned char head[10] = {};
    if (file.size() < sizeof head || !file.readAt(0, std::as_writable_bytes(std::span(head))).ok())
        return false;
    uint64_t length = 0;
    for (size_t i = 8; i-- > 0;)
        length = length << 8 | head[i];
    return length >= 2 && length <= file.size() - 8 && head[8] == '{' &&
           (head[9] == '"' || head[9] == '}' || head[9] == ' ');
}

Value pickledValue(std::string_view bytes, const Limits& limits) {
    if (bytes.size() < 3 || bytes[0] != '\x80' || bytes[1] < 2 || bytes[1] > 5 || bytes.back() != '.')
        return {};
    const PickleLimits pickleLimits{.textBytes = limits.pickleText, .memory = limits.valueMemory};
    auto pickle = decodePickle(std::as_bytes(std::span(bytes)), pickleLimits);
    if (!pickle.ok() || pickle->length != bytes.size()) return {};
    const NodeId root = pickle->root;
    return makeValue(std::move(pickle->graph), root);
}

const TensorFile& TensorFiles::operator[](uint32_t index) const {
    std::lock_guard lock(mutex_);
    return *files_[index];
}

void TensorFiles::setPlace(uint32_t index, FileId id) {
    std::lock_guard lock(mutex_);
    files_[index]->id = id;
}

void TensorFiles::forgetNames(uint32_t index) {
    std::lock_guard lock(mutex_);
    TensorFile& file = *files_[index];
    for (StoredTensor& tensor : file.tensors) {
        std::string().swap(tensor.name);
        Path().swap(tensor.path);
    }
    std::vector<StoredObject>().swap(file.objects);
    std::vector<SpecialTensor>().swap(file.specials);
    std::vector<torch_save::TensorPlacement>().swap(file.placements);
    std::vector<uint32_t>().swap(file.byName);
    if (file.zip) std::vector<uint32_t>().swap(file.zip->byName);
}

uint32_t TensorFiles::size() const {
    std::lock_guard lock(mutex_);
    return static_cast<uint32_t>(files_.size());
}

Result<uint32_t> TensorFiles::add(const std::string& name, FileId id) {
    std::shared_ptr<Slot> slot;
    {
        std::lock_guard lock(mutex_);
        auto& known = slots_[name];
        if (!known) known = std::make_shared<Slot>();
        slot = known;
    }
    std::lock_guard lock(slot->mutex);
    if (!slot->added) {
        auto added = read(name, id);
        if (!added.ok() && added.error().code == ErrorCode::cancelled) return added;
        slot->added = std::move(added);
    }
    return *slot->added;
}

Result<uint32_t> TensorFiles::read(const std::string& name, FileId id) {
    SHARDSCOPE_TRY(options_.stop.poll());
    auto file = std::make_unique<TensorFile>();
    file->name = name;
    file->id = id;
    SHARDSCOPE_ASSIGN(auto handle, openFiles_.open(name));
    file->size = handle->size();
    std::string head;
    if (writer_ != Writer::torch) {
        head.resize(static_cast<size_t>(std::min<uint64_t>(file->size, 16)));
        SHARDSCOPE_TRY(handle->readAt(0, std::as_writable_bytes(std::span(head))));
    }
    // By content: Paddle 3.2 writes safetensors into files named .distcp.
    if (name.ends_with(".safetensors") || isSafetensorsStart(*handle) ||
        (head.size() > 8 && head[0] != '\x80' && head[8] == '{')) {
        SHARDSCOPE_TRY(addSafetensors(*file, *handle));
    } else if (writer_ != Writer::torch) {
        SHARDSCOPE_TRY(addPaddle(*file, *handle, head));
    } else {
        SHARDSCOPE_TRY(addTorch(*file, std::move(handle)));
    }
    file->byName.resize(file->tensors.size());
    std::iota(file->byName.begin(), file->byName.end(), 0U);
    std::stable_sort(file->byName.begin(), file->byName.end(),
                     [&](uint32_t a, uint32_t b) { return file->tensors[a].name < file->tensors[b].name; });
    for (auto* notes : {&file->notes, &file->recordNotes}) {
        for (Note& note : *notes) {
            if (note.file.empty()) note.file = name;
        }
    }
    std::lock_guard lock(mutex_);
    files_.push_back(std::move(file));
    return static_cast<uint32_t>(files_.size() - 1);
}

Status TensorFiles::addSafetensors(TensorFile& file, const ReadFile& handle) {
    SHARDSCOPE_ASSIGN(safetensors::Header header,
                      safetensors::readHeader(handle, options_.limits.safetensorsHeader));
    file.kind = TensorFile::Kind::safetensors;
    if (header.dataEnd > header.fileSize) {
        file.notes.push_back({rule::fileTruncated,
                              Severity::error,
                              fmt::format("the header declares {}, the file has {}: {} too few",
                                          counted(header.dataEnd, "byte"), countText(header.fileSize),
                                          countText(header.dataEnd - header.fileSize)),
                              {},
                              {},
                              header.fileSize});
    }
    file.tensors.reserve(header.tensors.size());
    file.places.reserve(header.tensors.size());
    for (size_t t = 0; t < header.tensors.size(); ++t) {
        const safetensors::HeaderTensor& from = header.tensors[t];
        StoredTensor tensor;
        tensor.name = header.names[t];
        tensor.path = {keyPart(tensor.name)};
        tensor.dtype = from.dtype;
        const DimSpan shape = header.shape(t);
        tensor.shape.assign(shape.begin(), shape.end());
        tensor.offset = header.dataStart + from.begin;
        tensor.bytes = from.end - from.begin;
        file.tensors.push_back(std::move(tensor));
        file.places.push_back(
            {nullptr, header.dataStart + from.begin, from.end - from.begin, {}, false, false});
    }
    file.texts = std::move(header.metadata);
    return {};
}

Status TensorFiles::addTorch(TensorFile& file, std::shared_ptr<const ReadFile> handle) {
    const std::string path = handle->path();
    SHARDSCOPE_ASSIGN(
        torch_save::Opened opened,
        torch_save::openTorchFile(std::move(handle), {options_.limits.pickleText, options_.limits.pickleBytes,
                                                      options_.limits.valueMemory, options_.stop}));
    auto walked = torch_save::walk(opened.pickle.graph, opened.pickle.root, opened.pickle.length);
    if (!walked.ok()) return std::move(walked).error().inFile(path);
    torch_save::Found found = std::move(walked).value();
    const auto storages = torch_save::allStorages(opened.pickle.graph);
    if (!storages.ok()) return Error(storages.error()).inFile(path);

    file.variant = opened.variant;
    file.writer = opened.writer;
    file.recordNotes = torch_save::recordNotes(opened, *storages);
    file.bigEndian = opened.bigEndian;
    file.notes = globalNotes(opened.pickle.globals);
    file.notes.insert(file.notes.end(), opened.notes.begin(), opened.notes.end());
    file.notes.insert(file.notes.end(), found.notes.begin(), found.notes.end());
    file.specials = std::move(found.specials);
    file.placements = std::move(found.placements);
    file.writtenBy = torch_save::writerOf(opened.pickle.graph, found);
    std::unordered_map<std::string, uint32_t> same;
    file.tensors.reserve(found.tensors.size());
    file.places.reserve(found.tensors.size());
    for (torch_save::FoundTensor& from : found.tensors) {
        auto place = torch_save::findStorage(opened, from.tensor.storage);
        if (!place.ok()) return std::move(place).error().ofTensor(from.name).inFile(path);
        auto span = storageSpan(from.tensor);
        if (!span.ok()) return std::move(span).error().ofTensor(from.name).inFile(path);
        StoredTensor tensor;
        tensor.dtype = from.tensor.dtype;
        tensor.shape = from.tensor.shape;
        tensor.special = from.special;
        tensor.buffer = from.buffer;
        tensor.shardOffsets = std::move(from.shardOffsets);
        const auto [it, fresh] = same.try_emplace(
            fmt::format("{}/{}/{}/{}/{}/{}/{}", from.tensor.storage.key, from.tensor.storageOffset,
                        formatDims(tensor.shape), formatDims(from.tensor.strides), dtypeName(tensor.dtype),
                        from.tensor.conjugate, from.tensor.negate),
            static_cast<uint32_t>(file.tensors.size()));
        if (!fresh) tensor.sameAs = it->second;
        TensorFile::ElementExtent at;
        at.entry = place->entry;
        at.first = span->first + place->offset;
        at.length = span->last - span->first;
        if (!from.tensor.rowMajor()) at.strides = from.tensor.strides;
        at.conjugate = from.tensor.conjugate;
        at.negate = from.tensor.negate;
        tensor.offset = at.entry ? at.entry->headerOffset : at.first;
        tensor.bytes = at.entry ? at.entry->compressedSize : at.length;
        tensor.name = std::move(from.name);
        tensor.path = std::move(from.path);
        file.tensors.push_back(std::move(tensor));
        file.places.push_back(std::move(at));
    }
    std::vector<NodeId*> nodes;
    for (torch_save::FoundObject& object : found.objects)
        nodes.push_back(&object.node);
    const auto graph = torch_save::keepValues(std::move(opened.pickle.graph), nodes);
    for (torch_save::FoundObject& object : found.objects)
        file.objects.push_back({std::move(object.name), std::move(object.path), {graph, object.node}});
    file.zip = std::move(opened.zip);
    if (file.zip) {
        file.zip->file = nullptr;
        file.zip->head = nullptr;
        file.zip->tail = nullptr;
    }
    return {};
}

Status TensorFiles::addPaddle(TensorFile& file, const ReadFile& handle, std::string_view head) {
    if (head.empty()) {
        return damaged("the file is empty", 0)
            .inFile(handle.path())
            .byRule(rule::fileTruncated)
            .withHint("the save died before it wrote this file");
    }
    if (!startsAsPickle(head) && head.size() >= 2)
        return damaged("the file begins neither as a pickle nor as safetensors", 0).inFile(handle.path());
    PaddleFileLimits limits;
    limits.outlineBytes = options_.limits.pickleBytes;
    limits.objectBytes = options_.limits.objectBytes;
    limits.objects = writer_ != Writer::paddleTensorsOnly;
    SHARDSCOPE_ASSIGN(PaddleFile saved, readPaddleFile(handle, limits, options_.stop));
    file.kind = TensorFile::Kind::paddle;
    file.variant = saved.tuples ? "save-tuples" : "save";
    file.writer = fmt::format("paddle.save, pickle protocol {}", saved.protocol);
    file.notes = std::move(saved.notes);
    file.tensors.reserve(saved.entries.size());
    for (PaddleEntry& entry : saved.entries) {
        StoredTensor tensor;
        tensor.name = std::move(entry.name);
        tensor.path = std::move(entry.path);
        tensor.shape = std::move(entry.shape);
        tensor.sameAs = entry.sameAs;
        tensor.parts = std::move(entry.parts);
        tensor.parameter = std::move(entry.parameter);
        tensor.loadedAsTensor = entry.tensor;
        if (!tensor.parts.empty()) {
            tensor.dtype = tensor.parts[0].dtype;
            tensor.offset = tensor.parts[0].offset;
            tensor.bytes = tensor.parts[0].length;
        }
        file.tensors.push_back(std::move(tensor));
    }
    for (PaddleObject& object : saved.objects)
        file.objects.push_back({std::move(object.name), std::move(object.path), std::move(object.value)});
    return {};
}

Result<std::shared_ptr<const ReadFile>> TensorFiles::handle(const std::string& name, uint64_t size) const {
    auto file = openFiles_.open(name);
    if (!file.ok()) return file;
    if ((*file)->size() != size) {
        return makeError(ErrorCode::changed, fmt::format("the file had {} when it was opened, now it has {}",
                                                         counted(size, "byte"), countText((*file)->size())))
            .inFile((*file)->path());
    }
    return file;
}

// Makes an extent relative to a record of a zip archive one of a file.
Status TensorFiles::readRecord(const TensorFile& file, const TensorFile::ElementExtent& place,
                               Extent& extent) const {
    const ZipEntry& entry = *place.entry;
    ZipArchive zip;
    zip.file = extent.file;
    zip.length = file.zip->length;
    zip.directoryOffset = file.zip->directoryOffset;
    if (entry.method == 0) {
        SHARDSCOPE_ASSIGN(const uint64_t offset, zipDataOffset(zip, entry));
        extent.offset += offset;
        if (entry.size > 0 && zipHasCrc(entry))
            extent.checksum = StoredChecksum{offset, entry.size, entry.crc32};
        return {};
    }
    SHARDSCOPE_ASSIGN(
        extent.file,
        unpacked_.get({fmt::format("record {} {}", entry.headerOffset, file.name), zip.file, entry.size},
                      [&](const Materialized::Sink& sink) {
                          return streamZipEntry(zip, entry, UINT64_MAX,
                                                [&](std::span<const std::byte> piece) -> Status {
                                                    SHARDSCOPE_TRY(options_.stop.poll());
                                                    return sink(piece);
                                                });
                      }));
    return {};
}

// An extent of at least the elements [first, stop) of a tensor, in its row-major order.
Result<TensorFiles::Elements> TensorFiles::elementsOf(const TensorFile& file, uint32_t tensor, int64_t first,
                                                      int64_t stop) const {
    const StoredTensor& stored = file.tensors[tensor];
    Elements out;
    Extent& extent = out.extent;
    SHARDSCOPE_ASSIGN(extent.file, handle(file.name, file.size));
    if (file.kind != TensorFile::Kind::paddle) {
        const TensorFile::ElementExtent& place = file.places[tensor];
        extent.offset = place.first;
        extent.length = place.length;
        extent.strides = place.strides;
        extent.swapBytes = file.bigEndian && dtypeSwapUnit(stored.dtype) > 1;
        extent.conjugate = place.conjugate;
        extent.negate = place.negate;
        if (place.entry) SHARDSCOPE_TRY(readRecord(file, place, extent));
        return out;
    }
    // A range inside one part of a split parameter is read there; otherwise the parts are joined.
    const PaddleArray* array = nullptr;
    int64_t at = 0, end = 0;
    for (const PaddleArray& part : stored.parts) {
        int64_t count = 0;
        if (!checkedProduct(part.shape, count) || !checkedAdd(at, count, end)) break;
        if (at <= first && stop <= end && part.dtype == stored.dtype &&
            (!part.columnMajor || part.shape == stored.shape)) {
            array = &part;
            out.first = at;
            break;
        }
        at = end;
    }
    SHARDSCOPE_ASSIGN(PaddleExtent place, array ? placeOfArray(extent.file, *array, unpacked_, options_.stop)
                                                : placeOfParts(extent.file, stored.name, stored.shape,
                                                               stored.parts, unpacked_, options_.stop));
    extent.file = std::move(place.file);
    extent.offset = place.offset;
    extent.length =
        static_cast<uint64_t>(elementCount(array ? array->shape : stored.shape)) * dtypeBytes(stored.dtype);
    extent.swapBytes = (array ? *array : stored.parts[0]).bigEndian && dtypeSwapUnit(stored.dtype) > 1;
    if (array && array->columnMajor && extent.length > 0) {
        extent.strides.assign(stored.shape.size(), 1);
        for (size_t d = 1; d < stored.shape.size(); ++d)
            extent.strides[d] = extent.strides[d - 1] * stored.shape[d - 1];
    }
    return out;
}

Result<Extent> TensorFiles::extent(const StoredPart& part) const {
    const TensorFile& file = (*this)[part.file];
    const StoredTensor& stored = file.tensors[part.tensor];
    const auto outside = [&](const std::string& what) -> Error {
        return damaged(fmt::format("{} a tensor of shape {}", what, formatDims(stored.shape)))
            .inFile(file.name)
            .byRule(rule::metaInconsistent);
    };
    int64_t total = 0;
    if (!checkedProduct(stored.shape, total)) return outside("the size overflows of");
    // The elements that it spans in the tensor's row-major order.
    const bool range = part.elements >= 0, strided = !range && !part.strides.empty();
    const bool box = !range && !strided && !part.lengths.empty();
    const Dims rowMajor = rowMajorStrides(stored.shape);
    int64_t first = range || strided ? part.firstElement : 0, stop = total;
    if (range) {
        if (first < 0 || first > total || part.elements > total - first)
            return outside(fmt::format("elements {} to {} of", first, first + part.elements));
        stop = first + part.elements;
    } else if (strided || box) {
        const Dims& strides = strided ? part.strides : rowMajor;
        if (strides.size() != part.lengths.size() || (box && part.offsets.size() != strides.size()))
            return outside("a box of another rank in");
        int64_t last = first;
        bool empty = false;
        for (size_t d = 0; d < strides.size(); ++d) {
            if (box && (part.offsets[d] < 0 || part.lengths[d] < 0 ||
                        part.lengths[d] > stored.shape[d] - part.offsets[d]))
                return outside(fmt::format("the box {} in", formatBox(part.offsets, part.lengths)));
            empty = empty || part.lengths[d] == 0;
            first += box ? part.offsets[d] * strides[d] : 0;
            last += ((box ? part.offsets[d] : 0) + part.lengths[d] - 1) * strides[d];
        }
        if (empty) first = 0;
        stop = empty ? 0 : last + 1;
        if (first < 0 || stop < first || stop > total)
            return outside(fmt::format("elements {} to {} of", first, stop));
    }
    const uint64_t width = dtypeBits(stored.dtype) / 8;
    if ((range || strided || box) && dtypeBits(stored.dtype) % 8 != 0)
        return unsupported(fmt::format("a part of a {} tensor", dtypeName(stored.dtype))).inFile(file.name);

    SHARDSCOPE_ASSIGN(Elements from, elementsOf(file, part.tensor, first, stop));
    Extent& extent = from.extent;
    extent.storedAs = part.storedAs;
    if (box && !extent.strides.empty()) {
        // Not contiguous: the box at the strides of the stored tensor.
        first = 0;
        stop = 1;
        for (size_t d = 0; d < part.lengths.size(); ++d) {
            first += part.offsets[d] * extent.strides[d];
            stop += (part.offsets[d] + part.lengths[d] - 1) * extent.strides[d];
        }
        if (elementCount(part.lengths) == 0) first = stop = 0;
    } else if (box || strided) {
        extent.strides = strided ? part.strides : rowMajor;
    } else if (range && !extent.strides.empty()) {
        return unsupported("a flat range of a stored tensor whose elements are not contiguous")
            .inFile(file.name);
    }
    if (range || strided || box) {
        extent.offset += static_cast<uint64_t>(first - from.first) * width;
        extent.length = static_cast<uint64_t>(stop - first) * width;
        if (!range && extent.strides == rowMajorStrides(part.lengths)) extent.strides.clear();
    }
    SHARDSCOPE_TRY(checkInside(extent));
    for (const StoredPart& zeros : part.zeros)
        SHARDSCOPE_TRY(checkZeros(zeros));
    return std::move(extent);
}

// Padding holds zeros. Anything else means that the size of the tensor is not what the catalog says.
Status TensorFiles::checkZeros(const StoredPart& part) const {
    const TensorFile& file = (*this)[part.file];
    const StoredTensor& stored = file.tensors[part.tensor];
    SHARDSCOPE_ASSIGN(const Extent extent, this->extent(part));
    std::string buffer;
    for (uint64_t at = 0; at < extent.length; at += buffer.size()) {
        buffer.resize(static_cast<size_t>(std::min<uint64_t>(kPiece, extent.length - at)));
        SHARDSCOPE_TRY(extent.file->readAt(extent.offset + at, std::as_writable_bytes(std::span(buffer))));
        const size_t other = buffer.find_first_not_of('\0');
        if (other == buffer.npos) continue;
        const uint64_t width = dtypeBytes(stored.dtype), element = (at + other) / width;
        Error error =
            damaged(fmt::format("element {} of the {} in '{}' is padding behind the parameter's end and "
                                "should be zero, but is not",
                                countText(static_cast<uint64_t>(part.firstElement) + element),
                                countText(elementCount(stored.shape)), file.name));
        SHARDSCOPE_ASSIGN(const auto opened, handle(file.name, file.size));
        if (extent.file == opened) error.location.offset = extent.offset + element * width;
        return std::move(error)
            .inFile(opened->path())
            .byRule(rule::metaInconsistent)
            .withHint("the shape that the metadata or the weights give may be that of another save");
    }
    return {};
}

const Error* TensorFiles::whyBroken(FileId id) const {
    const auto it = broken_.find(id);
    return it == broken_.end() ? nullptr : &it->second;
}

Result<std::string> TensorFiles::bytesOf(uint32_t file, uint32_t tensor) const {
    SHARDSCOPE_ASSIGN(const Extent extent, this->extent(StoredPart::whole(file, tensor)));
    if (extent.length > options_.limits.objectBytes || !extent.strides.empty()) {
        return makeError(ErrorCode::limit,
                         fmt::format("an object of {} is longer than the {} that are read",
                                     counted(extent.length, "byte"), countText(options_.limits.objectBytes)))
            .inFile((*this)[file].name);
    }
    std::string bytes(extent.length, '\0');
    SHARDSCOPE_TRY(extent.file->readAt(extent.offset, std::as_writable_bytes(std::span(bytes))));
    return bytes;
}

bool TensorFiles::sameChecksum(uint32_t file, uint32_t tensor, uint32_t otherFile, uint32_t other) const {
    const TensorFile &a = (*this)[file], &b = (*this)[otherFile];
    const StoredTensor &one = a.tensors[tensor], &two = b.tensors[other];
    if (one.dtype != two.dtype || one.shape != two.shape || a.kind != TensorFile::Kind::torch ||
        b.kind != TensorFile::Kind::torch)
        return false;
    const TensorFile::ElementExtent &x = a.places[tensor], &y = b.places[other];
    return x.entry && y.entry && zipHasCrc(*x.entry) && zipHasCrc(*y.entry) &&
           x.entry->crc32 == y.entry->crc32 && x.entry->size == y.entry->size && x.first == y.first &&
           x.length == y.length && x.strides == y.strides;
}

std::optional<bool> TensorFiles::equal(uint32_t file, uint32_t tensor, uint32_t otherFile,
                                       uint32_t other) const {
    constexpr uint64_t kMostCompared = uint64_t{1} << 20;  // bytes
    constexpr int64_t kSample = 4096;                      // elements
    const StoredTensor &one = (*this)[file].tensors[tensor], &two = (*this)[otherFile].tensors[other];
    if (one.dtype != two.dtype || one.shape != two.shape) return false;
    if (sameChecksum(file, tensor, otherFile, other)) return true;
    const int64_t elements = elementCount(one.shape);
    const auto size = static_cast<uint64_t>(elements) * dtypeBits(one.dtype) / 8;
    if (size <= kMostCompared) {
        const auto bytes = bytesOf(file, tensor), others = bytesOf(otherFile, other);
        if (!bytes.ok() || !others.ok()) return std::nullopt;
        return *bytes == *others;
    }
    for (const int64_t at : {int64_t{0}, (elements - kSample) / 2, elements - kSample}) {
        const auto bytes = bytesAt(StoredPart::range(file, tensor, at, kSample));
        const auto others = bytesAt(StoredPart::range(otherFile, other, at, kSample));
        if (!bytes || !others) return std::nullopt;
        if (*bytes != *others) return false;
    }
    return std::nullopt;
}

bool TensorFiles::partsDiffer(const StoredPart& part, const StoredPart& other) const {
    constexpr uint64_t kSample = 4096;  // bytes
    const auto one = extent(part), two = extent(other);
    if (!one.ok() || !two.ok() || one->length != two->length || one->length == 0) return false;
    for (const auto& place : {&*one, &*two}) {
        if (!place->strides.empty() || place->conjugate || place->negate) return false;
    }
    const uint64_t size = std::min(one->length, kSample);
    std::string left(size, '\0'), right(size, '\0');
    for (const uint64_t at : {uint64_t{0}, one->length - size}) {
        if (!one->file->readAt(one->offset + at, std::as_writable_bytes(std::span(left))).ok() ||
            !two->file->readAt(two->offset + at, std::as_writable_bytes(std::span(right))).ok())
            return false;
        if (left != right) return true;
    }
    return false;
}

std::optional<std::string> TensorFiles::bytesAt(const StoredPart& part) const {
    const auto place = extent(part);
    if (!place.ok() || !place->strides.empty() || place->conjugate || place->negate) return std::nullopt;
    std::string bytes(place->length, '\0');
    const Status read = place->file->readAt(place->offset, std::as_writable_bytes(std::span(bytes)));
    return read.ok() ? std::optional(std::move(bytes)) : std::nullopt;
}

std::unique_ptr<Reader> makePartReader(const Source& source, Catalog catalog,
                                       std::unique_ptr<TensorFiles> files, FindPart findPart,
                                       FindNotes findNotes) {
    return std::make_unique<PartReader>(source, std::move(catalog), std::move(files), std::move(findPart),
                                        std::move(findNotes));
}

std::unique_ptr<Reader> makePartReader(const Source& source, Catalog catalog,
                                       std::unique_ptr<TensorFiles> files, StoredParts parts,
                                       FindNotes findNotes) {
    return makePartReader(
        source, std::move(catalog), std::move(files),
        [parts = std::move(parts)](const Catalog&, const ChunkInfo& chunk) -> Result<StoredPart> {
            return parts[chunk.id];
        },
        std::move(findNotes));
}

std::unique_ptr<Reader> makePartReader(const Source& source, Catalog catalog,
                                       std::unique_ptr<TensorFiles> files) {
    return makePartReader(source, std::move(catalog), std::move(files), FindPart(), {});
}

void addObjects(CatalogBuilder& builder, const TensorFile& file, FileId id) {
    for (const StoredObject& stored : file.objects) {
        builder.addObject(
            {.name = stored.name, .path = stored.path, .rank = 0, .file = id, .value = stored.value});
    }
}

}  // namespace shardscope
