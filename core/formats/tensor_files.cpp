#include "formats/tensor_files.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>

#include <fmt/format.h>

#include "base/checked.h"
#include "base/rule.h"
#include "encoding/pickle_globals.h"
#include "encoding/safetensors_header.h"
#include "encoding/torch_file.h"

namespace shardscope {

namespace {

class PartReader final : public Reader {
  public:
    PartReader(Catalog catalog, std::unique_ptr<TensorFiles> files, std::vector<StoredPart> parts)
        : catalog_(std::move(catalog)), files_(std::move(files)), parts_(std::move(parts)) {}

    const Catalog& catalog() const override { return catalog_; }

    Result<Extent> locate(ChunkId id) const override {
        if (id >= parts_.size()) return makeError(ErrorCode::internal, "there is no such chunk");
        const ChunkInfo chunk = catalog_.chunk(id);
        const std::string_view tensor = catalog_.name(chunk.tensor);
        if (chunk.file == kNone || catalog_.files()[chunk.file].state != FileInfo::State::present) {
            auto file = openFile(chunk.file);
            if (file.ok()) return makeError(ErrorCode::internal, "a chunk without a file").ofTensor(tensor);
            return std::move(file).error().ofTensor(tensor);
        }
        const StoredPart& part = parts_[id];
        if (const Error* why = files_->whyBroken(chunk.file)) return Error(*why).ofTensor(tensor);
        if (part.file == kNone) {
            return damaged("the file does not hold this piece")
                .inFile(catalog_.files()[chunk.file].path)
                .ofTensor(tensor)
                .byRule(rule::metaInconsistent);
        }
        const StoredTensor& stored = (*files_)[part.file].tensors[part.tensor];
        const auto wrong = [&](std::string message) {
            return damaged(std::move(message))
                .inFile((*files_)[part.file].name)
                .ofTensor(tensor)
                .byRule(rule::metaInconsistent);
        };
        if (part.bits.value_or(stored.dtype) != part.storedAs.value_or(catalog_.dtype(chunk.tensor))) {
            return wrong(fmt::format("its piece here is {}, the tensor is {}", dtypeName(stored.dtype),
                                     dtypeName(catalog_.dtype(chunk.tensor))));
        }
        const int64_t count = part.elements >= 0     ? part.elements
                              : part.lengths.empty() ? elementCount(stored.shape)
                                                     : elementCount(part.lengths);
        if (count != chunk.elements() || (part.elements < 0 && part.lengths.empty() && !chunk.flat &&
                                          !std::ranges::equal(stored.shape, chunk.lengths))) {
            return wrong(fmt::format("its piece here has shape {}, the metadata says {}",
                                     formatDims(stored.shape), formatDims(chunk.lengths)));
        }
        auto extent = files_->extent(part);
        if (!extent.ok()) return std::move(extent).error().ofTensor(tensor);
        return extent;
    }

    Result<Value> objectValue(ObjectId object) const override {
        if (object >= catalog_.objects().size())
            return makeError(ErrorCode::internal, "there is no such object");
        return catalog_.objects()[object].value;
    }

    Result<std::shared_ptr<const ReadFile>> openFile(FileId id) const override {
        if (id >= catalog_.files().size()) return makeError(ErrorCode::internal, "there is no such file");
        const FileInfo& info = catalog_.files()[id];
        if (info.state == FileInfo::State::missing) {
            return makeError(ErrorCode::notFound, "the file is missing")
                .inFile(info.path)
                .byRule(rule::fileMissing);
        }
        if (info.state == FileInfo::State::wrongKind) {
            return makeError(ErrorCode::unsafe, "not a file of this checkpoint")
                .inFile(info.path)
                .byRule(rule::securityPath);
        }
        return files_->handle(info.path, info.size);
    }

  private:
    const Catalog catalog_;
    const std::unique_ptr<TensorFiles> files_;
    const std::vector<StoredPart> parts_;
};

}  // namespace

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
    PickleLimits pickleLimits;
    pickleLimits.textBytes = limits.pickleText;
    pickleLimits.memory = limits.valueMemory;
    auto pickle = decodePickle(std::as_bytes(std::span(bytes)), pickleLimits);
    if (!pickle.ok() || pickle->length != bytes.size()) return {};
    const NodeId root = pickle->root;
    return makeValue(std::move(pickle->graph), root);
}

