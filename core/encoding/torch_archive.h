// A torch.save file written as one zip archive, as torch 2.15 lays it out: the pickle first, then the
// storages.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "encoding/pickle.h"
#include "encoding/torch_tensor.h"
#include "encoding/zip.h"

namespace shardscope {

class TorchArchiveWriter {
  public:
    explicit TorchArchiveWriter(const std::string& archiveName);

    // The saved object is written here; tensor() appends one.
    PickleWriter& pickle() { return pickle_; }
    // A contiguous tensor over the storage `key`; a new one when `key` is the number of storages so far.
    void tensor(DType dtype, DimSpan shape, size_t key, uint64_t bytes);
    size_t storageCount() const { return storageBytes_.size(); }

    // After the pickle is complete; from then on offsets are known.
    void finish();
    uint64_t size() const { return zip_.totalSize(); }
    uint64_t storageOffset(size_t storage) const { return zip_.dataOffset(firstStorage_ + storage); }

    // All bytes but those of the storages, whose checksums are given.
    using Sink = std::function<Status(uint64_t offset, std::span<const std::byte> bytes)>;
    Status literals(std::span<const uint32_t> storageCrcs, const Sink& sink) const;

  private:
    void addSmall(std::string_view name, std::string content);
    size_t smallIndex(size_t record) const {
        return record < firstStorage_ ? record : record - storageBytes_.size();
    }

    ZipLayout zip_;
    PickleWriter pickle_{PickleWriter::For::weightsOnly};
    TorchTensorPickler tensors_{pickle_};
    std::vector<uint64_t> storageBytes_;
    std::vector<std::string> small_;  // contents of the records that are not storages
    size_t firstStorage_ = 0;         // record of data/0
};

}  // namespace shardscope
