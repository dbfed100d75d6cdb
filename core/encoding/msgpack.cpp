#include "encoding/msgpack.h"

#include <algorithm>
#include <bit>

#include <fmt/format.h>

#include "base/rule.h"
#include "base/units.h"

namespace shardscope {

namespace {

constexpr uint64_t kMsgpackWindow = 256 << 10;

}  // namespace

class MsgpackParser {
  public:
    MsgpackParser(const ReadFile& file, uint64_t offset, uint64_t length, const MsgpackLimits& limits,
                  const StopToken& stop)
        : file_(file), at_(offset), end_(offset + length), limits_(limits), stop_(stop) {}

    // `next` becomes the byte behind the value; null where the bytes are that value alone.
    Result<MsgpackTree> read(uint64_t* next = nullptr) {
        SHARDSCOPE_ASSIGN(tree_.root_, value(0));
        if (!next && at_ != end_)
            return damaged("more bytes follow the value", at_).byRule(rule::metaInconsistent);
        if (next) *next = at_;
        return std::move(tree_);
    }

  private:
    using Node = MsgpackTree::Node;

    Result<uint64_t> number(uint64_t bytes) {
        unsigned char raw[8] = {};
        SHARDSCOPE_TRY(take(std::as_writable_bytes(std::span(raw)).first(static_cast<size_t>(bytes))));
        uint64_t out = 0;
        for (size_t i = 0; i < bytes; ++i)
            out = out << 8 | raw[i];
        return out;
    }

    // Through a window, because most values are a few bytes.
    Status take(std::span<std::byte> out) {
        if (out.size() > end_ - at_)
            return damaged("it ends in the middle of a value", end_).byRule(rule::fileTruncated);
        if (at_ < windowAt_ || at_ + out.size() > windowAt_ + window_.size()) {
            SHARDSCOPE_TRY(stop_.poll());
            windowAt_ = at_;
            window_.resize(
                static_cast<size_t>(std::max<uint64_t>(out.size(), std::min(kMsgpackWindow, end_ - at_))));
            SHARDSCOPE_TRY(file_.readAt(at_, window_));
        }
        std::copy_n(window_.begin() + static_cast<ptrdiff_t>(at_ - windowAt_), out.size(), out.begin());
        at_ += out.size();
        return {};
    }

    Result<uint32_t> add(Node node) {
        if (tree_.nodes_.size() >= limits_.nodes)
            return makeError(ErrorCode::limit,
                             fmt::format("it has more than {}", counted(limits_.nodes, "value")));
        tree_.nodes_.push_back(node);
        return static_cast<uint32_t>(tree_.nodes_.size() - 1);
    }

    Result<uint32_t> value(int depth) {
        if (depth > limits_.depth)
            return makeError(ErrorCode::limit, fmt::format("it is nested more than {} deep", limits_.depth))
                .at(at_);
        Node node;
        node.offset = at_;
        SHARDSCOPE_ASSIGN(const uint64_t head, number(1));
        const auto integer = [&](int64_t value) {
            node.kind = MsgpackKind::integer;
            node.integer = value;
            return add(node);
        };
        if (head < 0x80) return integer(static_cast<int64_t>(head));
        if (head < 0x90) return list(node, 2 * (head & 0xf), true, depth);
        if (head < 0xa0) return list(node, head & 0xf, false, depth);
        if (head < 0xc0) return text(node, head & 0x1f);
        if (head >= 0xe0) return integer(static_cast<int64_t>(head) - 256);
        switch (head) {
            case 0xc0:
                return add(node);
            case 0xc2:
            case 0xc3:
                node.kind = MsgpackKind::boolean;
                node.integer = head == 0xc3;
                return add(node);
            case 0xca: {
                SHARDSCOPE_ASSIGN(const uint64_t bits, number(4));
                node.kind = MsgpackKind::real;
                node.real = std::bit_cast<float>(static_cast<uint32_t>(bits));
                return add(node);
            }
            case 0xcb: {
                SHARDSCOPE_ASSIGN(const uint64_t bits, number(8));
                node.kind = MsgpackKind::real;
                node.real = std::bit_cast<double>(bits);
                return add(node);
            }
            default:
                break;
        }
        // The rest have a length or a number of 1, 2, 4 or 8 bytes.
        const auto sized = [&](uint64_t first) { return number(uint64_t{1} << (head - first)); };
        if (head >= 0xcc && head <= 0xcf) {
            SHARDSCOPE_ASSIGN(const uint64_t value, sized(0xcc));
            node.kind = value > INT64_MAX ? MsgpackKind::unsignedInteger : MsgpackKind::integer;
            node.integer = static_cast<int64_t>(value);
            return add(node);
        }
        if (head >= 0xd0 && head <= 0xd3) {
            SHARDSCOPE_ASSIGN(const uint64_t value, sized(0xd0));
            const int unused = 64 - (8 << (head - 0xd0));
            return integer(static_cast<int64_t>(value << unused) >> unused);
        }
        if (head >= 0xc4 && head <= 0xc6) {
            SHARDSCOPE_ASSIGN(const uint64_t length, sized(0xc4));
            return payload(node, MsgpackKind::bytes, length);
        }
        if (head >= 0xc7 && head <= 0xc9) {
            SHARDSCOPE_ASSIGN(const uint64_t length, sized(0xc7));
            return extension(node, length);
        }
        if (head >= 0xd4 && head <= 0xd8) return extension(node, uint64_t{1} << (head - 0xd4));
        if (head >= 0xd9 && head <= 0xdb) {
            SHARDSCOPE_ASSIGN(const uint64_t length, sized(0xd9));
            return text(node, length);
        }
        if (head == 0xdc || head == 0xdd) {
            SHARDSCOPE_ASSIGN(const uint64_t count, number(head == 0xdc ? 2 : 4));
            return list(node, count, false, depth);
        }
        if (head == 0xde || head == 0xdf) {
            SHARDSCOPE_ASSIGN(const uint64_t count, number(head == 0xde ? 2 : 4));
            return list(node, 2 * count, true, depth);
        }
        return damaged(fmt::format("no value of MessagePack begins with {:02x}", head), node.offset)
            .byRule(rule::metaInconsistent);
    }

