#include "formats/dcp/stored_entries.h"

#include <fmt/format.h>

#include "base/checked.h"
#include "base/rule.h"
#include "base/units.h"
#include "encoding/zstd.h"

namespace shardscope::dcp {

StoredEntries::StoredEntries(const Source& source, const OpenOptions& options)
    : openFiles_(source.directory),
      stop_(options.stop),
      plain_(source.fileSystem, options.scratchDirectory) {}

Result<EntrySlice> StoredEntries::open(const std::string& path, uint64_t offset, uint64_t length,
                                       const std::vector<std::string>& transforms, uint64_t maxPlain) const {
    for (const std::string& transform : transforms) {
        if (transform != "stream.zstd/1") {
            return unsupported(
                       fmt::format("the entry went through the transform '{}', which is not known (only "
                                   "stream.zstd/1 is)",
                                   transform))
                .inFile(path)
                .at(offset);
        }
    }
    SHARDSCOPE_ASSIGN(const auto file, openFile(path));
    if (!rangeFits(offset, length, file->size())) {
        return damaged(fmt::format("the entry takes bytes {} to {}, the file ends at {}", countText(offset),
                                   countText(offset + length), countText(file->size())))
            .inFile(file->path())
            .at(offset)
            .byRule(rule::fileTruncated);
    }
    // Transforms are listed in the order of reading.
    EntrySlice slice{file, offset, length};
    for (size_t i = 0; i < transforms.size(); ++i) {
        auto plain =
            plain_.get({fmt::format("{} {} {}", i, offset, path), file, maxPlain, false},
                       [&](const Materialized::Sink& sink) {
                           return unpackZstd(*slice.file, slice.offset, slice.length, maxPlain, stop_, sink);
                       });
        if (!plain.ok()) return std::move(plain).error().inFile(file->path()).at(offset);
        slice.file = std::move(plain).value();
        slice.offset = 0;
        slice.length = slice.file->size();
    }
    return slice;
}

}  // namespace shardscope::dcp
