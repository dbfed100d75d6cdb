// Encodes and decodes the unpacked payload of an index file, which is untrusted input. Layout:
// docs/formats/index.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/stop.h"
#include "formats/format.h"
#include "model/catalog.h"

namespace shardscope {

struct IndexOrigin {
    std::string host, path;  // of the checkpoint, as the program that made the index saw it
    int64_t madeAt = 0;      // seconds since 1970, UTC
};

struct IndexContents {
    IndexOrigin origin;
    Catalog catalog;
    struct StoredValue {
        std::string pickle;  // empty = the index lacks the value
        std::string reason;  // why the index lacks the value
    };
    std::vector<StoredValue> values;  // by ObjectId
};

// Errors: cancelled.
Result<std::string> encodeIndexPayload(const Reader& reader, const IndexOrigin& origin,
                                       const StopToken& stop = {});

// Errors: damaged with the offset in the payload; those of CatalogBuilder; cancelled.
Result<IndexContents> decodeIndexPayload(std::span<const std::byte> payload, const StopToken& stop = {});

}  // namespace shardscope