Result<uint32_t> TensorFiles::add(const std::string& name, FileId id) {
    SHARDSCOPE_TRY(options_.stop.poll());
    auto file = std::make_unique<TensorFile>();
    file->name = name;
    file->id = id;
    SHARDSCOPE_ASSIGN(auto handle, directory_->openFile(name));
    file->size = handle->size();
    if (name.ends_with(".safetensors") || isSafetensorsStart(*handle)) {
        SHARDSCOPE_TRY(addSafetensors(*file, *handle));
    } else {
        SHARDSCOPE_TRY(addTorch(*file, std::move(handle)));
    }
    file->byName.resize(file->tensors.size());
    std::iota(file->byName.begin(), file->byName.end(), 0U);
    std::stable_sort(file->byName.begin(), file->byName.end(),
                     [&](uint32_t a, uint32_t b) { return file->tensors[a].name < file->tensors[b].name; });
    for (Note& note : file->notes) {
        if (note.file.empty()) note.file = name;
    }
    files_.push_back(std::move(file));
    return static_cast<uint32_t>(files_.size() - 1);
}

Status TensorFiles::addSafetensors(TensorFile& file, const ReadFile& handle) {
    SHARDSCOPE_ASSIGN(safetensors::Header header,
                      safetensors::readHeader(handle, options_.limits.safetensorsHeader));
    if (header.dataEnd > header.fileSize) {
        file.notes.push_back({rule::fileTruncated,
                              Severity::error,
                              fmt::format("the header declares {} bytes, the file has {}: {} are missing",
                                          header.dataEnd, header.fileSize, header.dataEnd - header.fileSize),
                              {},
                              {},
                              header.fileSize});
    }
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
    if (auto storages = torch_save::allStorages(opened.pickle.graph); !storages.ok())
        return std::move(storages).error().inFile(path);

    file.torch = true;
    file.bigEndian = opened.bigEndian;
    file.notes = globalNotes(opened.pickle.globals);
    file.notes.insert(file.notes.end(), opened.notes.begin(), opened.notes.end());
    file.notes.insert(file.notes.end(), found.notes.begin(), found.notes.end());
    file.specials = std::move(found.specials);
    std::unordered_map<std::string, uint32_t> same;
    for (torch_save::FoundTensor& from : found.tensors) {
        auto place = torch_save::findStorage(opened, from.tensor.storage);
        if (!place.ok()) return std::move(place).error().ofTensor(from.name).inFile(path);
        auto span = storageSpan(from.tensor);
        if (!span.ok()) return std::move(span).error().ofTensor(from.name).inFile(path);
        StoredTensor tensor;
        tensor.dtype = from.tensor.dtype;
        tensor.shape = from.tensor.shape;
        tensor.special = from.special;
        tensor.shardOffsets = std::move(from.shardOffsets);
        const auto [it, fresh] = same.try_emplace(
            fmt::format("{}/{}/{}/{}/{}/{}/{}", from.tensor.storage.key, from.tensor.storageOffset,
                        formatDims(tensor.shape), formatDims(from.tensor.strides), dtypeName(tensor.dtype),
                        from.tensor.conjugate, from.tensor.negate),
            static_cast<uint32_t>(file.tensors.size()));
        if (!fresh) tensor.sameAs = it->second;
        TensorFile::Place at;
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

Result<std::shared_ptr<const ReadFile>> TensorFiles::handle(const std::string& name, uint64_t size) const {
    auto file = openFiles_.open(name);
    if (!file.ok()) return file;
    if ((*file)->size() != size) {
        return makeError(ErrorCode::changed,
                         fmt::format("the file had {} bytes when it was opened, now it has {}", size,
                                     (*file)->size()))
            .inFile((*file)->path());
    }
    return file;
}

Result<Extent> TensorFiles::extent(const StoredPart& part) const {
    const TensorFile& file = *files_[part.file];
    const StoredTensor& stored = file.tensors[part.tensor];
    const TensorFile::Place& place = file.places[part.tensor];
    Extent extent;
    SHARDSCOPE_ASSIGN(extent.file, handle(file.name, file.size));
    extent.offset = place.first;
    extent.length = place.length;
    extent.strides = place.strides;
    extent.swapBytes = file.bigEndian && dtypeSwapUnit(stored.dtype) > 1;
    extent.conjugate = place.conjugate;
    extent.negate = place.negate;
    extent.storedAs = part.storedAs;
    if (const ZipEntry* entry = place.entry) {
        ZipArchive zip;
        zip.file = extent.file;
        zip.length = file.zip->length;
        zip.directoryOffset = file.zip->directoryOffset;
        if (entry->method == 0) {
            SHARDSCOPE_ASSIGN(const uint64_t offset, zipDataOffset(zip, *entry));
            extent.offset += offset;
            if (entry->size > 0 && zipHasCrc(*entry))
                extent.checksum = StoredChecksum{offset, entry->size, entry->crc32};
        } else {
            std::lock_guard lock(mutex_);
            std::shared_ptr<const ReadFile> scratch;
            for (const auto& [known, content] : unpacked_) {
                if (known == entry) scratch = content;
            }
            if (!scratch) {
                SHARDSCOPE_ASSIGN(const auto out, fileSystem_->createScratch(options_.scratchDirectory));
                SHARDSCOPE_TRY(out->allocate(entry->size));
                uint64_t at = 0;
                SHARDSCOPE_TRY(
                    streamZipEntry(zip, *entry, UINT64_MAX, [&](std::span<const std::byte> piece) -> Status {
                        SHARDSCOPE_TRY(options_.stop.poll());
                        SHARDSCOPE_TRY(out->writeAt(at, piece));
                        at += piece.size();
                        return {};
                    }));
                SHARDSCOPE_ASSIGN(scratch, fileSystem_->reopen(out));
                unpacked_.emplace_back(entry, scratch);
            }
            extent.file = std::move(scratch);
        }
    }
    const uint64_t width = dtypeBits(stored.dtype) / 8;
    const bool part_ = part.elements >= 0 || !part.lengths.empty();
    if (part_ && dtypeBits(stored.dtype) % 8 != 0)
        return unsupported(fmt::format("a part of a {} tensor", dtypeName(stored.dtype))).inFile(file.name);
    if (part.elements >= 0) {
        if (!extent.strides.empty()) {
            return unsupported("a stretch of a tensor whose elements do not follow each other")
                .inFile(file.name);
        }
        if (part.firstElement < 0 || part.firstElement > elementCount(stored.shape) ||
            part.elements > elementCount(stored.shape) - part.firstElement) {
            return damaged(fmt::format("elements {} to {} of a tensor with {}", part.firstElement,
                                       part.firstElement + part.elements, elementCount(stored.shape)))
                .inFile(file.name)
                .byRule(rule::metaInconsistent);
        }
        extent.offset += static_cast<uint64_t>(part.firstElement) * width;
        extent.length = static_cast<uint64_t>(part.elements) * width;
    } else if (!part.lengths.empty()) {
        const Dims strides = extent.strides.empty() ? rowMajorStrides(stored.shape) : extent.strides;
        int64_t first = 0, last = 0;
        bool empty = false;
        for (size_t d = 0; d < stored.shape.size(); ++d) {
            if (part.offsets[d] < 0 || part.lengths[d] < 0 ||
                part.lengths[d] > stored.shape[d] - part.offsets[d]) {
                return damaged(fmt::format("the box {} in a tensor of shape {}",
                                           formatBox(part.offsets, part.lengths), formatDims(stored.shape)))
                    .inFile(file.name)
                    .byRule(rule::metaInconsistent);
            }
            empty = empty || part.lengths[d] == 0;
            first += part.offsets[d] * strides[d];
            last += (part.lengths[d] - 1) * strides[d];
        }
        extent.offset += empty ? 0 : static_cast<uint64_t>(first) * width;
        extent.length = empty ? 0 : static_cast<uint64_t>(last + 1) * width;
        extent.strides = strides;
        if (strides == rowMajorStrides(part.lengths)) extent.strides.clear();
    }
    if (!place.entry && !rangeFits(extent.offset, extent.length, file.size)) {
        return damaged(fmt::format("its {} bytes end at {}, the file has {}", extent.length,
                                   extent.offset + extent.length, file.size),
                       extent.offset)
            .inFile(file.name)
            .byRule(rule::fileTruncated)
            .withHint("the file is cut off; take it from another copy");
    }
    return extent;
}

const Error* TensorFiles::whyBroken(FileId id) const {
    for (const auto& [file, why] : broken_) {
        if (file == id) return &why;
    }
    return nullptr;
}

Result<std::string> TensorFiles::bytesOf(uint32_t file, uint32_t tensor) const {
    SHARDSCOPE_ASSIGN(const Extent extent, this->extent({file, tensor, {}, {}, 0, -1}));
    if (extent.length > options_.limits.objectBytes || !extent.strides.empty()) {
        return makeError(ErrorCode::limit,
                         fmt::format("an object of {} bytes is longer than the {} that are read",
                                     extent.length, options_.limits.objectBytes))
            .inFile(files_[file]->name);
    }
    std::string bytes(extent.length, '\0');
    SHARDSCOPE_TRY(extent.file->readAt(extent.offset, std::as_writable_bytes(std::span(bytes))));
    return bytes;
}

std::unique_ptr<Reader> makePartReader(Catalog catalog, std::unique_ptr<TensorFiles> files,
                                       std::vector<StoredPart> parts) {
    return std::make_unique<PartReader>(std::move(catalog), std::move(files), std::move(parts));
}

}  // namespace shardscope
