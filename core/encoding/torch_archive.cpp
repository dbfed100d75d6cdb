#include "encoding/torch_archive.h"

#include <algorithm>

#include <fmt/format.h>

#include "storage/digest.h"

namespace shardscope {

namespace {

constexpr uint64_t kAlignment = 64;  // torch's default

// torch refuses an empty name and reads the prefix as what stands before the first slash.
std::string archivePrefix(const std::string& name) {
    const bool plain = !name.empty() && name.size() <= 1000 && name != "." && name != ".." &&
                       std::all_of(name.begin(), name.end(), [](char c) {
                           return c >= 0x20 && c < 0x7f && c != '/' && c != '\\' && c != ':';
                       });
    return plain ? name : "archive";
}

}  // namespace

TorchArchiveWriter::TorchArchiveWriter(const std::string& archiveName)
    : zip_(archivePrefix(archiveName), kAlignment) {}

void TorchArchiveWriter::tensor(DType dtype, DimSpan shape, size_t key, uint64_t bytes) {
    if (key == storageBytes_.size()) storageBytes_.push_back(bytes);
    Dims strides(shape.size(), 1);
    for (size_t i = shape.size(); i-- > 1;)
        strides[i - 1] = strides[i] * std::max<int64_t>(shape[i], 1);
    tensors_.tensor(dtype, std::to_string(key), static_cast<uint64_t>(elementCount(shape)), 0, shape,
                    strides);
}

void TorchArchiveWriter::addSmall(std::string_view name, std::string content) {
    zip_.addRecord(name, content.size());
    small_.push_back(std::move(content));
}

void TorchArchiveWriter::finish() {
    addSmall("data.pkl", pickle_.finish());
    addSmall(".format_version", "1");
    addSmall(".storage_alignment", std::to_string(kAlignment));
    addSmall("byteorder", "little");
    firstStorage_ = zip_.recordCount();
    for (size_t s = 0; s < storageBytes_.size(); ++s)
        zip_.addRecord(fmt::format("data/{}", s), storageBytes_[s]);
    addSmall("version", "3\n");
}

// All that is between the data of two records is one piece.
Status TorchArchiveWriter::literals(std::span<const uint32_t> storageCrcs, const Sink& sink) const {
    const auto isStorage = [&](size_t r) {
        return r >= firstStorage_ && r < firstStorage_ + storageBytes_.size();
    };
    std::vector<uint32_t> crcs(zip_.recordCount(), 0);
    for (size_t r = 0; r < crcs.size(); ++r) {
        crcs[r] = !isStorage(r) ? crc32Of(std::as_bytes(std::span(small_[smallIndex(r)])))
                  : zip_.dataSize(r) > 0 && r - firstStorage_ < storageCrcs.size()
                      ? storageCrcs[r - firstStorage_]
                      : 0;
    }
    std::string piece;
    uint64_t at = 0;
    const auto flush = [&]() -> Status {
        if (!piece.empty()) SHARDSCOPE_TRY(sink(at, std::as_bytes(std::span(piece))));
        at += piece.size();
        piece.clear();
        return {};
    };
    for (size_t r = 0; r < zip_.recordCount(); ++r) {
        piece += zip_.header(r);
        if (isStorage(r)) {
            SHARDSCOPE_TRY(flush());
            at += zip_.dataSize(r);
        } else {
            piece += small_[smallIndex(r)];
        }
        piece += zip_.descriptor(r, crcs[r]);
    }
    piece += zip_.directory(crcs);
    return flush();
}

}  // namespace shardscope
