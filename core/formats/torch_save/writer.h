// Lays out torch.save files: one zip archive in the layout of torch 2.15.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "encoding/torch_archive.h"
#include "formats/format.h"

namespace shardscope::torch_save {

// One file that holds the nested object of a catalog's entries. All tensors are whole.
class ObjectFile {
  public:
    explicit ObjectFile(const std::string& archiveName)
        : archive_(std::make_unique<TorchArchiveWriter>(archiveName)) {}

    // Appends to `changed` the entries that are written in another form. Errors: impossible if two entries
    // have one path, or a value cannot be pickled.
    Status build(const Catalog& content, std::vector<LeftOut>& changed);
    uint64_t size() const { return archive_->size(); }
    // Byte offset of the tensor's elements.
    uint64_t offsetOf(TensorId t) const { return archive_->storageOffset(storageOf_[t]); }
    // Writes all bytes except tensor data. `crcOf` gives the CRC-32 of a tensor's bytes.
    Status literals(const std::function<uint32_t(TensorId)>& crcOf,
                    const TorchArchiveWriter::Sink& sink) const;

  private:
    std::unique_ptr<TorchArchiveWriter> archive_;
    std::vector<TensorId> storages_;   // by number i of record data/<i>
    std::vector<uint32_t> storageOf_;  // by tensor
};

// Why torch.save files cannot hold a tensor; empty if they can.
std::string whyNoFileHolds(const Catalog& target, TensorId t);

std::vector<LeftOut> cannotHold(const Catalog& target, const WriteOptions& options);
Result<std::unique_ptr<TargetLayout>> layOut(const Catalog& target, const WriteOptions& options);

}  // namespace shardscope::torch_save
