// Writing pickles (pickle.h): single opcodes as CPython's Modules/_pickle.c chooses them, and whole values.
#include <algorithm>
#include <cstring>
#include <unordered_map>

#include <fmt/format.h>

#include "base/units.h"
#include "encoding/pickle.h"
#include "encoding/pickle_opcodes.h"
#include "encoding/pickle_text.h"

namespace shardscope {

namespace {

void code(std::string& out, PickleOpcode op) {
    out += static_cast<char>(op);
}

template <class T>
void little(std::string& out, T value) {
    out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

// Python 3 names as protocol 2 spells them (CPython's reverse _compat_pickle).
std::pair<std::string_view, std::string_view> python2Name(std::string_view module, std::string_view name) {
    if (module == "builtins") {
        if (name == "range") return {"__builtin__", "xrange"};
        if (name == "str") return {"__builtin__", "unicode"};
        if (name == "int") return {"__builtin__", "long"};
        if (name == "chr") return {"__builtin__", "unichr"};
        if (name == "input") return {"__builtin__", "raw_input"};
        return {"__builtin__", name};
    }
    if (module == "copyreg") return {"copy_reg", name};
    if (module == "functools" && name == "reduce") return {"__builtin__", "reduce"};
    if (module == "sys" && name == "intern") return {"__builtin__", "intern"};
    return {module, name};
}

}  // namespace

PickleWriter::PickleWriter(For reader) : reader_(reader) {
    code(out_, PickleOpcode::proto);
    out_ += isProtocol4() ? '\4' : '\2';
    frame_ = out_.size();
}

void PickleWriter::none() {
    code(out_, PickleOpcode::none);
}
void PickleWriter::boolean(bool value) {
    code(out_, value ? PickleOpcode::newTrue : PickleOpcode::newFalse);
}

void PickleWriter::integer(int64_t value) {
    if (value >= 0 && value <= UINT8_MAX) {
        code(out_, PickleOpcode::binInt1);
        little(out_, static_cast<uint8_t>(value));
    } else if (value >= 0 && value <= UINT16_MAX) {
        code(out_, PickleOpcode::binInt2);
        little(out_, static_cast<uint16_t>(value));
    } else if (value >= INT32_MIN && value <= INT32_MAX) {
        code(out_, PickleOpcode::binInt);
        little(out_, static_cast<int32_t>(value));
    } else {
        char bytes[sizeof value];
        std::memcpy(bytes, &value, sizeof value);
        const std::string_view shortest = pickle_text::trimInteger({bytes, sizeof bytes});
        code(out_, PickleOpcode::long1);
        out_ += static_cast<char>(shortest.size());
        out_ += shortest;
    }
}

void PickleWriter::real(double value) {
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    code(out_, PickleOpcode::binFloat);
    little(out_, __builtin_bswap64(bits));
}

void PickleWriter::text(std::string_view utf8) {
    if (reader_ == For::framed) {
        const bool aside = beginLong(utf8.size());
        counted(utf8.size(), PickleOpcode::shortBinUnicode, PickleOpcode::binUnicode,
                PickleOpcode::binUnicode8);
        out_ += utf8;
        if (aside) frame_ = out_.size();
        return;
    }
    code(out_, PickleOpcode::binUnicode);
    little(out_, static_cast<uint32_t>(utf8.size()));
    out_ += utf8;
}

void PickleWriter::bytes(std::string_view value) {
    if (isProtocol4()) {
        const bool aside = beginLong(value.size());
        beginBytes(value.size());
        out_ += value;
        if (aside) frame_ = out_.size();
        return;
    }
    if (value.empty() && reader_ == For::python) {
        memoGlobal("builtins", "bytes");
        emptyTuple();
    } else {
        memoGlobal("_codecs", "encode");
        text(pickle_text::fromLatin1(value));
        put();
        memoText("latin1");
        tuple2();
        put();
    }
    reduce();
}

void PickleWriter::beginBytes(uint64_t length) {
    counted(length, PickleOpcode::shortBinBytes, PickleOpcode::binBytes, PickleOpcode::binBytes8);
}

// The shortest of three opcodes for a value of `length` bytes.
void PickleWriter::counted(uint64_t length, PickleOpcode byOne, PickleOpcode byFour, PickleOpcode byEight) {
    if (length <= UINT8_MAX) {
        code(out_, byOne);
        little(out_, static_cast<uint8_t>(length));
    } else if (length <= UINT32_MAX) {
        code(out_, byFour);
        little(out_, static_cast<uint32_t>(length));
    } else {
        code(out_, byEight);
        little(out_, length);
    }
}

// A long value is not part of a frame: true where what comes now is one. The next frame begins behind it.
bool PickleWriter::beginLong(uint64_t length) {
    if (reader_ != For::framed || length < kFrame) return false;
    endFrame();
    return true;
}

void PickleWriter::endFrame() {
    constexpr size_t kSmallest = 4;  // shorter ones have no header
    if (const uint64_t size = out_.size() - frame_; size >= kSmallest) {
        std::string header(1, static_cast<char>(PickleOpcode::frame));
        little(header, size);
        out_.insert(frame_, header);
    }
    frame_ = out_.size();
}

void PickleWriter::global(std::string_view module, std::string_view name) {
    if (reader_ == For::framed) {
        memoText(module);
        memoText(name);
        return code(out_, PickleOpcode::stackGlobal);
    }
    const auto [module2, name2] =
        reader_ == For::python3 ? std::pair(module, name) : python2Name(module, name);
    code(out_, PickleOpcode::global);
    out_ += module2;
    out_ += '\n';
    out_ += name2;
    out_ += '\n';
}

void PickleWriter::memoGlobal(std::string_view module, std::string_view name) {
    const std::string both = fmt::format("{}\n{}", module, name);
    if (const auto known = globals_.find(both); known != globals_.end()) return get(known->second);
    global(module, name);
    globals_.emplace(both, put());
}

void PickleWriter::memoText(std::string_view utf8) {
    const auto [it, fresh] = texts_.try_emplace(std::string(utf8), memo_);
    if (!fresh) return get(it->second);
    text(utf8);
    put();
}

void PickleWriter::mark() {
    code(out_, PickleOpcode::mark);
}
void PickleWriter::tuple() {
    code(out_, PickleOpcode::tuple);
}
void PickleWriter::tuple1() {
    code(out_, PickleOpcode::tuple1);
}
void PickleWriter::tuple2() {
    code(out_, PickleOpcode::tuple2);
}
void PickleWriter::tuple3() {
    code(out_, PickleOpcode::tuple3);
}
void PickleWriter::emptyTuple() {
    code(out_, PickleOpcode::emptyTuple);
}
void PickleWriter::written(std::string_view opcodes) {
    out_ += opcodes;
}

void PickleWriter::beginTuple(size_t size) {
    if (size > 3) mark();
}
void PickleWriter::endTuple(size_t size) {
    switch (size) {
        case 0:
            return emptyTuple();
        case 1:
            return tuple1();
        case 2:
            return tuple2();
        case 3:
            return tuple3();
        default:
            return tuple();
    }
}
void PickleWriter::emptyList() {
    code(out_, PickleOpcode::emptyList);
}
void PickleWriter::append() {
    code(out_, PickleOpcode::append);
}
void PickleWriter::appends() {
    code(out_, PickleOpcode::appends);
}
void PickleWriter::emptyDict() {
    code(out_, PickleOpcode::emptyDict);
}
void PickleWriter::setItem() {
    code(out_, PickleOpcode::setItem);
}
void PickleWriter::setItems() {
    code(out_, PickleOpcode::setItems);
}
void PickleWriter::reduce() {
    code(out_, PickleOpcode::reduce);
}
void PickleWriter::newObject() {
    code(out_, PickleOpcode::newObj);
}
void PickleWriter::build() {
    code(out_, PickleOpcode::build);
}
void PickleWriter::persistentId() {
    code(out_, PickleOpcode::binPersId);
}
void PickleWriter::pop() {
    code(out_, PickleOpcode::pop);
}

uint32_t PickleWriter::put() {
    if (reader_ == For::framed) {
        code(out_, PickleOpcode::memoize);
    } else if (memo_ <= UINT8_MAX) {
        code(out_, PickleOpcode::binPut);
        little(out_, static_cast<uint8_t>(memo_));
    } else {
        code(out_, PickleOpcode::longBinPut);
        little(out_, memo_);
    }
    return memo_++;
}

void PickleWriter::get(uint32_t memo) {
    if (memo <= UINT8_MAX) {
        code(out_, PickleOpcode::binGet);
        little(out_, static_cast<uint8_t>(memo));
    } else {
        code(out_, PickleOpcode::longBinGet);
        little(out_, memo);
    }
}

std::string PickleWriter::take() {
    return std::exchange(out_, {});
}

std::string PickleWriter::finish() {
    code(out_, PickleOpcode::stop);
    if (reader_ == For::framed) endFrame();
    return take();
}

// Writes one value and all it reaches; nests at most kMaxValueDepth deep, whatever the graph.
class ValueEncoder {
  public:
    ValueEncoder(PickleWriter& out, const ValueGraph& graph) : w_(out), graph_(graph) {}

