#include "formats/dcp/memo_use.h"

#include <algorithm>
#include <optional>
#include <thread>

#include <fmt/format.h>

#include "base/thread_pool.h"

namespace shardscope::dcp {

namespace {

constexpr uint64_t kScanTogether = uint64_t{4} << 20;  // files from this size on are worth more threads
constexpr uint64_t kGuessWithin = uint64_t{64} << 10;
constexpr uint64_t kMaxLine = uint64_t{1} << 20;

// Runs of six opcodes without operands that occur once per object and once per two-dimensional torch.Size, as
// the bytes of a little-endian number: EMPTY_TUPLE NEWOBJ MEMOIZE EMPTY_DICT MEMOIZE MARK, and TUPLE2 MEMOIZE
// TUPLE1 MEMOIZE REDUCE MEMOIZE.
constexpr uint64_t kSixBytes = (uint64_t{1} << 48) - 1;
constexpr uint64_t kNewState = 0x28'94'7d'94'81'29;
constexpr uint64_t kPairSize = 0x94'52'94'85'94'86;

}  // namespace

void MemoUse::grow(uint64_t word) {
    bits_.resize(std::max<uint64_t>(word + 1, bits_.size() * 2));
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
    if (explicit_.empty()) {
        implicit_ = count_;
        if (index == count_) {  // as MEMOIZE would
            ++count_;
            return;
        }
    }
    if (index < implicit_) return;
    const uint64_t word = index / 64;
    if (word >= explicit_.size()) explicit_.resize(std::max<uint64_t>(word + 1, explicit_.size() * 2));
    const uint64_t bit = uint64_t{1} << (index % 64);
    if (!(explicit_[word] & bit)) {
        explicit_[word] |= bit;
        ++count_;
    }
}

// The walk of the first pass. It depends on nothing that came before, so that it may begin at any opcode.
class MemoScan {
  public:
    // Walks the opcodes from `from` on, one of which begins there, until STOP or until one begins at or
    // behind `until`.
    static Result<MemoScan> walk(const ReadFile& file, const StopToken& stop, uint64_t from, uint64_t until);

    void add(const MemoScan& later);
    MemoUse finish() {
        use_.index();
        return std::move(use_);
    }
    uint64_t next() const { return next_; }
    bool stopped() const { return stopped_; }

