#include "formats/torch_save/reader.h"

#include <fmt/format.h>

#include "base/checked.h"
#include "base/rule.h"
#include "formats/roles.h"

namespace shardscope::torch_save {

namespace {

class TorchSaveReader : public Reader {
  public:
    TorchSaveReader(Opened opened, std::string fileName, std::shared_ptr<FileSystem> fileSystem,
                    OpenOptions options)
        : opened_(std::move(opened)),
          fileName_(std::move(fileName)),
          fileSystem_(std::move(fileSystem)),
          options_(std::move(options)) {}

    Status build() {
        const uint64_t streamBytes = opened_.pickle.length;
        auto walked = walk(opened_.pickle.graph, opened_.pickle.root, streamBytes);
        if (!walked.ok()) return std::move(walked).error().inFile(opened_.file->path());
        Found found = std::move(walked).value();
        const auto storages = allStorages(opened_.pickle.graph);
        if (!storages.ok()) return Error(storages.error()).inFile(opened_.file->path());
        const auto& known = *storages;
        SHARDSCOPE_TRY(options_.stop.poll());

        CatalogBuilder builder("torch", opened_.variant, opened_.writer);
        FileInfo info;
        info.path = fileName_;
        info.size = opened_.file->size();
        info.rank = 0;
        const FileId file = builder.addFile(std::move(info));
        for (Note& note : globalNotes(opened_.pickle.globals))
            addNote(builder, std::move(note));
        for (Note& note : opened_.notes)
            addNote(builder, std::move(note));
        for (Note& note : found.notes)
            addNote(builder, std::move(note));
        for (SpecialTensor& special : found.specials)
            builder.addSpecial(std::move(special));

        RoleFinder roles;
        for (const FoundTensor& t : found.tensors)
            roles.add(t.name);
        for (const FoundObject& o : found.objects)
            roles.add(o.name);
        std::unordered_map<std::string, TensorId> first;  // by everything that makes two names one tensor
        std::unordered_map<std::string, uint32_t> storageIds;
        builder.reserve(found.tensors.size(), found.tensors.size(), found.tensors.size() * 4);
        for (FoundTensor& t : found.tensors) {
            const Role role = t.buffer ? Role::buffer : roles.role(t.name);
            SHARDSCOPE_TRY(addTensor(builder, file, t, role, first, storageIds));
        }
        noteRecords(builder, known);

        std::vector<NodeId*> nodes;
        for (FoundObject& o : found.objects)
            nodes.push_back(&o.node);
        const auto graph = keepValues(std::move(opened_.pickle.graph), nodes);
        for (FoundObject& o : found.objects) {
            ObjectInfo object;
            object.name = std::move(o.name);
            object.path = std::move(o.path);
            object.rank = 0;
            object.file = file;
            object.value = {graph, o.node};
            builder.addObject(std::move(object));
        }
        catalog_ = std::move(builder).finish();
        return {};
    }

    const Catalog& catalog() const override { return catalog_; }

    Result<Extent> locate(ChunkId id) const override {
        const Placed& placed = placed_[id];
        const Stored& stored = *stored_[placed.storage];
        SHARDSCOPE_ASSIGN(const Data data, dataOf(stored));
        Extent extent;
        extent.file = data.file;
        extent.offset = data.offset + placed.first;
        extent.length = placed.length;
        extent.strides = placed.strides;
        extent.swapBytes = opened_.bigEndian && dtypeSwapUnit(catalog_.dtype(catalog_.tensorOf(id))) > 1;
        extent.conjugate = placed.conjugate;
        extent.negate = placed.negate;
        if (stored.entry && stored.entry->method == 0 && stored.entry->size > 0 && zipHasCrc(*stored.entry)) {
            extent.checksum = StoredChecksum{data.offset, stored.entry->size, stored.entry->crc32};
        }
        return extent;
    }

    Result<Value> objectValue(ObjectId object) const override { return catalog_.objects()[object].value; }
    Result<std::shared_ptr<const ReadFile>> openFile(FileId) const override { return opened_.file; }

  private:
    struct Data {
        std::shared_ptr<const ReadFile> file;
        uint64_t offset = 0;
    };
    struct Stored {
        const ZipEntry* entry = nullptr;  // of a zip archive
        uint64_t offset = 0;              // of a legacy file
        // Unpacked on first use, when the record is deflated.
        mutable std::mutex mutex;
        mutable std::shared_ptr<const ReadFile> scratch;
    };
    struct Placed {
        uint32_t storage = 0;
        uint64_t first = 0;   // bytes from the start of the storage
        uint64_t length = 0;  // to the end of the last element
        Dims strides;         // empty = row-major
        bool conjugate = false;
        bool negate = false;
    };

    void addNote(CatalogBuilder& builder, Note note) const {
        if (note.file.empty()) note.file = fileName_;
        builder.addNote(std::move(note));
    }

    // Finds the storage, once for all its tensors.
    Result<uint32_t> storageOf(const FoundTensor& t, std::unordered_map<std::string, uint32_t>& ids) {
        const auto [it, fresh] = ids.try_emplace(t.tensor.storage.key, static_cast<uint32_t>(stored_.size()));
        if (!fresh) return it->second;
        auto stored = std::make_unique<Stored>();
        SHARDSCOPE_ASSIGN(const StoragePlace place, findStorage(opened_, t.tensor.storage));
        stored->entry = place.entry;
        stored->offset = place.offset;
        stored_.push_back(std::move(stored));
        return it->second;
    }

