#include <algorithm>
#include <array>
#include <cstring>

#include <fmt/format.h>

#include "base/checked.h"
#include "base/option_words.h"
#include "base/rule.h"
#include "base/units.h"
#include "encoding/torch_tensor.h"
#include "encoding/torch_walk.h"
#include "encoding/zip.h"
#include "encoding/zstd.h"
#include "formats/catalog_reader.h"
#include "formats/dcp/dcp_catalog.h"
#include "formats/dcp/metadata.h"
#include "storage/materialized.h"
#include "storage/open_files.h"
#include "storage/system_file.h"

namespace shardscope::dcp {

namespace {

// A byte range of a file that can be read by position.
struct EntrySlice {
    std::shared_ptr<const ReadFile> file;
    uint64_t offset = 0;
    uint64_t length = 0;
};

// Opens stored entries, byte ranges of .distcp files, and undoes the transforms that the writer applied.
// Keeps a bounded number of file handles. Thread-safe.
class StoredEntries {
  public:
    StoredEntries(const Source& source, const OpenOptions& options)
        : openFiles_(source.directory),
          stop_(options.stop),
          plain_(source.fileSystem, options.scratchDirectory) {}

    // As OpenFiles::open().
    Result<std::shared_ptr<const ReadFile>> openFile(const std::string& path) const {
        return openFiles_.open(path);
    }

    // The plain bytes of an entry, with `transforms` undone in order; at most `maxPlain` bytes. Errors:
    // damaged (rule file.truncated), unsupported (naming the transform), limit.
    Result<EntrySlice> open(const std::string& path, uint64_t offset, uint64_t length,
                            const std::vector<std::string>& transforms, uint64_t maxPlain) const {
        for (const std::string& transform : transforms) {
            if (transform != "stream.zstd/1") {
                return unsupported(
                           fmt::format("the entry went through the transform '{}', which is not known (only "
                                       "stream.zstd/1 is)",
                                       transform))
                    .inFile(path)
                    .at(offset);
            }
        }
        SHARDSCOPE_ASSIGN(const auto file, openFile(path));
        if (!rangeFits(offset, length, file->size())) {
            return damaged(fmt::format("the entry takes bytes {} to {}, the file ends at {}",
                                       countText(offset), countText(offset + length),
                                       countText(file->size())))
                .inFile(file->path())
                .at(offset)
                .byRule(rule::fileTruncated);
        }
        // Transforms are listed in the order of reading.
        EntrySlice slice{file, offset, length};
        for (size_t i = 0; i < transforms.size(); ++i) {
            auto plain = plain_.get({fmt::format("{} {} {}", i, offset, path), file, maxPlain, false},
                                    [&](const Materialized::Sink& sink) {
                                        return unpackZstd(*slice.file, slice.offset, slice.length, maxPlain,
                                                          stop_, sink);
                                    });
            if (!plain.ok()) return std::move(plain).error().inFile(file->path()).at(offset);
            slice.file = std::move(plain).value();
            slice.offset = 0;
            slice.length = slice.file->size();
        }
        return slice;
    }

  private:
    OpenFiles openFiles_;
    StopToken stop_;
    Materialized plain_;
};

constexpr uint64_t kTransformSlack = uint64_t{1}
                                     << 20;  // what a blob adds to the elements of its chunk, generously
constexpr uint64_t kShortEntry = uint64_t{64} << 10, kZeroProbe = uint64_t{4} << 10;

bool isDataFile(const DirectoryEntry& entry) {
    return entry.kind == DirectoryEntry::Kind::file && rankOfDataFile(entry.name) != kNone;
}

// Whether the file starts as the pickle of a Metadata: a protocol and, near the start, torch's module name.
bool looksLikeMetadata(const Source& source, std::string_view name) {
    const std::string head = startOf(*source.directory, name, 512);
    return head.find("torch.distributed") != head.npos && head.find("Metadata") != head.npos;
}

class DcpReader final : public CatalogReader {
  public:
    DcpReader(const Source& source, const OpenOptions& options, CatalogParts parts)
        : CatalogReader(std::move(parts.catalog), source.directory->path()),
          limits_(options.limits),
          parts_(std::move(parts)),
          entries_(source, options) {}

  private:
    Result<Extent> extentOf(const ChunkInfo& chunk) const override;
    Result<Value> valueOf(ObjectId object) const override;
    Result<std::shared_ptr<const ReadFile>> openPresent(const FileInfo& file) const override {
        return entries_.openFile(file.path);
    }
    Result<Extent> extentInside(const ChunkInfo& chunk) const;
    const std::vector<std::string>& transforms(const std::vector<uint16_t>& column, size_t at) const {
        return parts_.transforms[column.empty() ? 0 : column[at]];
    }
    Error explain(Error error, const EntrySlice& slice) const;

