// The graph of inert values: the handler of pickle_machine.h for pickles of any kind.
#include <algorithm>
#include <random>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include <fmt/format.h>

#include "base/numbers.h"
#include "base/option_words.h"
#include "base/rule.h"
#include "base/units.h"
#include "encoding/pickle.h"
#include "encoding/pickle_machine.h"
#include "encoding/pickle_outline.h"
#include "encoding/pickle_text.h"

namespace shardscope {

namespace {

constexpr uint64_t kMaxNodes = uint64_t{256} << 20;
constexpr uint64_t kBytesPayload = 256;  // shorter values are read
constexpr uint64_t kTextPayload = 4096;

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

class GraphHandler {
  public:
    using Value = NodeId;
    static constexpr NodeId kUnset = kNoNode;
    static bool isUnset(NodeId node) { return node == kNoNode; }

    // `outlineBytes`: large values stay in the source, of which this much may be read otherwise; 0: all are
    // read.
    GraphHandler(const PickleLimits& limits, uint64_t outlineBytes)
        : limits_(limits), outlineBytes_(outlineBytes) {}

    // The graph below `root`, when the machine has stopped. False: see the stream's error.
    template <class Machine>
    bool finish(const Machine& machine, PickleOutline& out) {
        if (!withinLimits(machine.memoryBytes()) || !checkDepth(machine.root())) return false;
        // Where what getattr gives is named, getattr says nothing more.
        if (!attributes_.empty() && attributeCalls_ == 0) std::erase(globals_, "builtins.getattr");
        out.pickle = {std::move(graph_), machine.root(), static_cast<size_t>(machine.end() - machine.start()),
                      machine.protocol(), std::move(globals_)};
        out.payloads = std::move(payloads_);
        return true;
    }

    // --- for the machine
    void begin(PickleStream& in) {
        in_ = &in;
        maxNodes_ = limits_.nodes ? std::min<uint64_t>(limits_.nodes, kNoNode - 1)
                                  : std::min<uint64_t>(4 * (in.sourceSize() + 16), kMaxNodes);
    }
    bool withinLimits(uint64_t machineBytes) {
        if (graph_.size() > maxNodes_)
            return in_->failLimit(fmt::format("the pickle makes more than {}", counted(maxNodes_, "value")));
        if (outlineBytes_ && in_->end() - in_->start() > outlineBytes_ + payloadBytes_)
            return in_->failLimit(fmt::format("the pickle has more than {} besides its arrays",
                                              counted(outlineBytes_, "byte")));
        if (graph_.memoryBytes() + machineBytes <= limits_.memory) return true;
        return in_->failLimit(
            fmt::format("the values of the pickle need more than the {} MiB of memory that they may take",
                        countText(limits_.memory >> 20)),
            fmt::format("raise {}: half of it is for such values", option("memory")));
    }
    void memoized(NodeId) {}

    NodeId none() { return graph_.addNone(); }
    NodeId boolean(bool value) { return graph_.addBoolean(value); }
    NodeId integer(int64_t value) { return graph_.addInteger(value); }
    NodeId bigInteger(std::string_view bytes) { return graph_.addText(ValueKind::bigInteger, bytes); }
    NodeId real(double value) { return graph_.addReal(value); }
    NodeId persistent(NodeId id) { return graph_.addContainer(ValueKind::persistent, {id}); }
    bool text(PickleText kind, std::string_view bytes, NodeId& made) {
        const bool isUtf8 = kind < PickleText::bytes && pickle_text::isUtf8(bytes);
        if (kind == PickleText::utf8 && !isUtf8) return in_->fail("the text is not UTF-8");
        // A Python 2 str: text where it is UTF-8, as torch.load decodes it.
        made = graph_.addText(isUtf8                          ? ValueKind::text
                              : kind == PickleText::byteArray ? ValueKind::byteArray
                                                              : ValueKind::bytes,
                              bytes);
        return true;
    }
    bool isPayload(PickleText kind, uint64_t length) const {
        return outlineBytes_ && length >= (kind == PickleText::utf8 ? kTextPayload : kBytesPayload);
    }
    NodeId payload(PickleText kind, uint64_t offset, uint64_t length) {
        const std::string name = placeholder() + std::to_string(payloads_.size());
        payloads_.push_back({offset, length, kind == PickleText::utf8});
        payloadBytes_ += length;
        return graph_.addText(kind == PickleText::utf8        ? ValueKind::text
                              : kind == PickleText::byteArray ? ValueKind::byteArray
                                                              : ValueKind::bytes,
                              name);
    }