    Status save(NodeId node, int depth) {
        if (depth > kMaxValueDepth) {
            return makeError(ErrorCode::limit, fmt::format("a value is nested deeper than {}",
                                                           counted(kMaxValueDepth, "level")));
        }
        if (const auto it = memo_.find(node); it != memo_.end()) {
            w_.get(it->second);
            return {};
        }
        if (framed() && w_.out_.size() - w_.frame_ >= PickleWriter::kFrame) w_.endFrame();
        const std::string_view text = isTextual(graph_.kind(node)) ? graph_.text(node) : std::string_view();
        switch (graph_.kind(node)) {
            case ValueKind::none:
                w_.none();
                return {};
            case ValueKind::boolean:
                w_.boolean(graph_.boolean(node));
                return {};
            case ValueKind::integer:
                w_.integer(graph_.integer(node));
                return {};
            case ValueKind::real:
                w_.real(graph_.real(node));
                return {};
            case ValueKind::bigInteger:
                bigInteger(text);
                return {};
            case ValueKind::text:
                w_.text(text);
                remember(node);
                return {};
            case ValueKind::bytes:
                w_.bytes(text);
                remember(node);
                return {};
            case ValueKind::byteArray: {
                w_.memoGlobal("builtins", "bytearray");
                if (text.empty()) {
                    w_.emptyTuple();
                } else {
                    w_.bytes(text);
                    w_.put();
                    w_.tuple1();
                    w_.put();
                }
                w_.reduce();
                remember(node);
                return {};
            }
            case ValueKind::list:
                w_.emptyList();
                remember(node);
                return listItems(graph_.items(node), depth);
            case ValueKind::dict:
                w_.emptyDict();
                remember(node);
                return dictItems(graph_.items(node), depth);
            case ValueKind::tuple:
                return tuple(node, depth);
            case ValueKind::set:
                return setOf(node, "set", depth);
            case ValueKind::frozenSet:
                return setOf(node, "frozenset", depth);
            case ValueKind::global:
                return global(node);
            case ValueKind::object:
                return object(node, depth);
            case ValueKind::persistent:
                if (framed()) return unsupported("a persistent id refers to something outside of the pickle");
                SHARDSCOPE_TRY(save(graph_.items(node)[0], depth + 1));
                w_.persistentId();
                return {};
        }
        return {};
    }

