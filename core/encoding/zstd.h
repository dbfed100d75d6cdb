// zstd streams of untrusted files: any number of frames, with or without the size of their content, never
// unpacked to more than the caller allows.
//
// Source: RFC 8878; libzstd of the system.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/stop.h"
#include "storage/file_system.h"

namespace shardscope {

// Takes unpacked bytes in order.
using BytesSink = std::function<Status(std::span<const std::byte>)>;

// Unpacks bytes [offset, offset + length) of `packed`, which are inside of it, in pieces. Errors: damaged
// with the byte, limit past `maxPlain` bytes, cancelled, those of the file and of the sink.
Status unpackZstd(const ReadFile& packed, uint64_t offset, uint64_t length, uint64_t maxPlain,
                  const StopToken& stop, const BytesSink& sink);

// The same of bytes in memory; memory is taken as they are unpacked.
Result<std::vector<std::byte>> unpackZstd(std::span<const std::byte> packed, uint64_t maxPlain);

}  // namespace shardscope