    bool global(std::string_view module, std::string_view name, NodeId& made) {
        if (module.empty() || name.empty()) return in_->fail("an empty module or name");
        for (std::string_view part : {module, name}) {
            if (!pickle_text::isUtf8(part) || part.find_first_of(std::string_view("\0\n", 2)) != part.npos)
                return in_->fail(fmt::format("'{}' is not a name", printable(part, kNameInMessage)));
            if (part.size() > 4096)
                return in_->failLimit(fmt::format("a name of {}", counted(part.size(), "byte")));
        }
        const auto [module3, name3] = pickle_text::python3Name(module, name);
        made = graph_.addGlobal(module3, name3);
        noteGlobal(fmt::format("{}.{}", module3, name3));
        return true;
    }
    bool stackGlobal(NodeId module, NodeId name, NodeId& made) {
        if (graph_.kind(name) != ValueKind::text || graph_.kind(module) != ValueKind::text)
            return global(pickle_text::kDynamicName, pickle_text::kDynamicName, made);
        // Copies: a new node may move the texts.
        return global(std::string(graph_.text(module)), std::string(graph_.text(name)), made);
    }

    bool container(PickleContainer kind, std::span<const NodeId> items, NodeId& made) {
        constexpr ValueKind kinds[] = {ValueKind::list, ValueKind::tuple, ValueKind::set,
                                       ValueKind::frozenSet, ValueKind::dict};
        if (kind >= PickleContainer::set && !checkKeys(items, kind == PickleContainer::dict ? 2 : 1))
            return false;
        made = graph_.addContainer(kinds[static_cast<size_t>(kind)], items);
        return true;
    }
    bool append(NodeId target, std::span<const NodeId> items) { return fill(target, ValueKind::list, items); }
    bool addToSet(NodeId target, std::span<const NodeId> items) {
        return checkKeys(items, 1) && fill(target, ValueKind::set, items);
    }
    bool setItems(NodeId target, std::span<const NodeId> pairs) {
        return checkKeys(pairs, 2) && fill(target, ValueKind::dict, pairs);
    }

    bool reduce(NodeId callable, NodeId arguments, NodeId& made) {
        if (!checkCallable(callable) || !checkArguments(arguments)) return false;
        made = plainData(callable, arguments);
        if (made != kNoNode || in_->failed()) return !in_->failed();
        ValueObject object;
        object.callable = callable;
        object.arguments = arguments;
        made = graph_.addObject(object);
        noteAttribute(callable, arguments, made);
        return true;
    }
    bool newObject(NodeId cls, NodeId arguments, const NodeId* keywords, NodeId& made) {
        ValueObject object;
        object.made = keywords ? ValueObject::Made::newObjectWithKeywords : ValueObject::Made::newObject;
        if (keywords) object.keywords = *keywords;
        object.arguments = arguments;
        object.callable = cls;
        if (!checkCallable(cls) || !checkArguments(arguments)) return false;
        if (isGetAttribute(cls)) ++attributeCalls_;
        if (keywords && graph_.kind(*keywords) != ValueKind::dict)
            return in_->fail("the keywords are not a dict");
        made = graph_.addObject(object);
        return true;
    }
    bool instance(NodeId cls, std::span<const NodeId> arguments, NodeId& made) {
        if (!checkCallable(cls)) return false;
        if (isGetAttribute(cls)) ++attributeCalls_;
        ValueObject object;
        object.made = ValueObject::Made::instance;
        object.callable = cls;
        object.arguments = graph_.addContainer(ValueKind::tuple, arguments);
        made = graph_.addObject(object);
        return true;
    }
    bool build(NodeId object, NodeId state) {
        if (graph_.kind(object) != ValueKind::object)
            return in_->fail(fmt::format("{} is given a state", kindWord(graph_.kind(object))));
        graph_.object(object).state = state;
        return true;
    }

  private:
    static std::string_view kindWord(ValueKind kind) {
        constexpr std::string_view words[] = {"None",    "a bool",   "an int",    "an int",
                                              "a float", "a str",    "bytes",     "a bytearray",
                                              "a list",  "a tuple",  "a set",     "a frozenset",
                                              "a dict",  "a global", "an object", "a persistent id"};
        return words[static_cast<size_t>(kind)];
    }

    // Copies that the stream asks for (bytes from text, sets from lists) may not grow past its own size many
    // times over.
    bool mayCopy(uint64_t bytes) {
        copied_ += bytes;
        if (copied_ <= 4 * in_->sourceSize() + 4096) return true;
        return in_->failLimit("the pickle repeats a large value too often");
    }

