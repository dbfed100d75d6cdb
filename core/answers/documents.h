// Answers that both the verbs and the browser page give.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "answers/json.h"
#include "engine/quantized.h"
#include "engine/slice_values.h"
#include "engine/statistics.h"
#include "jobs/jobs.h"
#include "model/name_pattern.h"
#include "survey/as_if.h"
#include "survey/mesh_picture.h"
#include "survey/placement_change.h"
#include "survey/placement_matrix.h"

namespace shardscope {

// What `info` says besides the catalog's own totals.
struct Summary {
    struct Share {
        uint64_t tensors = 0, bytes = 0;
    };
    struct Module {
        std::string name;
        uint64_t tensors = 0, bytes = 0;
    };
    std::map<std::string, Share> dtypes;
    std::vector<Module> modules;  // the biggest, by the first components of names
    uint64_t optimizerBytes = 0, fileBytes = 0;
    std::vector<QuantizedShare> quantized;
};
Summary summaryOf(const Checkpoint& checkpoint);
Json infoJson(const Checkpoint& checkpoint, const std::string& path,
              const Summary& summary);  // shardscope.info/1

// Which tensors of a checkpoint are parts of quantized weights.
class QuantizedParts {
  public:
    explicit QuantizedParts(const Checkpoint& checkpoint);
    // Adds "quantized" to a tensor's entry where it is one.
    void describe(Json& tensor, TensorId id) const;
    // "scale of 'x.weight' [4096, 4096], fp8 with one scale"; empty = it is none.
    std::string text(TensorId id) const;
    std::string word(TensorId id) const;  // "fp8 scale"; empty = it is none

  private:
    const Catalog& catalog_;
    const std::vector<QuantizedWeight> weights_;
    const std::vector<uint32_t> of_;  // by tensor
};

// How much of a tensor each rank holds, one digit for a rank: '0' nothing, '1' up to an eighth, '2' a
// quarter, '3' a half, '4' nearly all, '5' all.
std::string placementCells(const Catalog& catalog, TensorId tensor);

// shardscope.placement/1: rows as the window folds them, by ranks in the order of the mesh's axes. `columns`
// adds what heads them. `slices` adds what the columns [columnBegin, columnEnd) of these rows hold.
struct PlacementPart {
    uint64_t first = 0, count = UINT64_MAX;  // rows
    bool columns = true, slices = true;
    uint32_t columnBegin = 0, columnEnd = kNone;
};
// The rows of the tensors whose names match. Null when stopped.
std::shared_ptr<const PlacementMatrix> matrixOf(const std::shared_ptr<const Checkpoint>& checkpoint,
                                                const std::shared_ptr<const Facts>& facts,
                                                const NamePattern& pattern, const MatrixOptions& options,
                                                const StopToken& stop);
Json placementJson(const PlacementMatrix& matrix, const PlacementPart& part);

// What the picture of the mesh shows, null for a checkpoint of one rank: shardscope.mesh/1.
Json meshPictureJson(const MeshPicture* picture);
Json asIfJson(const AsIf& what);  // shardscope.as-if/1

// What stays, arrives and leaves, by module: "moves" of shardscope.diff/1.
Json movesJson(const PlacementChange& change);

// One tensor with its chunks [firstChunk, firstChunk + chunkCount): shardscope.show/1. `values` may be null.
struct ChunkRange {
    uint64_t first = 0, count = UINT64_MAX;
};
Json showJson(const Catalog& catalog, TensorId tensor, const ChunkRange& chunks,
              const TensorStatistics* values);
// The name that may be meant by one that is not there: one that ends with it, or that differs in few letters.
// Empty = none.
std::string similarTensor(const Catalog& catalog, std::string_view name);
// Errors: notFound, with the name that may be meant.
Result<TensorId> findTensor(const Catalog& catalog, const std::string& name, const std::string& path);

std::vector<uint64_t> usedBytes(const Catalog& catalog);  // by file
// An entry of "files" and of "objects" of shardscope.ls/1. A value is read where it is not in the metadata.
Json fileJson(const Catalog& catalog, FileId file, uint64_t used);
Json objectJson(const Checkpoint& checkpoint, ObjectId object);

// shardscope.slice/1
Json sliceJson(const Catalog& catalog, const SliceRequest& request, const SliceValues& values);

// An index of a checkpoint that was written into a file of so many bytes: shardscope.index/1.
Json indexJson(const std::string& path, const std::string& file, uint64_t bytes, const Catalog& catalog);
std::string indexName(const std::string& path);  // in the current directory: "step-1000.ssidx"

Json formatsJson();  // shardscope.formats/1
Json recipesJson();  // shardscope.recipes/1
// Of those the ones that fit a checkpoint, the best first, and for each kind of names which one to take
// (engine/recipe_fit.h). `model`: a directory that may have the config.json. Errors: cancelled.
Result<Json> recipesForJson(const Checkpoint& checkpoint, const std::string& model, const StopToken& stop);
Json jobDocument(const JobRecord& job);             // shardscope.job/1
Json jobsJson(const std::vector<JobRecord>& jobs);  // shardscope.jobs/1

}  // namespace shardscope
