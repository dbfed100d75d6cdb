#include "encoding/pickle_outline.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <random>
#include <string>

#include <fmt/format.h>

#include "base/rule.h"
#include "encoding/pickle_lexer.h"

namespace shardscope {

namespace {

constexpr uint64_t kBytesPayload = 256;  // shorter values stay in the stream
constexpr uint64_t kTextPayload = 4096;
constexpr uint64_t kMaxLine = 64 << 10;
constexpr size_t kSmallRead = 4 << 10;
constexpr size_t kLargeRead = 256 << 10;

// What stands for a payload: drawn anew by every process, so that no file can hold it, and ASCII, so that it
// survives being taken for text or for bytes.
const std::string& placeholder() {
    static const std::string text = [] {
        std::random_device device;
        std::string out = "payload-";
        for (int i = 0; i < 4; ++i)
            out += fmt::format("{:08x}", static_cast<uint32_t>(device()));
        return out + "-";
    }();
    return text;
}

// The bytes of a file one after the other, in small reads after a jump and larger ones as they go on.
class Window {
  public:
    Window(const ReadFile& file, uint64_t at) : file_(file), at_(at) {}

    uint64_t position() const { return at_; }
    uint64_t size() const { return file_.size(); }
    bool has(uint64_t count) const { return count <= file_.size() - at_; }

    // The next `count` bytes, at most kLargeRead of them, which stay until the next call. has(count) must
    // hold.
    Result<std::string_view> take(size_t count) {
        if (at_ < begin_ || at_ + count > begin_ + bytes_.size()) SHARDSCOPE_TRY(load(count));
        const std::string_view out(bytes_.data() + (at_ - begin_), count);
        at_ += count;
        return out;
    }
    void skip(uint64_t count) { at_ += count; }

  private:
    Status load(size_t count) {
        const bool goesOn = at_ >= begin_ && at_ <= begin_ + bytes_.size();
        next_ = goesOn ? std::min(next_ * 4, kLargeRead) : kSmallRead;
        const uint64_t size = std::min<uint64_t>(std::max(count, next_), file_.size() - at_);
        bytes_.resize(static_cast<size_t>(size));
        begin_ = at_;
        return file_.readAt(at_, std::as_writable_bytes(std::span(bytes_)));
    }

    const ReadFile& file_;
    uint64_t at_;
    uint64_t begin_ = UINT64_MAX;
    size_t next_ = kSmallRead;
    std::string bytes_;
};

class Outliner {
  public:
    Outliner(const ReadFile& file, uint64_t offset, const OutlineLimits& limits, const StopToken& stop)
        : window_(file, offset), start_(offset), limits_(limits), stop_(stop) {}

    Result<PickleOutline> run() {
        for (uint64_t count = 0;; ++count) {
            if (count % 65536 == 0) SHARDSCOPE_TRY(stop_.poll());
            SHARDSCOPE_ASSIGN(const bool more, step());
            if (!more) break;
            if (stream_.size() > limits_.outlineBytes) {
                return makeError(ErrorCode::limit,
                                 fmt::format("the pickle has more than {} bytes beside its arrays",
                                             limits_.outlineBytes))
                    .at(opcodeAt_);
            }
        }
        auto pickle = decodePickle(std::as_bytes(std::span(stream_)));
        if (!pickle.ok()) {
            Error error = std::move(pickle).error();
            if (error.location.offset) error.location.offset = inFile(*error.location.offset);
            return error;
        }
        out_.pickle = std::move(pickle).value();
        out_.pickle.length = static_cast<size_t>(window_.position() - start_);
        return std::move(out_);
    }

  private:
    // Where a byte of the shortened stream stands in the file.
    uint64_t inFile(uint64_t at) const {
        auto jump = std::upper_bound(jumps_.begin(), jumps_.end(), at,
                                     [](uint64_t a, const Jump& j) { return a < j.stream; });
        if (jump == jumps_.begin()) return start_ + at;
        --jump;
        return jump->file + (at - jump->stream);
    }