    void noteGlobal(std::string name) {
        if (seen_.insert(name).second) globals_.push_back(std::move(name));
    }
    bool checkCallable(NodeId callable) {
        const ValueKind kind = graph_.kind(callable);
        if (kind == ValueKind::global || kind == ValueKind::object || kind == ValueKind::persistent)
            return true;
        return in_->fail(fmt::format("{} is called", kindWord(kind)));
    }
    bool checkArguments(NodeId node) {
        if (graph_.kind(node) == ValueKind::tuple) return true;
        return in_->fail(
            fmt::format("{} where the arguments should be a tuple", kindWord(graph_.kind(node))));
    }
    bool checkKeys(std::span<const NodeId> items, size_t step) {
        for (size_t i = 0; i < items.size(); i += step) {
            const ValueKind kind = graph_.kind(items[i]);
            if (kind == ValueKind::list || kind == ValueKind::dict || kind == ValueKind::set ||
                kind == ValueKind::byteArray) {
                return in_->fail(fmt::format("{} cannot be a key or a member of a set", kindWord(kind)));
            }
        }
        return true;
    }
    bool fill(NodeId target, ValueKind kind, std::span<const NodeId> items) {
        if (graph_.kind(target) == kind)
            graph_.append(target, items);
        else if (graph_.kind(target) != ValueKind::object)
            return in_->fail(fmt::format("items are added to {}", kindWord(graph_.kind(target))));
        else if (kind == ValueKind::dict)
            graph_.setInObject(target, items);
        else
            graph_.appendToObject(target, items);
        return true;
    }

