#include <algorithm>
#include <charconv>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include <fmt/format.h>

#include "encoding/pickle.h"
#include "encoding/pickle_lexer.h"
#include "encoding/pickle_text.h"

namespace shardscope {

namespace {

constexpr uint64_t kMaxNodes = uint64_t{256} << 20;

// What stands for a STACK_GLOBAL whose names were put together while unpickling: nobody can say what it would
// be.
constexpr std::string_view kDynamic = "<dynamic>";

// Python 2 names that a Python 3 unpickler maps before it looks them up (CPython's _compat_pickle, the ones
// that data is made of).
struct RenamedGlobal {
    std::string_view module, name, newModule, newName;
};
constexpr RenamedGlobal kRenamed[] = {
    {"__builtin__", "xrange", "builtins", "range"},
    {"__builtin__", "unicode", "builtins", "str"},
    {"__builtin__", "long", "builtins", "int"},
    {"__builtin__", "unichr", "builtins", "chr"},
    {"__builtin__", "reduce", "functools", "reduce"},
    {"__builtin__", "intern", "sys", "intern"},
    {"__builtin__", "raw_input", "builtins", "input"},
    {"UserDict", "UserDict", "collections", "UserDict"},
    {"UserList", "UserList", "collections", "UserList"},
    {"UserString", "UserString", "collections", "UserString"},
};
struct RenamedModule {
    std::string_view module, newModule;
};
constexpr RenamedModule kRenamedModules[] = {
    {"__builtin__", "builtins"}, {"copy_reg", "copyreg"}, {"cPickle", "pickle"},
    {"_socket", "socket"},       {"cStringIO", "io"},     {"StringIO", "io"},
};

class Decoder {
  public:
    Decoder(std::span<const std::byte> bytes, const PickleLimits& limits)
        : lexer_(bytes, std::min<uint64_t>(limits.textBytes, UINT32_MAX)),
          streamSize_(bytes.size()),
          maxNodes_(limits.nodes ? std::min<uint64_t>(limits.nodes, kNoNode - 1)
                                 : std::min<uint64_t>(4 * (bytes.size() + 16), kMaxNodes)),
          maxMemory_(limits.memory),
          maxDepth_(limits.depth) {}

    Result<Pickle> run() {
        while (!done_) {
            if (!lexer_.next(op_)) return std::move(lexer_.error());
            if (!step()) return std::move(error_);
            if (result_.graph.size() > maxNodes_) {
                return makeError(ErrorCode::limit,
                                 fmt::format("the pickle makes more than {} values", maxNodes_))
                    .at(op_.offset);
            }
            if (++steps_ % 4096 == 0 && memoryBytes() > maxMemory_) {
                return makeError(ErrorCode::limit,
                                 fmt::format("the values of the pickle need more than the {} MiB of memory "
                                             "that they may take",
                                             maxMemory_ >> 20))
                    .at(op_.offset)
                    .withHint("raise --memory: half of it is for such values");
            }
        }
        result_.length = lexer_.position();
        if (!checkDepth()) return std::move(error_);
        return std::move(result_);
    }

  private:
    ValueGraph& graph() { return result_.graph; }
    uint64_t memoryBytes() const {
        return result_.graph.memoryBytes() + (stack_.capacity() + dense_.capacity()) * sizeof(NodeId) +
               sparse_.size() * 4 * sizeof(uint64_t);
    }

    // --- errors
    bool fail(std::string what) {
        error_ = damaged(fmt::format("{}: {}", pickleOpcodeName(op_.code), what), op_.offset);
        return false;
    }
    bool failLimit(std::string what) {
        error_ = makeError(ErrorCode::limit, fmt::format("{}: {}", pickleOpcodeName(op_.code), what))
                     .at(op_.offset);
        return false;
    }
    bool failUnsupported(std::string what) {
        error_ = unsupported(fmt::format("{}: {}", pickleOpcodeName(op_.code), what)).at(op_.offset);
        return false;
    }
    static std::string_view kindWord(ValueKind kind) {
        constexpr std::string_view words[] = {"None",    "a bool",   "an int",    "an int",
                                              "a float", "a str",    "bytes",     "a bytearray",
                                              "a list",  "a tuple",  "a set",     "a frozenset",
                                              "a dict",  "a global", "an object", "a persistent id"};
        return words[static_cast<size_t>(kind)];
    }

