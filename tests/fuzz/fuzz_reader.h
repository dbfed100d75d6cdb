// Opens the fuzzer's bytes as a checkpoint of one format and looks at what it says.
#pragma once

#include <memory>

#include "formats/format.h"
#include "fuzz_file.h"

namespace shardscope::fuzz {

// The reader, or null for an error. Traps where a chunk does not lie inside its file.
inline std::unique_ptr<Reader> tryOpen(const Format& format, const Source& source,
                                       const OpenOptions& options = {}) {
    (void)format.probe(source);
    auto opened = format.open(source, options);
    if (!opened.ok()) return nullptr;
    std::unique_ptr<Reader> reader = std::move(opened).value();
    const Catalog& catalog = reader->catalog();
    for (ChunkId c = 0; c < catalog.chunkCount() && c < 1000; ++c) {
        const auto extent = reader->locate(c);
        if (!extent.ok()) continue;
        if (!extent->file) {
            // Only nothing is nowhere.
            if (catalog.chunk(c).elements() != 0) __builtin_trap();
            continue;
        }
        if (extent->offset > extent->file->size() || extent->length > extent->file->size() - extent->offset)
            __builtin_trap();
    }
    return reader;
}

// The same of a directory in which every file has these bytes.
inline std::unique_ptr<Reader> tryOpen(const Format& format, std::shared_ptr<Directory> directory,
                                       std::vector<DirectoryEntry> entries) {
    Source source;
    source.directory = std::move(directory);
    source.entries = std::move(entries);
    source.fileSystem = systemFileSystem();
    return tryOpen(format, source);
}

}  // namespace shardscope::fuzz