  private:
    MemoUse use_;
    uint64_t next_ = 0;  // where it ended: the first opcode at or behind the end of the stretch
    bool sawProtocol_ = false;
    bool stopped_ = false;  // by STOP
};

// What the walk over the following stretch found.
void MemoScan::add(const MemoScan& later) {
    std::vector<uint64_t>& bits = use_.bits_;
    if (bits.size() < later.use_.bits_.size()) bits.resize(later.use_.bits_.size());
    for (size_t i = 0; i < later.use_.bits_.size(); ++i)
        bits[i] |= later.use_.bits_[i];
    use_.length = later.use_.length;
    if (later.sawProtocol_) use_.protocol = later.use_.protocol;
    use_.objects += later.use_.objects;
    use_.reductions += later.use_.reductions;
    next_ = later.next_;
    stopped_ = later.stopped_;
}

Result<MemoScan> MemoScan::walk(const ReadFile& file, const StopToken& stop, uint64_t from, uint64_t until) {
    PickleWindow window(file, stop);
    SHARDSCOPE_TRY(window.moveTo(from));
    MemoScan scan;
    MemoUse& use = scan.use_;
    const uint64_t fileSize = file.size();
    const uint8_t* p = window.begin();
    const uint8_t* end = window.end();
    const uint8_t* pause = p;  // where the window or the stretch may be at its end

    auto truncated = [&](uint64_t offset) {
        return damaged(
            fmt::format("the pickle ends at byte {} without its STOP opcode: the file is cut short",
                        fileSize),
            offset);
    };
    // Skips the `n` bytes of an operand.
    auto skip = [&](const uint8_t* operand, uint64_t n) -> Status {
        if (n <= static_cast<uint64_t>(end - std::min(operand, end))) {
            p = operand + n;
            return {};
        }
        const uint64_t at = window.offsetOf(operand);
        if (at > fileSize || n > fileSize - at) {
            return damaged(
                fmt::format(
                    "a value of {} bytes goes beyond the end of the file ({} bytes): it is cut short, "
                    "or the length is damaged",
                    n, fileSize),
                at);
        }
        SHARDSCOPE_TRY(window.moveTo(at + n));
        p = pause = window.begin();
        end = window.end();
        return {};
    };
    // The end of the line that starts at p; p may move.
    auto line = [&](const uint8_t*& lineStart) -> Result<const uint8_t*> {
        const uint8_t* found = lineEnd(lineStart, end);
        if (found) return found;
        const uint64_t at = window.offsetOf(lineStart);
        SHARDSCOPE_TRY(window.moveTo(at, kMaxLine));
        p = pause = lineStart = window.begin();
        end = window.end();
        found = lineEnd(lineStart, end);
        if (found) return found;
        if (window.atEnd()) return truncated(at);
        return damaged("a text line in the pickle does not end within 1 MiB", at);
    };
    // Honest pickles number their memo entries in sequence, so an index beyond the file's length is damage.
    auto impossible = [&](uint64_t index) {
        return damaged(fmt::format("memo index {} is impossible in a file of {} bytes", index, fileSize),
                       window.offsetOf(p));
    };

    while (true) {
        if (p >= pause) {
            const uint64_t at = window.offsetOf(p);
            if (at >= until) {
                scan.next_ = at;
                return scan;
            }
            if (at >= fileSize) return truncated(fileSize);
            if (p + PickleWindow::kSlack > end && !window.atEnd()) {
                SHARDSCOPE_TRY(window.moveTo(at));
                p = window.begin();
                end = window.end();
            }
            const auto left = static_cast<uint64_t>(end - p);
            pause =
                p + std::min(left >= PickleWindow::kSlack ? left - PickleWindow::kSlack + 1 : 0, until - at);
        }
        switch (Op(*p)) {
            case Op::memoize:
                ++p;
                break;
            // What follows what in nearly every object is looked at here, which saves a turn of the loop.
            case Op::binGet:
                use.fetch(p[1]);
                p += 2;
                if ((load64(p) & kSixBytes) == kNewState) {
                    p += 6;
                    ++use.objects;
                }
                if (Op(*p) == Op::binGet && p < pause) {
                    use.fetch(p[1]);
                    p += 2;
                }
                break;
            case Op::longBinGet: {
                uint32_t index = load32(p + 1);
                if (index > fileSize) return impossible(index);
                use.fetch(index);
                p += 5;
                if ((load64(p) & kSixBytes) == kNewState) {
                    p += 6;
                    ++use.objects;
                }
                if (Op(*p) == Op::longBinGet && p < pause) {
                    index = load32(p + 1);
                    if (index > fileSize) return impossible(index);
                    use.fetch(index);
                    p += 5;
                }
                break;
            }
            case Op::tuple2:
                if ((load64(p) & kSixBytes) == kPairSize) {
                    p += 6;
                    ++use.reductions;
                } else {
                    ++p;
                }
                break;
            case Op::binPut:
                p += 2;
                break;
            case Op::longBinPut: {
                const uint32_t index = load32(p + 1);
                if (index > fileSize) return impossible(index);
                p += 5;
                break;
            }
            case Op::get:
            case Op::put: {
                const Op op{*p};
                const uint8_t* start = p + 1;
                SHARDSCOPE_ASSIGN(const uint8_t* stopAt, line(start));
                int64_t index = 0;
                if (!parseDecimal(start, stopAt, index) || index < 0)
                    return damaged("a memo index is not a number", window.offsetOf(start));
                if (static_cast<uint64_t>(index) > fileSize) return impossible(static_cast<uint64_t>(index));
                if (op == Op::get) use.fetch(static_cast<uint64_t>(index));
                p = stopAt + 1;
                break;
            }
            case Op::reduce:
                ++use.reductions;
                ++p;
                break;
            case Op::newObj:
            case Op::newObjEx:
            case Op::obj:
                ++use.objects;
                ++p;
                break;
            case Op::mark:
            case Op::pop:
            case Op::popMark:
            case Op::dup:
            case Op::none:
            case Op::binPersId:
            case Op::append:
            case Op::build:
            case Op::dict:
            case Op::emptyDict:
            case Op::appends:
            case Op::list:
            case Op::emptyList:
            case Op::setItem:
            case Op::tuple:
            case Op::emptyTuple:
            case Op::tuple1:
            case Op::tuple3:
            case Op::newTrue:
            case Op::newFalse:
            case Op::emptySet:
            case Op::addItems:
            case Op::frozenSet:
            case Op::stackGlobal:
                ++p;
                break;
            case Op::setItems:
                ++p;
                if (Op(*p) == Op::build && p < pause) ++p;
                break;
            case Op::binInt1:
                p += 2;
                break;
            case Op::binInt2:
                p += 3;
                if (Op(*p) == Op::binInt1 && p < pause) p += 2;
                break;
            case Op::binInt:
                p += 5;
                if (Op(*p) == Op::binInt1 && p < pause) p += 2;
                break;
            case Op::binFloat:
            case Op::frame:
                p += 9;
                break;
            case Op::proto:
                use.protocol = p[1];
                scan.sawProtocol_ = true;
                if (p[1] > 5)
                    return unsupported(
                               fmt::format("pickle protocol {} is newer than the 5 that are read", p[1]))
                        .at(window.offsetOf(p));
                p += 2;
                break;
            case Op::shortBinUnicode:
            case Op::shortBinString:
            case Op::shortBinBytes:
            case Op::long1:
                SHARDSCOPE_TRY(skip(p + 2, p[1]));
                break;
            case Op::binUnicode:
            case Op::binString:
            case Op::binBytes:
            case Op::long4:
                SHARDSCOPE_TRY(skip(p + 5, load32(p + 1)));
                break;
            case Op::binUnicode8:
            case Op::binBytes8:
            case Op::byteArray8:
                SHARDSCOPE_TRY(skip(p + 9, load64(p + 1)));
                break;
            case Op::floatText:
            case Op::intText:
            case Op::longText:
            case Op::persId:
            case Op::string:
            case Op::unicode: {
                const uint8_t* start = p + 1;
                SHARDSCOPE_ASSIGN(const uint8_t* stopAt, line(start));
                p = stopAt + 1;
                break;
            }
            case Op::global:
            case Op::inst: {
                use.objects += Op(*p) == Op::inst;
                const uint8_t* start = p + 1;
                SHARDSCOPE_ASSIGN(const uint8_t* first, line(start));
                start = first + 1;
                SHARDSCOPE_ASSIGN(const uint8_t* second, line(start));
                p = second + 1;
                break;
            }
            case Op::stop:
                use.length = window.offsetOf(p) + 1;
                scan.stopped_ = true;
                return scan;
            case Op::ext1:
            case Op::ext2:
            case Op::ext4:
                return unsupported(
                           "the pickle uses an extension registry (EXT opcode), which only its own process "
                           "knows")
                    .at(window.offsetOf(p));
            case Op::nextBuffer:
            case Op::readonlyBuffer:
                return unsupported("the pickle refers to buffers outside of its file").at(window.offsetOf(p));
            default:
                return damaged(fmt::format("byte 0x{:02x} is no pickle opcode", *p), window.offsetOf(p));
        }
        if (p > end) return truncated(fileSize);
    }
}

namespace {

// A place from `from` on where an opcode seems to begin, behind those that make an object; 0 = none was
// found. It may lie within a string: only the walk that comes upon it can tell.
uint64_t likelyOpcode(const ReadFile& file, uint64_t from) {
    std::vector<uint8_t> bytes(std::min<uint64_t>(kGuessWithin, file.size() - from));
    if (!file.readAt(from, std::as_writable_bytes(std::span(bytes))).ok()) return 0;
    for (size_t i = 0; i + PickleWindow::kSlack <= bytes.size(); ++i) {
        const uint8_t* p = &bytes[i];
        if ((load64(p) & kSixBytes) == kNewState) return from + i + 6;
        // The same with PUTs: EMPTY_TUPLE NEWOBJ LONG_BINPUT EMPTY_DICT LONG_BINPUT MARK.
        if (Op(p[0]) == Op::emptyTuple && Op(p[1]) == Op::newObj && Op(p[2]) == Op::longBinPut &&
            Op(p[7]) == Op::emptyDict && Op(p[8]) == Op::longBinPut && Op(p[13]) == Op::mark)
            return from + i + 14;
    }
    return 0;
}

}  // namespace

Result<MemoUse> scanMemoUse(const ReadFile& file, const StopToken& stop) {
    // Large files are walked in stretches at the same time. The walk over a stretch counts only if the one
    // before ends just where it began; else that one goes on. The result is the same whatever the guesses.
    const unsigned threads =
        file.size() >= kScanTogether ? std::clamp(std::thread::hardware_concurrency(), 1U, 4U) : 1;
    std::vector<uint64_t> begins{0};
    for (unsigned i = 1; i < threads; ++i) {
        const uint64_t guess = likelyOpcode(file, file.size() / threads * i);
        if (guess > begins.back()) begins.push_back(guess);
    }
    const auto until = [&](size_t i) { return i + 1 < begins.size() ? begins[i + 1] : UINT64_MAX; };
    std::vector<std::optional<Result<MemoScan>>> walks(begins.size());
    if (begins.size() > 1) {
        ThreadPool pool(static_cast<unsigned>(begins.size() - 1));
        SHARDSCOPE_TRY(pool.parallelFor(begins.size(), stop, [&](size_t i) -> Status {
            walks[i].emplace(MemoScan::walk(file, stop, begins[i], until(i)));
            return {};
        }));
    }
    std::optional<MemoScan> all;
    for (size_t i = 0; i < begins.size(); ++i) {
        const uint64_t at = all ? all->next() : 0;
        if (at >= until(i)) continue;
        if (!walks[i] || at != begins[i]) walks[i].emplace(MemoScan::walk(file, stop, at, until(i)));
        if (!walks[i]->ok()) return std::move(*walks[i]).error();
        if (all)
            all->add(**walks[i]);
        else
            all = std::move(**walks[i]);
        if (all->stopped()) break;
    }
    return all->finish();
}

}  // namespace shardscope::dcp