  private:
    bool framed() const { return w_.reader_ == PickleWriter::For::framed; }
    static bool isTextual(ValueKind kind) {
        return kind == ValueKind::bigInteger || kind == ValueKind::text || kind == ValueKind::bytes ||
               kind == ValueKind::byteArray || kind == ValueKind::global;
    }
    void remember(NodeId node) { memo_[node] = w_.put(); }
    bool known(NodeId node) const { return memo_.contains(node); }

    void bigInteger(std::string_view bytes) {
        if (bytes.size() <= UINT8_MAX) {
            code(w_.out_, PickleOpcode::long1);
            little(w_.out_, static_cast<uint8_t>(bytes.size()));
        } else {
            code(w_.out_, PickleOpcode::long4);
            little(w_.out_, static_cast<int32_t>(bytes.size()));
        }
        w_.out_ += bytes;
    }

    // Batches of 1000, and one item alone without a MARK, as CPython has them for exact lists.
    Status listItems(std::span<const NodeId> items, int depth) {
        if (items.size() == 1) {
            SHARDSCOPE_TRY(save(items[0], depth + 1));
            w_.append();
            return {};
        }
        for (size_t i = 0; i < items.size(); i += kBatch) {
            w_.mark();
            for (NodeId item : items.subspan(i, std::min(kBatch, items.size() - i)))
                SHARDSCOPE_TRY(save(item, depth + 1));
            w_.appends();
        }
        return {};
    }
    // An exact dict of 1000, 2000, ... items ends with an empty batch, as CPython has it.
    Status dictItems(std::span<const NodeId> items, int depth) {
        if (items.empty()) return {};
        if (items.size() == 2) {
            SHARDSCOPE_TRY(save(items[0], depth + 1));
            SHARDSCOPE_TRY(save(items[1], depth + 1));
            w_.setItem();
            return {};
        }
        for (size_t i = 0;; i += 2 * kBatch) {
            const size_t count = i < items.size() ? std::min(2 * kBatch, items.size() - i) : 0;
            w_.mark();
            for (size_t k = 0; k < count; ++k)
                SHARDSCOPE_TRY(save(items[i + k], depth + 1));
            w_.setItems();
            if (count < 2 * kBatch) return {};
        }
    }
    // Items that an object hands out through an iterator: a last one alone stands without a MARK.
    template <class Single, class Batch>
    Status iterated(std::span<const NodeId> items, size_t width, int depth, Single&& single, Batch&& batch) {
        for (size_t i = 0; i < items.size(); i += width * kBatch) {
            const size_t count = std::min(width * kBatch, items.size() - i);
            if (count > width) w_.mark();
            for (size_t k = 0; k < count; ++k)
                SHARDSCOPE_TRY(save(items[i + k], depth + 1));
            count > width ? batch() : single();
        }
        return {};
    }

