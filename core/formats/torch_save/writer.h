// torch.save files, written: one zip archive as torch 2.15 lays it out.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "encoding/torch_archive.h"
#include "formats/format.h"

namespace shardscope::torch_save {

// One file with the nested object that the entries of a catalog make up; its tensors are whole.
class ObjectFile {
  public:
    explicit ObjectFile(const std::string& archiveName)
        : archive_(std::make_unique<TorchArchiveWriter>(archiveName)) {}

    // `changed` gains what is not written as it was. Errors: impossible where two entries want one place,
    // or a value cannot be pickled.
    Status build(const Catalog& content, std::vector<LeftOut>& changed);
    uint64_t size() const { return archive_->size(); }
    uint64_t offsetOf(TensorId t) const { return archive_->storageOffset(storageOf_[t]); }  // of the elements
    // All bytes but those of the tensors, whose checksums are asked for.
    Status literals(const std::function<uint32_t(TensorId)>& crcOf,
                    const TorchArchiveWriter::Sink& sink) const;

  private:
    std::unique_ptr<TorchArchiveWriter> archive_;
    std::vector<TensorId> storages_;   // data/<i> holds this tensor
    std::vector<uint32_t> storageOf_;  // by tensor
};

// Why no torch.save file can hold a tensor; empty where one can.
std::string whyNoFileHolds(const Catalog& target, TensorId t);

std::vector<LeftOut> cannotHold(const Catalog& target, const WriteOptions& options);
Result<std::unique_ptr<TargetLayout>> layOut(const Catalog& target, const WriteOptions& options);

}  // namespace shardscope::torch_save