    Error cutOff(uint64_t missing) const {
        return damaged(fmt::format("the file ends inside the pickle: {} more bytes are needed at byte {}",
                                   missing, window_.position()),
                       opcodeAt_)
            .byRule(rule::fileTruncated)
            .withHint("the file was probably not written or copied completely");
    }
    Result<std::string_view> take(size_t count) {
        if (!window_.has(count)) return cutOff(count - (window_.size() - window_.position()));
        return window_.take(count);
    }
    Status copy(size_t count) {
        SHARDSCOPE_ASSIGN(const std::string_view bytes, take(count));
        stream_ += bytes;
        return {};
    }
    Status copyLong(uint64_t count) {
        if (!window_.has(count)) return cutOff(count - (window_.size() - window_.position()));
        if (count > limits_.outlineBytes) {
            return makeError(ErrorCode::limit, fmt::format("a value of {} bytes", count)).at(opcodeAt_);
        }
        while (count > 0) {
            const auto piece = static_cast<size_t>(std::min<uint64_t>(count, kLargeRead));
            SHARDSCOPE_TRY(copy(piece));
            count -= piece;
        }
        return {};
    }
    Status copyLine() {
        for (uint64_t length = 0;; ++length) {
            if (length > kMaxLine)
                return makeError(ErrorCode::limit, "a line of more than 64 KiB").at(opcodeAt_);
            SHARDSCOPE_ASSIGN(const std::string_view byte, take(1));
            stream_ += byte;
            if (byte[0] == '\n') return {};
        }
    }

    template <class T>
    Result<uint64_t> number(std::string* raw) {
        SHARDSCOPE_ASSIGN(const std::string_view bytes, take(sizeof(T)));
        if (raw) *raw = bytes;
        T value = 0;
        std::memcpy(&value, bytes.data(), sizeof value);
        if (std::is_signed_v<T> && static_cast<std::make_signed_t<T>>(value) < 0)
            return damaged(fmt::format("the length {} is negative", value), opcodeAt_);
        return static_cast<uint64_t>(value);
    }

    // Bytes or text with a length in front.
    template <class T>
    Status counted(PickleOpcode code, bool text, bool byteArray) {
        std::string raw;
        SHARDSCOPE_ASSIGN(const uint64_t length, number<T>(&raw));
        if (length < (text ? kTextPayload : kBytesPayload)) {
            stream_ += static_cast<char>(code);
            stream_ += raw;
            return copyLong(length);
        }
        if (!window_.has(length)) return cutOff(length - (window_.size() - window_.position()));
        const std::string name = placeholder() + std::to_string(out_.payloads.size());
        out_.payloads.push_back({window_.position(), length, text});
        window_.skip(length);
        if (byteArray) {
            stream_ += static_cast<char>(PickleOpcode::byteArray8);
            const uint64_t size = name.size();
            stream_.append(reinterpret_cast<const char*>(&size), sizeof size);
        } else {
            stream_ += static_cast<char>(text ? PickleOpcode::shortBinUnicode : PickleOpcode::shortBinBytes);
            stream_ += static_cast<char>(name.size());
        }
        stream_ += name;
        jumps_.push_back({stream_.size(), window_.position()});
        return {};
    }