    // --- stack
    size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
    bool need(size_t count) {
        if (stack_.size() - floor() >= count) return true;
        return fail(fmt::format("the stack holds {} values, {} are needed", stack_.size() - floor(), count));
    }
    bool push(NodeId node) {
        stack_.push_back(node);
        return true;
    }
    NodeId pop() {
        const NodeId node = stack_.back();
        stack_.pop_back();
        return node;
    }
    bool popMark(size_t& begin) {
        if (marks_.empty()) return fail("there is no MARK on the stack");
        begin = marks_.back();
        marks_.pop_back();
        return true;
    }
    std::span<const NodeId> from(size_t begin) const { return std::span(stack_).subspan(begin); }

    // --- memo: dense as picklers write it, a map for anything else
    void remember(uint64_t index, NodeId node) {
        ++opcodes_;
        if (index < dense_.size()) {
            memoCount_ += dense_[index] == kNoNode;
            dense_[index] = node;
        } else if (index < 2 * opcodes_ + 1024) {
            dense_.resize(index + 1, kNoNode);
            dense_[index] = node;
            ++memoCount_;
        } else {
            memoCount_ += sparse_.insert_or_assign(index, node).second;
        }
    }
    bool recall(uint64_t index) {
        if (index < dense_.size() && dense_[index] != kNoNode) return push(dense_[index]);
        if (const auto it = sparse_.find(index); it != sparse_.end()) return push(it->second);
        return fail(fmt::format("memo entry {} was never stored", index));
    }
    bool textIndex(uint64_t& index) {
        const auto [end, error] = std::from_chars(op_.text.data(), op_.text.data() + op_.text.size(), index);
        if (error == std::errc() && end == op_.text.data() + op_.text.size()) return true;
        return fail(fmt::format("'{}' is no memo index", pickle_text::printable(op_.text)));
    }

    // Copies that the stream asks for (bytes from text, sets from lists) may not grow past its own size many
    // times over.
    bool mayCopy(uint64_t bytes) {
        copied_ += bytes;
        if (copied_ <= 4 * streamSize_ + 4096) return true;
        return failLimit("the pickle repeats a large value too often");
    }

    bool text(ValueKind kind, std::string_view bytes) { return push(graph().addText(kind, bytes)); }
    bool utf8(std::string_view bytes) {
        if (!pickle_text::isUtf8(bytes)) return fail("the text is not UTF-8");
        return text(ValueKind::text, bytes);
    }
    // A Python 2 str: text where it is UTF-8, as torch.load decodes it.
    bool byteString(std::string_view bytes) {
        return text(pickle_text::isUtf8(bytes) ? ValueKind::text : ValueKind::bytes, bytes);
    }
    bool longBytes(std::string_view bytes) {
        constexpr size_t kMaxIntegerBytes = 4096;
        if (bytes.size() > kMaxIntegerBytes) {
            return failLimit(fmt::format("an integer of {} bytes is longer than the {} that are read",
                                         bytes.size(), kMaxIntegerBytes));
        }
        bytes = pickle_text::trimInteger(bytes);
        if (bytes.size() > 8) return text(ValueKind::bigInteger, bytes);
        return push(graph().addInteger(pickle_text::smallInteger(bytes)));
    }
    bool integerText(std::string_view digits) {
        int64_t value = 0;
        const std::string_view unsignedDigits = digits.starts_with('+') ? digits.substr(1) : digits;
        const char* end = unsignedDigits.data() + unsignedDigits.size();
        const auto parsed = std::from_chars(unsignedDigits.data(), end, value);
        if (parsed.ec == std::errc() && parsed.ptr == end) return push(graph().addInteger(value));
        constexpr size_t kMaxDigits = 4300;  // as CPython
        if (digits.size() > kMaxDigits)
            return failLimit(fmt::format("an integer of {} digits", digits.size()));
        std::string bytes;
        if (!pickle_text::parseDecimal(digits, bytes)) {
            return fail(fmt::format("'{}' is no integer", pickle_text::printable(digits)));
        }
        return longBytes(bytes);
    }

