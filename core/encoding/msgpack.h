// MessagePack files as trees of nodes. Byte strings and the payloads of extension types stay in the file: a
// node says where they are.
//
// Source: https://github.com/msgpack/msgpack/blob/master/spec.md
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/stop.h"
#include "storage/file_system.h"

namespace shardscope {

struct MsgpackLimits {
    uint32_t nodes = 4'000'000;
    uint64_t textBytes = uint64_t{256} << 20;  // of all texts
    int depth = 128;
};

enum class MsgpackKind : uint8_t {
    nil,
    boolean,
    integer,
    unsignedInteger,
    real,
    text,
    bytes,
    list,
    map,
    extension
};

class MsgpackTree {
  public:
    struct Node {
        MsgpackKind kind = MsgpackKind::nil;
        int8_t extension = 0;  // type of an extension
        int64_t integer = 0;   // boolean: 0 or 1; unsignedInteger: past int64, as its bits
        double real = 0;
        uint64_t offset = 0;  // in the file: of a payload, for others of the node itself
        uint64_t length = 0;  // bytes of text or payload; items of a list; keys and values of a map
        uint64_t first = 0;   // of a list or map: index in items(); of a text: in the blob
    };
    uint32_t root() const { return root_; }
    const Node& operator[](uint32_t node) const { return nodes_[node]; }
    // Of a list; of a map key, value, key, value, ...
    std::span<const uint32_t> items(uint32_t node) const {
        return std::span(items_).subspan(static_cast<size_t>(nodes_[node].first),
                                         static_cast<size_t>(nodes_[node].length));
    }
    std::string_view text(uint32_t node) const {
        return std::string_view(texts_).substr(static_cast<size_t>(nodes_[node].first),
                                               static_cast<size_t>(nodes_[node].length));
    }
    bool isText(uint32_t node, std::string_view value) const {
        return nodes_[node].kind == MsgpackKind::text && text(node) == value;
    }

  private:
    friend class MsgpackParser;
    uint32_t root_ = 0;
    std::vector<Node> nodes_;
    std::vector<uint32_t> items_;
    std::string texts_;
};

// The one value that bytes [offset, offset + length) of the file are. Errors: damaged with the byte
// (meta.inconsistent; file.truncated where the bytes end too early), limit, cancelled, those of the file.
Result<MsgpackTree> readMsgpack(const ReadFile& file, uint64_t offset, uint64_t length,
                                const MsgpackLimits& limits, const StopToken& stop);
// Reads the value that begins at `offset`, one of several in sequence up to `end`, and sets `offset` to the
// byte after the value. Errors: as above.
Result<MsgpackTree> readNextMsgpack(const ReadFile& file, uint64_t& offset, uint64_t end,
                                    const MsgpackLimits& limits, const StopToken& stop);

}  // namespace shardscope
