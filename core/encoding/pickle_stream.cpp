#include "encoding/pickle_stream.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "base/units.h"

namespace shardscope {

PickleStream::PickleStream(PickleWindow window, uint64_t start, uint64_t textLimit)
    : window_(std::move(window)), start_(start), textLimit_(textLimit) {
    if (const Status moved = window_.moveTo(start); !moved.ok()) error_ = moved.error();
    p_ = opcode_ = window_.begin();
    end_ = window_.end();
    setPause();
}

bool PickleStream::fail(std::string message) {
    if (failed()) return false;
    if (p_ > end_ && !truncated_) return remains(1);
    error_ = damaged(std::move(message), offset());
    return false;
}

bool PickleStream::failLimit(std::string message, std::string_view hint) {
    error_ = makeError(ErrorCode::limit, std::move(message)).at(offset()).withHint(hint);
    return false;
}

bool PickleStream::failUnsupported(std::string message, std::string_view hint) {
    error_ = unsupported(std::move(message)).at(offset()).withHint(hint);
    return false;
}

// Whether `length` more bytes follow p_.
bool PickleStream::remains(uint64_t length) {
    const uint64_t at = window_.offsetOf(p_);
    const uint64_t size = window_.size();
    if (at <= size && length <= size - at) return true;
    truncated_ = true;
    return fail(at > size ? fmt::format("the pickle ends inside {}", opcodeName())
                          : fmt::format("{} needs {}, the pickle has {}", opcodeName(),
                                        counted(length, "more byte"), countText(size - at)));
}

// Keeps the bytes from the opcode on.
bool PickleStream::refill(size_t need) {
    const auto back = static_cast<size_t>(p_ - opcode_);
    if (const Status moved = window_.moveTo(offset(), back + need); !moved.ok()) {
        error_ = moved.error();
        return false;
    }
    opcode_ = window_.begin();
    p_ = opcode_ + back;
    end_ = window_.end();
    setPause();
    return true;
}

void PickleStream::setPause() {
    const auto left = static_cast<size_t>(end_ - window_.begin());
    pause_ = window_.atEnd()                ? end_
             : left >= PickleWindow::kSlack ? end_ - PickleWindow::kSlack + 1
                                            : window_.begin();
    if (frameEnd_ == kNoFrame || p_ > pause_) return;
    const uint64_t at = window_.offsetOf(p_);
    if (frameEnd_ < at + static_cast<uint64_t>(pause_ - p_))
        pause_ = frameEnd_ > at ? p_ + (frameEnd_ - at) : p_;
}

bool PickleStream::resume() {
    if (failed()) return false;
    const uint64_t at = window_.offsetOf(p_);
    if (p_ > end_ && !remains(1)) return false;
    if (frameEnd_ != kNoFrame && at >= frameEnd_) {
        if (at > frameEnd_) return fail(fmt::format("{} reaches beyond the end of its frame", opcodeName()));
        frameEnd_ = kNoFrame;
    }
    if (at >= window_.size()) {
        truncated_ = true;
        opcode_ = p_;
        error_ = damaged("the pickle ends before STOP", at);
        return false;
    }
    opcode_ = p_;
    if (static_cast<size_t>(end_ - p_) < PickleWindow::kSlack && !window_.atEnd())
        return refill(PickleWindow::kSlack);
    setPause();
    return true;
}

bool PickleStream::openFrame() {
    const uint64_t length = load<uint64_t>(p_);
    p_ += sizeof length;
    if (frameEnd_ != kNoFrame) return fail("a FRAME begins inside another frame");
    if (!remains(length)) return false;
    frameEnd_ = window_.offsetOf(p_) + length;
    setPause();
    return true;
}

uint64_t PickleStream::lengthOperand(size_t width) {
    const uint8_t* at = p_;
    p_ += width;
    return width == 1 ? *at : width == 4 ? load<uint32_t>(at) : load<uint64_t>(at);
}

bool PickleStream::distantBytes(uint64_t length, std::string_view& out) {
    if (!remains(length)) return false;
    if (length > textLimit_) {
        return failLimit(fmt::format("{} holds {}, more than the {} that are read in one value", opcodeName(),
                                     counted(length, "byte"), countText(textLimit_)));
    }
    if (length > static_cast<size_t>(end_ - p_) && !refill(static_cast<size_t>(length))) return false;
    out = {reinterpret_cast<const char*>(p_), static_cast<size_t>(length)};
    p_ += length;
    return true;
}

bool PickleStream::skip(uint64_t length) {
    if (p_ <= end_ && length <= static_cast<size_t>(end_ - p_)) {
        p_ += length;
        return true;
    }
    if (!remains(length)) return false;
    if (const Status moved = window_.moveTo(window_.offsetOf(p_) + length); !moved.ok()) {
        error_ = moved.error();
        return false;
    }
    p_ = opcode_ = window_.begin();
    end_ = window_.end();
    setPause();
    return true;
}

bool PickleStream::lineOperands(std::string_view* lines, size_t count, uint64_t limit) {
    for (;;) {
        const uint8_t* from = p_;
        size_t found = 0;
        for (; found < count; ++found) {
            const auto left = static_cast<size_t>(end_ - std::min(from, end_));
            const void* newline = left > 0 ? std::memchr(from, '\n', left) : nullptr;
            const auto length =
                newline ? static_cast<size_t>(static_cast<const uint8_t*>(newline) - from) : left;
            if (length > limit)
                return failLimit(
                    fmt::format("{} holds a line of more than {}", opcodeName(), counted(limit, "byte")));
            if (!newline) break;
            lines[found] = {reinterpret_cast<const char*>(from), length};
            from += length + 1;
        }
        if (found == count) {
            p_ = from;
            return true;
        }
        if (window_.atEnd()) {
            truncated_ = true;
            return fail(fmt::format("the pickle ends inside the text line of {}", opcodeName()));
        }
        if (!refill(2 * static_cast<size_t>(end_ - opcode_) + 256)) return false;
    }
}

// ------------------------------------------------------------------ the first pass

void PickleLiveMemo::finish() {
    recent_.fill({});
    for (Word& word : words_) {
        word.before = count_;
        count_ += bitCount(word.bits);
    }
}

// Picklers number memo entries one after the other, so an index beyond the length of the source is damage.
bool PickleStream::failIndex(uint64_t index) {
    return fail(fmt::format("memo index {} is impossible in {}", index, counted(window_.size(), "byte")));
}

bool PickleStream::scan(PickleLiveMemo& use) {
    constexpr uint64_t kLineLimit = uint64_t{1} << 20;
    const auto fetch = [&](uint64_t index) __attribute__((always_inline)) {
        if (index > window_.size()) return failIndex(index);
        use.fetch(index);
        return true;
    };
    std::vector<PickleRun> runs(PickleRun::kSlots);
    const auto passRun = [&] {
        PickleRun& run = runs[PickleRun::slot(p_)];
        if (!run.isAt(p_, pause_)) {
            run.learn(p_, pause_);
            return true;
        }
        for (const uint8_t at : run.fetches()) {
            opcode_ = p_ + at;
            if (!fetch(Op(*opcode_) == Op::binGet ? opcode_[1] : load<uint32_t>(opcode_ + 1))) return false;
        }
        p_ += run.size();
        return true;
    };
    std::string_view lines[2];
    while (ready()) {
        opcode_ = p_;
        switch (Op(*p_++)) {
            case Op::memoize:
                break;
            case Op::binGet:
            case Op::longBinGet: {
                const bool isShort = Op(p_[-1]) == Op::binGet;
                if (!fetch(isShort ? *p_ : load<uint32_t>(p_))) return false;
                p_ += isShort ? 1 : 4;
                if (pause_ - p_ >= 6 && (load<uint64_t>(p_) & kSixBytes) == kBeginObject) {
                    p_ += 6;
                    ++use.objects_;
                    if (!passRun()) return false;
                }
                break;
            }
            case Op::get: {
                if (!lineOperands(lines, 1, kLineLimit)) return false;
                uint64_t index = 0;
                std::from_chars(lines[0].data(), lines[0].data() + lines[0].size(), index);
                if (!fetch(index)) return false;
                break;
            }
            case Op::frame:
                if (!openFrame()) return false;
                break;
            case Op::stop:
                use.finish();
                return true;
            case Op::newObj:
                ++use.objects_;
                break;
            default: {
                const uint8_t operand = kPickleOpcodes[*opcode_].operand;
                if (operand <= 8) {
                    p_ += operand;
                } else if (operand == kPickleLine || operand == kPickleTwoLines) {
                    if (!lineOperands(lines, operand == kPickleLine ? 1 : 2,
                                      std::max(kLineLimit, textLimit_)))
                        return false;
                } else if (operand == kNotAPickleOpcode) {
                    return fail(fmt::format("byte 0x{:02x} is not a pickle opcode", *opcode_));
                } else if (!skip(lengthOperand(operand & 0xf)) || !passRun()) {
                    return false;
                }
            }
        }
    }
    return false;
}

}  // namespace shardscope