    // --- globals and calls
    bool global(std::string_view module, std::string_view name) {
        if (module.empty() || name.empty()) return fail("an empty module or name");
        for (std::string_view part : {module, name}) {
            if (!pickle_text::isUtf8(part) || part.find_first_of(std::string_view("\0\n", 2)) != part.npos) {
                return fail(fmt::format("'{}' is no name", pickle_text::printable(part)));
            }
            if (part.size() > 4096) return failLimit(fmt::format("a name of {} bytes", part.size()));
        }
        bool renamed = false;
        for (const RenamedGlobal& r : kRenamed) {
            if (r.module == module && r.name == name) {
                module = r.newModule;
                name = r.newName;
                renamed = true;
                break;
            }
        }
        for (const RenamedModule& r : kRenamedModules) {
            if (!renamed && r.module == module) module = r.newModule;
        }
        const NodeId node = graph().addGlobal(module, name);
        std::string full = fmt::format("{}.{}", module, name);
        if (seen_.insert(full).second) result_.globals.push_back(std::move(full));
        return push(node);
    }
    bool stackGlobal() {
        if (!need(2)) return false;
        const NodeId name = pop();
        const NodeId module = pop();
        if (graph().kind(name) != ValueKind::text || graph().kind(module) != ValueKind::text) {
            return global(kDynamic, kDynamic);
        }
        const std::string moduleText(graph().text(module));
        const std::string nameText(graph().text(name));
        return global(moduleText, nameText);
    }
    bool checkCallable(NodeId callable) {
        const ValueKind kind = graph().kind(callable);
        if (kind == ValueKind::global || kind == ValueKind::object || kind == ValueKind::persistent)
            return true;
        return fail(fmt::format("{} is called", kindWord(kind)));
    }
    bool checkTuple(NodeId node, std::string_view what) {
        if (graph().kind(node) == ValueKind::tuple) return true;
        return fail(fmt::format("{} where {} should be a tuple", kindWord(graph().kind(node)), what));
    }

