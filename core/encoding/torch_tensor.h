// How torch pickles tensors: the rebuild functions and persistent ids of torch.save, read from inert values
// and written. Shared by the torch.save format and by the blobs inside DCP's .distcp files. Source:
// torch/_utils.py, torch/serialization.py, torch/storage.py; docs/formats/torch_save.md.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "encoding/pickle.h"
#include "encoding/zip.h"
#include "model/dtype.h"
#include "model/region.h"
#include "model/value.h"
#include "model/value_view.h"

namespace shardscope {

// What a persistent id ("storage", class, key, location, numel) says.
struct TorchStorage {
    std::string key;
    std::optional<DType> dtype;  // absent for UntypedStorage, whose numel counts bytes
    uint64_t elements = 0;       // of the whole storage
    std::string location;
    // Legacy files only: the tensor sees this range of the storage, in elements.
    uint64_t viewOffset = 0;
    std::optional<uint64_t> viewElements;
};
// Errors: damaged when the number overflows.
Result<uint64_t> storageBytes(const TorchStorage& storage);

// Interprets a persistent id. Errors: damaged; unsupported for a storage class that is not known.
Result<TorchStorage> asTorchStorage(const ValueGraph& graph, NodeId persistent);

// A dense strided tensor over a storage.
struct TorchTensor {
    TorchStorage storage;
    DType dtype = DType::float32;
    int64_t storageOffset =
        0;  // in elements of dtype, from the start of the storage (a legacy view's offset included)
    Dims shape;
    Dims strides;
    bool conjugate = false;
    bool negate = false;
    std::string wrapper;  // "Parameter" or the name of a subclass around it, for display
    bool rowMajor() const;
};

// Interprets `node` when it is a dense tensor: _rebuild_tensor, _v2, _v3, parameters, tensors with
// attributes, plain subclasses and old NEWOBJ forms around them. It is nullopt when it is something else
// (sparse, quantized, DTensor, not a tensor). Errors: damaged for malformed arguments, negative or
// overflowing sizes and strides.
Result<std::optional<TorchTensor>> asTorchTensor(const ValueGraph& graph, NodeId node);

// A tuple, list or torch.Size of integers. Errors: damaged; limit for more than kMaxRank of them.
Result<Dims> asDims(const ValueGraph& graph, NodeId node, std::string_view what);
Result<Dims> asDims(ValueView value, std::string_view what);  // damaged, too, where there is none

// The storage bytes needed by the tensor, [first, last) in bytes from the start of the storage; checked
// arithmetic. Errors: damaged when they are not inside the storage. An empty tensor needs none.
struct StorageSpan {
    uint64_t first = 0;
    uint64_t last = 0;
};
Result<StorageSpan> storageSpan(const TorchTensor& tensor);

std::optional<DType> dtypeFromTorchGlobal(std::string_view module,
                                          std::string_view name);        // torch float32 -> float32
std::optional<DType> dtypeFromStorageClass(std::string_view className);  // "FloatStorage" -> float32
// Name of the storage class, or empty for dtypes that torch pickles through UntypedStorage and
// _rebuild_tensor_v3.
std::string_view storageClassName(DType dtype);

// A torch.save zip archive, opened: data.pkl decoded, byte order known.
struct TorchArchive {
    ZipArchive zip;
    std::string prefix;  // archive name inside the zip
    Pickle pickle;
    bool bigEndian = false;
    int alignment = 64;

    // The record of the tensor's storage, checked. It is there and as long as the storage; a longer one is
    // left to the caller. The tensor is inside it.
    Result<const ZipEntry*> storageEntry(const TorchTensor& tensor) const;
};
// Two reads for an archive with one tensor. Errors: damaged, unsupported (TorchScript, zips without data.pkl,
// unknown version or byte order), limit.
Result<TorchArchive> openTorchArchive(std::shared_ptr<const ReadFile> file, uint64_t offset, uint64_t length,
                                      const PickleLimits& limits);

// Appends the pickle of one contiguous tensor: REDUCE of _rebuild_tensor_v2 or _v3 over storage `key` of
// `storageElements` elements, exactly as torch writes it on the CPU.
class TorchTensorPickler {
  public:
    explicit TorchTensorPickler(PickleWriter& out) : out_(out) {}
    void tensor(DType dtype, std::string_view key, uint64_t storageElements, int64_t storageOffset,
                DimSpan shape, DimSpan strides);

  private:
    void dims(DimSpan values);
    PickleWriter& out_;
};

// data.pkl of an archive whose root is one contiguous tensor with its own storage "0" (a DCP blob).
std::string pickleOneTensor(DType dtype, DimSpan shape);

}  // namespace shardscope
