// Writes DTensors as torch 2.15 pickles them: the local tensor, and a DTensorSpec with a DeviceMesh, which is
// written once for each file. Source: torch/distributed/tensor/_dtensor_spec.py, torch/distributed/
// device_mesh.py, torch/_tensor.py (__reduce_ex__); docs/formats/torch_ranks.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "encoding/dtensor.h"
#include "encoding/torch_archive.h"
#include "model/mesh.h"

namespace shardscope {

class DTensorPickler {
  public:
    // What the files of all ranks have in common, and what takes long to write for many: the numbers of all
    // ranks, as one tuple.
    static std::string numbersOfRanks(const Mesh& mesh);

    // `mesh` and `numbers`, its numbersOfRanks(), outlive this. `device`: "cuda" or "cpu", that the mesh is
    // of; tensors are on the CPU.
    DTensorPickler(TorchArchiveWriter& archive, const Mesh& mesh, std::string_view numbers, uint32_t rank,
                   std::string device)
        : archive_(archive),
          out_(archive.pickle()),
          mesh_(mesh),
          numbers_(numbers),
          rank_(rank),
          device_(std::move(device)) {}

    using Placement = torch_save::DTensorSpec::Placement;
    // One placement for each axis of the mesh: shards, which cut from left to right, and replicas. The local
    // tensor is contiguous, in the storage `key` (as TorchArchiveWriter::tensor). `newKey`: the number of
    // storages so far, for the ranks of the mesh.
    void tensor(DType dtype, DimSpan shape, DimSpan local, size_t key, uint64_t bytes,
                const std::vector<Placement>& placements);

    // The storage that holds the ranks of the mesh, and its contents; nothing before the first DTensor.
    std::optional<size_t> rankStorage() const { return rankStorage_; }
    std::string rankBytes() const;

  private:
    void integers(DimSpan values);
    void object(std::string_view module, std::string_view name);
    void mesh();
    void placements(const std::vector<Placement>& all);
    void shardOrder(const std::vector<Placement>& all);

    TorchArchiveWriter& archive_;
    PickleWriter& out_;
    const Mesh& mesh_;
    const std::string_view numbers_;
    const uint32_t rank_;
    const std::string device_;
    std::optional<uint32_t> meshMemo_;
    std::optional<size_t> rankStorage_;
};

}  // namespace shardscope