    Status addTensor(CatalogBuilder& builder, FileId file, FoundTensor& t, Role role,
                     std::unordered_map<std::string, TensorId>& first,
                     std::unordered_map<std::string, uint32_t>& storageIds) {
        const auto placeError = [&](Error error) -> Error {
            return std::move(error).ofTensor(t.name).inFile(opened_.file->path());
        };
        auto storage = storageOf(t, storageIds);
        if (!storage.ok()) return placeError(std::move(storage).error());
        auto span = storageSpan(t.tensor);
        if (!span.ok()) return placeError(std::move(span).error());

        Placed placed;
        placed.storage = *storage;
        placed.first = span->first;
        placed.length = span->last - span->first;
        if (!t.tensor.rowMajor()) placed.strides = t.tensor.strides;
        placed.conjugate = t.tensor.conjugate;
        placed.negate = t.tensor.negate;

        std::string same = fmt::format("{}/{}/{}/{}/{}/{}/{}", *storage, t.tensor.storageOffset,
                                       formatDims(t.tensor.shape), formatDims(t.tensor.strides),
                                       dtypeName(t.tensor.dtype), t.tensor.conjugate, t.tensor.negate);
        const auto [it, fresh] =
            first.try_emplace(std::move(same), static_cast<TensorId>(builder.tensorCount()));
        TensorInfo tensor;
        tensor.name = t.name;
        tensor.path = std::move(t.path);
        tensor.dtype = t.tensor.dtype;
        tensor.shape = t.tensor.shape;
        tensor.role = role;
        tensor.special = t.special;
        if (!fresh) tensor.aliasOf = it->second;
        auto added = builder.addTensor(tensor);
        if (!added.ok()) return placeError(std::move(added).error());
        const Stored& stored = *stored_[placed.storage];
        const uint64_t at = stored.entry ? stored.entry->headerOffset : stored.offset;
        const uint64_t length = stored.entry ? stored.entry->compressedSize : placed.length;
        auto whole = builder.addWhole(0, file, stored.entry ? at : at + placed.first, length);
        if (!whole.ok()) return placeError(std::move(whole).error());
        placed_.push_back(std::move(placed));
        return {};
    }

    // What the records themselves give reason to note.
    void noteRecords(CatalogBuilder& builder,
                     const std::unordered_map<std::string, TorchStorage>& known) const {
        if (!opened_.zip) return;
        const std::string folder = opened_.prefix + "/data/";
        size_t without = 0, deflated = 0;
        for (const ZipEntry& entry : opened_.zip->entries) {
            without += !zipHasCrc(entry);
            deflated += entry.method != 0;
            if (!entry.name.starts_with(folder)) continue;
            const std::string key = entry.name.substr(folder.size());
            const auto it = known.find(key);
            if (it == known.end()) {
                addNote(builder,
                        {rule::fileUnreferenced,
                         Severity::info,
                         fmt::format("the record data/{} belongs to no storage of the saved object", key),
                         {},
                         {},
                         entry.headerOffset});
                continue;
            }
            const auto bytes = storageBytes(it->second);
            if (bytes.ok() && entry.size > *bytes) {
                addNote(builder,
                        {rule::metaInconsistent,
                         Severity::warning,
                         fmt::format(
                             "the record data/{} has {} bytes, its storage only {}; torch 2.15 refuses it",
                             key, entry.size, *bytes),
                         {},
                         {},
                         entry.headerOffset});
            }
        }
        if (without > 0) {
            addNote(builder, {rule::integrityCrc,
                              Severity::info,
                              fmt::format("no checksums are stored for {} of {} records", without,
                                          opened_.zip->entries.size()),
                              {},
                              {},
                              std::nullopt});
        }
        if (deflated > 0) {
            addNote(builder,
                    {rule::metaInconsistent,
                     Severity::info,
                     fmt::format(
                         "{} records are deflated, which torch.save never does: the archive was packed again",
                         deflated),
                     {},
                     {},
                     std::nullopt});
        }
    }

    Result<Data> dataOf(const Stored& stored) const {
        if (!stored.entry) return Data{opened_.file, stored.offset};
        if (stored.entry->method == 0) {
            SHARDSCOPE_ASSIGN(const uint64_t offset, zipDataOffset(*opened_.zip, *stored.entry));
            return Data{opened_.file, offset};
        }
        std::lock_guard lock(stored.mutex);
        if (!stored.scratch) {
            SHARDSCOPE_ASSIGN(const auto out, fileSystem_->createScratch(options_.scratchDirectory));
            SHARDSCOPE_TRY(out->allocate(stored.entry->size));
            uint64_t at = 0;
            SHARDSCOPE_TRY(streamZipEntry(*opened_.zip, *stored.entry, UINT64_MAX,
                                          [&](std::span<const std::byte> piece) -> Status {
                                              SHARDSCOPE_TRY(options_.stop.poll());
                                              SHARDSCOPE_TRY(out->writeAt(at, piece));
                                              at += piece.size();
                                              return {};
                                          }));
            SHARDSCOPE_ASSIGN(stored.scratch, fileSystem_->reopen(out));
        }
        return Data{stored.scratch, 0};
    }

    Opened opened_;
    std::string fileName_;
    std::shared_ptr<FileSystem> fileSystem_;
    OpenOptions options_;
    Catalog catalog_;
    std::vector<std::unique_ptr<Stored>> stored_;
    std::vector<Placed> placed_;  // by ChunkId: each tensor has one chunk
};

}  // namespace

Result<std::unique_ptr<Reader>> makeReader(Opened opened, std::string fileName,
                                           std::shared_ptr<FileSystem> fileSystem,
                                           const OpenOptions& options) {
    auto reader = std::make_unique<TorchSaveReader>(std::move(opened), std::move(fileName),
                                                    std::move(fileSystem), options);
    SHARDSCOPE_TRY(reader->build());
    return std::unique_ptr<Reader>(std::move(reader));
}

}  // namespace shardscope::torch_save
