#include "formats/olmo/pickle4.h"

#include <bit>
#include <unordered_map>

#include <fmt/format.h>

namespace shardscope::olmo {

namespace {

constexpr size_t kBatch = 1000;       // items between MARK and APPENDS or SETITEMS
constexpr size_t kFrame = 64 << 10;   // a frame ends with the opcode that reaches this
constexpr size_t kSmallestFrame = 4;  // shorter ones have no header
constexpr int kMaxDepth = 200;

class Pickler {
  public:
    explicit Pickler(const ValueGraph& graph) : g_(graph) {}

    Result<std::string> run(NodeId root) {
        SHARDSCOPE_TRY(save(root, 0));
        frame_ += '.';
        endFrame();
        return "\x80\x04" + out_;
    }

  private:
    void little(uint64_t value, int bytes) {
        for (int i = 0; i < bytes; ++i)
            frame_ += static_cast<char>(value >> (8 * i) & 0xff);
    }

    void endFrame() {
        if (frame_.size() >= kSmallestFrame) {
            out_ += '\x95';
            for (size_t i = 0; i < 8; ++i)
                out_ += static_cast<char>(frame_.size() >> (8 * i) & 0xff);
        }
        out_ += frame_;
        frame_.clear();
    }
    void opcodeDone() {
        if (frame_.size() >= kFrame) endFrame();
    }

    void memoize(NodeId node) {
        memo_.emplace(node, count_++);
        frame_ += '\x94';
    }

    bool remembered(NodeId node) {
        const auto it = memo_.find(node);
        if (it == memo_.end()) return false;
        reference(it->second);
        return true;
    }
    void reference(uint32_t memo) {
        frame_ += memo < 256 ? 'h' : 'j';
        little(memo, memo < 256 ? 1 : 4);
    }

    // A long text or bytes object stands outside of frames.
    void block(char byShort, char byFour, char byEight, std::string_view bytes) {
        std::string head;
        std::swap(head, frame_);
        if (bytes.size() < 256) {
            frame_ += byShort;
            little(bytes.size(), 1);
        } else if (bytes.size() <= UINT32_MAX) {
            frame_ += byFour;
            little(bytes.size(), 4);
        } else {
            frame_ += byEight;
            little(bytes.size(), 8);
        }
        std::swap(head, frame_);
        if (bytes.size() >= kFrame) {
            if (!frame_.empty()) endFrame();
            out_ += head;
            out_ += bytes;
        } else {
            frame_ += head;
            frame_ += bytes;
        }
    }

    void integer(int64_t value) {
        if (value >= 0 && value < 256) {
            frame_ += 'K';
            little(static_cast<uint64_t>(value), 1);
        } else if (value >= 0 && value < 65536) {
            frame_ += 'M';
            little(static_cast<uint64_t>(value), 2);
        } else if (value >= INT32_MIN && value <= INT32_MAX) {
            frame_ += 'J';
            little(static_cast<uint64_t>(value), 4);
        } else {
            // Two's complement, as short as it can be.
            std::string bytes;
            for (int i = 0; i < 8; ++i)
                bytes += static_cast<char>(value >> (8 * i) & 0xff);
            const char fill = value < 0 ? '\xff' : '\0';
            while (bytes.size() > 1 && bytes.back() == fill &&
                   ((bytes[bytes.size() - 2] & 0x80) != 0) == (value < 0))
                bytes.pop_back();
            longInteger(bytes);
        }
    }
    void longInteger(std::string_view bytes) {
        if (bytes.size() < 256) {
            frame_ += '\x8a';
            little(bytes.size(), 1);
        } else {
            frame_ += '\x8b';
            little(bytes.size(), 4);
        }
        frame_ += bytes;
    }