    // Calls that only spell plain data become that data; kNoNode for all others.
    NodeId plainData(NodeId callable, NodeId arguments) {
        if (graph().kind(callable) != ValueKind::global) return kNoNode;
        const std::string_view module = graph().globalModule(callable);
        const std::string_view name = graph().globalName(callable);
        const std::span<const NodeId> args = graph().items(arguments);
        if (module == "_codecs" && name == "encode" && args.size() == 2 &&
            graph().kind(args[0]) == ValueKind::text &&
            (graph().isText(args[1], "latin1") || graph().isText(args[1], "latin-1"))) {
            std::string bytes;
            const std::string_view text = graph().text(args[0]);
            if (!pickle_text::toLatin1(text, bytes)) return kNoNode;
            if (!mayCopy(text.size())) return kNoNode;
            return graph().addText(ValueKind::bytes, bytes);
        }
        if (module == "collections" && name == "Counter" && args.size() == 1 &&
            graph().kind(args[0]) == ValueKind::dict) {
            return callWithPairs(callable, arguments, args[0]);
        }
        if (module == "collections" && name == "OrderedDict" && args.size() == 1 &&
            graph().kind(args[0]) == ValueKind::list) {
            return callWithListOfPairs(callable, arguments, args[0]);
        }
        if (module != "builtins") return kNoNode;
        if (name == "bytes" && args.empty()) return graph().addText(ValueKind::bytes, {});
        if (name == "bytearray" && args.empty()) return graph().addText(ValueKind::byteArray, {});
        if (name == "bytearray" && args.size() == 1 && graph().kind(args[0]) == ValueKind::bytes) {
            const std::string bytes(graph().text(args[0]));
            if (!mayCopy(bytes.size())) return kNoNode;
            return graph().addText(ValueKind::byteArray, bytes);
        }
        if (name == "bytearray" && args.size() == 2 && graph().kind(args[0]) == ValueKind::text &&
            (graph().isText(args[1], "latin-1") || graph().isText(args[1], "latin1"))) {
            std::string bytes;
            if (!pickle_text::toLatin1(graph().text(args[0]), bytes) || !mayCopy(bytes.size()))
                return kNoNode;
            return graph().addText(ValueKind::byteArray, bytes);
        }
        if ((name == "set" || name == "frozenset") && args.size() <= 1) {
            const ValueKind kind = name == "set" ? ValueKind::set : ValueKind::frozenSet;
            if (args.empty()) return graph().addContainer(kind);
            const ValueKind source = graph().kind(args[0]);
            if (source != ValueKind::list && source != ValueKind::tuple) return kNoNode;
            const auto items = graph().items(args[0]);
            if (!mayCopy(items.size()) || !checkKeys(items, 1)) return kNoNode;
            const std::vector<NodeId> copy(items.begin(), items.end());
            return graph().addContainer(kind, copy);
        }
        return kNoNode;
    }
    NodeId callWithPairs(NodeId callable, NodeId arguments, NodeId dict) {
        const auto items = graph().items(dict);
        if (!mayCopy(items.size())) return kNoNode;
        const std::vector<NodeId> copy(items.begin(), items.end());
        return filledObject(callable, arguments, copy);
    }
    // OrderedDict([[key, value], ...]), as Python 2 wrote it.
    NodeId callWithListOfPairs(NodeId callable, NodeId arguments, NodeId list) {
        std::vector<NodeId> copy;
        for (NodeId pair : graph().items(list)) {
            const ValueKind kind = graph().kind(pair);
            if (kind != ValueKind::list && kind != ValueKind::tuple) return kNoNode;
            const auto both = graph().items(pair);
            if (both.size() != 2) return kNoNode;
            copy.push_back(both[0]);
            copy.push_back(both[1]);
        }
        if (!mayCopy(copy.size()) || !checkKeys(copy, 2)) return kNoNode;
        return filledObject(callable, arguments, copy);
    }
    NodeId filledObject(NodeId callable, NodeId arguments, std::span<const NodeId> pairs) {
        ValueObject object;
        object.callable = callable;
        object.arguments = pairs.empty() ? arguments : graph().addContainer(ValueKind::tuple);
        object.pairs = graph().addContainer(ValueKind::dict, pairs);
        return graph().addObject(object);
    }

    // getattr(module.name, "attribute") names a global as well, of which GLOBAL only shows the start.
    void noteAttribute(NodeId callable, NodeId arguments, NodeId made) {
        const ValueGraph& g = graph();
        if (g.kind(callable) != ValueKind::global || g.globalModule(callable) != "builtins" ||
            g.globalName(callable) != "getattr")
            return;
        const std::span<const NodeId> args = g.items(arguments);
        if (args.size() < 2 || g.kind(args[1]) != ValueKind::text) return;
        std::string full;
        if (g.kind(args[0]) == ValueKind::global) {
            full = fmt::format("{}.{}", g.globalModule(args[0]), g.globalName(args[0]));
        } else if (const auto inner = attributes_.find(args[0]); inner != attributes_.end()) {
            full = inner->second;
        } else {
            return;
        }
        full += fmt::format(".{}", g.text(args[1]));
        constexpr size_t kMaxName = 256;
        if (full.size() > kMaxName) return;
        attributes_.emplace(made, full);
        if (seen_.insert(full).second) result_.globals.push_back(std::move(full));
    }

