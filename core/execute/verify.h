// What a conversion has written is read back before it is published. This process does it alone, or tile by
// tile, so that others can do their part. Private to this room.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "execute/destination.h"
#include "execute/executor.h"
#include "execute/part_reading.h"

namespace shardscope {

// The staged output, through the ordinary reader.
class StagedOutput {
  public:
    // Opens it and compares its catalog with the wanted one. Errors: damaged (with what differs), cancelled,
    // io.
    static Result<std::unique_ptr<StagedOutput>> open(const ConvertJob& job, const std::string& path);

    const Reader& reader() const { return *reader_; }
    // Wanted tensors to read, so that each is read once; in the order of the wanted catalog.
    const std::vector<TensorId>& tensors() const { return tensors_; }
    // The id in the output; kNone for an alias that the format records in another way.
    TensorId idOf(TensorId target) const { return ids_[target]; }
    TileGrid grid(TensorId target, uint64_t tileBytes) const;

    // A task that gives `take` the digest cells of each tile of grid(), from any thread. Errors: usage for a
    // tensor without any, those of TensorReader.
    using Take = std::function<Status(JournalTile)>;
    Result<std::unique_ptr<TensorTask>> tilesOf(TensorId target, uint64_t tileBytes, SourceContext& context,
                                                WorkerMemory& kept, const Take& take) const;

    // Reads here what was not read behind the writers. Errors: damaged (with the tensor that differs), those
    // of reading.
    Status verify(const ConvertState& state) const;

  private:
    friend class VerifiedTiles;
    StagedOutput(const ConvertJob& job, std::unique_ptr<Reader> reader)
        : job_(job), reader_(std::move(reader)) {}
    Status match();
    Result<bool> hasPlacesOf(const Reader& layout, TensorId target) const;
    // Compares the digests of tensors().
    Status compare(const ConvertState& state, const std::vector<Digest128>& digests) const;

    const ConvertJob& job_;
    const std::unique_ptr<Reader> reader_;
    std::vector<TensorId> ids_;  // by wanted tensor
    std::vector<TensorId> tensors_;
};

// Reading the output back in parts; what is found in a tile is its digest cells. `output` outlives it.
PartReading verifyReading(const StagedOutput& output, const Staging& staging);
// The same for reading the source once more (Verify::full). `state` outlives it.
PartReading rereading(const ConvertState& state, const Staging& staging);

// What parts found when they read tiles of the output.
class VerifiedTiles {
  public:
    VerifiedTiles(const StagedOutput& output, uint64_t tileBytes);
    Status add(JournalTile tile);  // errors: damaged, when it cannot be what was asked for
    // All that parts found. Errors: damaged, io.
    Status add(const FinishedReading& found);
    // Once all tiles are there. Errors: damaged, with the tensor that differs.
    Status compare(const ConvertState& state) const;

  private:
    const StagedOutput& output_;
    const uint64_t tileBytes_;
    std::map<TensorId, std::vector<Digest128>> cells_;
};

Error wrongOutput(std::string message, std::string_view tensor);
Error readBackDiffers(std::string_view tensor);

}  // namespace shardscope
