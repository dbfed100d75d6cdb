// A pickle inside a file, read without the large values in it. Arrays of numpy stay where they are, whatever
// their size, and the graph says which bytes of the file they take.
//
// Bytes values of 256 bytes or more are taken out of the stream. So are texts of 4 KiB or more, as protocol 2
// spells bytes as text. What is left is decoded as any pickle. So a checkpoint of many gigabytes costs a read
// of some hundred bytes for each of its arrays.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/stop.h"
#include "encoding/pickle.h"
#include "storage/file_system.h"

namespace shardscope {

// A value that was left in the file.
struct PicklePayload {
    uint64_t offset = 0;  // of its first byte
    uint64_t length = 0;  // bytes in the file
    bool text = false;    // UTF-8 whose characters are the bytes
};

struct PickleOutline {
    Pickle pickle;  // `length` is that of the stream in the file
    std::vector<PicklePayload> payloads;

    // The payload that a bytes, bytearray or text node stands for; nullptr for a node with a value of its
    // own.
    const PicklePayload* payloadOf(NodeId node) const;
    // Whether a text from the graph stands for a payload.
    static bool isPlaceholder(std::string_view text);
};

struct OutlineLimits {
    uint64_t outlineBytes = uint64_t{2} << 30;  // of the stream without its payloads
};

// Reads the pickle that begins at `offset`. Errors: as decodePickle and io, with file and offset; damaged by
// rule file.truncated when the file ends inside it.
Result<PickleOutline> outlinePickle(const ReadFile& file, uint64_t offset, const OutlineLimits& limits,
                                    const StopToken& stop);

}  // namespace shardscope