    Result<uint32_t> extension(Node node, uint64_t length) {
        SHARDSCOPE_ASSIGN(const uint64_t type, number(1));
        node.extension = static_cast<int8_t>(type);
        return payload(node, MsgpackKind::extension, length);
    }

    Result<uint32_t> payload(Node node, MsgpackKind kind, uint64_t length) {
        if (length > end_ - at_)
            return damaged(fmt::format("it has {} and ends at byte {}, the file at byte {}",
                                       counted(length, "byte"), countText(at_ + length), countText(end_)),
                           at_)
                .byRule(rule::fileTruncated);
        node.kind = kind;
        node.offset = at_;
        node.length = length;
        at_ += length;
        return add(node);
    }

    Result<uint32_t> text(Node node, uint64_t length) {
        if (length > end_ - at_)
            return damaged("it ends in the middle of a text", end_).byRule(rule::fileTruncated);
        if (length > limits_.textBytes - tree_.texts_.size())
            return makeError(ErrorCode::limit,
                             fmt::format("its texts have more than {}", counted(limits_.textBytes, "byte")));
        node.kind = MsgpackKind::text;
        node.first = tree_.texts_.size();
        node.length = length;
        tree_.texts_.resize(tree_.texts_.size() + static_cast<size_t>(length));
        SHARDSCOPE_TRY(take(std::as_writable_bytes(
            std::span(tree_.texts_).subspan(static_cast<size_t>(node.first), static_cast<size_t>(length)))));
        return add(node);
    }

    Result<uint32_t> list(Node node, uint64_t count, bool isMap, int depth) {
        if (count > end_ - at_)
            return damaged("it ends in the middle of a list", end_).byRule(rule::fileTruncated);
        SHARDSCOPE_ASSIGN(const uint32_t self, add(node));
        std::vector<uint32_t> items;
        items.reserve(static_cast<size_t>(std::min<uint64_t>(count, 4096)));
        for (uint64_t i = 0; i < count; ++i) {
            SHARDSCOPE_ASSIGN(const uint32_t item, value(depth + 1));
            items.push_back(item);
        }
        Node& made = tree_.nodes_[self];
        made.kind = isMap ? MsgpackKind::map : MsgpackKind::list;
        made.first = tree_.items_.size();
        made.length = count;
        tree_.items_.insert(tree_.items_.end(), items.begin(), items.end());
        return self;
    }

    const ReadFile& file_;
    uint64_t at_;
    const uint64_t end_;
    const MsgpackLimits& limits_;
    const StopToken& stop_;
    std::vector<std::byte> window_;
    uint64_t windowAt_ = 0;
    MsgpackTree tree_;
};

Result<MsgpackTree> readMsgpack(const ReadFile& file, uint64_t offset, uint64_t length,
                                const MsgpackLimits& limits, const StopToken& stop) {
    return MsgpackParser(file, offset, length, limits, stop).read();
}

Result<MsgpackTree> readNextMsgpack(const ReadFile& file, uint64_t& offset, uint64_t end,
                                    const MsgpackLimits& limits, const StopToken& stop) {
    return MsgpackParser(file, offset, end - offset, limits, stop).read(&offset);
}

}  // namespace shardscope
