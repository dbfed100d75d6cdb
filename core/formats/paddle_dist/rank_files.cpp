#include "formats/paddle_dist/rank_files.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/checked.h"
#include "base/rule.h"
#include "encoding/safetensors_header.h"

namespace shardscope::paddle {

RankFiles::RankFiles(const Source& source, const OpenOptions& options)
    : fileSystem_(source.fileSystem),
      openFiles_(source.directory),
      options_(options),
      places_(source.fileSystem, options.scratchDirectory, options.stop) {}

Result<std::shared_ptr<const RankFiles::Index>> RankFiles::index(const std::string& path) const {
    std::shared_ptr<Slot> slot;
    {
        std::lock_guard lock(mutex_);
        auto& known = slots_[path];
        if (!known) known = std::make_shared<Slot>();
        slot = known;
    }
    std::lock_guard lock(slot->mutex);
    if (!slot->read) {
        auto index = readIndex(path);
        if (index.ok()) {
            slot->index = std::move(index).value();
        } else {
            if (index.error().code == ErrorCode::cancelled) return std::move(index).error();
            slot->status = std::move(index).error();
        }
        slot->read = true;
    }
    if (!slot->status.ok()) return Error(slot->status.error());
    return slot->index;
}

Result<std::shared_ptr<const RankFiles::Index>> RankFiles::readIndex(const std::string& path) const {
    SHARDSCOPE_ASSIGN(const auto file, openFile(path));
    std::string head(std::min<uint64_t>(file->size(), 16), '\0');
    SHARDSCOPE_TRY(file->readAt(0, std::as_writable_bytes(std::span(head))));
    // By content: Paddle 3.2 writes safetensors into files named .distcp.
    if (head.size() > 8 && head[0] != '\x80' && head[8] == '{') return readSafetensors(*file);
    if (head.empty()) {
        return damaged("the file is empty", 0)
            .inFile(file->path())
            .byRule(rule::fileTruncated)
            .withHint("the save died before it wrote this file");
    }
    if (!startsAsPickle(head) && head.size() >= 2)
        return damaged("the file begins neither as a pickle nor as safetensors", 0).inFile(file->path());
    PaddleFileLimits limits;
    limits.outlineBytes = options_.limits.pickleBytes;
    limits.objects = false;
    SHARDSCOPE_ASSIGN(PaddleFile saved, readPaddleFile(*file, limits, options_.stop));
    auto index = std::make_shared<Index>();
    index->reserve(saved.entries.size());
    for (PaddleEntry& entry : saved.entries)
        (*index)[std::move(entry.name)] = {std::move(entry.shape), std::move(entry.parts)};
    return std::shared_ptr<const Index>(std::move(index));
}

Result<std::shared_ptr<const RankFiles::Index>> RankFiles::readSafetensors(const ReadFile& file) const {
    SHARDSCOPE_ASSIGN(const safetensors::Header header,
                      safetensors::readHeader(file, options_.limits.safetensorsHeader));
    auto index = std::make_shared<Index>();
    index->reserve(header.tensors.size());
    for (size_t i = 0; i < header.tensors.size(); ++i) {
        const safetensors::HeaderTensor& tensor = header.tensors[i];
        const DimSpan shape = header.shape(i);
        PaddleArray array;
        array.dtype = tensor.dtype;
        array.shape.assign(shape.begin(), shape.end());
        array.offset = header.dataStart + tensor.begin;
        array.length = tensor.end - tensor.begin;
        (*index)[std::string(header.names[i])] = {array.shape, {array}};
    }
    return std::shared_ptr<const Index>(std::move(index));
}

Result<PaddleArrayPlaces::Place> RankFiles::place(const std::string& path, const Entry& entry) const {
    SHARDSCOPE_ASSIGN(const auto file, openFile(path));
    auto place = entry.parts.size() == 1 ? places_.place(file, entry.parts[0]) : join(file, entry);
    if (!place.ok()) return place;
    const PaddleArray& array = entry.parts[0];
    if (entry.parts.size() == 1 && array.raw == PaddleArray::Raw::plain &&
        !rangeFits(array.offset, array.length, file->size())) {
        return damaged(fmt::format("an array takes bytes {} to {}, the file ends at {}", array.offset,
                                   array.offset + array.length, file->size()),
                       array.offset)
            .inFile(file->path())
            .byRule(rule::fileTruncated);
    }
    return place;
}

Result<PaddleArrayPlaces::Place> RankFiles::join(const std::shared_ptr<const ReadFile>& file,
                                                 const Entry& entry) const {
    uint64_t total = 0;
    int64_t elements = 0, wanted = 0;
    for (const PaddleArray& part : entry.parts) {
        int64_t count = 0;
        if (!checkedProduct(part.shape, count) || !checkedAdd(elements, count, elements) ||
            part.dtype != entry.parts[0].dtype || part.bigEndian != entry.parts[0].bigEndian)
            return damaged("the parts of a split parameter do not fit each other").inFile(file->path());
        uint64_t bytes = 0;
        if (!checkedMul<uint64_t>(static_cast<uint64_t>(count), dtypeBytes(part.dtype), bytes) ||
            !checkedAdd(total, bytes, total))
            return damaged("the size of a split parameter overflows").inFile(file->path());
    }
    if (entry.parts.empty() || !checkedProduct(entry.shape, wanted) || wanted != elements)
        return damaged("the parts of a split parameter have another size than the whole")
            .inFile(file->path());
    std::vector<PaddleArrayPlaces::Place> places;
    for (const PaddleArray& part : entry.parts) {
        SHARDSCOPE_ASSIGN(PaddleArrayPlaces::Place place, places_.place(file, part));
        places.push_back(std::move(place));
    }
    SHARDSCOPE_ASSIGN(const auto scratch, fileSystem_->createScratch(options_.scratchDirectory));
    SHARDSCOPE_TRY(scratch->allocate(total));
    std::vector<std::byte> buffer(size_t{1} << 20);
    uint64_t at = 0;
    for (size_t i = 0; i < places.size(); ++i) {
        const uint64_t bytes =
            static_cast<uint64_t>(elementCount(entry.parts[i].shape)) * dtypeBytes(entry.parts[i].dtype);
        for (uint64_t done = 0; done < bytes;) {
            SHARDSCOPE_TRY(options_.stop.poll());
            const auto piece =
                std::span(buffer).first(static_cast<size_t>(std::min<uint64_t>(buffer.size(), bytes - done)));
            SHARDSCOPE_TRY(places[i].file->readAt(places[i].offset + done, piece));
            SHARDSCOPE_TRY(scratch->writeAt(at, piece));
            at += piece.size();
            done += piece.size();
        }
    }
    SHARDSCOPE_ASSIGN(auto joined, fileSystem_->reopen(scratch));
    return PaddleArrayPlaces::Place{std::move(joined), 0};
}

bool storedAs(DType wanted, DType stored) {
    if (wanted == stored) return true;
    switch (wanted) {
        case DType::bfloat16:
            return stored == DType::uint16;
        case DType::float8E4M3FN:
        case DType::float8E5M2:
            return stored == DType::int8 || stored == DType::uint8;
        default:
            return false;
    }
}

}  // namespace shardscope::paddle
