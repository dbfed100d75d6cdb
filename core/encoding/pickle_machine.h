// The virtual machine of pickles: stack, marks and memo. What the values are is the business of a handler:
// a graph of inert nodes (pickle_reader.cpp) or rows of a table (pickle_rows.h). Nothing is ever imported or
// called. Source: CPython's Lib/pickle.py and Lib/pickletools.py.
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <concepts>
#include <span>
#include <type_traits>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include <fmt/format.h>

#include "base/numbers.h"
#include "base/units.h"
#include "encoding/pickle_stream.h"
#include "encoding/pickle_text.h"

namespace shardscope {

enum class PickleText : uint8_t { utf8, python2, bytes, byteArray };
enum class PickleContainer : uint8_t { list, tuple, set, frozenSet, dict };

// What a machine needs to make values. Functions that return bool give a reason through PickleStream::fail()
// before they say false. Spans are those of the machine's stack: valid during the call.
template <class H>
concept PickleHandler = std::is_trivially_copyable_v<typename H::Value> &&
    requires(H h, PickleStream& in, typename H::Value v, std::span<const typename H::Value> items,
             std::string_view text) {
    { H::kUnset } -> std::convertible_to<typename H::Value>;  // not a value
    { H::isUnset(v) } -> std::same_as<bool>;
    h.begin(in);  // once, before all others
    { h.none() } -> std::same_as<typename H::Value>;
    { h.boolean(true) } -> std::same_as<typename H::Value>;
    { h.integer(int64_t{}) } -> std::same_as<typename H::Value>;
    { h.bigInteger(text) } -> std::same_as<typename H::Value>;  // two's complement, little-endian
    { h.real(0.0) } -> std::same_as<typename H::Value>;
    { h.text(PickleText::utf8, text, v) } -> std::same_as<bool>;
    { h.global(text, text, v) } -> std::same_as<bool>;
    { h.stackGlobal(v, v, v) } -> std::same_as<bool>;                        // module, name
    { h.container(PickleContainer::list, items, v) } -> std::same_as<bool>;  // a dict: key, value, ...
    { h.append(v, items) } -> std::same_as<bool>;
    { h.addToSet(v, items) } -> std::same_as<bool>;
    { h.setItems(v, items) } -> std::same_as<bool>;
    { h.reduce(v, v, v) } -> std::same_as<bool>;         // callable, arguments
    { h.newObject(v, v, &v, v) } -> std::same_as<bool>;  // class, arguments, keywords or null
    { h.instance(v, items, v) } -> std::same_as<bool>;   // class, arguments
    { h.build(v, v) } -> std::same_as<bool>;             // object, state
    { h.persistent(v) } -> std::same_as<typename H::Value>;
    h.memoized(v);  // may be fetched again: keeps its identity from now on
};

// Also wants the attributes of an object that a pickler writes as EMPTY_DICT ... SETITEMS BUILD, without the
// dict. Says in `done` whether it took them.
template <class H>
concept PickleAttributes = requires(H h, typename H::Value v, std::span<const typename H::Value> pairs,
                                    bool done) {
    { h.attributes(v, v, pairs, done) } -> std::same_as<bool>;  // object, dict, pairs
};

// Also says which texts and bytes stay in the source.
template <class H>
concept PicklePayloads = requires(H h, typename H::Value v) {
    { h.isPayload(PickleText::utf8, uint64_t{}) } -> std::same_as<bool>;  // length
    {
        h.payload(PickleText::utf8, uint64_t{}, uint64_t{})
        } -> std::same_as<typename H::Value>;  // offset, length
};

// Also decides, at intervals, whether to continue; gets the bytes of memory that the machine itself takes.
template <class H>
concept PickleLimited = requires(H h) {
    { h.withinLimits(uint64_t{}) } -> std::same_as<bool>;
};

template <PickleHandler Handler>
class PickleMachine : public PickleStream {
  public:
    using Value = typename Handler::Value;

