// What Megatron-Core's two kinds of stores, torch_dist and zarr, have in common: common.pt beside the
// tensors, metadata.json that is written last, and ShardedObjects. Private to this format.
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

    // Reads common.pt; one that cannot be read is a note. Errors: cancelled, limit.
    Status readCommon();
    // Says of an embedding or output layer how many of its rows are padding.
    void notePadding(std::string_view name, DimSpan shape);
    // Says that metadata.json is missing, or adds it to the catalog.
    void addCommitMark();
    // A file that belongs to the checkpoint and is not there.
    void addMissing(std::string path, Severity severity, std::string message, std::string_view tensor = {},
                    Note::Lacks lacks = Note::Lacks::nothing);
    // Says which objects of a grid are missing; where each has a file of its own, by its name and `ending`.
    void noteMissingObjects(const std::vector<std::string>& names, std::string_view ending = {});
    // Finds the sizes in the places of the random states, where the arguments do not say them. `highest`: the
    // highest rank that wrote a file, or kNone.
    void findSizes(const std::vector<std::string>& objects, uint32_t highest);
    void addMesh(uint32_t highest);
    // Puts the entries of common.pt behind those of the store, as "common.<key>".
    Result<std::unique_ptr<Reader>> withCommon(std::unique_ptr<Reader> store);

    static Role roleOf(std::string_view name);

    const Source& source_;
    const OpenOptions& options_;
    const Place& place_;
    std::unique_ptr<Reader> common_;
    Arguments args_;
    std::optional<ParallelSizes> sizes_;
};

// Errors: as opening a DCP; notFound where the directory was never committed.
Result<std::unique_ptr<Reader>> openTorchDist(const Source& source, const OpenOptions& options,
                                              const Place& place);
// Errors: those of listing; damaged and unsupported for an array's .zarray.
Result<std::unique_ptr<Reader>> openZarrStore(const Source& source, const OpenOptions& options,
                                              const Place& place);

}  // namespace shardscope::megatron