    // False after STOP.
    Result<bool> step() {
        opcodeAt_ = window_.position();
        SHARDSCOPE_ASSIGN(const std::string_view first, take(1));
        const auto code = static_cast<PickleOpcode>(static_cast<uint8_t>(first[0]));
        switch (code) {
            case PickleOpcode::frame:
                // Where frames end is of no interest to a reader that does not buffer them.
                SHARDSCOPE_TRY(number<uint64_t>(nullptr));
                jumps_.push_back({stream_.size(), window_.position()});
                return true;
            case PickleOpcode::binBytes:
                SHARDSCOPE_TRY(counted<uint32_t>(code, false, false));
                return true;
            case PickleOpcode::binBytes8:
                SHARDSCOPE_TRY(counted<uint64_t>(code, false, false));
                return true;
            case PickleOpcode::byteArray8:
                SHARDSCOPE_TRY(counted<uint64_t>(code, false, true));
                return true;
            case PickleOpcode::binUnicode:
                SHARDSCOPE_TRY(counted<uint32_t>(code, true, false));
                return true;
            case PickleOpcode::binUnicode8:
                SHARDSCOPE_TRY(counted<uint64_t>(code, true, false));
                return true;
            case PickleOpcode::binString: {
                // A Python 2 str: its bytes as they are.
                SHARDSCOPE_TRY(counted<int32_t>(code, false, false));
                return true;
            }
            default:
                break;
        }
        stream_ += static_cast<char>(code);
        switch (code) {
            case PickleOpcode::stop:
                return false;
            case PickleOpcode::shortBinUnicode:
            case PickleOpcode::shortBinString:
            case PickleOpcode::shortBinBytes:
            case PickleOpcode::long1: {
                std::string raw;
                SHARDSCOPE_ASSIGN(const uint64_t length, number<uint8_t>(&raw));
                stream_ += raw;
                SHARDSCOPE_TRY(copyLong(length));
                return true;
            }
            case PickleOpcode::long4: {
                std::string raw;
                SHARDSCOPE_ASSIGN(const uint64_t length, number<int32_t>(&raw));
                stream_ += raw;
                SHARDSCOPE_TRY(copyLong(length));
                return true;
            }
            case PickleOpcode::binInt1:
            case PickleOpcode::binGet:
            case PickleOpcode::binPut:
            case PickleOpcode::proto:
            case PickleOpcode::ext1:
                SHARDSCOPE_TRY(copy(1));
                return true;
            case PickleOpcode::binInt2:
            case PickleOpcode::ext2:
                SHARDSCOPE_TRY(copy(2));
                return true;
            case PickleOpcode::binInt:
            case PickleOpcode::longBinGet:
            case PickleOpcode::longBinPut:
            case PickleOpcode::ext4:
                SHARDSCOPE_TRY(copy(4));
                return true;
            case PickleOpcode::binFloat:
                SHARDSCOPE_TRY(copy(8));
                return true;
            case PickleOpcode::global:
            case PickleOpcode::inst:
                SHARDSCOPE_TRY(copyLine());
                SHARDSCOPE_TRY(copyLine());
                return true;
            case PickleOpcode::floatText:
            case PickleOpcode::intText:
            case PickleOpcode::longText:
            case PickleOpcode::persId:
            case PickleOpcode::string:
            case PickleOpcode::unicode:
            case PickleOpcode::get:
            case PickleOpcode::put:
                SHARDSCOPE_TRY(copyLine());
                return true;
            default:
                // Without an argument; or no opcode at all, which the lengths of all others depend on.
                if (pickleOpcodeName(code).empty()) {
                    return damaged(fmt::format("byte 0x{:02x} is no pickle opcode", static_cast<int>(code)),
                                   opcodeAt_);
                }
                return true;
        }
    }

    struct Jump {
        uint64_t stream, file;
    };
    Window window_;
    const uint64_t start_;
    const OutlineLimits& limits_;
    const StopToken& stop_;
    uint64_t opcodeAt_ = 0;
    std::string stream_;
    std::vector<Jump> jumps_;
    PickleOutline out_;
};

}  // namespace

bool PickleOutline::isPlaceholder(std::string_view text) {
    return text.starts_with(placeholder());
}

const PicklePayload* PickleOutline::payloadOf(NodeId node) const {
    if (node == kNoNode) return nullptr;
    const ValueKind kind = pickle.graph.kind(node);
    if (kind != ValueKind::bytes && kind != ValueKind::byteArray && kind != ValueKind::text) return nullptr;
    std::string_view text = pickle.graph.text(node);
    if (!text.starts_with(placeholder())) return nullptr;
    text.remove_prefix(placeholder().size());
    size_t index = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), index);
    if (error != std::errc() || end != text.data() + text.size() || index >= payloads.size()) return nullptr;
    return &payloads[index];
}

Result<PickleOutline> outlinePickle(const ReadFile& file, uint64_t offset, const OutlineLimits& limits,
                                    const StopToken& stop) {
    if (offset >= file.size()) {
        return damaged(file.size() == 0 ? "the file is empty" : "the file ends before the pickle", offset)
            .byRule(rule::fileTruncated)
            .inFile(file.path());
    }
    auto outline = Outliner(file, offset, limits, stop).run();
    if (!outline.ok()) return std::move(outline).error().inFile(file.path());
    return outline;
}

}  // namespace shardscope