    bool reduce() {
        if (!need(2)) return false;
        const NodeId arguments = pop();
        const NodeId callable = pop();
        if (!checkCallable(callable) || !checkTuple(arguments, "the arguments")) return false;
        if (const NodeId plain = plainData(callable, arguments); plain != kNoNode) return push(plain);
        if (!error_.message.empty()) return false;
        ValueObject object;
        object.callable = callable;
        object.arguments = arguments;
        const NodeId made = graph().addObject(object);
        noteAttribute(callable, arguments, made);
        return push(made);
    }
    bool newObject(bool withKeywords) {
        if (!need(withKeywords ? 3 : 2)) return false;
        ValueObject object;
        object.made = withKeywords ? ValueObject::Made::newObjectWithKeywords : ValueObject::Made::newObject;
        if (withKeywords) object.keywords = pop();
        object.arguments = pop();
        object.callable = pop();
        if (!checkCallable(object.callable) || !checkTuple(object.arguments, "the arguments")) return false;
        if (withKeywords && graph().kind(object.keywords) != ValueKind::dict)
            return fail("the keywords are no dict");
        return push(graph().addObject(object));
    }
    bool instance(NodeId callable, size_t begin) {
        ValueObject object;
        object.made = ValueObject::Made::instance;
        object.callable = callable;
        object.arguments = graph().addContainer(ValueKind::tuple, from(begin));
        stack_.resize(begin);
        return push(graph().addObject(object));
    }
    bool build() {
        if (!need(2)) return false;
        const NodeId state = pop();
        const NodeId target = stack_.back();
        if (graph().kind(target) != ValueKind::object) {
            return fail(fmt::format("{} is given a state", kindWord(graph().kind(target))));
        }
        graph().object(target).state = state;
        return true;
    }

    // --- containers
    bool checkKeys(std::span<const NodeId> items, size_t step) {
        for (size_t i = 0; i < items.size(); i += step) {
            const ValueKind kind = graph().kind(items[i]);
            if (kind == ValueKind::list || kind == ValueKind::dict || kind == ValueKind::set ||
                kind == ValueKind::byteArray) {
                return fail(fmt::format("{} cannot be a key or a member of a set", kindWord(kind)));
            }
        }
        return true;
    }
    bool appendItems(NodeId target, std::span<const NodeId> items) {
        switch (graph().kind(target)) {
            case ValueKind::list:
                graph().append(target, items);
                return true;
            case ValueKind::object:
                graph().appendToObject(target, items);
                return true;
            default:
                return fail(fmt::format("items are appended to {}", kindWord(graph().kind(target))));
        }
    }
    bool setItems(NodeId target, std::span<const NodeId> items) {
        if (items.size() % 2) return fail("a key without a value");
        if (!checkKeys(items, 2)) return false;
        switch (graph().kind(target)) {
            case ValueKind::dict:
                graph().append(target, items);
                return true;
            case ValueKind::object:
                graph().setInObject(target, items);
                return true;
            default:
                return fail(fmt::format("items are set in {}", kindWord(graph().kind(target))));
        }
    }
    bool addItems(NodeId target, std::span<const NodeId> items) {
        if (!checkKeys(items, 1)) return false;
        switch (graph().kind(target)) {
            case ValueKind::set:
                graph().append(target, items);
                return true;
            case ValueKind::object:
                graph().appendToObject(target, items);
                return true;
            default:
                return fail(fmt::format("items are added to {}", kindWord(graph().kind(target))));
        }
    }
    // Items from the last MARK on go into what lies below it.
    template <class Into>
    bool into(Into&& put) {
        size_t begin = 0;
        if (!popMark(begin)) return false;
        if (begin <= floor()) return fail("there is no container below the MARK");
        if (!put(stack_[begin - 1], from(begin))) return false;
        stack_.resize(begin);
        return true;
    }
    bool tupleOf(size_t count) {
        if (!need(count)) return false;
        const size_t begin = stack_.size() - count;
        const NodeId node = graph().addContainer(ValueKind::tuple, from(begin));
        stack_.resize(begin);
        return push(node);
    }
    bool containerFromMark(ValueKind kind) {
        size_t begin = 0;
        if (!popMark(begin)) return false;
        if (kind == ValueKind::dict) {
            if ((stack_.size() - begin) % 2) return fail("a key without a value");
            if (!checkKeys(from(begin), 2)) return false;
        }
        if (kind == ValueKind::frozenSet && !checkKeys(from(begin), 1)) return false;
        const NodeId node = graph().addContainer(kind, from(begin));
        stack_.resize(begin);
        return push(node);
    }