    // `use`: what scan() said of the same pickle, so that nothing else is kept; null: everything is.
    // `stackBytes` bounds the stack.
    PickleMachine(Handler& handler, PickleWindow window, uint64_t start, uint64_t textLimit,
                  uint64_t stackBytes, PickleLiveMemo* use)
        : PickleStream(std::move(window), start, textLimit),
          h_(handler),
          use_(use),
          maxStack_(static_cast<size_t>(stackBytes / sizeof(Value))) {
        if (use) kept_.resize(use->count(), Handler::kUnset);
        findNextKept();
        low_.fill(Handler::kUnset);
        h_.begin(*this);
    }

    // Up to STOP. False: see takeError().
    bool run() {
        for (uint64_t steps = 0; ready(); ++steps) {
            opcode_ = p_;
            if constexpr (PickleLimited<Handler>) {
                if (steps % 1024 == 0 && !h_.withinLimits(memoryBytes())) return false;
            }
            if (!step()) return false;
            if (stopped_) return true;
        }
        return false;
    }
    Value root() const { return stack_[0]; }
    int protocol() const { return protocol_; }
    uint64_t memoryBytes() const {
        return (stack_.size() + kept_.capacity()) * sizeof(Value) + (sparse_.size() + far_.size()) * 64 +
               near_.capacity() * sizeof(uint64_t);
    }

  private:
    // --- stack: [0, top_) of stack_
    [[gnu::always_inline]] bool need(size_t count) {
        return top_ >= floor_ + count || fail("pickle stack underflow");
    }
    [[gnu::always_inline]] bool push(const Value& value) {
        if (top_ == stack_.size() && !grow()) return false;
        assign(stack_[top_++], value);
        return true;
    }
    // Word by word: one load of a whole value would wait for the narrower stores that have just made it.
    [[gnu::always_inline]] static void assign(Value& to, const Value& from) {
        if constexpr (sizeof(Value) == 2 * sizeof(uint64_t)) {
            auto words = std::bit_cast<std::array<uint64_t, 2>>(from);
            asm("" : "+r"(words[0]), "+r"(words[1]));  // or the compiler makes one load of them again
            to = std::bit_cast<Value>(words);
        } else {
            to = from;
        }
    }
    [[gnu::noinline]] bool grow() {
        if (top_ >= maxStack_) return failLimit("the pickle stacks too many values");
        stack_.resize(std::min(std::max<size_t>(1024, 2 * top_), maxStack_));
        return true;
    }
    const Value& pop() { return stack_[--top_]; }
    Value& back() { return stack_[top_ - 1]; }
    bool pushMark() {
        if (marks_.size() >= maxStack_) return failLimit("the pickle nests too many marks");
        marks_.push_back(floor_);
        floor_ = top_;
        return true;
    }
    bool popMark(size_t& first) {
        if (marks_.empty()) return failOpcode("there is no MARK on the stack");
        first = floor_;
        floor_ = marks_.back();
        marks_.pop_back();
        return true;
    }
    std::span<const Value> from(size_t first) const { return {stack_.data() + first, stack_.data() + top_}; }
    bool failOpcode(std::string_view message) { return fail(fmt::format("{}: {}", opcodeName(), message)); }