    const Limits limits_;
    const CatalogParts parts_;  // without the catalog
    const StoredEntries entries_;
};

constexpr const char* kOnlyZeros = "the entry holds only zero bytes: its data was never written, or is lost";

bool isZeros(std::span<const std::byte> bytes) {
    return std::ranges::all_of(bytes, [](std::byte b) { return b == std::byte{0}; });
}

// What no archive does; a zip reader would look for its end in 64 KiB first.
bool beginsWithZeros(const EntrySlice& slice) {
    std::array<std::byte, 16> head{};
    if (isHole(*slice.file, slice.offset, slice.length)) return true;
    return slice.length >= head.size() && slice.file->readAt(slice.offset, head).ok() && isZeros(head);
}

// Whether a safetensors file begins here: the length of its header, then the header, which is JSON.
bool beginsSafetensors(const EntrySlice& slice) {
    std::array<std::byte, 10> head{};
    const uint64_t size = slice.file->size();
    if (size < head.size() || slice.offset > size - head.size()) return false;
    if (!slice.file->readAt(slice.offset, head).ok()) return false;
    uint64_t length = 0;
    for (size_t i = 8; i-- > 0;)
        length = length << 8 | std::to_integer<uint64_t>(head[i]);
    return length >= 2 && length <= size - slice.offset - 8 && head[8] == std::byte{'{'} &&
           head[9] == std::byte{'"'};
}

// What the slice is says more than what a zip reader makes of it: the zeros of one that was never written, or
// a safetensors file.
Error DcpReader::explain(Error error, const EntrySlice& slice) const {
    if (error.code != ErrorCode::damaged) return error;
    if (isHole(*slice.file, slice.offset, slice.length)) {
        error.message = kOnlyZeros;
        error.location.offset = slice.offset;
        return error;
    }
    if (beginsSafetensors(slice)) {
        return damaged(
                   "the save was made with SerializationFormat.SAFETENSORS and the ordinary writer, whose "
                   "metadata does not say where each tensor is",
                   slice.offset)
            .byRule(rule::metaInconsistent)
            .withHint(
                "torch cannot load it either; save again with torch's HuggingFaceStorageWriter, or without "
                "that option");
    }
    // As each of a million entries is asked, after a crash that left preallocated files: the two ends of one
    // that is not short.
    const uint64_t probed = slice.length <= kShortEntry ? slice.length : kZeroProbe;
    std::vector<std::byte> buffer(static_cast<size_t>(probed));
    for (const uint64_t at : {uint64_t{0}, slice.length - probed}) {
        if (!slice.file->readAt(slice.offset + at, buffer).ok() || !isZeros(buffer)) return error;
    }
    if (probed == 0) return error;
    error.message = probed == slice.length
                        ? kOnlyZeros
                        : "the entry begins and ends with zero bytes: its data was never written, or is lost";
    error.location.offset = slice.offset;
    return error;
}

Result<Extent> DcpReader::extentInside(const ChunkInfo& chunk) const {
    if (chunk.file == kNone) {
        if (chunk.elements() == 0) return Extent{};
        return damaged("storage_data has no entry for this chunk: nobody knows where its data is")
            .byRule(rule::metaInconsistent);
    }
    const std::string& path = catalog().files()[chunk.file].path;
    const DType dtype = catalog().dtype(chunk.tensor);
    const auto bytes = dtypeByteCount(dtype, static_cast<uint64_t>(chunk.elements()));
    uint64_t bound = 0;
    if (!bytes || !checkedAdd(*bytes, kTransformSlack, bound))
        return damaged("the size of the chunk overflows");
    SHARDSCOPE_ASSIGN(
        const EntrySlice slice,
        entries_.open(path, chunk.offset, chunk.length, transforms(parts_.chunkTransforms, chunk.id), bound));
    if (chunk.elements() == 0) {
        Extent nothing;
        nothing.file = slice.file;
        nothing.offset = slice.offset;
        return nothing;
    }

    const PickleLimits limits{.textBytes = limits_.pickleText, .memory = limits_.valueMemory};
    auto archive = beginsWithZeros(slice) ? Result<TorchArchive>(damaged("the entry begins with zero bytes"))
                                          : openTorchArchive(slice.file, slice.offset, slice.length, limits);
    if (!archive.ok()) return explain(std::move(archive).error(), slice);
    SHARDSCOPE_ASSIGN(const auto tensor, asTorchTensor(archive->pickle.graph, archive->pickle.root));
    if (!tensor) {
        const ValueGraph& graph = archive->pickle.graph;
        const NodeId root = archive->pickle.root;
        const auto special = torch_save::asSpecial(graph, root);
        if (torch_save::isTensorLike(graph, root) && special.ok() && special->warning.empty()) {
            return unsupported(fmt::format("the entry holds a tensor of kind {}, which is not a plain array",
                                           special->about.kind))
                .withHint(fmt::format("leave it out ({}), or save its parts as tensors of their own",
                                      option("exclude")));
        }
        return damaged("the entry holds something else than a plain tensor").byRule(rule::metaInconsistent);
    }
    if (tensor->dtype != dtype) {
        return damaged(fmt::format("the data file holds {}, the metadata says {}", dtypeName(tensor->dtype),
                                   dtypeName(dtype)))
            .byRule(rule::metaInconsistent);
    }
    // A flattened range is stored as a vector, with a leading 1 for each dimension of its box.
    Dims expected(chunk.lengths.begin(), chunk.lengths.end());
    if (chunk.flat) {
        expected.assign(expected.size(), 1);
        expected.push_back(chunk.elements());
    }
    const bool vector = chunk.flat && tensor->shape == Dims{chunk.elements()};
    if (!vector && tensor->shape != expected) {
        return damaged(fmt::format("the data file holds a tensor of shape {}, the metadata says {}",
                                   formatDims(tensor->shape), formatDims(expected)))
            .byRule(rule::metaInconsistent);
    }
    SHARDSCOPE_ASSIGN(const ZipEntry* entry, archive->storageEntry(*tensor));
    SHARDSCOPE_ASSIGN(const StorageSpan span, storageSpan(*tensor));
    if (span.last > entry->size) {
        return damaged(fmt::format("the tensor needs {} of its storage, which has {}",
                                   counted(span.last, "byte"), countText(entry->size)));
    }
    if (entry->method != 0)
        return unsupported("the tensor is compressed inside its archive, which torch never does");
    SHARDSCOPE_ASSIGN(const uint64_t data, zipDataOffset(archive->zip, *entry));
    Extent extent;
    extent.file = slice.file;
    extent.offset = data + span.first;
    extent.length = span.last - span.first;
    if (!tensor->rowMajor()) extent.strides = tensor->strides;
    extent.swapBytes = archive->bigEndian && dtypeSwapUnit(dtype) > 1;
    extent.conjugate = tensor->conjugate;
    extent.negate = tensor->negate;
    if (zipHasCrc(*entry)) extent.checksum = StoredChecksum{data, entry->size, entry->crc32, chunk.offset};
    return extent;
}

Result<Extent> DcpReader::extentOf(const ChunkInfo& chunk) const {
    auto extent = extentInside(chunk);
    if (extent.ok() || chunk.file == kNone) return extent;
    Error error = std::move(extent).error().at(chunk.offset);
    if (!error.location.length) error.location.length = chunk.length;
    return error;
}

Result<Value> DcpReader::valueOf(ObjectId id) const {
    const ObjectInfo& object = catalog().objects()[id];
    if (object.value) return object.value;
    const auto read = [&]() -> Result<Value> {
        if (object.file == kNone)
            return damaged("storage_data has no entry for this object: nobody knows where it is")
                .byRule(rule::metaInconsistent);
        if (object.length > limits_.objectBytes) {
            return makeError(ErrorCode::limit,
                             fmt::format("the object has {}, more than the {} that are read",
                                         counted(object.length, "byte"), countText(limits_.objectBytes)));
        }
        const std::string& path = catalog().files()[object.file].path;
        SHARDSCOPE_ASSIGN(const EntrySlice slice,
                          entries_.open(path, object.offset, object.length,
                                        transforms(parts_.objectTransforms, id), limits_.objectBytes));
        std::array<std::byte, 4> magic{};
        if (slice.length >= magic.size()) SHARDSCOPE_TRY(slice.file->readAt(slice.offset, magic));
        if (std::memcmp(magic.data(), "PK\x03\x04", magic.size()) == 0) {
            const PickleLimits limits{.textBytes = limits_.pickleText, .memory = limits_.valueMemory};
            auto archive = openTorchArchive(slice.file, slice.offset, slice.length, limits);
            if (!archive.ok()) return std::move(archive).error();
            const NodeId root = archive->pickle.root;
            return makeValue(std::move(archive->pickle.graph), root);
        }
        // A planner of its own may store anything.
        std::string bytes(static_cast<size_t>(slice.length), '\0');
        SHARDSCOPE_TRY(slice.file->readAt(slice.offset, std::as_writable_bytes(std::span(bytes))));
        if (!bytes.empty() && bytes.find_first_not_of('\0') == std::string::npos)
            return damaged("the entry holds only zero bytes: its data was never written, or is lost");
        ValueGraph graph;
        const NodeId node = graph.addText(ValueKind::bytes, bytes);
        return makeValue(std::move(graph), node);
    };
    auto value = read();
    if (value.ok()) return value;
    Error error = std::move(value).error();
    if (object.file != kNone)
        error = std::move(error).inFile(catalog().files()[object.file].path).at(object.offset);
    return std::move(error).ofTensor(object.name);
}

}  // namespace

Probe probeDcp(const Source& source) {
    if (!source.entry.empty()) {
        if (rankOfDataFile(source.entry) != kNone)
            return {Probe::Match::certain, "is named as the data of one rank of a distributed checkpoint"};
        if (source.entry != ".metadata" && rankOfMetadataFile(source.entry) == kNone) return {};
        if (looksLikeMetadata(source, source.entry))
            return {Probe::Match::certain,
                    fmt::format("'{}' is the metadata of torch.distributed.checkpoint", source.entry)};
        return {Probe::Match::possible,
                fmt::format("'{}' is named as the metadata of a distributed checkpoint", source.entry)};
    }
    const bool data = std::any_of(source.entries.begin(), source.entries.end(), isDataFile);
    std::string metadata;
    if (source.hasFile(".metadata")) metadata = ".metadata";
    for (const DirectoryEntry& entry : source.entries) {
        if (metadata.empty() && entry.kind == DirectoryEntry::Kind::file &&
            rankOfMetadataFile(entry.name) != kNone)
            metadata = entry.name;
    }
    if (!metadata.empty()) {
        if (data)
            return {Probe::Match::certain, fmt::format("has '{}' and .distcp files of ranks", metadata)};
        if (looksLikeMetadata(source, metadata))
            return {Probe::Match::certain, fmt::format("has '{}' of torch.distributed.checkpoint", metadata)};
        return {Probe::Match::possible, fmt::format("has '{}'", metadata)};
    }
    if (data) return {Probe::Match::possible, "has .distcp files of ranks, but no .metadata"};
    if (source.hasFile(".metadata.tmp"))
        return {Probe::Match::possible, "has .metadata.tmp, but no .metadata"};
    return {};
}

Result<std::unique_ptr<Reader>> openDcp(const Source& own, const OpenOptions& options) {
    SHARDSCOPE_ASSIGN(const Source source, withFurtherDirectories(own, options));
    std::vector<std::string> names;
    if (rankOfDataFile(source.entry) != kNone) {
        const bool whole = source.hasFile(".metadata");
        return unsupported(
                   fmt::format("is what rank {} wrote of a distributed checkpoint (DCP); which tensors its "
                               "bytes are stands in .metadata",
                               rankOfDataFile(source.entry)))
            .inFile(joinPath(source.directory->path(), source.entry))
            .withHint(
                whole ? std::string("open the directory, where .metadata is")
                      : fmt::format(".metadata is not beside it: rank 0 writes it, on its own host where the "
                                    "hosts have no disk in common; open its directory, and name those of the "
                                    "other hosts with {}",
                                    option("also", "DIR")));
    }
    if (!source.entry.empty()) {
        names.push_back(source.entry);
    } else if (source.hasFile(".metadata")) {
        names.emplace_back(".metadata");
    } else {
        for (const DirectoryEntry& entry : source.entries) {
            if (entry.kind == DirectoryEntry::Kind::file && rankOfMetadataFile(entry.name) != kNone)
                names.push_back(entry.name);
        }
        std::sort(names.begin(), names.end(), [](const std::string& a, const std::string& b) {
            return rankOfMetadataFile(a) < rankOfMetadataFile(b);
        });
    }
    if (names.empty()) {
        const bool begun = source.hasFile(".metadata.tmp");
        return makeError(ErrorCode::notFound, "the checkpoint was never committed: it has no .metadata file")
            .inFile(source.directory->path())
            .withHint(
                begun
                    ? std::string("the save died while it wrote .metadata.tmp; use an earlier checkpoint")
                    : fmt::format("the save died before it wrote that: use an earlier checkpoint; or the "
                                  "file, whose name begins with a dot, was not copied, or is on the disk of "
                                  "rank 0 alone: name its directory with {}",
                                  option("also", "DIR")));
    }
    std::vector<MetadataFile> files;
    for (std::string& name : names) {
        SHARDSCOPE_ASSIGN(const auto file, source.directory->openFile(name));
        SHARDSCOPE_ASSIGN(Metadata metadata, decodeMetadata(*file, options.limits, options.stop));
        files.push_back({std::move(name), file->size(), std::move(metadata)});
    }
    std::string described = source.directory->path();
    if (files.size() == 1) described += "/" + files[0].name;
    auto parts = buildCatalog(source, std::move(files));
    if (!parts.ok()) return std::move(parts).error().inFile(described);
    return std::unique_ptr<Reader>(std::make_unique<DcpReader>(source, options, std::move(parts).value()));
}

}  // namespace shardscope::dcp