    bool step() {
        ValueGraph& g = graph();
        switch (op_.code) {
            case PickleOpcode::proto:
                if (op_.offset != 0) return fail("it stands only at the start of a pickle");
                if (op_.number > 5)
                    return failUnsupported(fmt::format("protocol {} is newer than 5", op_.number));
                result_.protocol = static_cast<int>(op_.number);
                return true;
            case PickleOpcode::stop:
                if (!marks_.empty()) return fail("a MARK is left on the stack");
                if (stack_.size() != 1)
                    return fail(fmt::format("{} values are left on the stack instead of one", stack_.size()));
                result_.root = stack_.back();
                done_ = true;
                return true;
            case PickleOpcode::mark:
                marks_.push_back(stack_.size());
                return true;
            case PickleOpcode::pop:
                if (!marks_.empty() && marks_.back() == stack_.size()) {
                    marks_.pop_back();
                    return true;
                }
                if (!need(1)) return false;
                stack_.pop_back();
                return true;
            case PickleOpcode::popMark: {
                size_t begin = 0;
                if (!popMark(begin)) return false;
                stack_.resize(begin);
                return true;
            }
            case PickleOpcode::dup:
                return need(1) && push(stack_.back());

            case PickleOpcode::none:
                return push(g.addNone());
            case PickleOpcode::newTrue:
                return push(g.addBoolean(true));
            case PickleOpcode::newFalse:
                return push(g.addBoolean(false));
            case PickleOpcode::binInt:
            case PickleOpcode::binInt1:
            case PickleOpcode::binInt2:
                return push(g.addInteger(static_cast<int64_t>(op_.number)));
            case PickleOpcode::intText:
                if (op_.text == "00" || op_.text == "01") return push(g.addBoolean(op_.text[1] == '1'));
                return integerText(op_.text);
            case PickleOpcode::longText:
                if (op_.text.ends_with('L')) op_.text.remove_suffix(1);
                return integerText(op_.text);
            case PickleOpcode::long1:
            case PickleOpcode::long4:
                return longBytes(op_.text);
            case PickleOpcode::binFloat:
                return push(g.addReal(op_.real));
            case PickleOpcode::floatText: {
                double value = 0;
                std::string_view digits = op_.text;
                if (digits.starts_with('+')) digits.remove_prefix(1);
                const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), value);
                if (parsed.ptr != digits.data() + digits.size() || digits.empty() ||
                    parsed.ec == std::errc::invalid_argument) {
                    return fail(fmt::format("'{}' is no number", pickle_text::printable(op_.text)));
                }
                return push(g.addReal(value));
            }
            case PickleOpcode::binUnicode:
            case PickleOpcode::shortBinUnicode:
            case PickleOpcode::binUnicode8:
                return utf8(op_.text);
            case PickleOpcode::binString:
            case PickleOpcode::shortBinString:
                return byteString(op_.text);
            case PickleOpcode::binBytes:
            case PickleOpcode::shortBinBytes:
            case PickleOpcode::binBytes8:
                return text(ValueKind::bytes, op_.text);
            case PickleOpcode::byteArray8:
                return text(ValueKind::byteArray, op_.text);
            case PickleOpcode::unicode: {
                std::string decoded;
                if (!pickle_text::decodeRawUnicodeEscape(op_.text, decoded))
                    return fail("a malformed \\u escape");
                return text(ValueKind::text, decoded);
            }
            case PickleOpcode::string: {
                std::string decoded;
                if (!pickle_text::decodeQuoted(op_.text, decoded))
                    return fail("the string is not quoted as it should be");
                return byteString(decoded);
            }

