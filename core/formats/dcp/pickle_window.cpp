#include "formats/dcp/pickle_window.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

namespace shardscope::dcp {

namespace {

// Small enough to stay in the second-level cache between the read and the walk.
constexpr size_t kWindow = size_t{512} << 10;
constexpr uint64_t kMaxLine = uint64_t{1} << 20;

// Runs of six opcodes without operands that occur once per object and once per two-dimensional torch.Size, as
// the bytes of a little-endian number: EMPTY_TUPLE NEWOBJ MEMOIZE EMPTY_DICT MEMOIZE MARK, and TUPLE2 MEMOIZE
// TUPLE1 MEMOIZE REDUCE MEMOIZE.
constexpr uint64_t kSixBytes = (uint64_t{1} << 48) - 1;
constexpr uint64_t kNewState = 0x28'94'7d'94'81'29;
constexpr uint64_t kPairSize = 0x94'52'94'85'94'86;

}  // namespace

Status PickleWindow::moveTo(uint64_t from, size_t need) {
    SHARDSCOPE_TRY(stop_.poll());
    const uint64_t available = from < file_.size() ? file_.size() - from : 0;
    const size_t wanted = static_cast<size_t>(std::min<uint64_t>(std::max(need, kWindow), available));
    size_t kept = 0;
    const uint64_t filledEnd = base_ + filled_;
    if (from >= base_ && from < filledEnd) {
        kept = static_cast<size_t>(filledEnd - from);
        std::memmove(buffer_.data(), buffer_.data() + (from - base_), kept);
    }
    base_ = from;
    start_ = 0;
    filled_ = kept;
    if (buffer_.size() < wanted + kSlack) buffer_.resize(wanted + kSlack);
    if (wanted > kept) {
        SHARDSCOPE_TRY(file_.readAt(from + kept,
                                    std::as_writable_bytes(std::span(buffer_)).subspan(kept, wanted - kept)));
        filled_ = wanted;
    }
    std::memset(buffer_.data() + filled_, 0, kSlack);
    return {};
}

const uint8_t* lineEnd(const uint8_t* p, const uint8_t* end) {
    if (p >= end) return nullptr;
    return static_cast<const uint8_t*>(std::memchr(p, '\n', static_cast<size_t>(end - p)));
}

bool parseDecimal(const uint8_t* p, const uint8_t* end, int64_t& out) {
    if (end > p && end[-1] == '\r') --end;
    if (end > p && end[-1] == 'L') --end;
    const bool negative = p < end && *p == '-';
    if (negative) ++p;
    if (p == end) return false;
    int64_t value = 0;
    for (; p < end; ++p) {
        if (*p < '0' || *p > '9') return false;
        const int64_t digit = *p - '0';
        if (__builtin_mul_overflow(value, int64_t{10}, &value)) return false;
        if (__builtin_add_overflow(value, negative ? -digit : digit, &value)) return false;
    }
    out = value;
    return true;
}

void MemoUse::index() {
    before_.resize(bits_.size());
    count_ = 0;
    for (size_t i = 0; i < bits_.size(); ++i) {
        before_[i] = count_;
        count_ += bitCount(bits_[i]);
    }
}

void MemoCounter::put(uint64_t index) {
    if (explicit_.empty()) implicit_ = count_;
    if (index < implicit_) return;
    const uint64_t word = index / 64;
    if (word >= explicit_.size()) explicit_.resize(std::max<uint64_t>(word + 1, explicit_.size() * 2));
    const uint64_t bit = uint64_t{1} << (index % 64);
    if (!(explicit_[word] & bit)) {
        explicit_[word] |= bit;
        ++count_;
    }
}

Result<MemoUse> scanMemoUse(const ReadFile& file, const StopToken& stop) {
    PickleWindow window(file, stop);
    SHARDSCOPE_TRY(window.moveTo(0));
    MemoUse use;
    MemoCounter counter;
    const uint64_t fileSize = file.size();
    const uint8_t* p = window.begin();
    const uint8_t* end = window.end();

    auto truncated = [&](uint64_t offset) {
        return damaged(
            fmt::format("the pickle ends at byte {} without its STOP opcode: the file is cut short",
                        fileSize),
            offset);
    };
    // Skips `n` operand bytes from `from` on.
    auto skip = [&](const uint8_t* from, uint64_t n) -> Status {
        if (n <= static_cast<uint64_t>(end - std::min(from, end))) {
            p = from + n;
            return {};
        }
        const uint64_t at = window.offsetOf(from);
        if (at > fileSize || n > fileSize - at) {
            return damaged(
                fmt::format(
                    "a value of {} bytes goes beyond the end of the file ({} bytes): it is cut short, "
                    "or the length is damaged",
                    n, fileSize),
                at);
        }
        SHARDSCOPE_TRY(window.moveTo(at + n));
        p = window.begin();
        end = window.end();
        return {};
    };
    // The end of the line that starts at p; p may move.
    auto line = [&](const uint8_t*& lineStart) -> Result<const uint8_t*> {
        const uint8_t* found = lineEnd(lineStart, end);
        if (found) return found;
        const uint64_t at = window.offsetOf(lineStart);
        SHARDSCOPE_TRY(window.moveTo(at, kMaxLine));
        p = lineStart = window.begin();
        end = window.end();
        found = lineEnd(lineStart, end);
        if (found) return found;
        if (window.atEnd()) return truncated(at);
        return damaged("a text line in the pickle does not end within 1 MiB", at);
    };
    // Honest pickles number their memo entries in sequence, so an index beyond the file's length is damage.
    auto checkIndex = [&](uint64_t index) -> Status {
        if (index <= fileSize) return {};
        return damaged(fmt::format("memo index {} is impossible in a file of {} bytes", index, fileSize),
                       window.offsetOf(p));
    };

    while (true) {
        if (p + PickleWindow::kSlack > end) {
            const uint64_t at = window.offsetOf(p);
            if (at >= fileSize) return truncated(fileSize);
            if (!window.atEnd()) {
                SHARDSCOPE_TRY(window.moveTo(at));
                p = window.begin();
                end = window.end();
            }
        }
        switch (*p) {
            case kMemoize:
                counter.memoize();
                ++p;
                break;
            case kBinGet:
                use.fetch(p[1]);
                p += 2;
                if ((load64(p) & kSixBytes) == kNewState) {
                    p += 6;
                    counter.memoize();
                    counter.memoize();
                    ++use.objects;
                }
                break;
            case kLongBinGet: {
                const uint32_t index = load32(p + 1);
                SHARDSCOPE_TRY(checkIndex(index));
                use.fetch(index);
                p += 5;
                if ((load64(p) & kSixBytes) == kNewState) {
                    p += 6;
                    counter.memoize();
                    counter.memoize();
                    ++use.objects;
                }
                break;
            }
            case kTuple2:
                if ((load64(p) & kSixBytes) == kPairSize) {
                    p += 6;
                    counter.memoize();
                    counter.memoize();
                    counter.memoize();
                    ++use.reductions;
                } else {
                    ++p;
                }
                break;
            case kBinPut:
                counter.put(p[1]);
                p += 2;
                break;
            case kLongBinPut: {
                const uint32_t index = load32(p + 1);
                SHARDSCOPE_TRY(checkIndex(index));
                counter.put(index);
                p += 5;
                break;
            }
            case kGet:
            case kPut: {
                const uint8_t op = *p;
                const uint8_t* start = p + 1;
                SHARDSCOPE_ASSIGN(const uint8_t* stopAt, line(start));
                int64_t index = 0;
                if (!parseDecimal(start, stopAt, index) || index < 0)
                    return damaged("a memo index is not a number", window.offsetOf(start));
                SHARDSCOPE_TRY(checkIndex(static_cast<uint64_t>(index)));
                if (op == kGet)
                    use.fetch(static_cast<uint64_t>(index));
                else
                    counter.put(static_cast<uint64_t>(index));
                p = stopAt + 1;
                break;
            }
            case kReduce:
                ++use.reductions;
                ++p;
                break;
            case kNewObj:
            case kNewObjEx:
            case kObj:
                ++use.objects;
                ++p;
                break;
            case kMark:
            case kPop:
            case kPopMark:
            case kDup:
            case kNone_:
            case kBinPersId:
            case kAppend:
            case kBuild:
            case kDict:
            case kEmptyDict:
            case kAppends:
            case kList:
            case kEmptyList:
            case kSetItem:
            case kTuple:
            case kEmptyTuple:
            case kSetItems:
            case kTuple1:
            case kTuple3:
            case kNewTrue:
            case kNewFalse:
            case kEmptySet:
            case kAddItems:
            case kFrozenSet:
            case kStackGlobal:
                ++p;
                break;
            case kBinInt1:
                p += 2;
                break;
            case kBinInt2:
                p += 3;
                break;
            case kBinInt:
                p += 5;
                break;
            case kBinFloat:
            case kFrame:
                p += 9;
                break;
            case kProto:
                use.protocol = p[1];
                if (p[1] > 5)
                    return unsupported(
                               fmt::format("pickle protocol {} is newer than the 5 that are read", p[1]))
                        .at(window.offsetOf(p));
                p += 2;
                break;
            case kShortBinUnicode:
            case kShortBinString:
            case kShortBinBytes:
            case kLong1:
                SHARDSCOPE_TRY(skip(p + 2, p[1]));
                break;
            case kBinUnicode:
            case kBinString:
            case kBinBytes:
            case kLong4:
                SHARDSCOPE_TRY(skip(p + 5, load32(p + 1)));
                break;
            case kBinUnicode8:
            case kBinBytes8:
            case kByteArray8:
                SHARDSCOPE_TRY(skip(p + 9, load64(p + 1)));
                break;
            case kFloat:
            case kInt:
            case kLong:
            case kPersId:
            case kString:
            case kUnicode: {
                const uint8_t* start = p + 1;
                SHARDSCOPE_ASSIGN(const uint8_t* stopAt, line(start));
                p = stopAt + 1;
                break;
            }
            case kGlobal:
            case kInst: {
                use.objects += *p == kInst;
                const uint8_t* start = p + 1;
                SHARDSCOPE_ASSIGN(const uint8_t* first, line(start));
                start = first + 1;
                SHARDSCOPE_ASSIGN(const uint8_t* second, line(start));
                p = second + 1;
                break;
            }
            case kStop:
                use.length = window.offsetOf(p) + 1;
                use.index();
                return use;
            case kExt1:
            case kExt2:
            case kExt4:
                return unsupported(
                           "the pickle uses an extension registry (EXT opcode), which only its own process "
                           "knows")
                    .at(window.offsetOf(p));
            case kNextBuffer:
            case kReadOnlyBuffer:
                return unsupported("the pickle refers to buffers outside of its file").at(window.offsetOf(p));
            default:
                return damaged(fmt::format("byte 0x{:02x} is no pickle opcode", *p), window.offsetOf(p));
        }
        if (p > end) return truncated(fileSize);
    }
}

}  // namespace shardscope::dcp