    Status save(NodeId node, int depth) {
        if (depth > kMaxDepth) return makeError(ErrorCode::limit, "the value is nested too deeply");
        opcodeDone();
        switch (g_.kind(node)) {
            case ValueKind::none:
                frame_ += 'N';
                return {};
            case ValueKind::boolean:
                frame_ += g_.boolean(node) ? '\x88' : '\x89';
                return {};
            case ValueKind::integer:
                integer(g_.integer(node));
                return {};
            case ValueKind::bigInteger:
                longInteger(g_.text(node));
                return {};
            case ValueKind::real: {
                frame_ += 'G';
                const auto bits = std::bit_cast<uint64_t>(g_.real(node));
                for (int i = 7; i >= 0; --i)
                    frame_ += static_cast<char>(bits >> (8 * i) & 0xff);
                return {};
            }
            default:
                break;
        }
        if (remembered(node)) return {};
        switch (g_.kind(node)) {
            case ValueKind::text:
                block('\x8c', 'X', '\x8d', g_.text(node));
                memoize(node);
                return {};
            case ValueKind::bytes:
                block('C', 'B', '\x8e', g_.text(node));
                memoize(node);
                return {};
            case ValueKind::tuple:
                return tuple(node, depth);
            case ValueKind::list:
                frame_ += ']';
                memoize(node);
                return batches(g_.items(node), 1, 'a', 'e', depth);
            case ValueKind::dict:
                frame_ += '}';
                memoize(node);
                return batches(g_.items(node), 2, 's', 'u', depth);
            case ValueKind::set:
                frame_ += '\x8f';
                memoize(node);
                return batches(g_.items(node), 1, 0, '\x90', depth);
            case ValueKind::global:
                globalText(g_.globalModule(node));
                globalText(g_.globalName(node));
                frame_ += '\x93';
                memoize(node);
                return {};
            case ValueKind::object:
                return object(node, depth);
            default:
                return unsupported("a value that has no pickle of its own");
        }
    }

    // The names of a class or function; Python has each module's name once.
    void globalText(std::string_view text) {
        const auto [it, fresh] = names_.try_emplace(std::string(text), count_);
        if (!fresh) return reference(it->second);
        block('\x8c', 'X', '\x8d', text);
        ++count_;
        frame_ += '\x94';
    }

    // A call that is written as it was read: made from a tuple, then filled.
    Status object(NodeId node, int depth) {
        const ValueObject& made = g_.object(node);
        const bool reduce = made.made == ValueObject::Made::reduce;
        if ((!reduce && made.made != ValueObject::Made::newObject) || made.callable == kNoNode ||
            made.arguments == kNoNode)
            return unsupported("a value that is made in a way of older pickles");
        SHARDSCOPE_TRY(save(made.callable, depth + 1));
        SHARDSCOPE_TRY(save(made.arguments, depth + 1));
        frame_ += reduce ? 'R' : '\x81';
        memoize(node);
        if (made.appended != kNoNode) SHARDSCOPE_TRY(batches(g_.items(made.appended), 1, 'a', 'e', depth));
        if (made.pairs != kNoNode) SHARDSCOPE_TRY(batches(g_.items(made.pairs), 2, 's', 'u', depth));
        if (made.state == kNoNode) return {};
        SHARDSCOPE_TRY(save(made.state, depth + 1));
        frame_ += 'b';
        return {};
    }

    Status tuple(NodeId node, int depth) {
        const auto items = g_.items(node);
        if (items.empty()) {
            frame_ += ')';
            return {};
        }
        if (items.size() > 3) frame_ += '(';
        for (NodeId item : items)
            SHARDSCOPE_TRY(save(item, depth + 1));
        frame_ += items.size() == 1 ? '\x85' : items.size() == 2 ? '\x86' : items.size() == 3 ? '\x87' : 't';
        memoize(node);
        return {};
    }

    // As CPython does it: pieces of 1000, and a piece of one without a mark (sets always have one).
    Status batches(std::span<const NodeId> items, size_t width, char single, char many, int depth) {
        const size_t count = items.size() / width;
        for (size_t i = 0; i < count; i += kBatch) {
            const size_t size = std::min(kBatch, count - i);
            const bool alone = size == 1 && single != 0;
            if (!alone) frame_ += '(';
            for (size_t k = i * width; k < (i + size) * width; ++k)
                SHARDSCOPE_TRY(save(items[k], depth + 1));
            frame_ += alone ? single : many;
        }
        return {};
    }

    const ValueGraph& g_;
    std::string out_, frame_;
    std::unordered_map<NodeId, uint32_t> memo_;
    std::unordered_map<std::string, uint32_t> names_;
    uint32_t count_ = 0;  // memoized so far
};

}  // namespace

Result<std::string> pickle4(const Value& value) {
    if (!value) return unsupported("a value that was not read");
    return Pickler(*value.graph).run(value.node);
}

}  // namespace shardscope::olmo