            case PickleOpcode::emptyList:
                return push(g.addContainer(ValueKind::list));
            case PickleOpcode::emptyDict:
                return push(g.addContainer(ValueKind::dict));
            case PickleOpcode::emptyTuple:
                return push(g.addContainer(ValueKind::tuple));
            case PickleOpcode::emptySet:
                return push(g.addContainer(ValueKind::set));
            case PickleOpcode::tuple1:
                return tupleOf(1);
            case PickleOpcode::tuple2:
                return tupleOf(2);
            case PickleOpcode::tuple3:
                return tupleOf(3);
            case PickleOpcode::tuple:
                return containerFromMark(ValueKind::tuple);
            case PickleOpcode::list:
                return containerFromMark(ValueKind::list);
            case PickleOpcode::dict:
                return containerFromMark(ValueKind::dict);
            case PickleOpcode::frozenSet:
                return containerFromMark(ValueKind::frozenSet);
            case PickleOpcode::append: {
                if (!need(2)) return false;
                const NodeId item = pop();
                return appendItems(stack_.back(), {&item, 1});
            }
            case PickleOpcode::appends:
                return into([&](NodeId t, auto items) { return appendItems(t, items); });
            case PickleOpcode::setItem: {
                if (!need(3)) return false;
                const NodeId pair[] = {stack_[stack_.size() - 2], stack_.back()};
                stack_.resize(stack_.size() - 2);
                return setItems(stack_.back(), pair);
            }
            case PickleOpcode::setItems:
                return into([&](NodeId t, auto items) { return setItems(t, items); });
            case PickleOpcode::addItems:
                return into([&](NodeId t, auto items) { return addItems(t, items); });

            case PickleOpcode::get:
            case PickleOpcode::put: {
                uint64_t index = 0;
                if (!textIndex(index)) return false;
                if (op_.code == PickleOpcode::get) return recall(index);
                if (!need(1)) return false;
                remember(index, stack_.back());
                return true;
            }
            case PickleOpcode::binGet:
            case PickleOpcode::longBinGet:
                return recall(op_.number);
            case PickleOpcode::binPut:
            case PickleOpcode::longBinPut:
                if (!need(1)) return false;
                remember(op_.number, stack_.back());
                return true;
            case PickleOpcode::memoize:
                if (!need(1)) return false;
                remember(memoCount_, stack_.back());
                return true;

            case PickleOpcode::global:
                return global(op_.text, op_.text2);
            case PickleOpcode::stackGlobal:
                return stackGlobal();
            case PickleOpcode::reduce:
                return reduce();
            case PickleOpcode::newObj:
                return newObject(false);
            case PickleOpcode::newObjEx:
                return newObject(true);
            case PickleOpcode::inst: {
                size_t begin = 0;
                if (!popMark(begin)) return false;
                if (!global(op_.text, op_.text2)) return false;
                return instance(pop(), begin);
            }
            case PickleOpcode::obj: {
                size_t begin = 0;
                if (!popMark(begin)) return false;
                if (stack_.size() <= begin) return fail("there is no class above the MARK");
                const NodeId callable = stack_[begin];
                if (!checkCallable(callable)) return false;
                stack_.erase(stack_.begin() + static_cast<ptrdiff_t>(begin));
                return instance(callable, begin);
            }
            case PickleOpcode::build:
                return build();
            case PickleOpcode::persId: {
                if (!pickle_text::isUtf8(op_.text)) return fail("the persistent id is not text");
                const NodeId id = g.addText(ValueKind::text, op_.text);
                return push(g.addContainer(ValueKind::persistent, {id}));
            }
            case PickleOpcode::binPersId: {
                if (!need(1)) return false;
                const NodeId id = pop();
                return push(g.addContainer(ValueKind::persistent, {id}));
            }