    // Calls that only spell plain data become that data; kNoNode for all others.
    NodeId plainData(NodeId callable, NodeId arguments) {
        if (graph_.kind(callable) != ValueKind::global) return kNoNode;
        const std::string_view module = graph_.globalModule(callable);
        const std::string_view name = graph_.globalName(callable);
        const std::span<const NodeId> args = graph_.items(arguments);
        if (module == "_codecs" && name == "encode" && args.size() == 2 &&
            graph_.kind(args[0]) == ValueKind::text &&
            (graph_.isText(args[1], "latin1") || graph_.isText(args[1], "latin-1"))) {
            std::string bytes;
            const std::string_view text = graph_.text(args[0]);
            if (!pickle_text::toLatin1(text, bytes)) return kNoNode;
            if (!mayCopy(text.size())) return kNoNode;
            return graph_.addText(ValueKind::bytes, bytes);
        }
        if (module == "collections" && name == "Counter" && args.size() == 1 &&
            graph_.kind(args[0]) == ValueKind::dict) {
            return callWithPairs(callable, arguments, args[0]);
        }
        if (module == "collections" && name == "OrderedDict" && args.size() == 1 &&
            graph_.kind(args[0]) == ValueKind::list) {
            return callWithListOfPairs(callable, arguments, args[0]);
        }
        if (module != "builtins") return kNoNode;
        if (name == "bytes" && args.empty()) return graph_.addText(ValueKind::bytes, {});
        if (name == "bytearray" && args.empty()) return graph_.addText(ValueKind::byteArray, {});
        if (name == "bytearray" && args.size() == 1 && graph_.kind(args[0]) == ValueKind::bytes) {
            const std::string bytes(graph_.text(args[0]));
            if (!mayCopy(bytes.size())) return kNoNode;
            return graph_.addText(ValueKind::byteArray, bytes);
        }
        if (name == "bytearray" && args.size() == 2 && graph_.kind(args[0]) == ValueKind::text &&
            (graph_.isText(args[1], "latin-1") || graph_.isText(args[1], "latin1"))) {
            std::string bytes;
            if (!pickle_text::toLatin1(graph_.text(args[0]), bytes) || !mayCopy(bytes.size())) return kNoNode;
            return graph_.addText(ValueKind::byteArray, bytes);
        }
        if ((name == "set" || name == "frozenset") && args.size() <= 1) {
            const ValueKind kind = name == "set" ? ValueKind::set : ValueKind::frozenSet;
            if (args.empty()) return graph_.addContainer(kind);
            const ValueKind source = graph_.kind(args[0]);
            if (source != ValueKind::list && source != ValueKind::tuple) return kNoNode;
            const auto items = graph_.items(args[0]);
            if (!mayCopy(items.size()) || !checkKeys(items, 1)) return kNoNode;
            const std::vector<NodeId> copy(items.begin(), items.end());
            return graph_.addContainer(kind, copy);
        }
        return kNoNode;
    }
    NodeId callWithPairs(NodeId callable, NodeId arguments, NodeId dict) {
        const auto items = graph_.items(dict);
        if (!mayCopy(items.size())) return kNoNode;
        const std::vector<NodeId> copy(items.begin(), items.end());
        return filledObject(callable, arguments, copy);
    }
    // OrderedDict([[key, value], ...]), as Python 2 wrote it.
    NodeId callWithListOfPairs(NodeId callable, NodeId arguments, NodeId list) {
        std::vector<NodeId> copy;
        for (NodeId pair : graph_.items(list)) {
            const ValueKind kind = graph_.kind(pair);
            if (kind != ValueKind::list && kind != ValueKind::tuple) return kNoNode;
            const auto both = graph_.items(pair);
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
        object.arguments = pairs.empty() ? arguments : graph_.addContainer(ValueKind::tuple);
        object.pairs = graph_.addContainer(ValueKind::dict, pairs);
        return graph_.addObject(object);
    }

    bool isGetAttribute(NodeId callable) const {
        return graph_.kind(callable) == ValueKind::global && graph_.globalModule(callable) == "builtins" &&
               graph_.globalName(callable) == "getattr";
    }

    // getattr(module.name, "attribute") names a global as well, of which GLOBAL only shows the start.
    void noteAttribute(NodeId callable, NodeId arguments, NodeId made) {
        const ValueGraph& g = graph_;
        if (!isGetAttribute(callable)) return;
        ++attributeCalls_;
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
        --attributeCalls_;
        attributes_.emplace(made, full);
        noteGlobal(std::move(full));
    }

    // The longest path down from the root, cycles left out.
    bool checkDepth(NodeId root) {
        const ValueGraph& g = graph_;
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
        if (isLeaf(root)) return true;
        path.push_back({root, 0, 0});
        height[root] = kInProgress;
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
            if (path.size() + below > static_cast<size_t>(std::min(limits_.depth, 60'000))) {
                return in_->failLimit(fmt::format("values are nested deeper than the {} that are read",
                                                  counted(limits_.depth, "level")));
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

    const PickleLimits limits_;
    const uint64_t outlineBytes_;
    uint64_t maxNodes_ = 0;
    PickleStream* in_ = nullptr;
    ValueGraph graph_;
    std::vector<PicklePayload> payloads_;
    uint64_t payloadBytes_ = 0;
    uint64_t copied_ = 0;
    std::vector<std::string> globals_;
    std::unordered_set<std::string> seen_;
    std::unordered_map<NodeId, std::string> attributes_;  // what calls of getattr name
    size_t attributeCalls_ = 0;                           // those that name nothing known
};

}  // namespace

Result<Pickle> decodePickle(std::span<const std::byte> bytes, const PickleLimits& limits) {
    GraphHandler handler(limits, 0);
    PickleMachine machine(handler, PickleWindow(bytes), 0, std::min<uint64_t>(limits.textBytes, UINT32_MAX),
                          limits.memory, nullptr);
    PickleOutline out;
    if (!machine.run() || !handler.finish(machine, out)) return machine.takeError();
    return std::move(out.pickle);
}

bool PickleOutline::isPlaceholder(std::string_view text) {
    return text.starts_with(placeholder());
}

const PicklePayload* PickleOutline::payloadOf(NodeId node) const {
    if (node == kNoNode) return nullptr;
    const ValueKind kind = pickle.graph.kind(node);
    if (kind != ValueKind::bytes && kind != ValueKind::byteArray && kind != ValueKind::text) return nullptr;
    std::string_view text = pickle.graph.text(node);
    if (!isPlaceholder(text)) return nullptr;
    text.remove_prefix(placeholder().size());
    const auto index = parseNumber<size_t>(text);
    return index && *index < payloads.size() ? &payloads[*index] : nullptr;
}

Result<PickleOutline> outlinePickle(const ReadFile& file, uint64_t offset, const OutlineLimits& limits,
                                    const StopToken& stop) {
    if (offset >= file.size()) {
        return damaged(file.size() == 0 ? "the file is empty" : "the file ends before the pickle", offset)
            .byRule(rule::fileTruncated)
            .inFile(file.path());
    }
    const PickleLimits pickleLimits;
    GraphHandler handler(pickleLimits, limits.outlineBytes);
    PickleMachine machine(handler, PickleWindow(file, stop), offset, pickleLimits.textBytes,
                          pickleLimits.memory, nullptr);
    PickleOutline out;
    if (machine.run() && handler.finish(machine, out)) return out;
    Error error = machine.takeError().inFile(file.path());
    if (!machine.truncated()) return error;
    return std::move(error)
        .byRule(rule::fileTruncated)
        .withHint("the file was probably not written or copied completely");
}

}  // namespace shardscope