    Status tuple(NodeId node, int depth) {
        const std::span<const NodeId> items = graph_.items(node);
        if (items.empty()) {
            w_.emptyTuple();
            return {};
        }
        if (items.size() > 3) w_.mark();
        for (NodeId item : items)
            SHARDSCOPE_TRY(save(item, depth + 1));
        if (known(node)) {
            // It was written while its items were: a cycle through a mutable item.
            if (items.size() > 3) {
                code(w_.out_, PickleOpcode::popMark);
            } else {
                for (size_t i = 0; i < items.size(); ++i)
                    code(w_.out_, PickleOpcode::pop);
            }
            w_.get(memo_[node]);
            return {};
        }
        w_.endTuple(items.size());
        remember(node);
        return {};
    }

    Status setOf(NodeId node, std::string_view type, int depth) {
        if (framed()) {
            if (graph_.kind(node) == ValueKind::frozenSet) return unsupported("a frozenset in protocol 4");
            code(w_.out_, PickleOpcode::emptySet);
            remember(node);
            for (auto items = graph_.items(node); !items.empty();) {
                w_.mark();
                const auto batch = items.first(std::min(kBatch, items.size()));
                for (NodeId item : batch)
                    SHARDSCOPE_TRY(save(item, depth + 1));
                code(w_.out_, PickleOpcode::addItems);
                items = items.subspan(batch.size());
            }
            return {};
        }
        w_.memoGlobal("builtins", type);
        w_.emptyList();
        w_.put();
        SHARDSCOPE_TRY(listItems(graph_.items(node), depth + 1));
        w_.tuple1();
        w_.put();
        w_.reduce();
        remember(node);
        return {};
    }

    Status global(NodeId node) {
        const std::string_view module = graph_.globalModule(node);
        const std::string_view name = graph_.globalName(node);
        for (char c : graph_.text(node)) {
            if (static_cast<uint8_t>(c) >= 0x80 && !framed()) {
                return unsupported(
                    fmt::format("the name {}.{} is not ASCII, which protocol 2 needs", module, name));
            }
        }
        if (module.starts_with('<'))
            return unsupported("a name that is put together while unpickling cannot be written");
        w_.memoGlobal(module, name);
        return {};
    }

    Status object(NodeId node, int depth) {
        const ValueObject& made = graph_.object(node);
        if (framed() && made.made == ValueObject::Made::instance)
            return unsupported("a value that is made in a way of older pickles");
        switch (made.made) {
            case ValueObject::Made::newObjectWithKeywords:
                return unsupported(
                    fmt::format("{} is made with keyword arguments, which protocol 2 cannot say",
                                valueRepr({share(), made.callable}, 100)));
            case ValueObject::Made::instance:
                w_.mark();
                SHARDSCOPE_TRY(save(made.callable, depth + 1));
                for (NodeId item : graph_.items(made.arguments))
                    SHARDSCOPE_TRY(save(item, depth + 1));
                code(w_.out_, PickleOpcode::obj);
                break;
            default:
                SHARDSCOPE_TRY(save(made.callable, depth + 1));
                SHARDSCOPE_TRY(save(made.arguments, depth + 1));
                made.made == ValueObject::Made::reduce ? w_.reduce() : w_.newObject();
        }
        if (known(node)) {
            code(w_.out_, PickleOpcode::pop);
            w_.get(memo_[node]);
            return {};
        }
        remember(node);
        if (made.appended != kNoNode) {
            SHARDSCOPE_TRY(iterated(
                graph_.items(made.appended), 1, depth, [&] { w_.append(); }, [&] { w_.appends(); }));
        }
        if (made.pairs != kNoNode) {
            SHARDSCOPE_TRY(iterated(
                graph_.items(made.pairs), 2, depth, [&] { w_.setItem(); }, [&] { w_.setItems(); }));
        }
        if (made.state != kNoNode) {
            SHARDSCOPE_TRY(save(made.state, depth + 1));
            w_.build();
        }
        return {};
    }

    // For messages only: the graph lives as long as this encoder.
    std::shared_ptr<const ValueGraph> share() const { return {std::shared_ptr<void>(), &graph_}; }

    static constexpr size_t kBatch = 1000;
    PickleWriter& w_;
    const ValueGraph& graph_;
    std::unordered_map<NodeId, uint32_t> memo_;
};

Status PickleWriter::value(const Value& value) {
    if (!value) return makeError(ErrorCode::internal, "an empty value was to be pickled");
    return ValueEncoder(*this, *value.graph).save(value.node, 0);
}

Result<std::string> encodePickle(const Value& value, PickleWriter::For reader) {
    PickleWriter writer(reader);
    SHARDSCOPE_TRY(writer.value(value));
    return writer.finish();
}

}  // namespace shardscope