            case PickleOpcode::ext1:
            case PickleOpcode::ext2:
            case PickleOpcode::ext4:
                return failUnsupported("the extension registry of another program is not known here");
            case PickleOpcode::nextBuffer:
            case PickleOpcode::readonlyBuffer:
                return failUnsupported("out-of-band buffers are not part of a file");
            case PickleOpcode::frame:
                return true;
        }
        error_ = damaged(fmt::format("byte 0x{:02x} is no pickle opcode", static_cast<unsigned>(op_.code)),
                         op_.offset);
        return false;
    }

    // The longest path down from the root, cycles left out.
    bool checkDepth() {
        const ValueGraph& g = result_.graph;
        constexpr uint16_t kInProgress = UINT16_MAX;
        std::vector<uint16_t> height(g.size(),
                                     0);  // 0 = not visited, else levels below and including the node
        struct Frame {
            NodeId node;
            uint32_t next;
            uint16_t tallest;
        };
        std::vector<Frame> path;
        const auto childOf = [&](NodeId node, uint32_t i) -> NodeId {
            if (g.kind(node) != ValueKind::object) {
                const auto items = g.items(node);
                return i < items.size() ? items[i] : kNoNode;
            }
            const ValueObject& o = g.object(node);
            const NodeId parts[] = {o.callable, o.arguments, o.keywords, o.state, o.appended, o.pairs};
            // A missing part is given as the node itself, which is in progress and therefore skipped.
            return i < 6 ? (parts[i] == kNoNode ? node : parts[i]) : kNoNode;
        };
        const auto isLeaf = [&](NodeId node) {
            const ValueKind kind = g.kind(node);
            return kind < ValueKind::list || kind == ValueKind::global;
        };
        if (isLeaf(result_.root)) return true;
        path.push_back({result_.root, 0, 0});
        height[result_.root] = kInProgress;
        while (!path.empty()) {
            Frame& frame = path.back();
            const NodeId child = childOf(frame.node, frame.next);
            if (child == kNoNode) {
                const auto own = static_cast<uint16_t>(frame.tallest + 1);
                height[frame.node] = own;
                path.pop_back();
                if (!path.empty()) path.back().tallest = std::max(path.back().tallest, own);
                continue;
            }
            ++frame.next;
            if (isLeaf(child) || height[child] == kInProgress) continue;
            const size_t below = height[child] ? height[child] : 1;
            if (path.size() + below > static_cast<size_t>(std::min(maxDepth_, 60'000))) {
                error_ = makeError(
                    ErrorCode::limit,
                    fmt::format("values are nested deeper than the {} levels that are read", maxDepth_));
                return false;
            }
            if (height[child]) {
                frame.tallest = std::max(frame.tallest, height[child]);
                continue;
            }
            height[child] = kInProgress;
            path.push_back({child, 0, 0});
        }
        return true;
    }

    PickleLexer lexer_;
    PickleOp op_;
    uint64_t streamSize_;
    uint64_t maxNodes_;
    uint64_t maxMemory_;
    uint64_t steps_ = 0;
    int maxDepth_;
    Pickle result_;
    Error error_;
    std::vector<NodeId> stack_;
    std::vector<size_t> marks_;
    std::vector<NodeId> dense_;
    std::unordered_map<uint64_t, NodeId> sparse_;
    uint64_t memoCount_ = 0;
    uint64_t opcodes_ = 0;
    uint64_t copied_ = 0;
    std::unordered_set<std::string> seen_;
    std::unordered_map<NodeId, std::string> attributes_;  // what calls of getattr name
    bool done_ = false;
};

}  // namespace

Result<Pickle> decodePickle(std::span<const std::byte> bytes, const PickleLimits& limits) {
    return Decoder(bytes, limits).run();
}

}  // namespace shardscope
