// The portable index: the catalog of a checkpoint in one small file, made where the checkpoint is and read
// anywhere. It holds everything that the metadata says and no tensor data.
//
// Layout (little-endian): 8 bytes "SSINDEX\n", u32 version (1), u32 0, u64 size of the unpacked payload, 16
// bytes XXH3-128 of the payload (low half first), then the payload as a zstd stream up to the end of the
// file. docs/formats/index.md has the payload.
#pragma once

#include <cstdint>
#include <string>

#include "formats/format.h"
#include "formats/index/payload.h"

namespace shardscope {

// Reads. The catalog says what the checkpoint's own format is; Reader::dataElsewhere() where the index comes
// from. Errors of opening: damaged (truncated, another digest, impossible contents), unsupported (a newer
// version), limit.
const Format& indexFormat();

// The bytes of an index file. Values of objects are read for it; one that cannot be read is kept as the
// reason why. Errors: cancelled, limit.
Result<std::string> encodeIndex(const Reader& reader, const IndexOrigin& origin, const StopToken& stop = {});

}  // namespace shardscope