    // --- memo
    // Of an entry out of sequence.
    bool isNew(uint64_t index) {
        if (index >= 64 * 1024 + 4 * (inSequence_ + others_)) return far_.insert(index).second;
        if (index / 64 >= near_.size()) near_.resize(std::max<size_t>(index / 64 + 1, 2 * near_.size()));
        const uint64_t bit = uint64_t{1} << (index % 64);
        if ((near_[index / 64] & bit) || far_.contains(index)) return false;
        near_[index / 64] |= bit;
        return true;
    }
    void remember(uint64_t index) {
        if (index == inSequence_ && others_ == 0)
            ++inSequence_;
        else if (index >= inSequence_)
            others_ += isNew(index);
        const uint32_t rank = use_ ? use_->find(index) : 0;
        if (rank == PickleLiveMemo::kNever) return;
        h_.memoized(back());
        const Value& value = back();
        if (index < low_.size()) {
            low_[index] = value;
        } else if (use_) {
            kept_[rank] = value;
        } else if (index < 2 * (inSequence_ + others_) + 1024) {
            if (index >= kept_.size()) kept_.resize(index + 1, Handler::kUnset);
            kept_[index] = value;
        } else {
            sparse_.insert_or_assign(index, value);
        }
    }
    bool put(uint64_t index) {
        if (!need(1)) return false;
        remember(index);
        findNextKept();
        return true;
    }
    // Up to there MEMOIZE has nothing to do but to count.
    void findNextKept() {
        if (!use_ || others_ > 0)
            nextKept_ = 0;
        else if (inSequence_ >= nextKept_)
            nextKept_ = use_->next(inSequence_);
    }
    // MEMOIZE takes the number of entries so far.
    [[gnu::always_inline]] bool memoize() {
        if (!need(1)) return false;
        if (inSequence_ < nextKept_) {
            ++inSequence_;
        } else {
            remember(inSequence_ + others_);
            findNextKept();
        }
        return true;
    }
    [[gnu::always_inline]] bool fetch(uint64_t index) {
        if (index < low_.size() && !Handler::isUnset(low_[index])) return push(low_[index]);
        const uint64_t at = use_ ? use_->rank(index) : index;
        if (at < kept_.size() && !Handler::isUnset(kept_[at])) return push(kept_[at]);
        return fetchFar(index);
    }
    [[gnu::noinline]] bool fetchFar(uint64_t index) {
        if (const auto it = sparse_.find(index); it != sparse_.end()) return push(it->second);
        return failOpcode(fmt::format("memo entry {} was never stored", index));
    }

