// Base class of the openers of Megatron-Core's stores, torch_dist and zarr. Handles common.pt, metadata.json
// (written last) and ShardedObjects. Private to this format.
#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "formats/catalog_opener.h"
#include "formats/megatron/place.h"
#include "formats/megatron/run_state.h"

namespace shardscope::megatron {

// How the optimizer's buckets are shown: --buckets keep|parameters.
inline constexpr const char* kBuckets = "--buckets";
inline constexpr const char* kKeepBuckets = "keep";
inline constexpr const char* kNamedBuckets = "parameters";

class StoreOpener : protected CatalogOpener {
  protected:
    StoreOpener(const Source& source, const OpenOptions& options, const Place& place, std::string variant)
        : CatalogOpener("megatron", std::move(variant), "megatron-core"),
          source_(source),
          options_(options),
          place_(place) {}

    // Reads common.pt; an unreadable file is a note. Errors: cancelled, limit.
    Status readCommon();
    // Notes how many rows of an embedding or output layer are padding.
    void notePadding(std::string_view name, DimSpan shape);
    // Adds metadata.json to the catalog, or notes that it is missing.
    void addCommitMark();
    // Notes the missing objects of each grid. If each object has its own file, names the file: object name
    // and `ending`.
    void noteMissingObjects(const std::vector<std::string>& names, std::string_view ending = {});
    // Finds the parallel sizes in the grid of the random states if the arguments do not state them.
    // `highest`: the highest rank that wrote a file, or kNone.
    void findSizes(const std::vector<std::string>& objects, uint32_t highest);
    void addMesh(uint32_t highest);
    // Joins the entries of common.pt to the store, as "common.<key>".
    Result<std::unique_ptr<Reader>> withCommon(std::unique_ptr<Reader> store);

    static Role roleOf(std::string_view name);

    const Source& source_;
    const OpenOptions& options_;
    const Place& place_;
    std::unique_ptr<Reader> common_;
    Arguments args_;
    std::optional<ParallelSizes> sizes_;
};

// Errors: as openDcp(); notFound if the save was never committed.
Result<std::unique_ptr<Reader>> openTorchDist(const Source& source, const OpenOptions& options,
                                              const Place& place);
// Errors: those of listing; damaged and unsupported for an array's .zarray.
Result<std::unique_ptr<Reader>> openZarrStore(const Source& source, const OpenOptions& options,
                                              const Place& place);

}  // namespace shardscope::megatron
