// Opens a DCP directory, or several: builds the catalog from decoded metadata. Private to this format.
#pragma once

#include <memory>
#include <string>
#include <string_view>
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

// One DCP may be in several directories: hosts without a disk in common keep the .distcp files of their own
// ranks, and .metadata is with those of rank 0.
constexpr std::string_view kFurtherDirectories = "--also";  // option of opening

// The source with the files of the directories that --also names: those of ranks, and the metadata. All else
// is that of the source's own directory. Errors: unsafe (two directories have one file: they are not of one
// save), unsupported (a place of another kind than the source's), those of opening a directory.
Result<Source> withFurtherDirectories(const Source& source, const OpenOptions& options);

// Certain: `.metadata` or `__R.metadata` with .distcp files, or with the first bytes of such a pickle.
Probe probeDcp(const Source& source);
// Errors: damaged with file and byte, unsupported (layouts of torch 1.12 and 1.13), limit, notFound.
Result<std::unique_ptr<Reader>> openDcp(const Source& source, const OpenOptions& options);

}  // namespace shardscope::dcp