    // --- operands
    bool line(std::string_view& out, uint64_t limit = kNameLimit) { return lineOperands(&out, 1, limit); }
    bool textOf(PickleText kind, size_t width) {
        const uint64_t length = lengthOperand(width);
        if constexpr (PicklePayloads<Handler>) {
            if (h_.isPayload(kind, length)) {
                const uint64_t at = end();
                return skip(length) && push(h_.payload(kind, at, length));
            }
        }
        std::string_view bytes;
        return bytesOperand(length, bytes) && pushText(kind, bytes);
    }
    bool pushText(PickleText kind, std::string_view bytes) {
        Value value = Handler::kUnset;
        return h_.text(kind, bytes, value) && push(value);
    }
    bool longOf(size_t width) {
        std::string_view bytes;
        return bytesOperand(lengthOperand(width), bytes) && pushLong(bytes);
    }
    bool pushLong(std::string_view bytes) {
        constexpr size_t kMostBytes = 4096;
        if (bytes.size() > kMostBytes)
            return failLimit(fmt::format("an integer of {} is longer than the {} that are read",
                                         counted(bytes.size(), "byte"), countText(kMostBytes)));
        bytes = pickle_text::trimInteger(bytes);
        return push(bytes.size() > 8 ? h_.bigInteger(bytes) : h_.integer(pickle_text::smallInteger(bytes)));
    }
    bool decimal(std::string_view digits) {
        constexpr size_t kMostDigits = 4300;  // as CPython
        std::string bytes;
        if (digits.size() > kMostDigits)
            return failLimit(fmt::format("an integer of {}", counted(digits.size(), "digit")));
        if (!pickle_text::parseDecimal(digits, bytes))
            return failOpcode(fmt::format("'{}' is not an integer", printable(digits, kNameInMessage)));
        return pushLong(bytes);
    }
    bool realText(std::string_view text) {
        double value = 0;
        std::string_view digits = text;
        if (digits.starts_with('+')) digits.remove_prefix(1);
        const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), value);
        if (digits.empty() || parsed.ptr != digits.data() + digits.size() ||
            parsed.ec == std::errc::invalid_argument)
            return failOpcode(fmt::format("'{}' is not a number", printable(text, kNameInMessage)));
        return push(h_.real(value));
    }
    bool memoLine(uint64_t& index) {
        std::string_view text;
        if (!line(text)) return false;
        const auto number = parseNumber<uint64_t>(text);
        index = number.value_or(0);
        if (number) return true;
        return failOpcode(fmt::format("'{}' is not a memo index", printable(text, kNameInMessage)));
    }

    // --- values of several
    // Pushes what was made. Mostly MEMOIZE follows, which then needs no turn of its own.
    [[gnu::always_inline]] bool pushMade(const Value& made) {
        if (!push(made)) return false;
        if (p_ >= pause_ || Op(*p_) != Op::memoize) return true;
        opcode_ = p_++;
        return memoize();
    }
    // A class was pushed. An object of it with a state begins with the same six opcodes, as a rule.
    [[gnu::always_inline]] bool beginObject() {
        if (pause_ - p_ < 6 || (load<uint64_t>(p_) & kSixBytes) != kBeginObject ||
            inSequence_ + 2 > nextKept_)
            return true;
        Value none = Handler::kUnset, object = Handler::kUnset, dict = Handler::kUnset;
        if (!h_.container(PickleContainer::tuple, {}, none) || !h_.newObject(back(), none, nullptr, object) ||
            !h_.container(PickleContainer::dict, {}, dict))
            return false;
        assign(back(), object);
        p_ += 6;
        inSequence_ += 2;
        return push(dict) && pushMark();
    }
    [[gnu::always_inline]] bool collect(PickleContainer kind, size_t first) {
        Value made = Handler::kUnset;
        if (kind == PickleContainer::dict && (top_ - first) % 2) return failOpcode("a key without a value");
        if (!h_.container(kind, from(first), made)) return false;
        top_ = first;
        return pushMade(made);
    }
    bool collectMarked(PickleContainer kind) {
        size_t first = 0;
        return popMark(first) && collect(kind, first);
    }
    bool collectLast(size_t count) { return need(count) && collect(PickleContainer::tuple, top_ - count); }
    // What is on the stack from `first` on goes into the container below.
    template <class Put>
    bool into(size_t first, Put&& put) {
        if (first <= floor_) return failOpcode("there is no container below the items");
        if (!put(stack_[first - 1], from(first))) return false;
        top_ = first;
        return true;
    }
    bool append(size_t first) {
        return into(first, [&](Value& to, auto items) { return h_.append(to, items); });
    }
    bool setItems(size_t first) {
        if ((top_ - first) % 2) return failOpcode("a key without a value");
        if constexpr (PickleAttributes<Handler>) {
            if (p_ < pause_ && Op(*p_) == Op::build && first >= floor_ + 2) {
                bool done = false;
                if (!h_.attributes(stack_[first - 2], stack_[first - 1], from(first), done)) return false;
                if (done) {
                    top_ = first - 1;
                    ++p_;
                    return true;
                }
            }
        }
        return into(first, [&](Value& to, auto pairs) { return h_.setItems(to, pairs); });
    }
    // A class or function and the arguments behind it on the stack become what the handler makes of them.
    bool instance(const Value& callable, size_t firstArgument, size_t first) {
        Value made = Handler::kUnset;
        if (!h_.instance(callable, from(firstArgument), made)) return false;
        top_ = first;
        return push(made);
    }
    bool globalOf(std::string_view* names, Value& out) { return h_.global(names[0], names[1], out); }

    // The opcodes that make up nearly all of a large pickle.
    [[gnu::always_inline]] bool step() {
        size_t first = 0;
        switch (Op(*p_++)) {
            case Op::memoize:
                return memoize();
            case Op::binPut:
                return put(*p_++);
            case Op::longBinPut:
                p_ += 4;
                return put(load<uint32_t>(p_ - 4));
            case Op::binGet:
                return fetch(*p_++) && beginObject();
            case Op::longBinGet:
                p_ += 4;
                return fetch(load<uint32_t>(p_ - 4)) && beginObject();
            case Op::binInt1:
                return push(h_.integer(*p_++));
            case Op::binInt2:
                p_ += 2;
                return push(h_.integer(load<uint16_t>(p_ - 2)));
            case Op::binInt:
                p_ += 4;
                return push(h_.integer(load<int32_t>(p_ - 4)));
            case Op::mark:
                return pushMark();
            case Op::tuple1:
                return collectLast(1);
            case Op::tuple2:
                return collectLast(2);
            case Op::tuple3:
                return collectLast(3);
            case Op::emptyTuple:
                return collect(PickleContainer::tuple, top_);
            case Op::emptyDict:
                return collect(PickleContainer::dict, top_);
            case Op::setItems:
                return popMark(first) && setItems(first);
            case Op::build: {
                if (!need(2)) return false;
                const Value& state = pop();
                return h_.build(back(), state);
            }
            case Op::reduce:
            case Op::newObj: {
                if (!need(2)) return false;
                Value value = Handler::kUnset;
                const bool call = Op(*opcode_) == Op::reduce;
                const Value& arguments = pop();
                const Value& callable = pop();
                return (call ? h_.reduce(callable, arguments, value)
                             : h_.newObject(callable, arguments, nullptr, value)) &&
                       pushMade(value);
            }
            default:
                return rareStep();
        }
    }

    [[gnu::noinline]] bool rareStep() {
        Value value = Handler::kUnset;
        std::string_view text;
        std::string_view names[2];
        std::string decoded;
        size_t first = 0;
        uint64_t index = 0;
        switch (Op(*opcode_)) {
            case Op::proto:
                if (offset() != start()) return failOpcode("it is allowed only at the start of a pickle");
                protocol_ = *p_++;
                if (protocol_ > 5)
                    return failUnsupported(fmt::format("pickle protocol {} is newer than 5", protocol_));
                return true;
            case Op::frame:
                return openFrame();
            case Op::stop:
                if (!marks_.empty()) return failOpcode("a MARK is left on the stack");
                if (top_ != 1)
                    return failOpcode(
                        fmt::format("the stack has {} at the end instead of one", counted(top_, "value")));
                stopped_ = true;
                return true;
            case Op::pop:
                // CPython: a mark on top is popped as well.
                if (!marks_.empty() && floor_ == top_) return popMark(first);
                if (!need(1)) return false;
                --top_;
                return true;
            case Op::popMark:
                if (!popMark(first)) return false;
                top_ = first;
                return true;
            case Op::dup:
                if (!need(1)) return false;
                h_.memoized(back());
                value = back();
                return push(value);

            case Op::none:
                return push(h_.none());
            case Op::newTrue:
                return push(h_.boolean(true));
            case Op::newFalse:
                return push(h_.boolean(false));
            case Op::intText:
                if (!line(text)) return false;
                return text == "00" || text == "01" ? push(h_.boolean(text[1] == '1')) : decimal(text);
            case Op::longText:
                if (!line(text)) return false;
                if (text.ends_with('L')) text.remove_suffix(1);
                return decimal(text);
            case Op::long1:
                return longOf(1);
            case Op::long4:
                return longOf(4);
            case Op::binFloat:
                p_ += 8;
                return push(h_.real(std::bit_cast<double>(__builtin_bswap64(load<uint64_t>(p_ - 8)))));
            case Op::floatText:
                return line(text) && realText(text);
            case Op::shortBinUnicode:
                return textOf(PickleText::utf8, 1);
            case Op::binUnicode:
                return textOf(PickleText::utf8, 4);
            case Op::binUnicode8:
                return textOf(PickleText::utf8, 8);
            case Op::shortBinString:
                return textOf(PickleText::python2, 1);
            case Op::binString:
                return textOf(PickleText::python2, 4);
            case Op::shortBinBytes:
                return textOf(PickleText::bytes, 1);
            case Op::binBytes:
                return textOf(PickleText::bytes, 4);
            case Op::binBytes8:
                return textOf(PickleText::bytes, 8);
            case Op::byteArray8:
                return textOf(PickleText::byteArray, 8);
            case Op::unicode:
                if (!line(text, textLimit())) return false;
                if (!pickle_text::decodeRawUnicodeEscape(text, decoded))
                    return failOpcode("a malformed \\u escape");
                return pushText(PickleText::utf8, decoded);
            case Op::string:
                if (!line(text, textLimit())) return false;
                if (!pickle_text::decodeQuoted(text, decoded)) return failOpcode("the string is not quoted");
                return pushText(PickleText::python2, decoded);

            case Op::emptyList:
                return collect(PickleContainer::list, top_);
            case Op::emptySet:
                return collect(PickleContainer::set, top_);
            case Op::tuple:
                return collectMarked(PickleContainer::tuple);
            case Op::list:
                return collectMarked(PickleContainer::list);
            case Op::dict:
                return collectMarked(PickleContainer::dict);
            case Op::frozenSet:
                return collectMarked(PickleContainer::frozenSet);
            case Op::append:
                return need(2) && append(top_ - 1);
            case Op::appends:
                return popMark(first) && append(first);
            case Op::setItem:
                return need(3) && setItems(top_ - 2);
            case Op::addItems:
                return popMark(first) &&
                       into(first, [&](Value& to, auto items) { return h_.addToSet(to, items); });

            case Op::get:
                return memoLine(index) && fetch(index);
            case Op::put:
                return memoLine(index) && put(index);

            case Op::global:
                return lineOperands(names, 2, kNameLimit) && globalOf(names, value) && push(value);
            case Op::stackGlobal: {
                if (!need(2)) return false;
                const Value name = pop();
                const Value module = pop();
                return h_.stackGlobal(module, name, value) && push(value);
            }
            case Op::newObjEx: {
                if (!need(3)) return false;
                const Value keywords = pop();
                const Value arguments = pop();
                const Value callable = pop();
                return h_.newObject(callable, arguments, &keywords, value) && push(value);
            }
            case Op::inst:
                return lineOperands(names, 2, kNameLimit) && popMark(first) && globalOf(names, value) &&
                       instance(value, first, first);
            case Op::obj:
                if (!popMark(first)) return false;
                if (top_ <= first) return failOpcode("there is no class above the MARK");
                value = stack_[first];
                return instance(value, first + 1, first);
            case Op::persId:
                return line(text) && pushText(PickleText::utf8, text) && push(h_.persistent(pop()));
            case Op::binPersId:
                return need(1) && push(h_.persistent(pop()));

            case Op::ext1:
            case Op::ext2:
            case Op::ext4:
                return failUnsupported(
                    "the pickle uses an extension registry, which only its own program knows");
            case Op::nextBuffer:
            case Op::readonlyBuffer:
                return failUnsupported("the pickle refers to buffers outside of its file");
            default:
                break;
        }
        return fail(fmt::format("byte 0x{:02x} is not a pickle opcode", *opcode_));
    }

    // The longest line that is a name or a number; only strings may be longer.
    static constexpr uint64_t kNameLimit = uint64_t{64} << 10;

    Handler& h_;
    PickleLiveMemo* use_;
    const size_t maxStack_;
    int protocol_ = 0;
    bool stopped_ = false;
    std::vector<Value> stack_;
    size_t top_ = 0;
    size_t floor_ = 0;           // the last mark
    std::vector<size_t> marks_;  // those below

    // Entries of the memo: the first 256 by index; the others by rank among the fetched, or by index.
    std::array<Value, 256> low_;
    std::vector<Value> kept_;
    std::unordered_map<uint64_t, Value> sparse_;  // far from the others, as no pickler numbers them
    // How many entries there are: all below inSequence_, and others, by index: bits, and those far away.
    uint64_t inSequence_ = 0;
    uint64_t others_ = 0;
    uint64_t nextKept_ = 0;  // entries from inSequence_ up to it are not fetched
    std::vector<uint64_t> near_;
    std::unordered_set<uint64_t> far_;
};

}  // namespace shardscope
