// The portable index (.ssidx): a checkpoint's catalog in one small file, readable where the checkpoint is
// not. The index holds all metadata and no tensor data.
//
// Layout (little-endian): 8 bytes "SSINDEX\n", u32 version (1), u32 0, u64 size of the unpacked payload, 16
// bytes XXH3-128 of the payload (low half first), then the payload as a zstd stream up to the end of the
// file. docs/formats/index.md has the payload.
#pragma once

#include <string>

#include "formats/format.h"
#include "formats/index/payload.h"

namespace shardscope {

// Read only; encodeIndex() writes. The catalog names the checkpoint's own format; Reader::dataElsewhere()
// states the origin of the index. Errors of opening: damaged (truncated, wrong digest, impossible contents),
// unsupported (another version), limit.
const Format& indexFormat();

// Returns the bytes of an index file. Reads the values of all objects. For an unreadable value the index
// keeps the reason. Errors: cancelled, limit.
Result<std::string> encodeIndex(const Reader& reader, const IndexOrigin& origin, const StopToken& stop = {});

}  // namespace shardscope
