// Builds the catalog from decoded DCP metadata. Private to this format.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "formats/dcp/metadata.h"
#include "formats/format.h"

namespace shardscope::dcp {

// One metadata file: `.metadata`, or rank R's `__R.metadata`.
struct MetadataFile {
    std::string name;
    uint64_t size = 0;
    Metadata metadata;
};

struct CatalogParts {
    Catalog catalog;
    std::vector<std::vector<std::string>> transforms;  // [0] = none
    std::vector<uint16_t> chunkTransforms;             // per chunk; empty when nothing was transformed
    std::vector<uint16_t> objectTransforms;            // per object; empty likewise
};

// Several files come from the ranks of a save without collectives: their tensors, chunks and objects are
// united. Errors, with the tensor's name: damaged, limit.
Result<CatalogParts> buildCatalog(const Source& source, std::vector<MetadataFile> files);

// "__3_0.distcp" -> 3; kNone for other names.
uint32_t rankOfDataFile(std::string_view path);
// "__3.metadata" -> 3; kNone for other names.
uint32_t rankOfMetadataFile(std::string_view name);

}  // namespace shardscope::dcp
