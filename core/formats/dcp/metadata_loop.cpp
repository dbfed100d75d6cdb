// The opcode loop of MetadataMachine.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include <fmt/format.h>

#include "encoding/pickle_text.h"
#include "formats/dcp/metadata_machine.h"

namespace shardscope::dcp {

namespace {

constexpr uint64_t kMaxLine = uint64_t{1} << 20;

}  // namespace

// The text of `length` bytes that follows an opcode with `header` bytes; p_ moves behind it.
Result<std::string_view> MetadataMachine::textOperand(size_t header, uint64_t length) {
    const uint64_t start = here() + header;
    if (start > window_.fileSize() || length > window_.fileSize() - start)
        return bad(fmt::format("a string of {} bytes goes beyond the end of the file", length));
    if (length > limits_.pickleText)
        return makeError(ErrorCode::limit,
                         fmt::format("a string of {} bytes is longer than the {} that are read", length,
                                     limits_.pickleText))
            .at(here());
    p_ = opcode_;
    if (header + length > static_cast<size_t>(end_ - p_))
        SHARDSCOPE_TRY(refill(static_cast<size_t>(header + length) + 16));
    const auto* text = reinterpret_cast<const char*>(opcode_ + header);
    p_ = opcode_ + header + length;
    return std::string_view(text, static_cast<size_t>(length));
}

// The line that starts at p_; p_ moves behind it. The view holds until the next refill.
Result<std::string_view> MetadataMachine::lineOperand() {
    const uint8_t* stopAt = lineEnd(p_, end_);
    if (!stopAt && !window_.atEnd()) {
        SHARDSCOPE_TRY(refill(kMaxLine));
        stopAt = lineEnd(p_, end_);
    }
    if (!stopAt) return bad("a text line does not end");
    const std::string_view text(reinterpret_cast<const char*>(p_), static_cast<size_t>(stopAt - p_));
    p_ = stopAt + 1;
    return text;
}

// One opcode that is not among the frequent ones.
Status MetadataMachine::step() {
    const Op op{*opcode_};
    p_ = opcode_ + 1;
    uint32_t first = 0;
    Value value;
    switch (op) {
        case Op::proto:
            p_ += 1;
            return {};
        case Op::frame:
            p_ += 8;
            return {};
        case Op::none:
            return push(value);
        case Op::newTrue:
        case Op::newFalse:
            value.kind = Kind::boolean;
            value.b = op == Op::newTrue;
            return push(value);
        case Op::binFloat:
            value.kind = Kind::opaque;
            p_ += 8;
            return push(value);
        case Op::floatText:
        case Op::persId: {
            SHARDSCOPE_ASSIGN(auto text, lineOperand());
            (void)text;
            value.kind = Kind::opaque;
            return push(value);
        }
        case Op::intText:
        case Op::longText: {
            SHARDSCOPE_ASSIGN(std::string_view text, lineOperand());
            const auto* begin = reinterpret_cast<const uint8_t*>(text.data());
            if (op == Op::intText && (text == "00" || text == "01")) {
                value.kind = Kind::boolean;
                value.b = text == "01";
            } else if (parseDecimal(begin, begin + text.size(), value.b)) {
                value.kind = Kind::integer;
            } else {
                value.kind = Kind::opaque;
            }
            return push(value);
        }
        case Op::long1: {
            SHARDSCOPE_ASSIGN(std::string_view bytes, textOperand(2, opcode_[1]));
            return pushLong(bytes);
        }
        case Op::long4: {
            SHARDSCOPE_ASSIGN(std::string_view bytes, textOperand(5, load32(opcode_ + 1)));
            return pushLong(bytes);
        }
        case Op::shortBinUnicode:
        case Op::shortBinString: {
            SHARDSCOPE_ASSIGN(std::string_view text, textOperand(2, opcode_[1]));
            return pushText(text);
        }
        case Op::binUnicode:
        case Op::binString: {
            SHARDSCOPE_ASSIGN(std::string_view text, textOperand(5, load32(opcode_ + 1)));
            return pushText(text);
        }
        case Op::binUnicode8: {
            SHARDSCOPE_ASSIGN(std::string_view text, textOperand(9, load64(opcode_ + 1)));
            return pushText(text);
        }
        case Op::unicode: {
            SHARDSCOPE_ASSIGN(std::string_view text, lineOperand());
            std::string decoded;
            if (!pickle_text::decodeRawUnicodeEscape(text, decoded))
                return bad("a text holds a broken escape");
            return pushText(decoded);
        }
        case Op::string: {
            SHARDSCOPE_ASSIGN(std::string_view text, lineOperand());
            if (text.size() >= 2 && (text.front() == '\'' || text.front() == '"'))
                text = text.substr(1, text.size() - 2);
            return pushText(text);
        }
        case Op::shortBinBytes:
        case Op::binBytes:
        case Op::binBytes8:
        case Op::byteArray8: {
            const size_t header = op == Op::shortBinBytes ? 2 : op == Op::binBytes ? 5 : 9;
            const uint64_t length = op == Op::shortBinBytes ? opcode_[1]
                                    : op == Op::binBytes    ? load32(opcode_ + 1)
                                                            : load64(opcode_ + 1);
            SHARDSCOPE_ASSIGN(auto bytes, textOperand(header, length));
            (void)bytes;
            value.kind = Kind::opaque;
            return push(value);
        }
        case Op::binInt2:
            value.kind = Kind::integer;
            value.b = load16(p_);
            p_ += 2;
            return push(value);
        case Op::tuple:
            SHARDSCOPE_TRY(popMark(first));
            return makeTuple(first);
        case Op::emptyList:
        case Op::list:
            value.kind = Kind::list;
            if (op == Op::list) SHARDSCOPE_TRY(popMark(first));
            value.a = static_cast<uint32_t>(lists_.size());
            lists_.emplace_back();
            if (op == Op::emptyList) return push(value);
            stack_.insert(stack_.begin() + first, value);
            return addItems(first, first + 1);
        case Op::dict:
            SHARDSCOPE_TRY(popMark(first));
            value.kind = Kind::dict;
            value.a = static_cast<uint32_t>(dicts_.size());
            dicts_.emplace_back();
            stack_.insert(stack_.begin() + first, value);
            return setItems(first, first + 1);
        case Op::emptySet:
            value.kind = Kind::opaque;
            value.cls = Class::inert;
            return push(value);
        case Op::appends:
        case Op::addItems:
            SHARDSCOPE_TRY(popMark(first));
            if (first == 0) return bad("items are appended to nothing");
            return addItems(first - 1, first);
        case Op::append:
            SHARDSCOPE_TRY(need(2));
            first = static_cast<uint32_t>(stack_.size() - 1);
            return addItems(first - 1, first);
        case Op::setItem:
            SHARDSCOPE_TRY(need(3));
            first = static_cast<uint32_t>(stack_.size() - 2);
            return setItems(first - 1, first);
        case Op::frozenSet:
        case Op::inst:
        case Op::obj: {
            if (op == Op::inst) {
                SHARDSCOPE_ASSIGN(std::string_view line, lineOperand());
                const std::string module(line);
                SHARDSCOPE_ASSIGN(std::string_view name, lineOperand());
                SHARDSCOPE_TRY(pushGlobal(module, std::string(name)));
                value = stack_.back();
                stack_.pop_back();
                SHARDSCOPE_TRY(popMark(first));
            } else {
                SHARDSCOPE_TRY(popMark(first));
                if (op == Op::obj && first >= stack_.size()) return bad("an object without a class");
                if (op == Op::obj) value = stack_[first];
            }
            stack_.resize(first);
            Value made;
            made.kind = Kind::opaque;
            made.cls = Class::inert;
            if (op != Op::frozenSet) {
                made = newObject(value);
                // INST and OBJ call the class with what the mark holds.
                if (value.kind == Kind::global && value.cls == Class::foreign &&
                    globals_[value.a].foreign != kNone)
                    out_.foreign[globals_[value.a].foreign].called = true;
            }
            return push(made);
        }
        case Op::newObjEx:
            SHARDSCOPE_TRY(need(3));
            stack_.pop_back();
            stack_.pop_back();
            stack_.back() = newObject(stack_.back());
            return {};
        case Op::global: {
            SHARDSCOPE_ASSIGN(std::string_view line, lineOperand());
            const std::string module(line);
            SHARDSCOPE_ASSIGN(std::string_view name, lineOperand());
            return pushGlobal(module, std::string(name));
        }
        case Op::stackGlobal: {
            SHARDSCOPE_TRY(need(2));
            const Value name = stack_[stack_.size() - 1];
            const Value module = stack_[stack_.size() - 2];
            if (name.kind != Kind::text || module.kind != Kind::text)
                return bad("a global is named by something else than text");
            stack_.resize(stack_.size() - 2);
            // Copies: interning may move the texts.
            return pushGlobal(std::string(out_.texts[module.a]), std::string(out_.texts[name.a]));
        }
        case Op::binPersId:
            SHARDSCOPE_TRY(need(1));
            stack_.back() = Value{Kind::opaque, Class::inert, 0, 0};
            return {};
        case Op::pop:
            // CPython: a mark on top is popped as well.
            if (!marks_.empty() && marks_.back() == stack_.size()) {
                marks_.pop_back();
                return {};
            }
            return pop(value);
        case Op::popMark:
            SHARDSCOPE_TRY(popMark(first));
            stack_.resize(first);
            return {};
        case Op::dup:
            SHARDSCOPE_TRY(need(1));
            value = stack_.back();
            pin(value);
            return push(value);
        case Op::get:
        case Op::put: {
            SHARDSCOPE_ASSIGN(std::string_view line, lineOperand());
            int64_t index = 0;
            const auto* begin = reinterpret_cast<const uint8_t*>(line.data());
            if (!parseDecimal(begin, begin + line.size(), index) || index < 0)
                return bad("a memo index is not a number");
            if (op == Op::get) return fetch(static_cast<uint64_t>(index));
            counter_.put(static_cast<uint64_t>(index));
            return memoize(static_cast<uint64_t>(index));
        }
        case Op::binPut:
            ++p_;
            counter_.put(opcode_[1]);
            return memoize(opcode_[1]);
        case Op::longBinPut:
            p_ += 4;
            counter_.put(load32(opcode_ + 1));
            return memoize(load32(opcode_ + 1));
        default:
            break;
    }
    return bad(fmt::format("byte 0x{:02x} is no pickle opcode", *opcode_));
}

Result<Metadata> MetadataMachine::run() {
    SHARDSCOPE_TRY(window_.moveTo(0));
    p_ = opcode_ = window_.begin();
    end_ = window_.end();
    Value value;
    while (true) {
        opcode_ = p_;
        if (static_cast<size_t>(end_ - p_) < kFastWindow && !window_.atEnd())
            SHARDSCOPE_TRY(refill(kFastWindow));
        // The first pass has walked to STOP, so the file can only be short here when it changed in between.
        if (opcode_ >= end_)
            return makeError(ErrorCode::changed, "the file changed while it was read").at(here());
        switch (Op(*opcode_)) {
            case Op::memoize: {
                ++p_;
                const uint64_t index = counter_.memoize();
                if (use_.fetched(index)) SHARDSCOPE_TRY(memoize(index));
                break;
            }
            case Op::binGet:
            case Op::longBinGet: {
                const bool isShort = Op(*opcode_) == Op::binGet;
                const uint32_t index = isShort ? opcode_[1] : load32(opcode_ + 1);
                p_ += isShort ? 2 : 5;
                const Value* slot = slotOf(index);
                if (slot && slot->kind == Kind::global) {
                    bool done = false;
                    SHARDSCOPE_TRY(takeRun(slot->cls, done));
                    if (done) break;
                }
                SHARDSCOPE_TRY(fetch(index));
                break;
            }
            case Op::binInt1:
                p_ += 2;
                value = Value{Kind::integer, Class::foreign, 0, opcode_[1]};
                SHARDSCOPE_TRY(push(value));
                break;
            case Op::binInt2:
                p_ += 3;
                value = Value{Kind::integer, Class::foreign, 0, load16(opcode_ + 1)};
                SHARDSCOPE_TRY(push(value));
                break;
            case Op::binInt:
                p_ += 5;
                value = Value{Kind::integer, Class::foreign, 0, static_cast<int32_t>(load32(opcode_ + 1))};
                SHARDSCOPE_TRY(push(value));
                break;
            case Op::mark:
                ++p_;
                if (marks_.size() >= size_t{4} << 20)
                    return makeError(ErrorCode::limit, "the pickle nests more than 4 million marks")
                        .at(here());
                marks_.push_back(static_cast<uint32_t>(stack_.size()));
                break;
            case Op::emptyTuple:
                ++p_;
                SHARDSCOPE_TRY(push(Value{Kind::ints, Class::foreign, 0, 0}));
                break;
            case Op::emptyDict:
                ++p_;
                value = Value{Kind::dict, Class::foreign, static_cast<uint32_t>(dicts_.size()), 0};
                dicts_.emplace_back();
                SHARDSCOPE_TRY(push(value));
                break;
            case Op::tuple1:
            case Op::tuple2:
            case Op::tuple3: {
                ++p_;
                const uint32_t count = *opcode_ - static_cast<uint8_t>(Op::tuple1) + 1U;
                SHARDSCOPE_TRY(need(count));
                SHARDSCOPE_TRY(makeTuple(static_cast<uint32_t>(stack_.size()) - count));
                break;
            }
            case Op::reduce:
                ++p_;
                SHARDSCOPE_TRY(reduce());
                break;
            case Op::newObj:
                ++p_;
                SHARDSCOPE_TRY(need(2));
                release(stack_.back());
                stack_.pop_back();
                stack_.back() = newObject(stack_.back());
                break;
            case Op::setItems: {
                ++p_;
                uint32_t first = 0;
                SHARDSCOPE_TRY(popMark(first));
                if (first == 0) return bad("items are set in nothing");
                SHARDSCOPE_TRY(setItems(first - 1, first));
                break;
            }
            case Op::build:
                ++p_;
                SHARDSCOPE_TRY(build());
                break;
            case Op::stop: {
                SHARDSCOPE_TRY(need(1));
                const Value root = stack_.back();
                return finish(root);
            }
            default:
                SHARDSCOPE_TRY(step());
                break;
        }
    }
}

}  // namespace shardscope::dcp
